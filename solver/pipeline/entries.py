"""Entry points as users name them, ``infer:batch=1``, and the programs that they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast, get_args

from solver.errors import OptionsError
from solver.graph import TrainableGraph, evaluation, inference
from solver.pipeline.deployment import EntryRequest
from solver.plan import RequestedOptions
from solver.plan.deployment import Purpose

if TYPE_CHECKING:
    from solver.training import BlockProgram

__all__ = ["EntrySpec", "Networks", "entry_requests", "entry_subject", "read_entry", "read_tie"]

PURPOSES: Final[tuple[Purpose, ...]] = get_args(Purpose)

#: Networks by name, each read for a batch, or for its own.
Networks = Mapping[str, "Callable[[int | None], TrainableGraph | BlockProgram]"]


@dataclass(frozen=True, slots=True)
class EntrySpec:
    """An entry point as it is asked for. Without a name it is called as its purpose is, behind the name of
    its model where there are several; without a batch it takes that of the options.
    """

    purpose: Purpose
    model: str = ""
    batch: int | None = None
    name: str = ""


def read_entry(text: str) -> EntrySpec:
    """The entry point that a text names: ``train``, ``infer:batch=1,name=camera``, ``encoder.infer``.

    Raises OptionsError for another text.
    """
    head, *words = text.replace(":", ",", 1).split(",")
    model, _, purpose = head.rpartition(".")
    fields = dict(word.partition("=")[::2] for word in words)
    batch = fields.pop("batch", None)
    name = fields.pop("name", "")
    known = purpose in PURPOSES and not fields and "" not in words
    if not known or (batch is not None and not (batch.isdecimal() and int(batch))):
        raise OptionsError(
            f"{text!r:.200} is no entry point.",
            remedy=f"Write one of {', '.join(PURPOSES)}, with a batch or a name if it needs one, as"
            " infer:batch=1,name=camera; of several models its name in front, as encoder.infer.",
            path=("entries",),
        )
    return EntrySpec(cast("Purpose", purpose), model, int(batch) if batch else None, name)


def read_tie(text: str) -> tuple[str, str]:
    """The two sides of a tie, ``a.encoder.*=b.encoder.*``. Raises OptionsError for another text."""
    left, equals, right = text.partition("=")
    if not (left and equals and right) or "=" in right:
        raise OptionsError(
            f"{text!r:.200} ties nothing.",
            remedy="Write two names of persistent values, as a.encoder.*=b.encoder.*.",
            path=("ties",),
        )
    return left, right


def entry_requests(
    networks: Networks, specs: Sequence[EntrySpec], requested: RequestedOptions
) -> list[EntryRequest]:
    """The entry points to plan, each with the graph or program that it runs.

    Without specs each network is one entry point, which is called as it is, for what it can do first: train,
    evaluate, infer. Raises OptionsError for a model that is not there, or that has no such entry point.
    """
    batch = requested.options.batch
    specs = specs or [
        EntrySpec(_first_purpose(read(batch)), model, name=model) for model, read in networks.items()
    ]
    entries = []
    for k, spec in enumerate(specs):
        model = spec.model or (next(iter(networks)) if len(networks) == 1 else "")
        if model not in networks:
            of = f"model {model!r}, which is not there" if model else "no model, and there are several"
            raise OptionsError(
                f"Entry point {spec.purpose!r} is of {of}.",
                remedy=f"Write one of {', '.join(f'{name}.{spec.purpose}' for name in networks)}.",
                path=("entries", k),
            )
        batch = spec.batch or requested.options.batch
        name = spec.name or (spec.purpose if len(networks) == 1 else f"{model}.{spec.purpose}")
        try:
            subject = entry_subject(networks[model](batch), spec.purpose)
        except OptionsError as error:
            error.path = error.path or ("entries", k)
            raise
        entries.append(EntryRequest(name, model, spec.purpose, subject, requested.having(batch=batch)))
    return entries


def entry_subject(network: TrainableGraph | BlockProgram, purpose: Purpose) -> TrainableGraph | BlockProgram:
    """The graph or program that an entry point of this purpose runs.

    Raises OptionsError for a purpose that the network does not have, LossError as `inference` does.
    """
    if not isinstance(network, TrainableGraph):
        if purpose == "run":
            return network
        raise OptionsError(
            f"{network.name!r} is a program of explicit operations: it is run as it is.",
            remedy="Name its entry point run.",
        )
    if purpose == "run":
        raise OptionsError(
            f"{network.name!r} is a graph, which is trained, evaluated, or used to infer.",
            remedy="Name its entry point train, evaluate or infer.",
        )
    if purpose == "train" and not network.trainable:
        raise OptionsError(
            f"Nothing of {network.name!r} is trained.",
            remedy="Name a loss and what is trained, or an entry point infer or evaluate.",
        )
    if purpose == "evaluate":
        return evaluation(network)
    return inference(network) if purpose == "infer" else network


def _first_purpose(network: TrainableGraph | BlockProgram) -> Purpose:
    if not isinstance(network, TrainableGraph):
        return "run"
    return "train" if network.trainable else "infer" if network.loss is None else "evaluate"
