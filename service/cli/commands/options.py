"""Options that several commands have, and groups of options that a command takes as one parameter."""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Final, get_type_hints

import typer

__all__ = [
    "AsJson",
    "ModelChoices",
    "ModelFile",
    "PlanFile",
    "PlanServer",
    "Plot",
    "RuntimeOptions",
    "ScheduleOptions",
    "SearchOptions",
    "Server",
    "StepOptions",
    "document_of",
    "examples",
    "grouped",
    "on_one_thread",
    "read_bytes",
]

_EXIT_CODES: Final = """
Exit codes: 0 done and right; 1 the plan is wrong or training in it differs; 2 bad usage or input;
3 the arena does not fit the capacity or its budget; 4 a bug of ours; 130 interrupted;
143 ended by SIGTERM.
"""


def examples(*lines: str) -> str:
    """The end of a command's help: commands that work as they stand, one a line, then the exit codes."""
    return "\n".join(["\b", "Examples:", *(f"  {line}" for line in lines), "", _EXIT_CODES])


def read_bytes(text: str) -> int:
    """``4096``, ``24MiB``, ``1.5GB``; whole bytes only."""
    from solver.documents import read_size

    try:
        return read_size(text)
    except ValueError as error:
        raise typer.BadParameter(f"{error}.") from None


