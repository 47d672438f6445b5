"""Jobs: work that goes on at the service after the caller has left."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import Any, Final, Generic, TypeVar
from urllib.parse import quote, urlencode

import httpx

from clients import tasks
from clients.connections import AsyncConnection, Connection, Deadline
from clients.errors import ConnectionFailed, JobCancelled, JobNotFinished, ProblemError, UnexpectedAnswer
from clients.results import (
    LayoutResult,
    PlanResult,
    TradeOffResult,
    ValidationResult,
    VerdictResult,
)
from clients.retry import Retry
from clients.server_events import EventReader
from clients.tasks import (
    Entry,
    GraphLike,
    Option,
    Options,
    Request,
    Scores,
    Task,
    Timeout,
    read_answer,
    reading,
)

__all__ = ["AsyncJob", "AsyncJobs", "Job", "JobEvent", "JobProgress", "JobStatus", "Jobs"]

T = TypeVar("T")

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
            error=None if error is None else tasks.problem_of(error),
            document=document,
        )


def _moment(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


@dataclass(frozen=True, slots=True)
class JobEvent:
    """News of a job: `kind` is ``state``, ``progress`` or, once, ``end``."""

    kind: str
    status: JobStatus


class _News:
    """The events of one job, over as many connections as it takes."""

    def __init__(self, base: httpx.URL, path: str, retry: Retry, timeout: Timeout) -> None:
        self.ended = False
        self._address = tasks.address(base, path)
        self._path = path
        self._retry = retry
        self._timeout = timeout
        self._headers = {"Accept": "text/event-stream"}
        self._reader = EventReader()
        self._silent_connections = 0

    def request(self) -> Request:
        """The request that goes on after the last event."""
        return Request("GET", self._path, headers=dict(self._headers), timeout=self._timeout)

    def check(self, response: httpx.Response) -> None:
        """Raise the error of an answer that has no events."""
        if not response.is_success:
            read_answer(response)
        if not response.headers.get("Content-Type", "").startswith("text/event-stream"):
            raise UnexpectedAnswer(f"{self._address} answered without events.")
        self._reader = EventReader()
        self._silent_connections += 1

    def events(self, piece: bytes) -> Iterator[JobEvent]:
        """The events that end in this piece of the body."""
        self._silent_connections = 0
        for event in self._reader.feed(piece):
            self._headers["Last-Event-ID"] = event.id
            self.ended = event.kind == "end"
            try:
                status = JobStatus.of(json.loads(event.data))
            except (KeyError, TypeError, ValueError) as error:
                place = self._address.removesuffix("/events")
                raise UnexpectedAnswer(f"{place} sent an event of another form: {error!r}.") from error
            yield JobEvent(event.kind, status)
            if self.ended:
                return

    def pause(self, broken: httpx.TransportError | None) -> float:
        """Seconds until the stream is opened again, which ended before the job did.

        Raises ConnectionFailed after as many silent connections as there may be tries.
        """
        pause = self._retry.after_error(self._silent_connections or 1, httpx.ReadError("ended"))
        if pause is None:
            raise ConnectionFailed(f"{self._address}: the events break off: {broken!r}") from broken
        return pause


class _BaseJob(Generic[T]):
    """The attributes of both kinds of jobs."""

    def __init__(self, id: str, read: Callable[[httpx.Response], T]) -> None:
        self.id = id
        #: Notes on the import of the model, once the result was read. Empty where a graph was sent.
        self.notes: tuple[str, ...] = ()
        self._path = f"/v1/jobs/{quote(id, safe='')}"
        self._reader = read

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    def _request(self, method: str, timeout: Timeout, below: str = "") -> Request:
        return Request(method, self._path + below, timeout=timeout)

    def _read(self, response: httpx.Response, read: Callable[[httpx.Response], Any]) -> Any:
        """The result in a response. Raises JobCancelled where the job has none."""
        self.notes = tasks.notes_of(response)
        try:
            return read(response)
        except ProblemError as problem:
            if problem.type.endswith("/job-cancelled"):
                raise JobCancelled(problem.document) from None
            cause = problem.document.get("problem")
            if problem.type.endswith("/job-failed") and isinstance(cause, dict) and "type" in cause:
                raise tasks.problem_of(cause) from None
            raise


def _check(response: httpx.Response) -> None:
    if not response.is_success:
        read_answer(response)


def _read_status(response: httpx.Response) -> JobStatus:
    with reading(response) as document:
        return JobStatus.of(document)


class Job(_BaseJob[T]):
    """A job at the service, with a result of type T."""

    def __init__(self, connection: Connection, id: str, read: Callable[[httpx.Response], T]) -> None:
        super().__init__(id, read)
        self._connection = connection

    def status(self, *, timeout: Timeout = None) -> JobStatus:
        """The job as it is now."""
        return _read_status(self._connection.ask(self._request("GET", timeout)))

    def wait(self, progress: Callable[[JobStatus], None] | None = None, *, timeout: float | None = None) -> T:
        """The result, once it is there; `progress` is called with each news of the job until then.

        Connections that break are made again. After `timeout` seconds in all `JobNotFinished` is raised, and
        the job goes on; without it, this waits for as long as the job takes. Raises what `result` raises.
        """
        clock = self._connection.clock
        late = None if timeout is None else Deadline(timeout, JobNotFinished(self.id, timeout), clock)
        for event in self._news(None, late):
            if progress is not None:
                progress(event.status)
        return self._result(None, late)

    def result(self, *, timeout: Timeout = None) -> T:
        """The result of a job that has succeeded.

        Raises the `ProblemError` that a job has failed with, also `CapacityExceeded`; `JobCancelled`; and
        `ProblemError` where the job is not finished, or its result is kept no longer.
        """
        return self._result(timeout, None)

    def save(self, path: PathLike[str] | str, *, timeout: Timeout = None) -> int:
        """Write the document of the result to a file as it comes, and return its bytes; raises as `result`.

        If that fails, a file that was there stays as it was.
        """
        response = self._connection.ask(self._request("GET", timeout, "/result"), save=Path(path))
        self._read(response, _check)
        return Path(path).stat().st_size

    def cancel(self, *, timeout: Timeout = None) -> JobStatus:
        """End the job; one that has ended stays as it is."""
        return _read_status(self._connection.ask(self._request("DELETE", timeout)))

    def events(self, *, timeout: Timeout = None) -> Iterator[JobEvent]:
        """News of the job as they come, until it has ended. Connections that break are made again."""
        return self._news(timeout, None)

    def _result(self, timeout: Timeout, deadline: Deadline | None) -> T:
        response = self._connection.ask(self._request("GET", timeout, "/result"), deadline=deadline)
        result: T = self._read(response, self._reader)
        return result

    def _news(self, timeout: Timeout, deadline: Deadline | None) -> Iterator[JobEvent]:
        connection = self._connection
        news = _News(connection.http.base_url, f"{self._path}/events", connection.retry, timeout)
        while True:
            broken: httpx.TransportError | None = None
            response = connection.ask(news.request(), stream=True, deadline=deadline)
            longest = response.request.extensions["timeout"]["read"]
            with contextlib.closing(response):
                news.check(response)
                try:
                    for piece in response.iter_bytes():
                        yield from news.events(piece)
                        if news.ended:
                            return
                        if deadline is not None and deadline.left() < longest:
                            break
                except httpx.TransportError as error:
                    broken = error
            pause = news.pause(broken)
            if deadline is not None:
                deadline.check_pause(pause)
            connection.sleep(pause)


class AsyncJob(_BaseJob[T]):
    """`Job` with ``await``, and with asynchronous iterators."""

    def __init__(self, connection: AsyncConnection, id: str, read: Callable[[httpx.Response], T]) -> None:
        super().__init__(id, read)
        self._connection = connection

    async def status(self, *, timeout: Timeout = None) -> JobStatus:
        """See `Job.status`."""
        return _read_status(await self._connection.ask(self._request("GET", timeout)))

    async def wait(
        self, progress: Callable[[JobStatus], None] | None = None, *, timeout: float | None = None
    ) -> T:
        """See `Job.wait`."""
        try:
            async with asyncio.timeout(timeout) as waiting, contextlib.aclosing(self._news(None)) as news:
                async for event in news:
                    if progress is not None:
                        progress(event.status)
                return await self.result()
        except TimeoutError:
            if timeout is not None and waiting.expired():
                raise JobNotFinished(self.id, timeout) from None
            raise

    async def result(self, *, timeout: Timeout = None) -> T:
        """See `Job.result`."""
        response = await self._connection.ask(self._request("GET", timeout, "/result"))
        result: T = self._read(response, self._reader)
        return result

    async def save(self, path: PathLike[str] | str, *, timeout: Timeout = None) -> int:
        """See `Job.save`."""
        response = await self._connection.ask(self._request("GET", timeout, "/result"), save=Path(path))
        self._read(response, _check)
        return (await asyncio.to_thread(Path(path).stat)).st_size

    async def cancel(self, *, timeout: Timeout = None) -> JobStatus:
        """See `Job.cancel`."""
        return _read_status(await self._connection.ask(self._request("DELETE", timeout)))

    def events(self, *, timeout: Timeout = None) -> AsyncIterator[JobEvent]:
        """See `Job.events`."""
        return self._news(timeout)

    async def _news(self, timeout: Timeout) -> AsyncGenerator[JobEvent, None]:
        connection = self._connection
        news = _News(connection.http.base_url, f"{self._path}/events", connection.retry, timeout)
        while True:
            broken: httpx.TransportError | None = None
            async with contextlib.aclosing(await connection.ask(news.request(), stream=True)) as response:
                news.check(response)
                try:
                    async for piece in response.aiter_bytes():
                        for event in news.events(piece):
                            yield event
                        if news.ended:
                            return
                except httpx.TransportError as error:
                    broken = error
            await connection.sleep(news.pause(broken))


@dataclass(frozen=True, slots=True)
class _Order:
    """How a job is submitted, beside the task."""

    idempotency_key: str | None
    timeout: Timeout

    def request(self, task: Task[Any], digest: str | None) -> Request:
        document = task.job_fields(digest)
        headers = {"Idempotency-Key": self.idempotency_key or uuid.uuid4().hex}
        return tasks.json_request("/v1/jobs", document, self.timeout, headers)


def _stored_at(data: bytes) -> tuple[str, str]:
    """The digest of a stored graph, and its path."""
    digest = hashlib.sha256(data).hexdigest()
    return digest, f"/v1/graphs/{digest}"


def _page_path(state: str | None, last: str | None) -> str:
    query = {"limit": "100", "state": state, "after": last}
    return f"/v1/jobs?{urlencode({name: value for name, value in query.items() if value is not None})}"


def _read_page(response: httpx.Response) -> tuple[list[JobStatus], bool]:
    """The jobs of a page, and whether there is another one."""
    with reading(response) as document:
        return [JobStatus.of(one) for one in document["jobs"]], document.get("next") is not None


class Jobs:
    """`client.jobs`: its methods return as soon as the service has accepted the job, and keeps it.

    Arguments are those of the methods of the client. The same `idempotency_key` with the same request is the
    same job; without it, each call makes a new one.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def plan(
        self,
        /,
        graph: GraphLike,
        options: Options = None,
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Job[PlanResult]:
        """Plan a graph, or a model of another tool."""
        return self._submit(tasks.plan(graph, options, more), _Order(idempotency_key, timeout))

    def deploy(
        self,
        /,
        models: GraphLike | Mapping[str, GraphLike],
        entries: Sequence[Entry] = (),
        options: Options = None,
        *,
        ties: Sequence[str] = (),
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Job[PlanResult]:
        """Plan several programs for one arena. Several models together are sent in the job itself."""
        return self._submit(
            tasks.deploy(models, entries, ties, options, more), _Order(idempotency_key, timeout)
        )

    def plan_program(
        self,
        /,
        program: GraphLike,
        options: Options = None,
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Job[PlanResult]:
        """Plan explicit operations."""
        return self._submit(tasks.program(program, options, more), _Order(idempotency_key, timeout))

    def layout(
        self,
        /,
        problem: GraphLike,
        options: Options = None,
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Job[LayoutResult]:
        """Place bare buffers."""
        return self._submit(tasks.layout(problem, options, more), _Order(idempotency_key, timeout))

    def tradeoff(
        self,
        /,
        graph: GraphLike,
        options: Options = None,
        *,
        points: int = 10,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Job[TradeOffResult]:
        """The costs of smaller peaks, in modelled time."""
        return self._submit(tasks.tradeoff(graph, options, more, points), _Order(idempotency_key, timeout))

    def explain(
        self,
        /,
        graph: GraphLike,
        capacity: int | str,
        options: Options = None,
        *,
        training: bool = True,
        scores: Scores = None,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Job[VerdictResult]:
        """Whether a capacity is enough, and which measures make it so."""
        return self._submit(
            tasks.explain(graph, capacity, options, more, training, scores),
            _Order(idempotency_key, timeout),
        )

    def validate(
        self,
        /,
        graph: GraphLike | Mapping[str, GraphLike],
        plan: GraphLike,
        *,
        steps: int = 5,
        seed: int = 0,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Job[ValidationResult]:
        """Let the service train in the planned arena and compare bit for bit.

        Of a plan of several models, `graph` has their graphs by name. Of a model of another tool, `more` says
        how it is trained (``loss="mse"``); any plan of it will do.
        """
        return self._submit(tasks.validate(graph, plan, steps, seed, more), _Order(idempotency_key, timeout))

    def import_model(
        self,
        /,
        model: GraphLike,
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> Job[dict[str, Any]]:
        """The graph document of a model of another tool, with how it is trained (``loss="mse"``)."""
        return self._submit(tasks.import_model(model, more), _Order(idempotency_key, timeout))

    def get(self, job: str, *, timeout: Timeout = None) -> Job[Any]:
        """A job by its id. Raises `ProblemError` with status 404 where there is none."""
        request = Request("GET", f"/v1/jobs/{quote(job, safe='')}", timeout=timeout)
        status = _read_status(self._connection.ask(request))
        return Job(self._connection, status.id, tasks.READERS.get(status.task, read_answer))

    def list(self, *, state: str | None = None, timeout: Timeout = None) -> Iterator[JobStatus]:
        """All jobs, or those in a state, the newest first; they are fetched page by page."""
        last: str | None = None
        more = True
        while more:
            request = Request("GET", _page_path(state, last), timeout=timeout)
            page, more = _read_page(self._connection.ask(request))
            for status in page:
                last = status.id
                yield status

    def _submit(self, task: Task[T], order: _Order) -> Job[T]:
        """Submit a job; a large graph, or a model, is stored first."""
        digest = self._stored(task, order.timeout) if task.is_stored_first else None
        status = _read_status(self._connection.ask(order.request(task, digest)))
        return Job(self._connection, status.id, task.read)

    def _stored(self, task: Task[Any], timeout: Timeout) -> str:
        """The digest under which the service keeps the graph. It is sent unless the service has it."""
        digest, path = _stored_at(task.subject.data)
        if not self._connection.ask(Request("HEAD", path, timeout=timeout)).is_success:
            headers = {"Content-Type": task.subject.media_type}
            _check(self._connection.ask(Request("PUT", path, task.subject.data, headers, timeout)))
        return digest


class AsyncJobs:
    """`Jobs` with ``await``."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def plan(
        self,
        /,
        graph: GraphLike,
        options: Options = None,
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> AsyncJob[PlanResult]:
        """See `Jobs.plan`."""
        task = await asyncio.to_thread(tasks.plan, graph, options, more)
        return await self._submit(task, _Order(idempotency_key, timeout))

    async def deploy(
        self,
        /,
        models: GraphLike | Mapping[str, GraphLike],
        entries: Sequence[Entry] = (),
        options: Options = None,
        *,
        ties: Sequence[str] = (),
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> AsyncJob[PlanResult]:
        """See `Jobs.deploy`."""
        task = await asyncio.to_thread(tasks.deploy, models, entries, ties, options, more)
        return await self._submit(task, _Order(idempotency_key, timeout))

    async def plan_program(
        self,
        /,
        program: GraphLike,
        options: Options = None,
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> AsyncJob[PlanResult]:
        """See `Jobs.plan_program`."""
        task = await asyncio.to_thread(tasks.program, program, options, more)
        return await self._submit(task, _Order(idempotency_key, timeout))

    async def layout(
        self,
        /,
        problem: GraphLike,
        options: Options = None,
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> AsyncJob[LayoutResult]:
        """See `Jobs.layout`."""
        task = await asyncio.to_thread(tasks.layout, problem, options, more)
        return await self._submit(task, _Order(idempotency_key, timeout))

    async def tradeoff(
        self,
        /,
        graph: GraphLike,
        options: Options = None,
        *,
        points: int = 10,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> AsyncJob[TradeOffResult]:
        """See `Jobs.tradeoff`."""
        task = await asyncio.to_thread(tasks.tradeoff, graph, options, more, points)
        return await self._submit(task, _Order(idempotency_key, timeout))

    async def explain(
        self,
        /,
        graph: GraphLike,
        capacity: int | str,
        options: Options = None,
        *,
        training: bool = True,
        scores: Scores = None,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> AsyncJob[VerdictResult]:
        """See `Jobs.explain`."""
        task = await asyncio.to_thread(tasks.explain, graph, capacity, options, more, training, scores)
        return await self._submit(task, _Order(idempotency_key, timeout))

    async def validate(
        self,
        /,
        graph: GraphLike | Mapping[str, GraphLike],
        plan: GraphLike,
        *,
        steps: int = 5,
        seed: int = 0,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> AsyncJob[ValidationResult]:
        """See `Jobs.validate`."""
        task = await asyncio.to_thread(tasks.validate, graph, plan, steps, seed, more)
        return await self._submit(task, _Order(idempotency_key, timeout))

    async def import_model(
        self,
        /,
        model: GraphLike,
        *,
        idempotency_key: str | None = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> AsyncJob[dict[str, Any]]:
        """See `Jobs.import_model`."""
        task = await asyncio.to_thread(tasks.import_model, model, more)
        return await self._submit(task, _Order(idempotency_key, timeout))

    async def get(self, job: str, *, timeout: Timeout = None) -> AsyncJob[Any]:
        """See `Jobs.get`."""
        request = Request("GET", f"/v1/jobs/{quote(job, safe='')}", timeout=timeout)
        status = _read_status(await self._connection.ask(request))
        return AsyncJob(self._connection, status.id, tasks.READERS.get(status.task, read_answer))

    async def list(self, *, state: str | None = None, timeout: Timeout = None) -> AsyncIterator[JobStatus]:
        """See `Jobs.list`."""
        last: str | None = None
        more = True
        while more:
            request = Request("GET", _page_path(state, last), timeout=timeout)
            page, more = _read_page(await self._connection.ask(request))
            for status in page:
                last = status.id
                yield status

    async def _submit(self, task: Task[T], order: _Order) -> AsyncJob[T]:
        digest = await self._stored(task, order.timeout) if task.is_stored_first else None
        status = _read_status(await self._connection.ask(order.request(task, digest)))
        return AsyncJob(self._connection, status.id, task.read)

    async def _stored(self, task: Task[Any], timeout: Timeout) -> str:
        digest, path = await asyncio.to_thread(_stored_at, task.subject.data)
        if not (await self._connection.ask(Request("HEAD", path, timeout=timeout))).is_success:
            headers = {"Content-Type": task.subject.media_type}
            _check(await self._connection.ask(Request("PUT", path, task.subject.data, headers, timeout)))
        return digest
