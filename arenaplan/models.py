"""Planning in one call, from every form of a model."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

from arenaplan.builder import Model
from service.cli.models import read_model_file
from solver import documents
from solver.errors import DocumentError, OptionsError
from solver.pipeline import BlockProgram, TrainableGraph, plan_program
from solver.pipeline import plan as plan_graph
from solver.plan import Plan, PlanOptions

__all__ = ["HasGraph", "HasProgram", "Loaded", "Plannable", "load", "plan"]


@runtime_checkable
class HasGraph(Protocol):
    """An object with a graph: a model of a `Tape`, or what `arenaplan.torch.graph` captured."""

    @property
    def graph(self) -> TrainableGraph: ...


@runtime_checkable
class HasProgram(Protocol):
    """An object with an explicit program: a step that `arenaplan.torch.program` traced."""

    @property
    def program(self) -> BlockProgram: ...


#: A file, a document as JSON text or as its parsed value, or the graph or program that is read from those.
Plannable = (
    str | os.PathLike[str] | bytes | Mapping[str, Any] | TrainableGraph | BlockProgram | HasGraph | HasProgram
)

#: The contents of a file.
Loaded = TrainableGraph | BlockProgram | Plan

_PLAN = "arenaplan.plan"


def load(path: str | os.PathLike[str], *, batch: int | None = None) -> Loaded:
    """The graph, explicit program or plan of a file; other formats by their suffix, as `plan` of the command
    line reads them.

    `batch` takes the place of a graph's own. Files of weights that a graph names are looked for from the
    folder of its document. Raises OSError where the file cannot be read, ArenaplanError with the place of the
    mistake. Cost: linear in the file.
    """
    place = Path(path)
    if place.suffix.lower() in ("", ".json"):
        return _of_document(documents.parse_json(place.read_bytes()), batch, place.parent)
    return read_model_file(place).read(batch)


def _of_document(value: object, batch: int | None, folder: Path | None = None) -> Loaded:
    """The contents of a parsed document, by the format that it names; its files are found from `folder`."""
    if not isinstance(value, Mapping):
        return documents.load_graph(cast("Mapping[str, Any]", value), batch=batch)  # which says what is wrong
    match value.get("format"):
        case documents.PROGRAM_FORMAT:
            return documents.load_program(value)
        case format_ if format_ == _PLAN:
            return documents.load_plan(value)
    return documents.load_graph(value, batch=batch, folder=folder)


def plan(model: Plannable, options: PlanOptions | None = None, **choices: Any) -> Plan:
    """The plan of one training step: every tensor at its byte of the arena, proved to compute what is asked.

    `model` is a path, a document (text or parsed), a graph, a program, or what holds one. `choices` are the
    options of plans by name, as an options document has them: ``capacity="24 MiB"``, ``target="onert"``;
    they are given like that or together as `options`. Without a deadline the same arguments give the same
    plan, byte for byte. Raises ArenaplanError: a CapacityError where no arena within the capacity was found.
    """
    if options is not None and choices:
        raise TypeError("plan() takes options as a PlanOptions or by name, not both")
    options = options or (documents.load_options(choices) if choices else PlanOptions())
    subject = _subject(model, options.batch)
    if isinstance(subject, BlockProgram):
        return plan_program(subject, options)
    return plan_graph(subject, options)


def _subject(model: Plannable, batch: int | None) -> TrainableGraph | BlockProgram:
    loaded: Loaded
    match model:
        case BlockProgram():
            return model
        case Model():
            return documents.load_graph(model.document, batch=batch) if batch is not None else model.graph
        case TrainableGraph() | HasGraph() if batch is not None:
            raise OptionsError(
                f"A batch of {batch} is asked for, but the shapes of a graph are concrete.",
                remedy="Give the batch where the graph is loaded or captured.",
                path=("batch",),
            )
        case TrainableGraph():
            return model
        case bytes():
            loaded = _of_document(documents.parse_json(model), batch)
        case Mapping():
            loaded = _of_document(model, batch)
        case str() | os.PathLike():
            loaded = load(model, batch=batch)
        case HasGraph():
            return model.graph
        case HasProgram():
            return model.program
        case _:
            raise TypeError(
                f"cannot plan {type(model).__name__}: give a path, a document, a graph or a program"
            )
    if isinstance(loaded, Plan):
        raise DocumentError(
            "The document is a plan already.",
            remedy="Give the graph or the program that it is for.",
            path=("format",),
        )
    return loaded
