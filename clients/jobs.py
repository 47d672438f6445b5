"""Jobs: work that goes on at the service after the caller has left."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Concatenate, Final, Generic, ParamSpec, TypeVar, overload
from urllib.parse import quote, urlencode

import httpx

from clients.deadlines import within
from clients.errors import ConnectionFailed, JobCancelled, JobNotFinished, ProblemError, UnexpectedAnswer
from clients.exchange import Exchange
from clients.requests import (
    GraphLike,
    Option,
    Timeout,
    address,
    given_options,
    is_cached,
    json_body,
    json_request,
    loaded,
    notes_of,
    problem_of,
    read_answer,
    reading,
)
from clients.results import LayoutResult, PlanResult, TradeOffResult, ValidationResult, VerdictResult
from clients.server_events import EventReader
from clients.shells import Asynchronous, AsyncShell, Blocking, BlockingShell, call, iteration
from clients.steps import Close, Emit, Emitting, Machine, Pause, Request, Steps, do, listen, read

__all__ = [
    "AsyncJob",
    "AsyncJobs",
    "Job",
    "JobCalls",
    "JobEvent",
    "JobProgress",
    "JobStatus",
    "Jobs",
    "JobsCalls",
]

P = ParamSpec("P")
T = TypeVar("T")

#: Larger graphs are stored under their digest first, so that they are sent once and not twice.
_INLINE_BYTES: Final = 1 << 20

#: States in which a job stays.
_ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})


@dataclass(frozen=True, slots=True)
class JobProgress:
    """How far a job is, as far as the service can tell: bytes, and seconds since its work began.

    While steps are looked for that run again, `extra_nanoseconds` is what they cost so far,
    `bound_nanoseconds` what they cost at least, of an iteration of `step_nanoseconds`; paging moves
    `moved_bytes`.
    """

    stage: str
    seconds: float
    done: float | None = None
    peak_bytes: int | None = None
    bound_bytes: int | None = None
    extra_nanoseconds: int | None = None
    bound_nanoseconds: int | None = None
    step_nanoseconds: int | None = None
    moved_bytes: int | None = None

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> JobProgress:
        known: dict[str, Any] = {each.name: document.get(each.name) for each in fields(cls)}
        return cls(**known)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """A job as it was when the service was asked. `state` is ``queued``, ``running``, ``succeeded``,
    ``failed`` or ``cancelled``; `error` is why it has failed, `attempts` how often it was begun.
    """

    id: str
    task: str
    state: str
    created: datetime
    started: datetime | None
    finished: datetime | None
    attempts: int
    progress: JobProgress | None
    error: ProblemError | None
    document: Mapping[str, Any] = field(repr=False)

    @property
    def ended(self) -> bool:
        """Whether it stays in this state."""
        return self.state in _ENDED

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> JobStatus:
        progress, error = document.get("progress"), document.get("error")
        return cls(
            id=document["id"],
            task=document["task"],
            state=document["state"],
            created=datetime.fromisoformat(document["created"]),
            started=_moment(document.get("started")),
            finished=_moment(document.get("finished")),
            attempts=document["attempts"],
            progress=None if progress is None else JobProgress.of(progress),
            error=None if error is None else problem_of(error),
            document=document,
        )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """News of a job: `kind` is ``state``, ``progress`` or, once, ``end``."""

    kind: str
    status: JobStatus


@dataclass(frozen=True, slots=True)
class Ticket(Generic[T]):
    """A job that was accepted, and how its result is read."""

    status: JobStatus
    read: Callable[[httpx.Response], T]


class JobCalls(Generic[T]):
    """The methods of `Job` and `AsyncJob`, whose result is a T.

    Once the result was read, `notes` are sentences on the import of the model; empty where none was sent.
    """

    exchange: Exchange

    def __init__(self, ticket: Ticket[T]) -> None:
        self.id: str = ticket.status.id
        self.notes: tuple[str, ...] = ()
        self._read = ticket.read

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    @call
    def status(self, *, timeout: Timeout = None) -> Steps[JobStatus]:
        """The job as it is now."""
        return (yield from _status(self.exchange, Request("GET", self._path(), timeout=timeout)))

    @call
    def wait(
        self, progress: Callable[[JobStatus], None] | None = None, *, timeout: float | None = None
    ) -> Steps[T]:
        """The result, once it is there; `progress` is called with each news of the job until then.

        Connections that break are made again. After `timeout` seconds in all `JobNotFinished` is raised, and
        the job goes on; without it, this waits for as long as the job takes. Raises what `result` raises.
        """

        def heard(event: JobEvent) -> None:
            if progress is not None:
                progress(event.status)

        def waited() -> Steps[T]:
            yield from listen(self._news(None), heard)
            return (yield from self._result(None))

        if timeout is None:
            return (yield from waited())
        return (yield from within(timeout, waited(), lambda: JobNotFinished(self.id, timeout)))

    @call
    def result(self, *, timeout: Timeout = None) -> Steps[T]:
        """The result of a job that has succeeded.

        Raises the `ProblemError` that a job has failed with, also `CapacityExceeded`; `JobCancelled`; and
        `ProblemError` where the job is not finished, or its result is kept no longer.
        """
        return (yield from self._result(timeout))

    @call
    def save(self, path: PathLike[str] | str, *, timeout: Timeout = None) -> Steps[int]:
        """Write the document of the result to a file as it comes, and return its bytes; raises as `result`.

        Where that fails, a file that was there stays as it was.
        """
        request = Request("GET", f"{self._path()}/result", timeout=timeout)
        response = yield from self.exchange.save(request, Path(path))
        self.notes = notes_of(response)
        with _telling_of_cancelled():
            if not response.is_success:
                read_answer(response)
        return (yield from do(Path(path).stat)).st_size

    @call
    def cancel(self, *, timeout: Timeout = None) -> Steps[JobStatus]:
        """End the job; one that has ended stays as it is."""
        return (yield from _status(self.exchange, Request("DELETE", self._path(), timeout=timeout)))

    @iteration
    def events(self, *, timeout: Timeout = None) -> Emitting[JobEvent]:
        """News of the job as they come, until it has ended. Connections that break are made again."""
        yield from self._news(timeout)

    def _path(self) -> str:
        return f"/v1/jobs/{quote(self.id, safe='')}"

    def _result(self, timeout: Timeout) -> Steps[T]:
        response = yield from self.exchange.ask(Request("GET", f"{self._path()}/result", timeout=timeout))
        self.notes = notes_of(response)
        with _telling_of_cancelled():
            return self._read(response)

    def _told(self, data: str) -> JobStatus:
        try:
            return JobStatus.of(json.loads(data))
        except (KeyError, TypeError, ValueError) as error:
            place = address(self.exchange.base, self._path())
            raise UnexpectedAnswer(f"{place} sent an event of another form: {error!r}.") from error

    def _news(self, timeout: Timeout) -> Emitting[JobEvent]:
        path = f"{self._path()}/events"
        headers = {"Accept": "text/event-stream"}
        silent = 0
        while True:
            opened = yield from self.exchange.open(Request("GET", path, headers=headers, timeout=timeout))
            if not opened.response.is_success:
                read_answer(opened.response)
            if not opened.response.headers.get("Content-Type", "").startswith("text/event-stream"):
                raise UnexpectedAnswer(f"{address(self.exchange.base, path)} answered without events.")
            reader = EventReader()
            broken: httpx.TransportError | None = None
            silent += 1
            try:
                while piece := (yield from read(opened)):
                    silent = 0
                    for event in reader.feed(piece):
                        headers["Last-Event-ID"] = event.id
                        yield Emit(JobEvent(event.kind, self._told(event.data)))
                        if event.kind == "end":
                            return
            except httpx.TransportError as error:
                broken = error
            yield Close(opened)
            # Before the end of the job: the service stops, or something in between has had enough.
            pause = self.exchange.retry.after_error(silent or 1, httpx.ReadError("ended"))
            if pause is None:
                place = address(self.exchange.base, path)
                raise ConnectionFailed(f"{place}: the events break off: {broken!r}") from broken
            yield Pause(pause)


@contextlib.contextmanager
def _telling_of_cancelled() -> Iterator[None]:
    try:
        yield
    except ProblemError as problem:
        if problem.type.endswith("/job-cancelled"):
            raise JobCancelled(problem.document) from None
        raise


class Job(JobCalls[T], Blocking):
    """A job at the service, with a result of type T. What a signature calls `Steps[R]` is an R."""

    def __init__(self, shell: BlockingShell, exchange: Exchange, ticket: Ticket[T]) -> None:
        super().__init__(ticket)
        self.shell, self.exchange = shell, exchange


class AsyncJob(JobCalls[T], Asynchronous):
    """`Job` with ``await``, and with asynchronous iterators."""

    def __init__(self, shell: AsyncShell, exchange: Exchange, ticket: Ticket[T]) -> None:
        super().__init__(ticket)
        self.shell, self.exchange = shell, exchange


class submission(Generic[P, T]):
    """A method that comes to a `Ticket`: it returns a `Job`, or awaited an `AsyncJob`."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[Ticket[T]]]) -> None:
        self.__doc__ = steps.__doc__
        self._steps = steps

    @overload
    def __get__(self, owner: None, kind: type) -> submission[P, T]: ...
    @overload
    def __get__(self, owner: Jobs, kind: type) -> Callable[P, Job[T]]: ...
    @overload
    def __get__(self, owner: AsyncJobs, kind: type) -> Callable[P, Coroutine[Any, Any, AsyncJob[T]]]: ...
    def __get__(self, owner: Jobs | AsyncJobs | None, kind: type) -> Any:
        if owner is None:
            return self
        if isinstance(owner, Jobs):

            def blocking(*args: P.args, **more: P.kwargs) -> Job[T]:
                ticket = owner.shell.run(Machine(self._steps(owner, *args, **more)))
                return Job(owner.shell, owner.exchange, ticket)

            return functools.wraps(self._steps)(blocking)

        async def asynchronous(*args: P.args, **more: P.kwargs) -> AsyncJob[T]:
            ticket = await owner.shell.run(Machine(self._steps(owner, *args, **more)))
            return AsyncJob(owner.shell, owner.exchange, ticket)

        return functools.wraps(self._steps)(asynchronous)


