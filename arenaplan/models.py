"""Files in, plans and verdicts out: each in one call, from every form of a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Protocol, Unpack, cast, runtime_checkable

from arenaplan.builder import Model
from arenaplan.choices import ImportChoices, PlanChoices, has_a_batch, requested, shows
from service.cli.models import read_model_file
from solver import documents, verdict
from solver.arguments import checks_arguments
from solver.errors import ArenaplanError, DocumentError, OptionsError
from solver.exporters import exporter_of_file
from solver.pipeline import (
    BlockProgram,
    TrainableGraph,
    entry_requests,
    free_measures,
    plan_deployment,
    plan_like,
    plan_requested,
)
from solver.pipeline import (
    entry_graphs as graphs_of_entries,
)
from solver.pipeline import plan_at as at_size
from solver.plan import Deployment, Plan, PlanOptions, read_entry, read_tie
from solver.reports.verdict import TradeOff, Verdict
from solver.verdict import ChosenTrainable

__all__ = [
    "HasGraph",
    "HasProgram",
    "Plannable",
    "deploy",
    "entry_graphs",
    "explain",
    "load_graph",
    "load_plan",
    "load_program",
    "plan",
    "plan_at",
    "save",
    "tradeoff",
]


@runtime_checkable
class HasGraph(Protocol):
    """An object with a graph: a model of a `Tape`, or the result of `arenaplan.torch.graph`."""

    @property
    def graph(self) -> TrainableGraph: ...


@runtime_checkable
class HasProgram(Protocol):
    """An object with an explicit program: a step that `arenaplan.torch.program` traced."""

    @property
    def program(self) -> BlockProgram: ...


#: A document is JSON text or its parsed value.
Plannable = Annotated[
    str
    | os.PathLike[str]
    | bytes
    | Mapping[str, Any]
    | TrainableGraph
    | BlockProgram
    | HasGraph
    | HasProgram,
    "a path, a document, a graph, a program, or an object that has a graph or a program",
]


_PLAN = "arenaplan.plan"

#: The types of `Plannable`.
_MODELS = (str, os.PathLike, bytes, Mapping, TrainableGraph, BlockProgram, HasGraph, HasProgram)


@dataclass(frozen=True, slots=True)
class _Read:
    """A model that was read, and the parsed document that it comes from, if it is one."""

    subject: TrainableGraph | BlockProgram | Plan | Deployment
    document: Mapping[str, Any] | None = None


# -------------------------------------------------------------------------------------------- files


@shows(ImportChoices)
@checks_arguments
def load_graph(
    path: str | os.PathLike[str], *, batch: int | None = None, **choices: Unpack[ImportChoices]
) -> TrainableGraph:
    """The graph of a document or of a model of another tool (.onnx, .circle, .tflite).

    `batch` takes the place of a graph's own. `choices` say how a model of another tool is trained:
    ``loss="cross-entropy", optimizer="adam"``. Files of weights that a document names are looked for from
    its folder. Raises OSError if the file cannot be read, ArenaplanError with the place of the mistake.
    Cost: linear in the file.
    """
    subject = _read_file(path, batch, choices).subject
    if isinstance(subject, TrainableGraph):
        return subject
    raise _another_kind(path, subject)


@checks_arguments
def load_program(path: str | os.PathLike[str]) -> BlockProgram:
    """The explicit program of a document. Raises OSError if the file cannot be read, ArenaplanError."""
    subject = _read_file(path, None).subject
    if isinstance(subject, BlockProgram):
        return subject
    raise _another_kind(path, subject)


@checks_arguments
def load_plan(path: str | os.PathLike[str]) -> Plan | Deployment:
    """The plan of a document; a Deployment if it has entry points, whose plans are ``plan["infer"].plan``.

    Raises OSError if the file cannot be read, ArenaplanError.
    """
    subject = _read_file(path, None).subject
    if isinstance(subject, Plan | Deployment):
        return subject
    raise _another_kind(path, subject)


@checks_arguments
def save(plan: Plan | Deployment, path: str | os.PathLike[str]) -> None:
    """Write a plan: its document to a .json file, else what ``arenaplan export`` writes to this name.

    Such names end in .h (a C header), .html (a report), .csv and others. A deployment is written with all its
    entry points. Raises OSError if the file cannot be written, OptionsError for another suffix.
    """
    is_document = os.fspath(path).lower().endswith(".json") and not os.fspath(path).endswith(".trace.json")
    data = _document(plan) if is_document else exporter_of_file(os.fspath(path)).dump(plan)
    Path(path).write_bytes(data)


def _document(plan: Plan | Deployment) -> bytes:
    return documents.dump_deployment(plan) if isinstance(plan, Deployment) else documents.dump_plan(plan)


def _another_kind(path: str | os.PathLike[str], subject: object) -> DocumentError:
    kind = {TrainableGraph: "graph", BlockProgram: "program"}.get(type(subject), "plan")
    return DocumentError(
        f"{os.fspath(path)!r:.200} is a {kind}.",
        remedy=f"Read it by arenaplan.load_{kind}({os.fspath(path)!r:.200}).",
        path=("format",),
    )


def _read_file(
    path: str | os.PathLike[str], batch: int | None, choices: Mapping[str, Any] | None = None
) -> _Read:
    file = read_model_file(Path(path))
    if file.importer is not None or choices:
        return _Read(file.read(batch, choices or {}))
    return _read_document(file.parsed(), batch, file.path.parent)


def _read_document(value: object, batch: int | None, folder: Path | None = None) -> _Read:
    """The contents of a parsed document, by the format that it names; its files are found from `folder`."""
    if not isinstance(value, Mapping):  # the reader of graphs names the mistake
        return _Read(documents.load_graph(cast("Mapping[str, Any]", value), batch=batch))
    match value.get("format"):
        case documents.PROGRAM_FORMAT:
            return _Read(documents.load_program(value), value)
        case format_ if format_ == _PLAN:
            return _Read(documents.load_planned(value), value)
    return _Read(documents.load_graph(value, batch=batch, folder=folder), value)


# ------------------------------------------------------------------------------ plans and verdicts


@shows(PlanChoices)
@checks_arguments
def plan(
    model: Plannable,
    options: PlanOptions | None = None,
    *,
    like: Plan | Deployment | str | os.PathLike[str] | None = None,
    **choices: Unpack[PlanChoices],
) -> Plan:
    """The plan of one training step: every tensor at its byte of the arena, proved to compute the graph.

    `model` is a path, a document (text or parsed), a graph, a program, or an object that has one. `choices`
    are the options of plans by name, as an options document has them: ``capacity="24 MiB"``,
    ``as_written=True``, ``only=["in_place"]``; a PlanOptions in their place describes the plan exactly.
    `like` is another plan, or the path of its document, whose persistent values stay where they are as far as
    they can; the record ``like`` of the plan says which do not, and what that costs. Without a deadline the
    same arguments give the same plan, byte for byte. Raises ArenaplanError: a CapacityError if no arena
    within the capacity was found.
    """
    asked = requested(options, choices)
    is_range = any(each.name == "batch" for each in asked.ranges)
    read = _network(model, None if is_range else asked.options.batch).subject
    subject = read if isinstance(read, BlockProgram) else _graph(read)
    if like is None:
        return plan_requested(subject, asked)
    old = like if isinstance(like, Plan | Deployment) else documents.load_planned(Path(like).read_bytes())
    return plan_like(subject, asked, old)


@checks_arguments
def plan_at(plan: Plan, model: Plannable, **sizes: int) -> Plan:
    """The plan of a model at one of the sizes that `plan` serves, as ``plan_at(plan, model, batch=5)``.

    It has the steps and places of `plan`, and is proved. Sizes that are left out are the largest. Raises
    ArenaplanError: a PlanError for a size that the plan does not serve.
    """
    largest = {} if plan.planned_sizes is None else plan.planned_sizes.largest
    graph = _graph(_network(model, None).subject).at(**largest)
    return at_size(plan, graph.at(**sizes))


@shows(PlanChoices)
@checks_arguments
def deploy(
    models: Plannable | Mapping[str, Plannable],
    entries: Sequence[str] = (),
    options: PlanOptions | None = None,
    *,
    ties: Sequence[str] = (),
    **choices: Unpack[PlanChoices],
) -> Deployment:
    """One arena for several programs that run one at a time, each proved: to train, infer and evaluate.

    `models` is a model as in `plan`, or several by name; `entries` are ``"train"``, ``"infer:batch=1"`` or
    ``"infer:batch=1,name=camera"``, with the name of the model in front where there are several
    (``"encoder.infer"``). Without entries each model is one, named after it. `ties` join values of different
    models: ``"a.encoder.*=b.encoder.*"``. `options` and `choices` as in `plan`; the capacity is that of the
    whole arena. Raises ArenaplanError as `plan` does: an OptionsError for entry points that do not go
    together.
    """
    asked = requested(options, choices)
    specs = [read_entry(text) for text in entries]
    several = _by_name(models, next((spec.batch for spec in specs if spec.batch), asked.options.batch))
    networks = {name: partial(_subject, model) for name, model in several.items()}
    requests = entry_requests(networks, specs, asked)
    return plan_deployment("+".join(several), requests, [read_tie(text) for text in ties])


@checks_arguments
def entry_graphs(models: Plannable | Mapping[str, Plannable], plan: Deployment) -> dict[str, TrainableGraph]:
    """The graph that each entry point of a plan runs, by name: what `Trainer` and `validate` take.

    `models` as in `deploy`: each is read for the batches of its entry points. Those of explicit operations
    have no graph: give `Trainer` the traced step itself, ``{**graphs, "step": traced}``. Raises
    ArenaplanError: an OptionsError for a model that is not there, or that is none of the plan.
    """
    batch = next((e.plan.options.batch for e in plan.entry_points if e.plan.options.batch), None)
    networks = {name: partial(_subject, model) for name, model in _by_name(models, batch).items()}
    return graphs_of_entries(networks, plan, skips_programs=True)


def _by_name(models: Plannable | Mapping[str, Plannable], batch: int | None) -> Mapping[str, Plannable]:
    """The models by name; one alone has that of its graph, which is read for `batch` where it leaves its own
    open. A mapping that is a document has a format.
    """
    if not isinstance(models, Mapping) or "format" in models:
        model = cast("Plannable", models)
        try:
            return {_subject(model, None).name: model}
        except ArenaplanError:
            if batch is None:
                raise
            return {_subject(model, batch).name: model}
    for name, value in models.items():
        if not isinstance(value, _MODELS):
            raise OptionsError(
                f"Model {name!r:.80} is {value!r:.80}.",
                remedy="Give a path, a document, a graph, a program, or an object that has one.",
                path=("models",),
            )
    if not models:
        raise OptionsError(
            "There is no model.", remedy="Give one, or several by name: {'encoder': model}.", path=("models",)
        )
    return cast("Mapping[str, Plannable]", models)


def _subject(model: Plannable, batch: int | None) -> TrainableGraph | BlockProgram:
    subject = _network(model, batch).subject
    return subject if isinstance(subject, BlockProgram) else _graph(subject)


@shows(PlanChoices)
@checks_arguments
def explain(
    model: Plannable,
    options: PlanOptions | None = None,
    *,
    training: bool = True,
    **choices: Unpack[PlanChoices],
) -> Verdict:
    """Whether the model can be trained in ``capacity``, and the measures that make it fit, the best first.

    Each measure has been planned and proved. Measures that change what is learned, such as smaller batches,
    come last; without `training` they are not tried. For an explicit program they are recomputation of pure
    operations and paging. `model`, `options` and `choices` as in `plan`. Raises ArenaplanError: an
    OptionsError without a capacity.
    """
    asked = requested(options, choices)
    batches = None
    if isinstance(model, str | os.PathLike):
        file = read_model_file(Path(model))
        network: TrainableGraph | BlockProgram = file.read(asked.options.batch)
        if isinstance(network, TrainableGraph):
            batches = file.batches(network, asked.options, {})
    else:
        read = _network(model, asked.options.batch)
        network = read.subject if isinstance(read.subject, BlockProgram) else _graph(read.subject)
        if read.document is not None:
            batches = verdict.batches_of(read.document, asked.options)
    return verdict.explain(network, asked, training=training, batches=batches)


@shows(PlanChoices)
@checks_arguments
def choose_trainable(
    model: Plannable,
    scores: Mapping[str, float] | None = None,
    options: PlanOptions | None = None,
    **choices: Unpack[PlanChoices],
) -> ChosenTrainable:
    """The layers with the largest sum of `scores` that can be trained in ``capacity``, with the plan of that.

    Scores are by the name of an operation or parameter; without them a layer counts as many as it has bytes.
    `model`, `options` and `choices` as in `plan`. Raises ArenaplanError: an OptionsError without a capacity,
    for a name that reads no parameter, and for an explicit program.
    """
    asked = requested(options, choices)
    graph = _graph(_network(model, asked.options.batch).subject)
    return verdict.choose_trainable(graph, asked, scores)


@shows(PlanChoices)
@checks_arguments
def tradeoff(
    model: Plannable, options: PlanOptions | None = None, *, points: int = 10, **choices: Unpack[PlanChoices]
) -> TradeOff:
    """The cost of less memory in modelled time, as a curve of at most `points` points.

    `model`, `options` and `choices` as in `plan`. Raises ArenaplanError: an OptionsError for an explicit
    program without pure operations.
    """
    asked = requested(options, choices)
    network = _subject(model, asked.options.batch)
    return verdict.tradeoff(network, free_measures(network, asked), points=points)


def _graph(subject: TrainableGraph | BlockProgram | Plan | Deployment) -> TrainableGraph:
    if not isinstance(subject, TrainableGraph):
        raise OptionsError(
            f"{getattr(subject, 'name', 'The model')!r} is a program of explicit operations, and no graph.",
            remedy="Give a graph: a program has one size and no layers. plan, explain and tradeoff take it.",
        )
    return subject


def _network(model: Plannable, batch: int | None) -> _Read:
    """The graph or program of a model, with the document that it comes from."""
    read: _Read
    match model:
        case BlockProgram():
            read = _Read(model)
        case Model():
            graph = model.graph if batch is None else documents.load_graph(model.document, batch=batch)
            read = _Read(graph, model.document)
        case TrainableGraph() | HasGraph() if batch is not None:
            raise has_a_batch(batch)
        case TrainableGraph():
            read = _Read(model)
        case bytes():
            read = _read_document(documents.parse_json(model), batch)
        case Mapping():
            read = _read_document(model, batch)
        case str() | os.PathLike():
            read = _read_file(model, batch)
        case HasGraph():
            read = _Read(model.graph)
        case HasProgram():
            read = _Read(model.program)
    if isinstance(read.subject, Plan | Deployment):
        raise DocumentError(
            "The document is a plan already.",
            remedy="Give the graph or the program that it is for.",
            path=("format",),
        )
    return read
