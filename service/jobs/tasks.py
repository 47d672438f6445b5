"""The tasks of a worker: plan graphs and programs, place buffers, validate. All heavy imports are here."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import importlib
import json
import logging
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from types import FrameType
from typing import Any, Final, TypeVar

from service.jobs.confinement import limited
from service.jobs.query import notes_text
from service.jobs.requests import (
    KINDS,
    TASK_OF_MODEL,
    inside,
    limited_options,
    named_deadline,
    read_asked,
    read_request,
    stored_of,
    with_deadline,
)
from service.jobs.worker import Channel, Task
from service.problems import Problem, problem_from
from solver import documents, executor, exporters, pipeline, placement, verdict
from solver.compile import load as load_compiled
from solver.errors import ArenaplanError, CapacityError
from solver.exporters.html import dump_report
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
    one_plan,
    plan_of,
    plans_to_compare,
    with_deployment_digest,
)
from solver.reports.comparison import deployment_difference, difference
from solver.reports.validation import ValidationReport
from solver.reports.verdict import TradeOff, Verdict
from solver.requests import Follower, Limits, ReadModel, Work
from solver.schedules import SearchProgress

__all__ = ["TASKS", "warm"]

_log = logging.getLogger(__name__)

Options = TypeVar("Options", RequestedOptions, LayoutOptions)
Planned = Plan | Deployment


def _shortened(options: Options, began: float) -> Options:
    """The options with what is left of their deadline, which is counted from `began`."""
    seconds = options.deadline_seconds
    return (
        options if seconds is None else with_deadline(options, max(0.0, seconds + began - time.monotonic()))
    )


@contextlib.contextmanager
def _reading(body: bytes, limits: Mapping[str, Any], channel: Channel) -> Iterator[float]:
    """Bounds the reading of a request by its deadline, if it has one; the process goes on.

    Yields the beginning of the work. Raises `Problem` ``time-limit``. If nothing can interrupt what reads,
    the service ends the process.
    """
    began, named = time.monotonic(), named_deadline(body)
    named = limits["deadline_default_seconds"] if named is None else named
    if named is None:
        with _stage(channel, "read"):
            yield began
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
            yield began
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
def _problems(problem_of: Callable[[ArenaplanError], Problem], work: Work | None = None) -> Iterator[None]:
    """Errors of the core, turned into problems that point into the request."""
    try:
        yield
    except ArenaplanError as error:
        problem = problem_of(error)
        if isinstance(error, CapacityError):
            _tell_of_capacity(problem, error, work)
        raise problem from error


def _tell_of_capacity(problem: Problem, error: CapacityError, work: Work | None = None) -> None:
    """Say that the compiled search finds more, if it does not load; and what bounds alone say of a graph,
    which takes milliseconds."""
    if not error.proved and not _compiled():
        problem.detail += (
            " The compiled search does not load in this service yet, and slower code finds less."
        )
    if work is None or work.request.wanted != "plan":
        return
    network, requested = work.model().network, work.request.options
    options = requested.options
    able = pipeline.TARGETS.get(options.target)
    if (
        not isinstance(network, pipeline.TrainableGraph)
        or able is None
        or not able.capabilities.recompute
        or options.rewrite
        or options.tiers
        or options.memories
    ):
        return
    free = replace(pipeline.free_measures(network, requested), order=False)
    brief = verdict.brief(network, free, automatic=requested.automatic)
    known = brief.peak if error.proved else min(brief.peak, error.required)
    problem.extensions["verdict"] = {
        "floor": brief.floor,
        "floor_step": brief.floor_step,
        "smallest": known,
        "recompute": "impossible" if error.available < brief.floor else "open",
    }


def _compiled() -> bool:
    return load_compiled(compiles=False)


def _follower(channel: Channel) -> Follower:
    """Passes on how far a plan, a schedule or a layout is, and the notes on models."""
    notes = list[str]()

    def follow(stage: str, news: Any) -> None:
        match news:
            case ReadModel():
                notes.extend(news.notes)
                channel.notes = notes_text([*dict.fromkeys(notes)])
            case None:
                channel.progress(stage)
            case Progress():
                channel.progress(stage, peak_bytes=news.incumbent, bound_bytes=news.bound)
            case SearchProgress():
                facts = asdict(news)
                channel.progress(stage, **{n: value for n, value in facts.items() if value is not None})

    return follow


def _send(value: Any, channel: Channel) -> None:
    """The result of what is computed each time."""
    facts: dict[str, Any] = {}
    match value:
        case TradeOff():
            facts = {"points": len(value.points), "complete": value.complete}
            body = documents.dump_tradeoff(value)
        case Verdict():
            facts = {"verdict": value.status.value, "complete": value.complete}
            body = documents.dump_verdict(value)
        case ValidationReport():
            facts, body = {"identical": value.identical}, documents.dump_report(value)
        case _:
            body = documents.dump_graph(value)
    channel.send("result", facts, body)


def _send_kept(kind: str, made: Planned | PlacedBuffers, channel: Channel, key: str) -> None:
    """Send what is kept under its digest; of several arenas the status is the weakest."""
    if isinstance(made, PlacedBuffers):
        made = documents.layout_with_digest(made)
        parts: Sequence[Plan | PlacedBuffers] = [made]
        certificates = [made.certificate]
        size, bound, body = made.layout.peak, made.certificate.lower_bound, documents.dump_layout(made)
    else:
        parts = plans = _plans_of(made)
        certificates = [arena.certificate for plan in plans for arena in plan.arenas]
        size, bound = made.arena_bytes, made.lower_bound
        body = documents.dump_plan(made) if isinstance(made, Plan) else documents.dump_deployment(made)
    is_optimal = all(certificate.status.value == "optimal" for certificate in certificates)
    facts = {
        "key": key,
        "digest": made.digest,
        "deterministic": all(part.deterministic for part in parts),
        "arena_bytes": size,
        "status": "optimal" if is_optimal else "feasible",
        "seconds": parts[0].options.deadline_seconds,
        "solver": parts[0].options.solver,
        "lower_bound": bound,
    }
    channel.send(kind, facts, body)


def _answer(
    make: Callable[[Options], Planned | PlacedBuffers],
    fallback: Callable[[], Planned | PlacedBuffers | None],
    options: Options,
    channel: Channel,
    key: str,
    began: float,
) -> None:
    """Send what is kept. With a deadline the greedy answer goes ahead, for a search that has to be killed."""
    if options.deadline_seconds is not None:
        with deadline_of(options.deadline_seconds):
            if (greedy := fallback()) is not None:
                _send_kept("fallback", greedy, channel, key)
        _send_kept("result", make(_shortened(options, began)), channel, key)
    elif channel.offer(key):
        _send_kept("result", make(options), channel, key)
    else:
        channel.send("result", {})


def _plans_of(planned: Planned) -> list[Plan]:
    return [planned] if isinstance(planned, Plan) else [e.plan for e in planned.entry_points]


def _each(planned: Planned, change: Callable[[Plan], Plan]) -> Planned:
    """The plan, or each of a deployment, with a change that leaves places alone; and with new digests."""
    if isinstance(planned, Plan):
        return documents.with_digest(change(planned))
    entry_points = tuple(replace(e, plan=documents.with_digest(change(e.plan))) for e in planned.entry_points)
    return with_deployment_digest(replace(planned, entry_points=entry_points))


def _ask(task: str, limits: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    """Answer a request about networks: its models are read within the deadline, which counts from here."""
    search = KINDS[TASK_OF_MODEL.get(task, task)].search
    with _reading(body, limits, channel) as began:
        asked = read_asked(task, body, limits)
        wanted, options = asked.request.wanted, asked.request.options
        if search and options.deadline_seconds is None:
            # The service's own deadline cuts in, so that there is an answer.
            options = with_deadline(options, limits["deadline_max_seconds"])
        if wanted == "validation":
            _check_memory(asked.request.plan, limits["validate_max_bytes"])
        work = Work(
            replace(asked.request, options=options),
            observe=channel.stage,
            follow=_follower(channel),
            limits=Limits(limits["max_operations"]),
        )
        options = work.request.options
        with _problems(asked.problem, work):
            key = work.key if wanted in ("plan", "deployment") else ""
            if wanted == "validation":
                work.graphs()
            elif not key:
                work.model()
    with contextlib.ExitStack() as stack:
        stack.enter_context(_problems(asked.problem, work))
        if key:
            _answer(partial(_planned, work), partial(_greedy, work), options, channel, key, began)
            return
        if search:
            stack.enter_context(_stage(channel, search))
            channel.progress(search)
            options = _shortened(options, began)
        if wanted == "validation":
            memory = limits["worker_memory_bytes"] + limits["validate_max_bytes"]
            stack.enter_context(limited({"worker_memory_bytes": memory}))
        _send(work.result(options).value, channel)


def _planned(work: Work, options: RequestedOptions) -> Planned:
    """The plan, which names the deadline that was asked for and not what is left of it."""
    planned: Planned = work.result(options).value
    seconds = work.request.options.deadline_seconds
    if seconds is None:
        return planned
    return _each(planned, lambda plan: replace(plan, options=replace(plan.options, deadline_seconds=seconds)))


def _greedy(work: Work) -> Planned | None:
    """The plan of the greedy solver, if the capacity has room for it.

    Time decides whether this plan is ever used, so it says that it is not deterministic.
    """
    requested = work.request.options
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
    plain = replace(plain, automatic=requested.automatic and not options.tiers)
    planned: Planned = work.result(plain).value

    def late(plan: Plan) -> Plan:
        names = ("target", "batch", "pins", *(MEASURES if requested.automatic else ()))
        taken = {name: getattr(plan.options, name) for name in names}
        return replace(plan, options=replace(options, **taken), deterministic=False)

    is_within = options.capacity is None or planned.arena_bytes <= options.capacity
    return _each(planned, late) if is_within else None


def _layout(limits: Mapping[str, Any], body: bytes, channel: Channel) -> None:
    """Place buffers. With a deadline the greedy layout goes ahead, as for plans."""
    with _reading(body, limits, channel) as began:
        request = read_request(stored_of("layout", body).content, *KINDS["layout"].members)
        with inside("options"):
            options = limited_options(documents.load_layout_options(request.get("options", {})), limits)
        most, document = limits["max_buffers"], request["problem"]
        buffers = document.get("buffers") if isinstance(document, dict) else None
        if isinstance(buffers, list) and len(buffers) > most:
            raise Problem(
                "too-many-buffers",
                f"There are {len(buffers):,} buffers, at most {most:,} are allowed here.",
                remedy="Place fewer at a time, or run `arenaplan solve`, which has no limit.",
                pointer="/problem/buffers",
            )
        with inside("problem"):
            problem = documents.load_buffers(document)
        parts = (documents.dump_buffers(problem), documents.dump_layout_options(options))
        key = hashlib.sha256(b"\0".join(parts)).hexdigest()

    def problem_of(error: ArenaplanError) -> Problem:
        """The capacity is that of the buffers if the options have none."""
        refusal = problem_from(error, ("problem",))
        if isinstance(error, CapacityError) and options.capacity is None:
            refusal.pointer = "/problem/capacity"
        return refusal

    def placed(shortened: LayoutOptions) -> PlacedBuffers:
        with _stage(channel, "layout"):
            made = placement.place(problem, shortened, progress=partial(_follower(channel), "layout"))
        return replace(made, options=options)

    def first() -> PlacedBuffers | None:
        """The first layout of the search. Time decides whether it is used: it is not deterministic."""
        with contextlib.suppress(CapacityError):
            made = placement.place(problem, replace(options, solver="portfolio", deadline_seconds=0.0))
            return replace(made, options=options, deterministic=False)
        return None

    with _problems(problem_of):
        _answer(placed, first, options, channel, key, began)


def _check_memory(plan: Plan | Deployment | None, most: int) -> None:
    """Raises `Problem` for what takes more: the arena, and each value of each program by itself."""
    assert plan is not None
    values = sum(value.type.nbytes for one in _plans_of(plan) for value in one.program.values)
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
    with inside("query"):
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
    try:
        importlib.import_module("ortools.sat.python.cp_model")
        has_cp_sat = True
    except ImportError as error:
        _log.warning("Layouts are made without CP-SAT: %s", error)
        has_cp_sat = False
    # Documents and targets load one by one, when they are first asked for.
    for name in documents.__all__:
        getattr(documents, name)
    list(pipeline.TARGETS.values())
    # What is loaded by now stays. To go through it again takes tens of milliseconds, in which no deadline
    # and no cancelling is noticed.
    gc.collect()
    gc.freeze()
    return {"compiled_search": _compiled(), "cp_sat": has_cp_sat}


#: A model is planned under a name of its own, which the table of jobs has kept since there were models.
TASKS: Final[Mapping[str, Task]] = {
    **{task: partial(_ask, task) for task in (*KINDS, *TASK_OF_MODEL) if task != "layout"},
    "layout": _layout,
    "export": _export,
}