class JobsCalls:
    """The methods of `client.jobs`. They return as soon as the service has accepted the job, and keeps it.

    Arguments are those of the methods of the client. The service calls the address `webhook` once the job has
    ended. The same `idempotency_key` with the same request is the same job; each call makes one of its own
    unless it is given.
    """

    exchange: Exchange

    @submission
    def plan(
        self,
        /,
        graph: GraphLike,
        options: Mapping[str, Any] | None = None,
        *,
        webhook: str | None = None,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[Ticket[PlanResult]]:
        """Plan a graph, or a model of another tool."""
        order = _Order("plan", webhook, idempotency_key, timeout)
        members = {"options": given_options(options, more)}
        return (yield from self._submitted(order, graph, members, _plan))

    @submission
    def plan_program(
        self,
        /,
        program: GraphLike,
        options: Mapping[str, Any] | None = None,
        *,
        webhook: str | None = None,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[Ticket[PlanResult]]:
        """Plan explicit operations."""
        order = _Order("program", webhook, idempotency_key, timeout)
        members = {"options": given_options(options, more)}
        return (yield from self._submitted(order, program, members, _plan))

    @submission
    def layout(
        self,
        /,
        problem: GraphLike,
        options: Mapping[str, Any] | None = None,
        *,
        webhook: str | None = None,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[Ticket[LayoutResult]]:
        """Place bare buffers."""
        order = _Order("layout", webhook, idempotency_key, timeout)
        members = {"options": given_options(options, more)}
        return (yield from self._submitted(order, problem, members, _layout))

    @submission
    def tradeoff(
        self,
        /,
        graph: GraphLike,
        options: Mapping[str, Any] | None = None,
        *,
        points: int = 10,
        webhook: str | None = None,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[Ticket[TradeOffResult]]:
        """What smaller peaks cost in modelled time."""
        order = _Order("tradeoff", webhook, idempotency_key, timeout)
        members = {"options": given_options(options, more), "points": points}
        return (yield from self._submitted(order, graph, members, _with(TradeOffResult.of)))

    @submission
    def explain(
        self,
        /,
        graph: GraphLike,
        capacity: int | str,
        options: Mapping[str, Any] | None = None,
        *,
        training: bool = False,
        webhook: str | None = None,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[Ticket[VerdictResult]]:
        """Whether a capacity is enough, and what makes it so."""
        order = _Order("explain", webhook, idempotency_key, timeout)
        given = given_options(options, {**more, "capacity": capacity})
        members = {"options": given, "training": training}
        return (yield from self._submitted(order, graph, members, _with(VerdictResult.of)))

    @submission
    def validate(
        self,
        /,
        graph: GraphLike,
        plan: GraphLike,
        *,
        steps: int = 5,
        seed: int = 0,
        webhook: str | None = None,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[Ticket[ValidationResult]]:
        """Let the service train in the planned arena and compare bit for bit.

        Of a model of another tool, `more` is how it is trained (``loss="mse"``); any plan of it will do.
        """
        order = _Order("validate", webhook, idempotency_key, timeout)
        members: dict[str, Any] = {"plan": (yield from loaded(plan)).data, "steps": steps, "seed": seed}
        if more:
            members["options"] = given_options(None, more)
        return (yield from self._submitted(order, graph, members, _with(ValidationResult.of)))

    @submission
    def import_model(
        self,
        /,
        model: GraphLike,
        *,
        webhook: str | None = None,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[Ticket[dict[str, Any]]]:
        """The graph document of a model of another tool, with how it is trained (``loss="mse"``)."""
        order = _Order("import", webhook, idempotency_key, timeout)
        members = {"options": given_options(None, more)}
        return (yield from self._submitted(order, model, members, read_answer))

    @submission
    def get(self, job: str, *, timeout: Timeout = None) -> Steps[Ticket[Any]]:
        """A job by its id. Raises `ProblemError` with status 404 where there is none."""
        request = Request("GET", f"/v1/jobs/{quote(job, safe='')}", timeout=timeout)
        status = yield from _status(self.exchange, request)
        return Ticket(status, _READERS.get(status.task, read_answer))

    @iteration
    def list(self, *, state: str | None = None, timeout: Timeout = None) -> Emitting[JobStatus]:
        """All jobs, or those in a state, the newest first; they are fetched page by page."""
        last: str | None = None
        while True:
            given = {"limit": "100", "state": state, "after": last}
            query = urlencode({name: value for name, value in given.items() if value is not None})
            response = yield from self.exchange.ask(Request("GET", f"/v1/jobs?{query}", timeout=timeout))
            with reading(response) as document:
                page = [JobStatus.of(one) for one in document["jobs"]]
                more = document.get("next")
            for status in page:
                last = status.id
                yield Emit(status)
            if more is None:
                return

    def _submitted(
        self,
        order: _Order,
        given: GraphLike,
        members: Mapping[str, Any],
        read: Callable[[httpx.Response], T],
    ) -> Steps[Ticket[T]]:
        """The graph stands in the request; where it is large, or a model, it is stored before."""
        found = yield from loaded(given)
        asked: dict[str, Any] = {"task": order.task}
        if found.is_model or len(found.data) > _INLINE_BYTES or order.task == "import":
            asked["graph"] = yield from self._stored(found.data, found.media_type, order.timeout)
            asked["request"] = json_body(members)
        else:
            asked["request"] = json_body({_BEGINS_WITH.get(order.task, "graph"): found.data, **members})
        if order.webhook is not None:
            asked["webhook"] = {"url": order.webhook}
        key = order.idempotency_key or uuid.uuid4().hex
        request = json_request("/v1/jobs", asked, order.timeout, {"Idempotency-Key": key})
        return Ticket((yield from _status(self.exchange, request)), read)

    def _stored(self, data: bytes, media_type: str, timeout: Timeout) -> Steps[str]:
        """The digest of what the service keeps now; what it has already is not sent again."""
        digest = yield from do(lambda: hashlib.sha256(data).hexdigest())
        path = f"/v1/graphs/{digest}"
        known = yield from self.exchange.ask(Request("HEAD", path, timeout=timeout))
        if not known.is_success:
            headers = {"Content-Type": media_type}
            response = yield from self.exchange.ask(Request("PUT", path, data, headers, timeout))
            if not response.is_success:
                read_answer(response)
        return digest


class Jobs(JobsCalls, Blocking):
    """`client.jobs`."""

    def __init__(self, shell: BlockingShell, exchange: Exchange) -> None:
        self.shell, self.exchange = shell, exchange


class AsyncJobs(JobsCalls, Asynchronous):
    """`Jobs` with ``await``."""

    def __init__(self, shell: AsyncShell, exchange: Exchange) -> None:
        self.shell, self.exchange = shell, exchange


@dataclass(frozen=True, slots=True)
class _Order:
    task: str
    webhook: str | None
    idempotency_key: str | None
    timeout: Timeout


def _status(exchange: Exchange, request: Request) -> Steps[JobStatus]:
    with reading((yield from exchange.ask(request))) as document:
        return JobStatus.of(document)


def _plan(response: httpx.Response) -> PlanResult:
    with reading(response) as document:
        return PlanResult.of(document, notes_of(response), cached=is_cached(response))


def _layout(response: httpx.Response) -> LayoutResult:
    with reading(response) as document:
        return LayoutResult.of(document, cached=is_cached(response))


def _with(read: Callable[[Mapping[str, Any], tuple[str, ...]], T]) -> Callable[[httpx.Response], T]:
    def result(response: httpx.Response) -> T:
        with reading(response) as document:
            return read(document, notes_of(response))

    return result


_BEGINS_WITH: Final = {"program": "program", "layout": "problem"}

_READERS: Final[Mapping[str, Callable[[httpx.Response], Any]]] = {
    "plan": _plan,
    "program": _plan,
    "layout": _layout,
    "tradeoff": _with(TradeOffResult.of),
    "explain": _with(VerdictResult.of),
    "validate": _with(ValidationResult.of),
}