def on_one_thread() -> None:
    """Let BLAS, which is not loaded yet, use one thread.

    For commands that measure, and for those that multiply no matrices: each further thread would wait busily
    for a product.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


PlanFile = Annotated[Path, typer.Argument(help="Plan document, - for standard input.")]
ModelFile = Annotated[
    Path,
    typer.Argument(
        help="Graph document, - for standard input; or a model: .onnx, .circle, .tflite, or nntrainer's .ini."
    ),
]
Plot = Annotated[Path | None, typer.Option(help="Draw the layout over time, as .svg or .png.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
# Not from ARENAPLAN_SERVER, which clients obey: where a model goes, and who plans it, stands in the command.
Server = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Let this service do it; the key is ARENAPLAN_API_KEY."),
]
PlanServer = Annotated[
    str | None,
    typer.Option(metavar="URL", help="A service; a plan that it keeps can be named by its digest."),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """What a training step is made of; named as in an options document."""

    batch: Annotated[int | None, typer.Option(help="Value of the symbolic batch.")] = None
    scratch_budget: Annotated[
        int | None,
        typer.Option(parser=read_bytes, metavar="SIZE", help="Scratch of one kernel, as 256KiB."),
    ] = None
    update: Annotated[str, typer.Option(help="When gradients are applied: immediate or end.")] = "immediate"
    in_place: Annotated[
        bool, typer.Option("--in-place", help="Operands in the memory of others, where that is safe.")
    ] = False
    sub_ranges: Annotated[
        bool, typer.Option("--sub-ranges", help="In place also what Slice, Split and Concat cut and join.")
    ] = False
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Equivalent operations, where that lowers the peak.")
    ] = False
    fit_scratch: Annotated[
        bool, typer.Option("--fit-scratch", help="Less scratch, where scratch would make the peak.")
    ] = False
    storage: Annotated[
        str | None,
        typer.Option(
            metavar="TYPE",
            help="What activations wait in for the backward pass, rounded: float16 or bfloat16.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeOptions:
    """For what runtime a plan is; named as in an options document."""

    target: Annotated[
        str, typer.Option(help="Whose memory is planned: reference, onert, nntrainer, singa or singa-relu.")
    ] = "reference"
    alignment: Annotated[
        int | None,
        typer.Option(
            help="Bytes; a power of two. 64 at least where steps run again or values are paged.",
        ),
    ] = None
    parallelism: Annotated[
        int | None,
        typer.Option(
            metavar="COUNT", help="Steps that may run at the same time, on one concurrency level; 1 to 64."
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions(RuntimeOptions):
    """And how it is looked for."""

    deadline_seconds: Annotated[
        float | None,
        typer.Option("--deadline", metavar="SECONDS", help="Search no longer than this."),
    ] = None
    costs: Annotated[
        str | None,
        typer.Option(
            metavar="COSTS",
            help="What steps take: roofline (the default), measured (here and now), or a costs document.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOptions:
    """What a plan has to keep, and by which means; named as in an options document."""

    solver: Annotated[str, typer.Option(help="Layout solver.")] = "portfolio"
    capacity: Annotated[
        int | None,
        typer.Option(parser=read_bytes, metavar="SIZE", help="Fail beyond this, as 24MiB."),
    ] = None
    order: Annotated[
        bool, typer.Option("--order", help="Another order of the steps, where it lowers the peak.")
    ] = False
    recompute: Annotated[
        bool, typer.Option("--recompute", help="Steps run again, where the capacity asks for it.")
    ] = False
    tiers: Annotated[
        list[str] | None,
        typer.Option(
            "--tier",
            metavar="TIER",
            help="A memory, as sram=512KiB or flash=1GiB,read=45MB/s,write=20MB/s,latency=100us; repeatable."
            " Kernels run in the first; what does not fit is paged out to the others.",
        ),
    ] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelChoices:
    """How a model of another tool, which holds no training, is trained."""

    loss: Annotated[
        str | None,
        typer.Option(
            metavar="LOSS",
            help="Of a model: cross-entropy, soft-cross-entropy, binary-cross-entropy, kl-divergence, mse, l1"
            " or huber, of its first output. Left out, an output of the model is the loss.",
        ),
    ] = None
    output_name: Annotated[
        str | None, typer.Option(metavar="NAME", help="Of a model: which output the loss is of.")
    ] = None
    class_axis: Annotated[
        int | None,
        typer.Option(metavar="AXIS", help="Of a model: the axis of classes; 1 of images, else the last one."),
    ] = None
    optimizer: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of a model: sgd, adam, adamw, rmsprop, adagrad; or sgd,momentum=0.9."
        ),
    ] = None
    learning_rate: Annotated[float | None, typer.Option(metavar="RATE", help="Of a model's optimizer.")] = (
        None
    )
    trainable: Annotated[
        str | None,
        typer.Option(metavar="SET", help="Of a model: all, last:2 operations, or names as head.*,fc.bias."),
    ] = None
    frozen: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Of a model: names and patterns of weights that are not trained."),
    ] = None
    dim: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=SIZE", help="Of a model: the size of a dimension that it leaves open; repeatable."
        ),
    ] = None
    input: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE",
            help="Of a model: the value of an input in every step, as sr=16000; repeatable.",
        ),
    ] = None
    batch_norm: Annotated[
        str | None,
        typer.Option(metavar="MODE", help="Of a model: train or frozen; left out, as the model says."),
    ] = None
    weights: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE",
            help="First values: reference (they stay in the model's file), none (drawn at random), or a"
            " .safetensors or .npz file that has them by name.",
        ),
    ] = None
    freeze_before: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Of a model: a tensor that becomes an input; what leads to it is not imported. Repeatable.",
        ),
    ] = None
    keep_outputs: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES", help="Of a model: outputs that can be read after a step, as logits,mask; or all."
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """As `solver.importers.options.import_options` names them, without what was left out."""
        found = document_of(self)
        if "output_name" in found:
            found["output"] = found.pop("output_name")
        return found


def document_of(
    *groups: StepOptions | RuntimeOptions | ScheduleOptions | ModelChoices, **others: Any
) -> dict[str, Any]:
    """What is given of groups and of options beside them, by name; None and an empty list are left out."""
    found = {field.name: getattr(group, field.name) for group in groups for field in fields(group)} | others
    return {name: value for name, value in found.items() if value not in (None, [])}


def grouped(command: Callable[..., None]) -> Callable[..., None]:
    """`command` as typer reads it: the fields of each parameter that is a dataclass stand in its place."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, type] = {}
    for name, parameter in inspect.signature(command, eval_str=True).parameters.items():
        group = parameter.annotation
        if not is_dataclass(group):
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        assert isinstance(group, type)
        groups[name] = group
        hints = get_type_hints(group, include_extras=True)
        parameters += [
            inspect.Parameter(
                field.name,
                inspect.Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=hints[field.name],
            )
            for field in fields(group)
        ]

    @functools.wraps(command)
    def flat(**given: Any) -> None:
        made = {
            name: group(**{field.name: given.pop(field.name) for field in fields(group)})
            for name, group in groups.items()
        }
        command(**given, **made)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect, and so typer, reads first
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat
