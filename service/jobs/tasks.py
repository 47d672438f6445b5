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
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FrameType
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
from service.jobs.subjects import Read, Subject, check_lists, read_document, read_model
from service.jobs.worker import Channel, Task
from service.problems import Problem, problem_from
from solver import documents, executor, exporters, pipeline, placement, verdict
from solver.compile import load as load_compiled
from solver.errors import ArenaplanError, CapacityError
from solver.exporters.html import dump_report
from solver.layout import LayoutProblem as Buffers
from solver.layout import Progress
from solver.native import compile_beside, deadline_of
from solver.options import MEASURES
from solver.plan import LayoutOptions, PlacedBuffers, Plan, RequestedOptions, difference
from solver.schedules import SearchProgress

__all__ = ["TASKS", "warm"]

_log = logging.getLogger(__name__)

Options = TypeVar("Options", RequestedOptions, LayoutOptions)
Planner = Callable[[RequestedOptions], Plan]


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


def _key(digest: str, name: str, options: RequestedOptions) -> str:
    """Digest of the canonical request: equal keys, equal plans. The title of a graph is part of its plan."""
    parts = (digest.encode(), documents.dump_options(options), name.encode())
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _send_plan(kind: str, plan: Plan, channel: Channel, key: str) -> None:
    facts = {
        "key": key,
        "digest": plan.digest,
        "deterministic": plan.deterministic,
        "arena_bytes": plan.arena_bytes,
        "status": _status(plan),
        "seconds": plan.options.deadline_seconds,
        "solver": plan.options.solver,
        "lower_bound": plan.lower_bound,
    }
    channel.send(kind, facts, documents.dump_plan(plan))


def _status(plan: Plan) -> str:
    """The weakest claim of any arena."""
    claims = {arena.certificate.status.value for arena in plan.arenas}
    return "optimal" if claims <= {"optimal"} else "feasible"


def _plan(read: Read, limits: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    """Plan a graph."""
    with _reading(body, limits, channel) as clock:
        asked = read("plan", body)
        options = _options(asked, limits)
        graph = _graph(asked, options.options.batch, limits, channel)
        key = _key(documents.graph_digest(graph), graph.name, options)
    with _inside(*asked.graph_path), _with_verdict(graph, options, asked.graph_path):
        plan = partial(pipeline.plan_requested, graph)
        make = partial(plan, observe=channel.stage, follow=_follower(channel))
        _answer(make, options, channel, key, clock)


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
        if able and not options.rewrite and not options.tiers:
            brief = verdict.brief(
                graph, dataclasses.replace(pipeline.free_measures(graph, requested), order=False)
            )
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
        requested, graph = _to_explain(asked, limits, channel)
        with _inside(*asked.graph_path):
            options = pipeline.free_measures(graph, requested)
    options = dataclasses.replace(options, deadline_seconds=clock.left(options.deadline_seconds))
    with _inside(*asked.graph_path), _stage(channel, "tradeoff"):
        channel.progress("tradeoff")
        curve = verdict.tradeoff(graph, options, points=points, follow=_follower(channel))
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
        requested, graph = _to_explain(asked, limits, channel)
        batches = asked.batches(graph, requested.options)
    requested = with_deadline(requested, clock.left(requested.deadline_seconds))
    with _inside(*asked.graph_path), _stage(channel, "explain"):
        channel.progress("explain")
        result = verdict.explain(
            graph, requested, training=training, batches=batches, follow=_follower(channel)
        )
    facts = {"verdict": result.status.value, "complete": result.complete}
    channel.send("result", facts, documents.dump_verdict(result))


def _to_explain(
    asked: Subject, limits: Mapping[str, Any], channel: Channel
) -> tuple[RequestedOptions, pipeline.TrainableGraph]:
    requested = _options(asked, limits)
    if requested.deadline_seconds is None:
        requested = with_deadline(requested, limits["deadline_max_seconds"])
    return requested, _graph(asked, requested.options.batch, limits, channel)


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
        key = _key(documents.program_digest(program), program.name, options)
    with _inside("program"):
        plan = partial(pipeline.plan_requested, program)
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
    plan = make(clock.shortened(options))
    asked = dataclasses.replace(plan.options, deadline_seconds=options.deadline_seconds)
    _send_plan("result", documents.with_digest(dataclasses.replace(plan, options=asked)), channel, key)


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
    plan = make(dataclasses.replace(plain, automatic=requested.automatic and not options.tiers))
    if options.capacity is None or plan.arena_bytes <= options.capacity:
        taken = {name: getattr(plan.options, name) for name in MEASURES} if requested.automatic else {}
        asked = dataclasses.replace(options, target=plan.options.target, **taken)
        late = dataclasses.replace(plan, options=asked, deterministic=False)
        _send_plan("fallback", documents.with_digest(late), channel, key)


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
        plan = documents.load_plan(asked.members["plan"])
    _check_memory(plan, limits["validate_max_bytes"])
    graph = _graph(asked, plan.options.batch, limits, channel)
    memory = limits["worker_memory_bytes"] + limits["validate_max_bytes"]
    with (
        asked.with_values(graph) as graph,
        limited({"worker_memory_bytes": memory}),
        _inside("plan"),
        _stage(channel, "train"),
    ):
        channel.progress("train")
        report = executor.validate(graph, plan, steps=steps, seed=seed)
    channel.send("result", {"identical": report.identical}, documents.dump_report(report))


def _check_memory(plan: Plan, most: int) -> None:
    needed = plan.arena_bytes + sum(value.type.nbytes for value in plan.program.values)
    if needed > most:
        raise Problem(
            "validation-too-large",
            f"The arena and a reference run take {needed:,} bytes, {most:,} are allowed here.",
            remedy="Use a smaller batch, or run `arenaplan validate`.",
            pointer="/plan",
            extensions={"required": needed, "available": most, "excess": needed - most},
        )


def _export(head: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    """Write a plan as another file. The body is its document; behind `against` bytes of an older plan's."""
    name, size = head["format"], head["against"]
    with _inside():
        old = documents.load_plan(body[:size]) if size else None
        if old is None:
            exporter = exporters.exporter_named(name)
            file = exporter.dump(documents.load_plan(body))
        else:
            plan = documents.load_plan(body[size:])
            if name == "difference":
                file = json.dumps(difference(old, plan).facts()).encode()
            else:
                file = dump_report(plan, old)
        channel.send("result", {}, file)


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
