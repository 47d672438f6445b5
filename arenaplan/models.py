"""Files in, plans and verdicts out: each in one call, from every form of a model."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Protocol, Unpack, cast, runtime_checkable

from arenaplan.builder import Model as BuiltModel
from arenaplan.choices import ImportChoices, PlanChoices, requested, shows
from solver import documents
from solver.arguments import checks_arguments
from solver.errors import ArenaplanError, DocumentError, OptionsError, OtherFormatError
from solver.exporters import exporter_of_file
from solver.pipeline import BlockProgram, TrainableGraph
from solver.pipeline import entry_graphs as graphs_of_entries
from solver.pipeline import plan_at as at_size
from solver.plan import Deployment, Plan, PlanOptions, read_entry, read_tie
from solver.reports.verdict import TradeOff, Verdict
from solver.requests import ReadModel, Request, Source, Wanted, handle
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
    with _as_kind(path, "graph"):
        model = _file(path, choices).read(batch)
        _tell("read", ReadModel("", "", model.notes))
        if isinstance(model.network, TrainableGraph):
            return model.network
        raise OtherFormatError("", format_=documents.PROGRAM_FORMAT, remedy="")


@checks_arguments
def load_program(path: str | os.PathLike[str]) -> BlockProgram:
    """The explicit program of a document. Raises OSError if the file cannot be read, ArenaplanError."""
    with _as_kind(path, "program"):
        return documents.load_program(Path(path).read_bytes())


@checks_arguments
def load_plan(path: str | os.PathLike[str]) -> Plan | Deployment:
    """The plan of a document; a Deployment if it has entry points, whose plans are ``plan["infer"].plan``.

    Raises OSError if the file cannot be read, ArenaplanError.
    """
    with _as_kind(path, "plan"):
        return documents.load_planned(Path(path).read_bytes())


@checks_arguments
def save(plan: Plan | Deployment, path: str | os.PathLike[str]) -> None:
    """Write a plan: its document to a .json file, else what ``arenaplan export`` writes to this name.

    Such names end in .h (a C header), .html (a report), .csv and others. A deployment is written with all its
    entry points. Raises OSError if the file cannot be written, OptionsError for another suffix.
    """
    is_document = os.fspath(path).lower().endswith(".json") and not os.fspath(path).endswith(".trace.json")
    data = documents.dump_planned(plan) if is_document else exporter_of_file(os.fspath(path)).dump(plan)
    Path(path).write_bytes(data)


@contextlib.contextmanager
def _as_kind(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Errors about a document of another kind than `kind` name the function that reads it."""
    try:
        yield
    except OtherFormatError as error:
        other = error.format.removeprefix("arenaplan.")
        if other == kind or other not in ("graph", "program", "plan"):
            raise
        raise DocumentError(
            f"{os.fspath(path)!r:.200} is a {other}.",
            remedy=f"Read it by arenaplan.load_{other}({os.fspath(path)!r:.200}).",
            path=("format",),
        ) from None


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
    old = like
    if old is not None and not isinstance(old, Plan | Deployment):
        old = documents.load_planned(Path(old).read_bytes())
    planned: Plan = _asked("plan", model, options, choices, like=old)
    return planned


@checks_arguments
def plan_at(plan: Plan, model: Plannable, **sizes: int) -> Plan:
    """The plan of a model at one of the sizes that `plan` serves, as ``plan_at(plan, model, batch=5)``.

    It has the steps and places of `plan`, and is proved. Sizes that are left out are the largest. Raises
    ArenaplanError: a PlanError for a size that the plan does not serve.
    """
    largest = {} if plan.planned_sizes is None else plan.planned_sizes.largest
    graph = _source(model).read(None).graph.at(**largest)
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
    sources = _sources(models, next((spec.batch for spec in specs if spec.batch), asked.options.batch))
    tied = [read_tie(text) for text in ties]
    deployment: Deployment = _answer(Request("deployment", sources, asked, specs, ties=tied))
    return deployment


@checks_arguments
def entry_graphs(models: Plannable | Mapping[str, Plannable], plan: Deployment) -> dict[str, TrainableGraph]:
    """The graph that each entry point of a plan runs, by name: what `Trainer` and `validate` take.

    `models` as in `deploy`: each is read for the batches of its entry points. Those of explicit operations
    have no graph: give `Trainer` the traced step itself, ``{**graphs, "step": traced}``. Raises
    ArenaplanError: an OptionsError for a model that is not there, or that is none of the plan.
    """
    batch = next((e.plan.options.batch for e in plan.entry_points if e.plan.options.batch), None)
    sources = _sources(models, batch)

    def read(source: Source, batch: int | None) -> TrainableGraph | BlockProgram:
        return source.read(batch).network

    networks = {name: partial(read, source) for name, source in sources.items()}
    return graphs_of_entries(networks, plan, skips_programs=True)


def _sources(models: Plannable | Mapping[str, Plannable], batch: int | None) -> dict[str, Source]:
    """The models by name; one alone has that of its graph, which is read for `batch` where it leaves its own
    open. A mapping that is a document has a format.
    """
    if not isinstance(models, Mapping) or "format" in models:
        source = _source(cast("Plannable", models))
        try:
            return {source.read(None).network.name: source}
        except ArenaplanError:
            if batch is None:
                raise
            return {source.read(batch).network.name: source}
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
    return {name: _source(model) for name, model in models.items()}


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
    verdict: Verdict = _asked("verdict", model, options, choices, training=training)
    return verdict


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
    chosen: ChosenTrainable = _asked("trainable", model, options, choices, scores=scores)
    return chosen


@shows(PlanChoices)
@checks_arguments
def tradeoff(
    model: Plannable, options: PlanOptions | None = None, *, points: int = 10, **choices: Unpack[PlanChoices]
) -> TradeOff:
    """The cost of less memory in modelled time, as a curve of at most `points` points.

    `model`, `options` and `choices` as in `plan`. Raises ArenaplanError: an OptionsError for an explicit
    program without pure operations.
    """
    curve: TradeOff = _asked("tradeoff", model, options, choices, points=points)
    return curve


def _source(model: Plannable) -> Source:
    """Where a model comes from: every form of one."""
    match model:
        case BuiltModel():
            return Source(model.document, network=model.graph)
        case BlockProgram() | TrainableGraph() | bytes() | Mapping():
            return Source(model)
        case str() | os.PathLike():
            return _file(model)
        case HasGraph():
            return Source(model.graph)
        case HasProgram():
            return Source(model.program)


def _file(path: str | os.PathLike[str], choices: Mapping[str, Any] = MappingProxyType({})) -> Source:
    return Source(Path(path).read_bytes(), path=Path(path), choices=choices)


def _asked(
    wanted: Wanted, model: Plannable, options: PlanOptions | None, choices: Mapping[str, Any], **more: Any
) -> Any:
    """What is wanted of one model, under options by name or as a whole."""
    asked = requested(options, choices)  # before a file is read, which may be large
    return _answer(Request(wanted, {"model": _source(model)}, asked, **more))


def _answer(request: Request) -> Any:
    """The answer to a request. Paths of its errors lead into the document that was passed."""
    try:
        return handle(request, follow=_tell).value
    except OtherFormatError as error:
        if error.format != _PLAN:
            raise
        raise DocumentError(
            "The document is a plan already.",
            remedy="Give the graph or the program that it is for.",
            path=("format",),
        ) from error
    except ArenaplanError as error:
        if error.path[:1] == ("models",) and len(request.models) == 1:
            error.path = error.path[2:]
        raise


def _tell(_stage: str, news: object) -> None:
    """Write the notes on a model that was imported to standard error."""
    for note in news.notes if isinstance(news, ReadModel) else ():
        sys.stderr.write(f"arenaplan: note: {note}\n")
