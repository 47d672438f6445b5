"""A few processes that wait for work, each lent to one request at a time.

lease() ──► send task ──► receive frames ──► result or problem: back to the pool
                               └── anything else (time is up, the caller left, the
                                   process died): killed, and a fresh one takes its place

The frames of one task, as `converse` sends and receives them:

    service ──► plan {limits} body ──► worker
            ◄── offer {key}                        the worker tells which request this is
            ──► go, or stop                        stop: the answer is at hand already
            ◄── progress {facts}                   for jobs, as often as there is news
            ◄── fallback {facts} body              only with a deadline: in case the search is killed
            ◄── result {facts} body, or problem {facts}

Frames of other kinds (``log``, ``warmed``) belong to no task; `Worker` takes them out.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import structlog

from service.jobs.confinement import OPEN, cpu_seconds, oom_kills, worker_environment
from service.jobs.fair import FairQueue, Ticket
from service.jobs.frames import Frame, Spool, encode_head, pieces, read_frame
from service.jobs.requests import named_deadline
from service.problems import Problem, out_of_memory
from service.telemetry import tracing
from service.telemetry.metrics import Metrics, Reading, Work, memory_and_files

__all__ = [
    "DEFAULT_TENANT",
    "SMALL_BYTES",
    "Known",
    "Limits",
    "Worker",
    "WorkerPool",
    "cancelled",
    "converse",
    "run_task",
]

_log = structlog.get_logger("service.jobs")

#: A process that does not report within this time is taken for broken.
START_SECONDS: Final = 60.0
#: How long a process may take to end once its pipe is closed.
END_SECONDS: Final = 5.0
#: Pauses between the starts of a process that keeps failing: 0.1, 0.2, ... up to this.
LONGEST_PAUSE_SECONDS: Final = 5.0
#: How much of a worker's answer waits in this process before the pipe pushes back.
BUFFER_BYTES: Final = 1 << 20

#: The tenant of all tasks where authentication is off.
DEFAULT_TENANT: Final = "default"
#: A request of more bytes is a large one. Size is all that is known of what it will cost.
SMALL_BYTES: Final = 1 << 18
#: How long after a small task one worker is kept from large ones.
RESERVE_SECONDS: Final = 60.0

_FINAL: Final = frozenset({"result", "problem"})


class Worker:
    """One process. `busy` from the first frame sent until a final frame arrived.

    `warmed` and `confinement` are what the process has said of itself (see `service.jobs.tasks.warm` and
    `service.jobs.confinement.confine`), empty until then.
    `charged_to` is the tenant that its time is charged to when the lease ends.
    """

    def __init__(self, process: Process, metrics: Metrics) -> None:
        self._process = process
        self._metrics = metrics
        self._work: Work | None = None
        self._inbox: asyncio.Queue[Frame | None] = asyncio.Queue()
        self._pump = asyncio.create_task(self._receive_all())
        #: Whether the service has ended it, rather than something else.
        self.killed = False
        self._oom_kills = oom_kills()
        self.busy = False
        self.charged_to = DEFAULT_TENANT
        self.warmed: Mapping[str, Any] = {}
        self.confinement: Mapping[str, str] = {}

    @classmethod
    async def spawn(cls, module: str, metrics: Metrics, *, confined: bool) -> Worker:
        """Start a process that serves the tasks of `module`; it reports ``ready`` later."""
        root = str(Path(__file__).parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        variables = worker_environment(os.environ) if confined else dict(os.environ)
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "service.jobs.worker", module, str(os.getpid()),
            *(["confined"] if confined else []),
            stdin=PIPE, stdout=PIPE, limit=BUFFER_BYTES, start_new_session=True,
            env={**variables, "PYTHONPATH": os.pathsep.join(paths)},
        )  # fmt: skip
        return cls(process, metrics)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.returncode is None and not self._pump.done() and not self.killed

    async def _receive_all(self) -> None:
        """Read frames until the process ends, or sends one that cannot be read: then it is killed."""
        try:
            while (frame := await self._next_frame()) is not None:
                self._inbox.put_nowait(frame)
        except Exception:  # noqa: BLE001 - whatever it is: who waits for this worker must hear of it
            self.kill()
            _say(logging.ERROR, "worker cannot be understood", pid=self.pid, exc_info=True)
        finally:
            self._inbox.put_nowait(None)

    async def _next_frame(self) -> Frame | None:
        """The next frame of a task; those that belong to none are dealt with here."""
        assert self._process.stdout is not None
        while frame := await read_frame(self._process.stdout):
            if frame.kind == "log":
                more = {name: value for name, value in frame.head.items() if name not in ("level", "event")}
                level = logging.getLevelNamesMapping().get(frame.head["level"].upper(), logging.WARNING)
                _say(level, frame.head["event"], pid=self.pid, **more)
            elif frame.kind == "warmed":
                self.warmed = frame.head
                level = logging.INFO if all(frame.head.values()) else logging.WARNING
                _say(level, "worker warmed up", pid=self.pid, **frame.head)
            else:
                return frame
        return None

    async def send(self, kind: str, head: Mapping[str, Any], body: bytes | Spool = b"") -> None:
        """Raises `Problem`, mostly ``worker-lost``, when the process has died."""
        assert self._process.stdin is not None
        if not self.busy:  # a task, rather than an answer in the middle of one
            self._work = Work(self._metrics, kind, self.pid)
            head = {**head, "context": structlog.contextvars.get_contextvars()}
        self.busy = True
        try:
            self._process.stdin.write(encode_head(kind, head, len(body)))
            for piece in pieces(body):
                self._process.stdin.write(piece)
                await self._process.stdin.drain()
        except (ConnectionError, RuntimeError):  # uvloop says RuntimeError of a pipe that is closed
            raise await self._loss() from None

    async def receive(self) -> Frame:
        """Next frame. Raises `Problem`, mostly ``worker-lost``, when the process has died."""
        frame = await self._inbox.get()
        if frame is None:
            raise await self._loss()
        if frame.kind == "fallback" and self._work is not None:
            self._work.fallback = True
        if frame.kind in _FINAL:
            self.busy = False
            head = dict(frame.head)
            stages = head.pop("stages", ())  # for metrics and traces only
            if self._work is not None:
                outcome = head["code"] if frame.kind == "problem" else "result" if head else "known"
                self._work.ended(outcome, head if outcome == "result" else None, stages)
            frame = Frame(frame.kind, head, frame.body)
            if head.get("last"):
                self.kill()
        return frame

    async def _loss(self) -> Problem:
        problem = await self._reason()
        if self._work is not None:
            self._work.ended(problem.kind.code)
        return problem

    async def _reason(self) -> Problem:
        """Why the process has died, as far as its end and the kernel's counters tell."""
        match -(await self.finished()):
            case signal.SIGABRT:  # how code in C++ ends where it gets no more memory
                return out_of_memory()
            case signal.SIGXCPU:
                return Problem(
                    "time-limit",
                    "The request took all the processor time that one request may take here.",
                    remedy='Ask for the "greedy" solver, name a deadline, or take a smaller graph.',
                )
            case signal.SIGKILL if oom_kills() > self._oom_kills:
                return Problem(
                    "worker-lost",
                    "The process that worked on this request was ended, as the machine had no memory left.",
                    remedy="Take a smaller request, or give the service more memory.",
                    extensions={"reason": "memory"},
                    headers={"Retry-After": "30"},
                )
        return Problem(
            "worker-lost",
            "The process that worked on this request died.",
            remedy="Send it again; if that fails too, it may be the request that ends the process.",
            headers={"Retry-After": "1"},
        )

    async def ready(self, seconds: float) -> bool:
        """Whether the process has reported in time."""
        try:
            async with asyncio.timeout(seconds):
                frame = await self.receive()
                self.confinement = frame.head.get("confinement", {})
                return frame.kind == "ready"
        except (TimeoutError, Problem):
            return False

    def kill(self) -> None:
        self.killed = True
        if self._work is not None:
            self._work.ended("fallback" if self._work.fallback else "stopped")
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def finished(self) -> int:
        """Exit code, once the process is gone and its pipes are closed."""
        await asyncio.wait({self._pump})  # unlike a plain await, never cancels the pump
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(END_SECONDS):
                return await self._process.wait()
        except TimeoutError:  # it has closed its side of the conversation, and is of no use
            self.kill()
            return await self._process.wait()


