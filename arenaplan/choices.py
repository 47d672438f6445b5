"""Options by name, as keyword arguments with types: of plans, and of models of other tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from solver import documents
from solver.errors import OptionsError
from solver.graph import TrainableGraph
from solver.options import IMPORT_OPTIONS, MEASURES, REQUEST_OPTIONS, former_option
from solver.pipeline import BlockProgram
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.requests import Request, Source, handle

__all__ = [
    "ImportChoices",
    "Measure",
    "PlanChoices",
    "planned",
    "requested",
    "shows",
]

F = TypeVar("F", bound=Callable[..., Any])

#: The measures that change no bit.
Measure = Literal["in_place", "sub_ranges", "order", "fit_scratch", "recompute"]


class PlanChoices(TypedDict, total=False):
    """The options of plans; sizes are bytes, or text as "24MiB". docs/reference/options.md explains them."""

    as_written: bool
    only: Sequence[Measure]
    target: Literal["reference", "c", "onert", "nntrainer", "singa", "singa-relu", "program"]
    solver: str
    batch: int | str | Mapping[str, int] | None
    dims: Mapping[str, int | str | Mapping[str, int]] | None
    alignment: int | None
    capacity: int | str | None
    deadline_seconds: float | None
    scratch_budget: int | str
    update: Literal["immediate", "end"]
    parallelism: int
    rewrite: bool
    chunked_head: bool
    tiers: Sequence[str | Mapping[str, Any]]
    memories: Sequence[str | Mapping[str, Any]]
    place: Sequence[str]
    costs: str | Mapping[str, Any] | None
    storage: Literal["float16", "bfloat16"] | None
    frozen_storage: str | None
    tile_bytes: int | str | None
    pins: Mapping[str, int | str] | Sequence[str]
    alignments: Mapping[str, int | str] | Sequence[str]
    reserved: Sequence[str | Mapping[str, Any]]


class ImportChoices(TypedDict, total=False):
    """How a model of another tool is trained, as the options of ``arenaplan plan`` for such models."""

    loss: Literal[
        "cross-entropy",
        "soft-cross-entropy",
        "binary-cross-entropy",
        "kl-divergence",
        "mse",
        "l1",
        "huber",
        "none",
    ]
    output: str
    class_axis: int
    optimizer: str
    learning_rate: float
    micro_batches: int
    trainable: str
    frozen: str
    dim: str | Sequence[str]
    input: str | Sequence[str]
    batch_norm: Literal["train", "frozen"]
    weights: str
    freeze_before: str | Sequence[str]
    keep_outputs: str


def shows(choices: type) -> Callable[[F], F]:
    """Decorator: the signature of a function has each choice as a keyword, for help() and for completion.

    The last parameter of the function must be ``**choices: Unpack[...]``, which type checkers read.
    """
    options = {**IMPORT_OPTIONS, **REQUEST_OPTIONS}
    keywords = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=options[name].default,
            annotation=annotation.__forward_arg__,
        )
        for name, annotation in choices.__annotations__.items()
    ]

    def shown(function: F) -> F:
        signature = inspect.signature(function)
        others = list(signature.parameters.values())[:-1]
        vars(function)["__signature__"] = signature.replace(parameters=[*others, *keywords])
        return function

    return shown


def requested(options: PlanOptions | None, choices: Mapping[str, Any]) -> RequestedOptions:
    """Options by name, or all of them. Raises OptionsError for both, and for a value out of range."""
    if options is None:
        for name in MEASURES:  # each was once a keyword of its own
            if name in choices:
                texts = former_option(name, name, f'only=["{name}"]', 'scratch_budget="64 KiB"')
                raise OptionsError(texts[0], remedy=texts[1], path=(name,))
        return documents.load_options(choices)
    if choices:
        raise OptionsError(
            "Options are passed as a PlanOptions and by name.",
            remedy=f"Pass {', '.join(choices)} in the PlanOptions, or all of them by name.",
        )
    return RequestedOptions(options, automatic=False)


def planned(
    subject: TrainableGraph | BlockProgram, options: PlanOptions | None, choices: Mapping[str, Any]
) -> Plan:
    """The plan of a graph, whose shapes are concrete, or of a program. Raises ArenaplanError."""
    asked = requested(options, choices)
    plan: Plan = handle(Request("plan", {"model": Source(subject)}, asked)).value
    return plan
