"""The tasks of a worker: plan graphs and programs, place buffers, validate. All heavy imports are here."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import importlib
import json
import logging
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from types import FrameType, MappingProxyType
from typing import Any, Final, TypeVar

from service.jobs.notes import notes_text
from service.jobs.requests import (
    MEMBERS,
    limited_options,
    named_deadline,
    read_request,
    with_deadline,
)
from service.jobs.resources import limited
from service.jobs.subjects import (
    Network,
    Path,
    Read,
    Subject,
    check_lists,
    read_document,
    read_model,
    said_of_a_query,
)
from service.jobs.worker import Channel, Task
from service.problems import Problem, problem_from
from solver import documents, executor, exporters, pipeline, placement, verdict
from solver.compile import load as load_compiled
from solver.errors import (
    ArenaplanError,
    CapacityError,
    OptionsError,
    TooManyOperationsError,
    json_pointer,
)
from solver.exporters.html import dump_report
from solver.layout import LayoutProblem as Buffers
from solver.layout import Progress
from solver.native import compile_beside, deadline_of
from solver.options import MEASURES
from solver.plan import (
    Deployment,
    LayoutOptions,
    PlacedBuffers,
    Plan,
    PlanView,
    RequestedOptions,
    Tie,
    one_plan,
    plan_of,
    plans_to_compare,
    with_deployment_digest,
)
from solver.reports.comparison import deployment_difference, difference
from solver.schedules import SearchProgress

__all__ = ["TASKS", "warm"]

_log = logging.getLogger(__name__)

Options = TypeVar("Options", RequestedOptions, LayoutOptions)
Planned = Plan | Deployment
Planner = Callable[[RequestedOptions], Planned]


@dataclasses.dataclass(frozen=True, slots=True)
class _Clock:
    """When work on a request began. A deadline is counted from there."""

    began: float = dataclasses.field(default_factory=time.monotonic)

    def shortened(self, options: Options) -> Options:
        """The options with what is left of their deadline."""
        return with_deadline(options, self.left(options.deadline_seconds))

    def left(self, seconds: float | None) -> float | None:
        """What is left of a deadline."""
        return None if seconds is None else max(0.0, seconds - (time.monotonic() - self.began))


@contextlib.contextmanager
def _reading(body: bytes, limits: Mapping[str, Any], channel: Channel) -> Iterator[_Clock]:
    """Bounds the reading of a request by its deadline, if it has one; the process goes on.

    Raises `Problem` ``time-limit``. Where nothing can interrupt what reads, the service ends the process.
    """
    clock, named = _Clock(), named_deadline(body)
    named = limits["deadline_default_seconds"] if named is None else named
    if named is None:
        with _stage(channel, "read"):
            yield clock
        return
    # A longer one than is allowed is refused once it has been read.
    seconds = min(max(named, limits["deadline_floor_seconds"]), limits["deadline_max_seconds"])

    def late(_signal: int, _frame: FrameType | None) -> None:
        raise Problem(
            "time-limit",
            f"The request was not read within {seconds:g} s.",
            remedy="Name a longer deadline, or none, or take a smaller request.",
            pointer="/options/deadline_seconds",
        )

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.001))  # none would mean no timer
    try:
        with _stage(channel, "read"):
            yield clock
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextlib.contextmanager
def _stage(channel: Channel, name: str) -> Iterator[None]:
    """Tell the service how long this took, for metrics and traces."""
    began = time.perf_counter()
    try:
        yield
    finally:
        channel.stage(name, time.perf_counter() - began)


@contextlib.contextmanager
def _inside(*prefix: str) -> Iterator[None]:
    """Errors of the core, turned into problems that point into the request."""
    try:
        yield
    except ArenaplanError as error:
        raise _problem(error, *prefix) from error


def _problem(error: ArenaplanError, *prefix: str) -> Problem:
    """A layout that was not found says more where the compiled search has looked for it."""
    problem = problem_from(error, prefix)
    if isinstance(error, CapacityError) and not error.proved and not _compiled():
        problem.detail += (
            " The compiled search does not load in this service yet, and slower code finds less."
        )
    return problem


def _compiled() -> bool:
    return load_compiled(compiles=False)


def _follower(channel: Channel) -> Callable[[str, Progress | SearchProgress | None], None]:
    """Passes on how far a plan, a schedule or a layout is."""

    def follow(stage: str, progress: Progress | SearchProgress | None) -> None:
        if progress is None:
            channel.progress(stage)
        elif isinstance(progress, Progress):
            channel.progress(stage, peak_bytes=progress.incumbent, bound_bytes=progress.bound)
        else:
            known = {
                name: figure for name, figure in dataclasses.asdict(progress).items() if figure is not None
            }
            channel.progress(stage, **known)

    return follow


def _key(digest: str, name: str, options: RequestedOptions, old: Plan | Deployment | None = None) -> str:
    """Digest of the canonical request: equal keys, equal plans. The title of a graph is part of its plan."""
    parts = [digest.encode(), documents.dump_options(options), name.encode()]
    if old is not None:
        parts.append(old.digest.encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _send_plan(kind: str, planned: Planned, channel: Channel, key: str) -> None:
    plans = _plans_of(planned)
    options = plans[0].options
    facts = {
        "key": key,
        "digest": planned.digest,
        "deterministic": all(plan.deterministic for plan in plans),
        "arena_bytes": planned.arena_bytes,
        "status": _status(plans),
        "seconds": options.deadline_seconds,
        "solver": options.solver,
        "lower_bound": planned.lower_bound,
    }
    body = documents.dump_plan(planned) if isinstance(planned, Plan) else documents.dump_deployment(planned)
    channel.send(kind, facts, body)


def _plans_of(planned: Planned) -> list[Plan]:
    return [planned] if isinstance(planned, Plan) else [e.plan for e in planned.entry_points]


def _each(planned: Planned, change: Callable[[Plan], Plan]) -> Planned:
    """The plan, or each of a deployment, with a change that leaves places alone; and with new digests."""
    if isinstance(planned, Plan):
        return documents.with_digest(change(planned))
    entry_points = tuple(
        dataclasses.replace(e, plan=documents.with_digest(change(e.plan))) for e in planned.entry_points
    )
    return with_deployment_digest(dataclasses.replace(planned, entry_points=entry_points))


def _status(plans: Iterable[Plan]) -> str:
    """The weakest claim of any arena."""
    claims = {arena.certificate.status.value for plan in plans for arena in plan.arenas}
    return "optimal" if claims <= {"optimal"} else "feasible"


def _plan(read: Read, limits: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    """Plan a graph, or the entry points of one or more networks."""
    with _reading(body, limits, channel) as clock:
        asked = read("plan", body)
        options = _options(asked, limits)
        if _DEPLOYED.isdisjoint(asked.members):
            graph = _graph(asked, options.options.batch, limits, channel)
            old = _old_plan(asked.members, asked.members_pointer)
            key = _key(documents.graph_digest(graph), graph.name, options, old)
        else:
            if asked.members.get("like") is not None:
                raise Problem(
                    "invalid-request",
                    "Entry points cannot be planned like another plan.",
                    remedy='Leave out "like", or plan the networks one by one.',
                    pointer=f"{asked.members_pointer}/like",
                )
            deployment = _deployment(asked, options, limits, channel)
            key = deployment.key(options)
    watch: dict[str, Any] = {"observe": channel.stage, "follow": _follower(channel)}
    if _DEPLOYED.isdisjoint(asked.members):
        with _inside(*asked.graph_path), _with_verdict(graph, options, asked.graph_path):
            _answer(partial(_planner(graph, old), **watch), options, channel, key, clock)
    else:
        with _inside(*asked.models_path):
            _answer(partial(deployment.plan, **watch), options, channel, key, clock)


def _old_plan(members: Mapping[str, Any], pointer: str) -> Plan | Deployment | None:
    """The plan whose persistent values are to stay where they are, if there is one."""
    if members.get("like") is None:
        return None
    if isinstance(members["like"], str):
        raise Problem(
            "invalid-request",
            '"like" is a text, and not the document of a plan.',
            remedy="Give the document, which GET /v1/plans/DIGEST has; a digest will do only with a model of"
            " another tool.",
            pointer=f"{pointer}/like",
        )
    with _inside(*pointer.strip("/").split("/") if pointer else (), "like"):
        return documents.load_planned(members["like"])


def _planner(
    subject: pipeline.TrainableGraph | pipeline.BlockProgram, old: Plan | Deployment | None
) -> Callable[..., Plan]:
    if old is None:
        return partial(pipeline.plan_requested, subject)
    return partial(pipeline.plan_like, subject, old=old)


def _options(asked: Subject, limits: Mapping[str, Any]) -> RequestedOptions:
    with _inside(*asked.options_path):
        return limited_options(asked.options(), limits)


def _graph(
    asked: Subject, batch: int | None, limits: Mapping[str, Any], channel: Channel
) -> pipeline.TrainableGraph:
    """The graph; notes on its import go with the answer."""
    with _inside(*asked.graph_path):
        imported = asked.graph(batch, limits)
    channel.notes = notes_text(imported.notes)
    return imported.graph


#: Members of a request that is for a deployment.
_DEPLOYED: Final = frozenset({"models", "entries", "ties"})


@dataclasses.dataclass(frozen=True, slots=True)
class _Deployment:
    """The entry points that a request asks for, all under the same options but for their batches."""

    name: str
    entries: tuple[pipeline.EntryRequest, ...]
    ties: tuple[Tie, ...]

    def plan(self, options: RequestedOptions, **watch: Any) -> Deployment:
        entries = [
            dataclasses.replace(entry, requested=options.having(batch=entry.requested.options.batch))
            for entry in self.entries
        ]
        return pipeline.plan_deployment(self.name, entries, self.ties, **watch)

    def key(self, options: RequestedOptions) -> str:
        """As `_key`."""
        parts = [
            (
                e.name,
                e.model,
                e.purpose,
                e.requested.options.batch,
                e.subject.name,
                _digest_of(e.subject),
            )
            for e in self.entries
        ]
        ties = [tie.text for tie in self.ties]
        text = json.dumps([self.name, parts, ties, documents.dump_options(options).decode()])
        return hashlib.sha256(text.encode()).hexdigest()


def _digest_of(network: pipeline.TrainableGraph | pipeline.BlockProgram) -> str:
    if isinstance(network, pipeline.TrainableGraph):
        return documents.graph_digest(network)
    return documents.program_digest(network)


def _deployment(
    asked: Subject, options: RequestedOptions, limits: Mapping[str, Any], channel: Channel
) -> _Deployment:
    """The entry points of a request, with the networks that they run; together they keep the limits."""
    members = {name: asked.members[name] for name in ("entries", "ties") if name in asked.members}
    with _inside(*asked.models_path):
        specs, ties = documents.load_entries(members)
        models = asked.models()
        only = next(iter(models)) if len(models) == 1 else ""
        own = {
            (spec.model or only, spec.batch or options.options.batch): ("entries", k, "graph")
            for k, spec in enumerate(specs)
            if isinstance(members["entries"][k], dict) and members["entries"][k].get("graph") is not None
        }
        networks, known = _networks(asked, models, limits, own)
        entries = pipeline.entry_requests(networks, specs, options)
    channel.notes = _notes_of(known)
    return _Deployment("+".join(models), tuple(entries), tuple(ties))


def _networks(
    asked: Subject,
    models: Mapping[str, Path],
    limits: Mapping[str, Any],
    own: Mapping[tuple[str, int | None], Path] = MappingProxyType({}),
) -> tuple[pipeline.Networks, Mapping[tuple[str, int | None], Network]]:
    """The networks of entry points by name, and those that were read, by name and batch.

    `models` and `own` are their paths in the request; `own` those of a network at one batch.
    """
    known: dict[tuple[str, int | None], Network] = {}
    left = limits["max_operations"]

    def read(model: str, batch: int | None) -> pipeline.TrainableGraph | pipeline.BlockProgram:
        nonlocal left
        if (model, batch) not in known:
            path = own.get((model, batch), models[model])
            known[model, batch] = asked.network(path, batch, limits)
        network = known[model, batch]
        left -= network.operations
        if left < 0:
            raise TooManyOperationsError(
                f"The entry points have more than {limits['max_operations']:,} operations together.",
                remedy="Ask for fewer, or plan them with `arenaplan plan`.",
                path=("entries",),
            )
        return network.subject

    return {name: partial(read, name) for name in models}, known


def _notes_of(known: Mapping[tuple[str, int | None], Network]) -> str:
    notes = dict.fromkeys(note for network in known.values() for note in network.notes)
    return notes_text([*notes])


def _import(limits: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    """The graph document of a model."""
    asked = read_model("plan", body)
    graph = _graph(asked, _options(asked, limits).options.batch, limits, channel)
    channel.send("result", {}, documents.dump_graph(graph))


@contextlib.contextmanager
def _with_verdict(
    graph: pipeline.TrainableGraph, requested: RequestedOptions, path: tuple[str, ...]
) -> Iterator[None]:
    """Say of a capacity that was not kept what bounds alone say, where that takes milliseconds."""
    try:
        yield
    except CapacityError as error:
        problem = _problem(error, *path)
        options = requested.options
        able = pipeline.TARGETS[options.target].capabilities.recompute
        if able and not (options.rewrite or options.tiers or options.memories):
            free = dataclasses.replace(pipeline.free_measures(graph, requested), order=False)
            brief = verdict.brief(graph, free, automatic=requested.automatic)
            known = brief.peak if error.proved else min(brief.peak, error.required)
            problem.extensions["verdict"] = {
                "floor": brief.floor,
                "floor_step": brief.floor_step,
                "smallest": known,
                "recompute": "impossible" if error.available < brief.floor else "open",
            }
        raise problem from error


def _tradeoff(read: Read, limits: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    """A curve. Where no deadline is named, that of the service cuts in, so that there is an answer."""
    with _reading(body, limits, channel) as clock:
        asked = read("tradeoff", body)
        points = _whole_number(asked, "points", 10, 2, verdict.MOST_POINTS)
        requested, network = _to_explain(asked, limits, channel)
        with _inside(*asked.graph_path):
            options = pipeline.free_measures(network, requested)
    options = dataclasses.replace(options, deadline_seconds=clock.left(options.deadline_seconds))
    with _inside(*asked.graph_path), _stage(channel, "tradeoff"):
        channel.progress("tradeoff")
        curve = verdict.tradeoff(network, options, points=points, follow=_follower(channel))
    facts = {"points": len(curve.points), "complete": curve.complete}
    channel.send("result", facts, documents.dump_tradeoff(curve))


def _explain(read: Read, limits: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    """A verdict; deadlines as for curves."""
    with _reading(body, limits, channel) as clock:
        asked = read("explain", body)
        training = asked.members.get("training", True)
        if not isinstance(training, bool):
            raise Problem(
                "invalid-request",
                f'"training" is {json.dumps(training):.40}.',
                remedy="Give true or false.",
                pointer=f"{asked.members_pointer}/training",
            )
        requested, network = _to_explain(asked, limits, channel)
        batches = None
        if isinstance(network, pipeline.TrainableGraph):
            batches = asked.batches(network, requested.options)
        measures = verdict.MEASURES
        if asked.members.get("scores") is not None:
            measures = (verdict.chosen_layers(_scores(asked, network), follow=_follower(channel)),)
    requested = with_deadline(requested, clock.left(requested.deadline_seconds))
    with _inside(*asked.graph_path), _stage(channel, "explain"):
        channel.progress("explain")
        result = verdict.explain(
            network,
            requested,
            training=training,
            batches=batches,
            measures=measures,
            follow=_follower(channel),
        )
    facts = {"verdict": result.status.value, "complete": result.complete}
    channel.send("result", facts, documents.dump_verdict(result))


def _scores(
    asked: Subject, network: pipeline.TrainableGraph | pipeline.BlockProgram
) -> Mapping[str, float] | None:
    """The scores of layers, by which what to train is chosen; None counts the bytes of each."""
    scores, pointer = asked.members["scores"], f"{asked.members_pointer}/scores"
    if not isinstance(network, pipeline.TrainableGraph):
        raise Problem(
            "invalid-request",
            f"{network.name!r:.80} is a program of explicit operations, which has no layers to choose from.",
            remedy='Leave out "scores".',
            pointer=pointer,
        )
    if scores == "bytes":
        return None
    if not isinstance(scores, dict) or not all(type(each) in (int, float) for each in scores.values()):
        raise Problem(
            "invalid-request",
            f'"scores" is {json.dumps(scores):.40}.',
            remedy='Give numbers by the name of an operation or parameter, as {"conv1": 0.2, "fc": 3}, or'
            ' "bytes".',
            pointer=pointer,
        )
    try:
        verdict.layers_of(network, scores)
    except OptionsError as error:
        where = json_pointer(error.path[1:])
        raise Problem(
            "invalid-request", error.message, remedy=error.remedy, pointer=f"{pointer}{where}"
        ) from error
    return scores


def _to_explain(
    asked: Subject, limits: Mapping[str, Any], channel: Channel
) -> tuple[RequestedOptions, pipeline.TrainableGraph | pipeline.BlockProgram]:
    """The options, and the graph or the program in its place; notes on its import go with the answer."""
    requested = _options(asked, limits)
    if requested.deadline_seconds is None:
        requested = with_deadline(requested, limits["deadline_max_seconds"])
    (path,) = asked.models().values()
    with _inside(*asked.models_path):
        network = asked.network(path, requested.options.batch, limits)
    channel.notes = notes_text(network.notes)
    return requested, network.subject


def _program(limits: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    """Plan an explicit program."""
    with _reading(body, limits, channel) as clock:
        request = read_request(body, *MEMBERS["program"])
        with _inside("options"):
            options = limited_options(documents.load_options(request.get("options", {})), limits)
        path = ("program", "operations")
        check_lists(request["program"], path, ("reads", "writes"), limits["max_operands"])
        with _inside("program"):
            program = documents.load_program(request["program"], max_operations=limits["max_operations"])
        old = _old_plan(request, "")
        key = _key(documents.program_digest(program), program.name, options, old)
    with _inside("program"):
        plan = _planner(program, old)
        make = partial(plan, observe=channel.stage, follow=_follower(channel))
        _answer(make, options, channel, key, clock)


def _answer(make: Planner, options: RequestedOptions, channel: Channel, key: str, clock: _Clock) -> None:
    """Plan. With a deadline the greedy plan goes ahead, so that a killed search has an answer."""
    if options.deadline_seconds is None and not channel.offer(key):
        channel.send("result", {})
        return
    if options.deadline_seconds is None:
        _send_plan("result", make(options), channel, key)
        return
    with deadline_of(options.deadline_seconds):
        _send_fallback(make, options, channel, key)

    def with_whole_deadline(plan: Plan) -> Plan:
        asked = dataclasses.replace(plan.options, deadline_seconds=options.deadline_seconds)
        return dataclasses.replace(plan, options=asked)

    _send_plan("result", _each(make(clock.shortened(options)), with_whole_deadline), channel, key)


def _send_fallback(make: Planner, requested: RequestedOptions, channel: Channel, key: str) -> None:
    """Time decides whether this plan is ever used, so it says that it is not deterministic."""
    options = requested.options
    plain = requested.having(
        solver="greedy",
        deadline_seconds=None,
        capacity=None,
        rewrite=False,
        recompute=False,
        order=False,
        costs=None,  # their names are those of the rewritten graph
    )
    # Measures that take no time are chosen in milliseconds, paging in more.
    planned = make(dataclasses.replace(plain, automatic=requested.automatic and not options.tiers))

    def late(plan: Plan) -> Plan:
        names = ("pins", *(MEASURES if requested.automatic else ()))
        taken = {name: getattr(plan.options, name) for name in names}
        own = {"target": plan.options.target, "batch": plan.options.batch, **taken}
        return dataclasses.replace(plan, options=dataclasses.replace(options, **own), deterministic=False)

    if options.capacity is None or planned.arena_bytes <= options.capacity:
        _send_plan("fallback", _each(planned, late), channel, key)


def _layout(limits: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    """Place buffers. With a deadline the greedy layout goes ahead, as for plans."""
    with _reading(body, limits, channel) as clock:
        request = read_request(body, *MEMBERS["layout"])
        with _inside("options"):
            options = limited_options(documents.load_layout_options(request.get("options", {})), limits)
        _check_buffers(request["problem"], limits["max_buffers"])
        with _inside("problem"):
            problem = documents.load_buffers(request["problem"])
        key = _layout_key(problem, options)
    if options.deadline_seconds is None and not channel.offer(key):
        channel.send("result", {})
        return
    with _inside("problem"), _own_capacity(options):
        if options.deadline_seconds is not None:
            _send_layout_fallback(problem, options, channel, key)
        with _stage(channel, "layout"):
            follow = partial(_follower(channel), "layout")
            placed = placement.place(problem, clock.shortened(options), progress=follow)
        _send_layout("result", dataclasses.replace(placed, options=options), channel, key)


def _check_buffers(document: Any, most: int) -> None:
    buffers = document.get("buffers") if isinstance(document, dict) else None
    if isinstance(buffers, list) and len(buffers) > most:
        raise Problem(
            "too-many-buffers",
            f"There are {len(buffers):,} buffers, at most {most:,} are allowed here.",
            remedy="Place fewer at a time, or run `arenaplan solve`, which has no limit.",
            pointer="/problem/buffers",
        )


def _layout_key(problem: Buffers, options: LayoutOptions) -> str:
    parts = (documents.dump_buffers(problem), documents.dump_layout_options(options))
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


@contextlib.contextmanager
def _own_capacity(options: LayoutOptions) -> Iterator[None]:
    """Point to the capacity of the buffers where the options have none."""
    try:
        yield
    except CapacityError as error:
        problem = _problem(error)
        if options.capacity is None:
            problem.pointer = "/problem/capacity"
        raise problem from error


def _send_layout(kind: str, placed: PlacedBuffers, channel: Channel, key: str) -> None:
    placed = documents.layout_with_digest(placed)
    facts = {
        "key": key,
        "digest": placed.digest,
        "deterministic": placed.deterministic,
        "arena_bytes": placed.layout.peak,
        "status": placed.certificate.status.value,
        "seconds": placed.options.deadline_seconds,
        "solver": placed.options.solver,
        "lower_bound": placed.certificate.lower_bound,
    }
    channel.send(kind, facts, documents.dump_layout(placed))


def _send_layout_fallback(problem: Buffers, options: LayoutOptions, channel: Channel, key: str) -> None:
    """The first layout of the search. Time decides whether it is used, so it is marked not deterministic."""
    first = dataclasses.replace(options, solver="portfolio", deadline_seconds=0.0)
    with contextlib.suppress(CapacityError):
        placed = placement.place(problem, first)
        late = dataclasses.replace(placed, options=options, deterministic=False)
        _send_layout("fallback", late, channel, key)


def _whole_number(asked: Subject, name: str, default: int, least: int, most: int) -> int:
    value = asked.members.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Problem(
            "invalid-request",
            f'"{name}" is {json.dumps(value):.40}.',
            remedy=f"Give a whole number from {least} to {most}.",
            pointer=f"{asked.members_pointer}/{name}",
        )
    return value


def _validate(read: Read, limits: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    asked = read("validate", body)
    most = limits["validate_max_steps"]
    steps = _whole_number(asked, "steps", min(5, most), 1, most)
    seed = _whole_number(asked, "seed", 0, 0, 2**63 - 1)
    with _inside("plan"):
        plan = documents.load_planned(asked.members["plan"])
    _check_memory(plan, limits["validate_max_bytes"])
    graphs = _graphs_of(asked, plan, limits, channel)
    memory = limits["worker_memory_bytes"] + limits["validate_max_bytes"]
    with contextlib.ExitStack() as stack:
        values = {name: stack.enter_context(asked.with_values(graph)) for name, graph in graphs.items()}
        stack.enter_context(limited({"worker_memory_bytes": memory}))
        stack.enter_context(_inside("plan"))
        stack.enter_context(_stage(channel, "train"))
        channel.progress("train")
        of = values if isinstance(plan, Deployment) else values[""]
        report = executor.validate(of, plan, steps=steps, seed=seed)
    channel.send("result", {"identical": report.identical}, documents.dump_report(report))


def _graphs_of(
    asked: Subject, plan: Plan | Deployment, limits: Mapping[str, Any], channel: Channel
) -> Mapping[str, pipeline.TrainableGraph]:
    """The graph of each entry point by name; that of a plan of one program by none."""
    if isinstance(plan, Plan):
        if "models" in asked.members:
            raise Problem(
                "invalid-request",
                '"models" are for a plan with entry points, and this plan is of one network.',
                remedy='Send that network as "graph".',
                pointer=f"{asked.members_pointer}/models",
            )
        return {"": _graph(asked, plan.options.batch, limits, channel)}
    with _inside(*asked.models_path):
        networks, known = _networks(asked, asked.models(), limits)
        graphs = pipeline.entry_graphs(networks, plan)
    channel.notes = _notes_of(known)
    return graphs


def _check_memory(plan: Plan | Deployment, most: int) -> None:
    """Raises `Problem` for what takes more: the arena, and each value of each program by itself."""
    plans = [e.plan for e in plan.entry_points] if isinstance(plan, Deployment) else [plan]
    values = sum(value.type.nbytes for one in plans for value in one.program.values)
    needed = plan.arena_bytes + values
    if needed > most:
        raise Problem(
            "validation-too-large",
            f"The arena and a reference run take {needed:,} bytes, {most:,} are allowed here.",
            remedy="Use a smaller batch, or run `arenaplan validate`.",
            pointer="/plan",
            extensions={"required": needed, "available": most, "excess": needed - most},
        )


def _export(head: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    """Write a plan as another file. The body is its document; behind `against` bytes of an older plan's.

    Of a plan with entry points the one that `entry_point` names, or all of them.
    """
    name, size, entry_point = head["format"], head["against"], head["entry_point"]
    with _inside("query"), said_of_a_query():
        plan = documents.load_planned(body[size:])
        if size:
            old, new = plans_to_compare(documents.load_planned(body[:size]), plan, entry_point)
            file = _difference(old, new) if name == "difference" else dump_report(new, old)
        elif name == "document":
            file = documents.dump_plan(one_plan(plan, entry_point))
        elif name == "c-training":
            files = executor.c_files(plan_of(plan, entry_point), head["weights"])
            file = executor.zip_archive(files)
        else:
            file = exporters.exporter_named(name).dump(plan_of(plan, entry_point))
        channel.send("result", {}, file)


def _difference(old: PlanView | Deployment, new: PlanView | Deployment) -> bytes:
    """The changes, as JSON; both are deployments, or none is."""
    if isinstance(old, Deployment) and isinstance(new, Deployment):
        return json.dumps(deployment_difference(old, new).facts()).encode()
    assert not isinstance(old, Deployment)
    assert not isinstance(new, Deployment)
    return json.dumps(difference(old, new).facts()).encode()


def warm() -> Mapping[str, bool] | None:
    """Spends idle time on imports, and on compiled code, that not every request needs.

    Returns which of them there are: plans can do without either, but then take longer or are less tight.
    On a new machine a process of its own compiles the searches first, and requests do not wait for it:
    until it ends, this returns None, for the caller to ask again.
    """
    if not _compiled():
        match compile_beside().poll():
            case None:
                return None
            case failed if failed:
                load_compiled()  # fails as fast, and logs the reason
    available = {"compiled_search": _compiled(), "cp_sat": _load_cp_sat()}
    # Documents and targets load one by one, when they are first asked for.
    for name in documents.__all__:
        getattr(documents, name)
    list(pipeline.TARGETS.values())
    # What is loaded by now stays. To go through it again takes tens of milliseconds, in which no deadline
    # and no cancelling is noticed.
    gc.collect()
    gc.freeze()
    return available


def _load_cp_sat() -> bool:
    try:
        importlib.import_module("ortools.sat.python.cp_model")
    except ImportError as error:
        _log.warning("Layouts are made without CP-SAT: %s", error)
        return False
    return True


#: A model is planned under a name of its own, which the table of jobs has kept since there were models.
TASKS: Final[Mapping[str, Task]] = {
    "plan": partial(_plan, read_document),
    "model": partial(_plan, read_model),
    "tradeoff": partial(_tradeoff, read_document),
    "tradeoff-model": partial(_tradeoff, read_model),
    "explain": partial(_explain, read_document),
    "explain-model": partial(_explain, read_model),
    "validate": partial(_validate, read_document),
    "validate-model": partial(_validate, read_model),
    "program": _program,
    "import": _import,
    "layout": _layout,
    "export": _export,
}