def _say(level: int, event: str, **facts: Any) -> None:
    """Log an event. A log that cannot be written must not end a worker or its supervisor."""
    with contextlib.suppress(Exception):
        _log.log(level, event, **facts)


async def cancelled(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks, and wait until each has ended, however it ends."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _overloaded(detail: str) -> Problem:
    return Problem(
        "overloaded", detail, remedy="Send the request again in a moment.", headers={"Retry-After": "2"}
    )


class WorkerPool:
    """`size` workers for the tasks of `module`; at most `queue_limit` callers wait, `queue_seconds` each.

    A process that does not report within `start_seconds` is taken for broken; `pause` waits before the
    next start of one that keeps failing. `metrics` are told of workers and waits. `meter` is told,
    after each task, the tenant and the seconds of processor time that it took. Workers are confined
    (`service.jobs.confinement`) unless `confined` says otherwise.
    """

    def __init__(
        self,
        module: str,
        size: int,
        *,
        queue_limit: int = 64,
        queue_seconds: float = 30.0,
        start_seconds: float = START_SECONDS,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        metrics: Metrics | None = None,
        meter: Callable[[str, float], None] | None = None,
        confined: bool = True,
    ) -> None:
        self._module = module
        self.size: Final = size
        self._queue_seconds = queue_seconds
        self._start_seconds = start_seconds
        self._pause = pause
        self.metrics = metrics or Metrics()
        self._free: deque[Worker] = deque()
        self._queue = FairQueue[asyncio.Future[Worker]](queue_limit)
        self._small_seen = -math.inf
        self._workers: dict[int, Worker] = {}
        self._supervisors: list[asyncio.Task[None]] = []
        self._leased = 0
        self._meter = meter
        self._confined = confined
        self._confinement: Mapping[str, str] | None = None

    @property
    def alive(self) -> int:
        """Workers that have reported and have not died."""
        return sum(worker.alive for worker in self._workers.values())

    @property
    def pids(self) -> tuple[int, ...]:
        return tuple(worker.pid for worker in self._workers.values() if worker.alive)

    @property
    def idle(self) -> int:
        """Live workers that wait for a request."""
        return self.alive - self._leased

    @property
    def supervised(self) -> bool:
        """Whether every worker has a supervisor that starts the next one. False only by a bug."""
        return not any(supervisor.done() for supervisor in self._supervisors)

    def loads(self, part: str) -> bool | None:
        """Whether optional code (``compiled_search``, ``cp_sat``) loads in the workers that live.

        False where one of them has reported so, None while none has reported.
        """
        reports = [worker.warmed[part] for worker in self._workers.values() if part in worker.warmed]
        return all(reports) if reports else None

    def overloaded(self, tenant: str = DEFAULT_TENANT) -> bool:
        """Whether a large task of this tenant would be turned away now."""
        queue = self._queue
        return len(queue) > 0 and queue.full(large=True) and queue.leaver(tenant, large=True) is None

    def check_room(self, size: int, tenant: str = DEFAULT_TENANT) -> None:
        """Raises `Problem` ``overloaded`` where a request of `size` bytes would be turned away now.

        For large ones only, so that their bodies need not be read first.
        """
        if size > SMALL_BYTES and self.overloaded(tenant):
            raise _overloaded(f"All {self.size} workers are busy and {self.waiting} requests wait already.")

    @property
    def waiting(self) -> int:
        """Callers that wait for a worker."""
        return len(self._queue)

    def watch(self) -> None:
        """Read this pool whenever its metrics are scraped. Call it once."""

        def workers() -> Mapping[str, float]:
            return {"idle": max(self.idle, 0), "busy": self.alive - max(self.idle, 0)}

        def resident() -> Mapping[str, float]:
            together, largest, _ = memory_and_files(self.pids)
            return {"all": together, "largest": largest}

        self.metrics.watch(
            Reading("arenaplan_workers", "Live workers by what they do.", workers, "state"),
            Reading("arenaplan_workers_wanted", "Workers that there should be.", lambda: self.size),
            Reading("arenaplan_queue_waiting", "Tasks that wait for a worker.", lambda: self.waiting),
            Reading(
                "arenaplan_workers_resident_bytes",
                "Memory of all workers, and of the largest.",
                resident,
                "of",
            ),
            Reading(
                "arenaplan_workers_open_fds", "Their open files.", lambda: memory_and_files(self.pids)[2]
            ),
        )

    def start(self) -> None:
        """Start all processes and return; `alive` counts those that are ready."""
        self._supervisors = [asyncio.create_task(self._supervise(slot)) for slot in range(self.size)]

    async def close(self) -> None:
        """Kill every worker and wait until each is gone."""
        await cancelled(self._supervisors)

    async def _supervise(self, slot: int) -> None:
        """Start a process again and again. Whatever fails may pass: no descriptors, no memory, no log."""
        failures = 0
        while True:
            try:
                reported = await self._live(slot)
            except Exception:  # noqa: BLE001 - a supervisor that ends would leave its place empty for good
                _say(logging.ERROR, "worker could not be supervised", slot=slot, exc_info=True)
                reported = False
            failures = 0 if reported else failures + 1
            if failures:
                await self._pause(min(0.1 * 2 ** (failures - 1), LONGEST_PAUSE_SECONDS))

    async def _live(self, slot: int) -> bool:
        """One process from its start to its end; whether it ever reported."""
        worker = await Worker.spawn(self._module, self.metrics, confined=self._confined)
        try:
            reported = await worker.ready(self._start_seconds)
            if reported:
                self._tell_confinement(worker.confinement)
                self._workers[slot] = worker
                self.metrics.worker_started()
                self._offer(worker)
                code = await worker.finished()
                self.metrics.worker_ended("stopped" if worker.killed else "lost")
                _say(logging.INFO, "worker ended", pid=worker.pid, exit_code=code)
            else:
                self.metrics.worker_ended("failed")
                _say(logging.ERROR, "worker did not start", pid=worker.pid)
        finally:
            self._workers.pop(slot, None)
            worker.kill()
            await worker.finished()
        return reported

    def _tell_confinement(self, confinement: Mapping[str, str]) -> None:
        """Log what confines workers, unless it is known."""
        if confinement != self._confinement:
            self._confinement = confinement
            confined = bool(confinement) and OPEN not in confinement.values()
            event = "workers are confined" if confinement else "workers are not confined"
            _say(logging.INFO if confined else logging.WARNING, event, **confinement)

    @contextlib.asynccontextmanager
    async def lease(
        self, tenant: str = DEFAULT_TENANT, *, large: bool = False, patient: bool = False
    ) -> AsyncIterator[Worker]:
        """A worker for one task. Raises `Problem` ``overloaded`` when none gets free in time.

        Tenants share the workers' time (see `service.jobs.fair`). Small tasks go first, four of them to one
        large one, and have a quarter of the queue to themselves. Of several workers, one is kept from large
        tasks while there have been small ones lately. Who waits in a full queue for the tenant with the most
        that wait may have to leave it for another tenant's. Who is `patient` waits for as long as it takes,
        and takes nobody's place in the queue.
        """
        ticket = Ticket(tenant, large or patient, asyncio.get_running_loop().create_future(), patient)
        began, clock = time.time(), time.perf_counter()
        try:
            worker = await self._take(ticket)
        finally:
            seconds = time.perf_counter() - clock
            self.metrics.waited(seconds, large=large)
            tracing.record("wait for a worker", began, seconds)
        worker.charged_to = tenant
        self._leased += 1
        began, cpu = self._queue.begin(tenant), cpu_seconds(worker.pid) if self._meter else 0.0
        try:
            yield worker
        finally:
            self._leased -= 1
            held = self._queue.end(tenant, began)
            if self._meter is not None:
                # Of a process that has died, nobody can ask what it took.
                self._meter(worker.charged_to, cpu_seconds(worker.pid) - cpu if worker.alive else held)
            if worker.busy:
                worker.kill()
            elif worker.alive:
                self._offer(worker)
            self._hand_out()  # what waited for another to be free may be next

    async def _take(self, ticket: Ticket[asyncio.Future[Worker]]) -> Worker:
        turn = ticket.turn
        if not ticket.large:
            self._small_seen = asyncio.get_running_loop().time()
        self._queue.add(ticket)
        try:
            self._hand_out()
            if not (turn.done() or ticket.patient):
                self._make_room(ticket)
            async with asyncio.timeout(None if ticket.patient else self._queue_seconds):
                return await turn
        except (TimeoutError, asyncio.CancelledError) as error:
            # Handed out in the very moment in which it was late.
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._offer(turn.result())
            if isinstance(error, TimeoutError):
                raise _overloaded(f"No worker got free within {self._queue_seconds:g} s.") from None
            raise
        finally:
            self._queue.remove(ticket)
            turn.cancel()

    def _make_room(self, newcomer: Ticket[asyncio.Future[Worker]]) -> None:
        """Where the queue was full, turn away the newcomer, by an exception, or another who has to leave."""
        queue = self._queue
        queue.remove(newcomer)
        if queue.full(large=newcomer.large):
            busy = _overloaded(f"All {self.size} workers are busy and {len(queue)} requests wait already.")
            leaver = queue.leaver(newcomer.tenant, large=newcomer.large)
            if leaver is None:
                raise busy
            queue.remove(leaver)
            leaver.turn.set_exception(busy)
        queue.add(newcomer)

    def _offer(self, worker: Worker) -> None:
        self._free.append(worker)
        self._hand_out()

    def _hand_out(self) -> None:
        """Lend free workers to the next tickets of the queue."""
        self._free = deque(worker for worker in self._free if worker.alive)
        lately = asyncio.get_running_loop().time() - self._small_seen < RESERVE_SECONDS
        while self._free:
            last = lately and len(self._free) == 1 < self.alive
            ticket = self._queue.next(large=not last)
            if ticket is None:
                return
            if not ticket.turn.done():
                ticket.turn.set_result(self._free.popleft())


#: Tells whether the answer to a request key is at hand already.
Known = Callable[[str], Awaitable[bool]]


async def _unknown(_key: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class Limits:
    """`total` seconds for any answer; once a fallback is there, `after_fallback` beyond the deadline for a
    better one. Where the deadline is shorter than `floor` seconds, the first answer may take those;
    without a `floor` the deadline means something else to the task.
    """

    total: float
    after_fallback: float = 0.0
    floor: float | None = None


async def run_task(
    pool: WorkerPool,
    task: str,
    head: Mapping[str, Any],
    body: bytes | Spool,
    limits: Limits,
    known: Known = _unknown,
    *,
    tenant: str = DEFAULT_TENANT,
) -> Frame:
    """Run one task in a worker as `converse` does, for `tenant`. Time counts from when there is a worker."""
    async with pool.lease(tenant, large=len(body) > SMALL_BYTES) as worker:
        return await converse(worker, task, head, body, limits, known)


async def converse(
    worker: Worker,
    task: str,
    head: Mapping[str, Any],
    body: bytes | Spool,
    limits: Limits,
    known: Known = _unknown,
    progress: Callable[[Mapping[str, Any]], None] = lambda _facts: None,
) -> Frame:
    """Run one task in a leased worker; its result, or its fallback when time ran out. Reading the request
    is part of the time.

    Where the answer is `known`, the result is empty. Raises `Problem`; a worker that is late is killed, at
    the latest when its lease ends.
    """
    loop = asyncio.get_running_loop()
    began, first = loop.time(), limits.total
    if limits.floor is not None and (named := named_deadline(body)) is not None:
        first = min(limits.total, max(named, limits.floor) + limits.after_fallback)
    fallback: Frame | None = None
    try:
        async with asyncio.timeout_at(began + first) as clock:
            await worker.send(task, head, body)
            while True:
                frame = await worker.receive()
                match frame.kind:
                    case "offer":
                        await worker.send("stop" if await known(frame.head["key"]) else "go", {})
                    case "progress":
                        progress(frame.head)
                    case "fallback":
                        fallback = frame
                        within = min(limits.total, frame.head["seconds"] + limits.after_fallback)
                        clock.reschedule(max(began + within, loop.time()))
                    case "problem":
                        facts = dict(frame.head)
                        facts.pop("last", None)
                        if (trace := facts.pop("traceback", None)) is not None:
                            _log.error("task failed", traceback=trace)
                        raise Problem(**facts)
                    case _:
                        return frame
    except TimeoutError:
        if fallback is not None:
            return fallback
        raise Problem(
            "time-limit",
            f"There was no answer within {first:g} s.",
            remedy='Ask for the "greedy" solver, name a deadline, or take a smaller graph.',
        ) from None
