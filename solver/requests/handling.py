"""The answer to a request: one function for everything that can be wanted.

    result = handle(Request("plan", {"mnist": source}, options))

A model is read where it is needed, by the function that answers, and goes from there into the pipeline.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from solver import documents, pipeline
from solver.errors import (
    ArenaplanError,
    CapacityError,
    OptionsError,
    RequestError,
    TooManyOperationsError,
)
from solver.layout import Progress
from solver.plan import Costs, Deployment, Plan, PlanOptions, RequestedOptions, check_ranges
from solver.requests.request import Request
from solver.requests.sources import Model, Source
from solver.schedules import SearchProgress

if TYPE_CHECKING:
    from solver.executor import StepReport
    from solver.pipeline import BlockProgram, EntryRequest, TrainableGraph

__all__ = ["Follower", "Limits", "ReadModel", "Result", "Trying", "Work", "handle"]


@dataclass(frozen=True, slots=True)
class ReadModel:
    """News that a model was read: its name in the request, its network's name, and the notes on it."""

    model: str
    name: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Trying:
    """News of what a search tries next, in words."""

    text: str


#: Told the name of each stage when it begins, then what is known of it.
Follower = Callable[[str, "Progress | SearchProgress | StepReport | ReadModel | Trying | None"], None]


@dataclass(frozen=True, slots=True)
class Limits:
    """Most operations of all networks of a request together; None without a limit."""

    operations: int | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """The answer to a request: its `value` is a plan, a verdict or whatever was wanted. `notes` are those on
    models that were imported."""

    value: Any
    work: Work

    @property
    def notes(self) -> tuple[str, ...]:
        return self.work.notes

    @property
    def key(self) -> str:
        """Digest of the canonical request: equal keys, equal plans."""
        return self.work.key


def handle(
    request: Request,
    *,
    observe: Callable[[str, float], None] | None = None,
    follow: Follower | None = None,
    limits: Limits | None = None,
) -> Result:
    """The answer to a request. `observe` is told of each stage and its seconds, `follow` of progress.

    Raises ArenaplanError. Paths of OptionsErrors and CapacityErrors begin with an option, all others with a
    field of the request: ``("models", NAME, ...)`` leads into a document, ``("plan", ...)`` into the plan,
    ``("entries", K)`` to an entry point. Cost: that of what is wanted.
    """
    work = Work(request, observe, follow, limits or Limits())
    return Result(_ANSWERS[request.wanted](work, work.request.options), work)


def _sized(request: Request) -> Request:
    """The request, with the ranges of sizes that the choices of its models name moved into its options."""
    sources, ranges = dict[str, Source](), list(request.options.ranges)
    for name, source in request.models.items():
        sources[name], more = source.sized(dims=request.wanted in ("plan", "costs"))
        ranges += more
    check_ranges(ranges)
    return replace(request, models=sources, options=replace(request.options, ranges=tuple(ranges)))


@dataclass(slots=True)
class Work:
    """A request while it is handled: its models are read once, whatever is asked of them."""

    request: Request
    observe: Callable[[str, float], None] | None = None
    follow: Follower | None = None
    limits: Limits = field(default_factory=Limits)
    _models: dict[tuple[str, int | None], Model] = field(default_factory=dict)
    _entries: list[EntryRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        if any("dim" in source.choices for source in self.request.models.values()):
            self.request = _sized(self.request)

    def result(self, options: RequestedOptions) -> Result:
        """The answer under other options than those of the request, which read the same models."""
        return Result(_ANSWERS[self.request.wanted](self, options), self)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(note for model in self._models.values() for note in model.notes))

    @property
    def key(self) -> str:
        """As that of `Result`; reads the models. For plans and deployments alone."""
        request = self.request
        if request.wanted == "deployment":
            rows = [
                (
                    entry.name,
                    entry.model,
                    entry.purpose,
                    entry.requested.options.batch,
                    entry.subject.name,
                    _digest(entry.subject),
                )
                for entry in self.entries()
            ]
            options = documents.dump_options(request.options).decode()
            text = json.dumps(["+".join(request.models), rows, [tie.text for tie in request.ties], options])
            return hashlib.sha256(text.encode()).hexdigest()
        network = self.model().network  # its title is part of its plan
        parts = [_digest(network).encode(), documents.dump_options(request.options), network.name.encode()]
        if request.like is not None:
            parts.append(request.like.digest.encode())
        return hashlib.sha256(b"\0".join(parts)).hexdigest()

    def model(self, name: str | None = None, batch: int | None = None) -> Model:
        """The model of this name at a batch; without a name the only one, at the batch of the options.

        Raises ArenaplanError, whose path leads into the request.
        """
        request = self.request
        if name is None:
            ((name, source),) = request.models.items()
            options = request.options
            is_ranged = any(each.name == "batch" for each in options.ranges) and source.is_network
            batch = None if is_ranged else options.options.batch
            if request.plan is not None:
                batch = request.plan.options.batch if isinstance(request.plan, Plan) else None
        key = name, batch
        if key not in self._models:
            source, place = request.models[name], tuple[str | int, ...](("models", name))
            for k, entry_source in request.entry_models.items():
                spec = request.entries[k]
                if (spec.model or name, spec.batch or request.options.options.batch) == (name, batch):
                    source, place = entry_source, ("entries", k, "graph")
            if request.dimension:
                source, batch = source.at_first(request.dimension, batch)
            with leading(*place):
                model = source.read(batch, max_operations=self.limits.operations)
            is_first = all(known != name for known, _ in self._models)
            self._models[key] = model
            if self.follow is not None:
                notes = model.notes if is_first else ()
                self.follow("read", ReadModel(name, model.network.name, notes))
        return self._models[key]

    def networks(self) -> pipeline.Networks:
        """The networks of entry points by the names of their models, each read for a batch.

        Each use of a network counts among the operations that are limited.
        """
        most, operations = self.limits.operations, 0

        def read(name: str, batch: int | None) -> TrainableGraph | BlockProgram:
            nonlocal operations
            network = self.model(name, batch).network
            operations += len(network.operations)
            if most is not None and operations > most:
                raise TooManyOperationsError(
                    f"The entry points have more than {most:,} operations together.",
                    remedy="Ask for fewer, or plan them with `arenaplan plan`.",
                    path=("entries",),
                )
            return network

        return {name: partial(read, name) for name in self.request.models}

    def entries(self) -> list[EntryRequest]:
        """The entry points of a deployment, each with the network that it runs."""
        if not self._entries:
            request = self.request
            self._entries = pipeline.entry_requests(self.networks(), request.entries, request.options)
        return self._entries

    def source(self, name: str = "") -> Source:
        """The source of a model of the request's plan; the only source may have any name."""
        models = self.request.models
        return models[name] if len(models) > 1 else next(iter(models.values()))

    def graphs(self) -> dict[str, TrainableGraph]:
        """The graph of each entry point of the request's plan by name; that of a plan of one program by none,
        at the sizes that it was made for.
        """
        plan = self.request.plan
        if isinstance(plan, Deployment):
            return pipeline.entry_graphs(self.networks(), plan)
        assert plan is not None
        model = self.model()
        if not isinstance(model.network, pipeline.TrainableGraph):
            raise OptionsError(
                f"{model.source.label!r:.80} is a program of explicit operations, whose kernels are not"
                " here.",
                remedy="Run them in Python: arenaplan.validate(step, plan), where step has the program and a"
                " function for each operation, as what arenaplan.torch.program returns.",
            )
        graph = model.network
        sizes = {} if plan.planned_sizes is None else plan.planned_sizes.largest
        return {"": graph.at(**sizes) if sizes.keys() <= graph.sizes.keys() else graph}

    def tells(self, text: str) -> None:
        """Says what a search tries."""
        if self.follow is not None:
            self.follow("trying", Trying(text))


@contextlib.contextmanager
def leading(*place: str | int) -> Iterator[None]:
    """Errors about a document have paths that lead from the request to it; those about options have not."""
    try:
        yield
    except ArenaplanError as error:
        if not isinstance(error, OptionsError | CapacityError):
            error.path = (*place, *error.path)
        raise


def _digest(network: TrainableGraph | BlockProgram) -> str:
    if isinstance(network, pipeline.TrainableGraph):
        return documents.graph_digest(network)
    return documents.program_digest(network)


# --------------------------------------------------------------------------------------------- answers


def _planned(work: Work, options: RequestedOptions) -> Plan:
    request = work.request
    watch: dict[str, Any] = {"observe": work.observe, "follow": work.follow}
    model = work.model()
    with leading("models", *request.models):
        if request.like is None:
            return pipeline.plan_requested(model.network, options, **watch)
        return pipeline.plan_like(model.network, options, request.like, **watch)


def _deployed(work: Work, options: RequestedOptions) -> Deployment:
    entries = [
        replace(entry, requested=options.having(batch=entry.requested.options.batch))
        for entry in work.entries()
    ]
    name = "+".join(work.request.models)
    return pipeline.plan_deployment(
        name, entries, work.request.ties, observe=work.observe, follow=work.follow
    )


def _curve(work: Work, options: RequestedOptions) -> Any:
    from solver import verdict

    network = work.model().network
    with leading("models", *work.request.models):
        free = pipeline.free_measures(network, options)
        return verdict.tradeoff(network, free, points=work.request.points, follow=work.follow)


def _verdict(work: Work, options: RequestedOptions) -> Any:
    from solver import verdict

    request, model = work.request, work.model()
    measures = verdict.MEASURES
    if request.chooses:
        try:
            verdict.layers_of(model.graph, request.scores)
        except OptionsError as error:
            place = ("scores", *error.path[1:])
            raise RequestError(error.message, remedy=error.remedy, path=place) from error
        measures = (verdict.chosen_layers(request.scores, follow=work.follow),)
    with leading("models", *request.models):
        return verdict.explain(
            model.network,
            options,
            training=request.training,
            batches=model.batches(options.options),
            measures=measures,
            observe=lambda names: work.tells(" and ".join(names) or "the smallest capacity"),
            follow=work.follow,
        )


def _largest(work: Work, options: RequestedOptions) -> Any:
    from solver import verdict

    return verdict.largest(
        work.model().graph,
        options,
        work.request.dimension,
        training=work.request.training,
        observe=work.tells,
        follow=work.follow,
    )


def _trainable(work: Work, options: RequestedOptions) -> Any:
    from solver import verdict

    scores = work.request.scores
    return verdict.choose_trainable(
        work.model().graph, options, scores, observe=work.tells, follow=work.follow
    )


def _costs(work: Work, options: RequestedOptions) -> Costs:
    """The time of each step of a plan under the options: measured in so many repeats, or by the roofline."""
    target = options.options.target
    network = work.model().network
    if not isinstance(network, pipeline.TrainableGraph):
        raise OptionsError(
            f"{network.name!r} is a program of explicit operations, which have no kernels to be timed here.",
            remedy="Give a graph.",
            path=("costs",),
        )
    free = pipeline.free_measures(network, options)
    if not work.request.repeats:
        return pipeline.modelled_costs(network, free)
    if target == "c":
        raise OptionsError(
            "Steps of a plan for target 'c' cannot be timed one by one: compiled C runs them in one call.",
            remedy="Leave out --costs; or write modelled times with `arenaplan costs graph.json --target c"
            " --roofline -o costs.json`, edit them, and give --costs costs.json.",
            path=("costs",),
        )
    from solver.executor import measured_costs

    # The steps are those of a plan without a schedule. What is rewritten depends on options that schedule as
    # well, so it is decided with all of them first.
    prepared = pipeline.start_of(network, free).prepared
    assert prepared is not None  # a graph is
    plain = PlanOptions(
        target=target,
        alignment=free.alignment,
        scratch_budget=prepared.scratch_budget,
        update=free.update,
        in_place=free.in_place,
        sub_ranges=free.sub_ranges,
        storage=free.storage,
    )
    return measured_costs(prepared.graph, pipeline.plan(prepared.graph, plain), repeats=work.request.repeats)


def _validated(work: Work, _options: RequestedOptions) -> Any:
    from solver import executor

    request, follow, plan = work.request, work.follow, work.request.plan
    graphs = work.graphs()
    assert plan is not None
    with contextlib.ExitStack() as stack:
        stack.enter_context(leading("plan"))
        runnable: Any
        if isinstance(plan, Deployment):
            sources = {entry.name: work.source(entry.model) for entry in plan.entry_points}
            runnable = {n: stack.enter_context(sources[n].with_values(graph)) for n, graph in graphs.items()}
        else:
            runnable = stack.enter_context(work.source().with_values(graphs[""]))
        return executor.validate(
            runnable,
            plan,
            steps=request.steps,
            seed=request.seed,
            on_step=None if follow is None else partial(follow, "train"),
            **request.settings,
        )


def _imported(work: Work, _options: RequestedOptions) -> TrainableGraph:
    return work.model().graph


def _c_training(work: Work, _options: RequestedOptions) -> Mapping[str, bytes]:
    """The files of C that trains in the plan of the request, by name."""
    from solver.executor import c_files

    request, graphs = work.request, None
    assert request.plan is not None
    if request.models:
        graphs = work.graphs()
    of = graphs[""] if graphs is not None and isinstance(request.plan, Plan) else graphs
    return c_files(request.plan, request.settings.get("weights"), of)


#: What answers each kind of request.
_ANSWERS: Final[Mapping[str, Callable[[Work, RequestedOptions], Any]]] = {
    "plan": _planned,
    "deployment": _deployed,
    "tradeoff": _curve,
    "verdict": _verdict,
    "largest": _largest,
    "trainable": _trainable,
    "costs": _costs,
    "graphs": lambda work, _options: work.graphs(),
    "validation": _validated,
    "import": _imported,
    "c-training": _c_training,
}
