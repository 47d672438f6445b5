"""The clients: `Client` for ordinary programs, `AsyncClient` for programs with an event loop.

Each method is written once, with ``await``, and marked as such: a class that `blocks` has one that returns
the result itself. Tasks are written once for both clients and their jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import inspect
import json
import time
import uuid
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import (
    Any,
    ClassVar,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeVar,
    cast,
    overload,
)
from urllib.parse import quote, urlencode

import httpx

from clients import connections
from clients.connections import Connection, Deadline, Request, Retry, Timeout
from clients.errors import (
    CapacityExceeded,
    ConnectionFailed,
    JobCancelled,
    JobNotFinished,
    ProblemError,
    UnexpectedAnswer,
    WrongArgument,
    problem_of,
)
from clients.results import (
    JobEvent,
    JobStatus,
    LayoutResult,
    PlanResult,
    SavedPlan,
    TradeOffResult,
    ValidationResult,
    VerdictResult,
    check,
    is_cached,
    notes_of,
    read,
)

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
Awaited = Coroutine[Any, Any, T]

#: A document (a graph, program, plan, buffers) as JSON values, as the bytes of its file, or that file's path.
#: In the place of a graph, the bytes or the path of a model of another tool will do: ONNX, Circle and others.
GraphLike = Mapping[str, Any] | bytes | PathLike[str]

#: The types of documents. No value of a graph document has one of them but those of its rules.
_DOCUMENTS: Final = (Mapping, bytes, PathLike)

#: The value of an option: a number, a text as "24MiB", a list of texts; None leaves it to the service.
Option = int | float | str | Sequence[str] | Mapping[str, Any] | None

#: Options by name. A keyword of a call goes before the same option of this mapping.
Options = Mapping[str, Any] | None

#: Scores of layers by the name of an operation or parameter, or "bytes".
Scores = Mapping[str, float] | Literal["bytes"] | None

#: An entry point: text as ``infer:batch=1,name=camera``, or its fields, ``purpose``, ``model``, ``batch`` and
#: ``name``.
Entry = str | Mapping[str, Any]

#: Graphs of more bytes are stored under their digest before a job names them: a job that is sent again does
#: not send them again.
INLINE_BYTES: Final = 1 << 20

_JSON_TYPE: Final = "application/json"
_MODEL_TYPE: Final = "application/octet-stream"
_MODEL_SUFFIXES: Final = (".onnx", ".circle", ".tflite", ".ini")

#: Parameters of a query that may be given several times.
_REPEATED: Final = ("dim", "input", "freeze_before", "entries", "ties")


# -------------------------------------------------------------------------------- what is sent


@dataclass(frozen=True, slots=True)
class Task(Generic[T]):
    """Work for the service: a route does it at once (`request`), or a job does it later (`job_requests`).

    `of` makes the result, as `read` says. The subject is a graph or a model of another tool, unless `member`,
    which holds it in a request, is that of another document, or of several ``models`` by name.

    The methods read files and write JSON. They raise OSError for a file that cannot be read, WrongArgument
    and ValueError for what cannot be sent.
    """

    name: str
    of: Callable[..., T]
    subject: Any
    options: dict[str, Any]
    members: Mapping[str, Any] = field(default_factory=dict)
    member: str = "graph"

    def request(self, timeout: Timeout) -> Request:
        """The request that is answered with the result."""
        path, members = f"/v1/{self.name}", self._read_members()
        data, is_model = self._read_subject()
        if not is_model:
            # Validation takes only options of models, so its documents have no member for options.
            options = self.options if self.name == "validate" else {"options": self.options}
            return _json_request(path, {self.member: data, **options, **members}, timeout)
        if "plan" in members:
            members["plan"] = _digest_of(members["plan"])
        query = {**self.options, **members}
        pairs = [pair for name, value in query.items() for pair in _query_pairs(name, value)]
        target = f"{path}?{urlencode(pairs)}" if pairs else path
        return Request("POST", target, data, {"Content-Type": _MODEL_TYPE}, timeout)

    def job_requests(self, timeout: Timeout) -> tuple[Request | None, Request]:
        """The request that stores a large graph or a model, None for others, and that which submits the job.

        An option called `idempotency_key` is that of the job; without it, each call makes a new one.
        """
        options, members = dict(self.options), self._read_members()
        headers = {"Idempotency-Key": options.pop("idempotency_key", None) or uuid.uuid4().hex}
        data, is_model = self._read_subject()
        if options or self.name != "validate":
            members["options"] = options
        # Several models are sent in the job itself.
        if self.member == "models" or not (is_model or len(data) > INLINE_BYTES or self.name == "import"):
            document = {"task": self.name, "request": _json_body({self.member: data, **members})}
            return None, _json_request("/v1/jobs", document, timeout, headers)
        digest, kind = hashlib.sha256(data).hexdigest(), _MODEL_TYPE if is_model else _JSON_TYPE
        store = Request("PUT", f"/v1/graphs/{digest}", data, {"Content-Type": kind}, timeout)
        document = {"task": self.name, "graph": digest, "request": _json_body(members)}
        return store, _json_request("/v1/jobs", document, timeout, headers)

    def _read_members(self) -> dict[str, Any]:
        return {name: _document(value) if name == "plan" else value for name, value in self.members.items()}

    def _read_subject(self) -> tuple[bytes, bool]:
        """The bytes to send, and whether they are a model of another tool."""
        if self.member == "models":
            return _json_body({name: _document(model) for name, model in self.subject.items()}), False
        if self.member != "graph":
            return _document(self.subject), False
        data, is_model = _read(self.subject)
        if is_model and self.members.get("entries") == []:
            raise WrongArgument(
                "A model of another tool has no entry point by itself. Give entries=['train']."
            )
        return data, is_model


# ----------------------------------------------------------------------------------------- arguments


def _read(graph: GraphLike) -> tuple[bytes, bool]:
    """The bytes of a graph or model, and whether it is a model of another tool.

    They are not read as JSON here, since the service judges them.
    """
    if isinstance(graph, bytes):
        return graph, _looks_like_a_model(graph)
    if isinstance(graph, PathLike):
        path = Path(graph)
        data, suffix = path.read_bytes(), path.suffix.lower()
        return data, suffix in _MODEL_SUFFIXES or (suffix != ".json" and _looks_like_a_model(data))
    if not isinstance(graph, Mapping):
        raise WrongArgument(
            f"A document of type {type(graph).__name__} cannot be sent. Give its JSON values as a mapping,"
            " its bytes, or a pathlib.Path of its file."
        )
    return _json_bytes(graph), False


def _document(document: GraphLike) -> bytes:
    data, is_model = _read(document)
    if is_model:
        raise ValueError("A model of another tool will not do here: it stands in the place of a graph only.")
    return data


def listed(values: Sequence[Any], name: str) -> list[Any]:
    """Raises WrongArgument for a text, whose letters would be sent."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise WrongArgument(f"{name} is {values!r:.80}. Give a list, as {name}=[{values!r:.80}].")
    return list(values)


def merged(options: Options, more: Mapping[str, Any]) -> dict[str, Any]:
    """Both together; `more` wins. Options that are None are left to the service."""
    return {name: value for name, value in {**(options or {}), **more}.items() if value is not None}


def path_of(*parts: str, **query: str | None) -> str:
    """A path below ``/v1``, with those of the parameters that have a value."""
    path = "/".join(["/v1", *(quote(part, safe="") for part in parts)])
    pairs = {name: value for name, value in query.items() if value is not None}
    return f"{path}?{urlencode(pairs, quote_via=quote, safe='')}" if pairs else path


def _looks_like_a_model(data: bytes) -> bool:
    """A FlatBuffers file with an identifier of Circle or TensorFlow Lite, or a protobuf such as ONNX's."""
    return data.startswith(b"\x08") or data[4:8] in {b"CIR0", b"TFL3"}


def _digest_of(plan: bytes) -> str:
    document = json.loads(plan)
    if not isinstance(document, dict) or not isinstance(document.get("digest"), str):
        raise ValueError("This is not the document of a plan: it has no digest.")
    return str(document["digest"])


def _json_bytes(value: Any) -> bytes:
    """Raises ValueError for NaN and infinities, which JSON does not have, WrongArgument for other types."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except TypeError as error:
        raise WrongArgument(f"{error}. Give numbers, text, lists or mappings of these.") from None


def _json_body(members: Mapping[str, Any]) -> bytes:
    """One JSON object; members that are bytes are JSON already."""
    texts = (
        b"%b:%b" % (_json_bytes(name), value if isinstance(value, bytes) else _json_bytes(value))
        for name, value in members.items()
    )
    return b"{%b}" % b",".join(texts)


def _json_request(
    path: str, members: Mapping[str, Any], timeout: Timeout, headers: Mapping[str, str] | None = None
) -> Request:
    """A POST of one JSON object."""
    headers = {"Content-Type": _JSON_TYPE, **(headers or {})}
    return Request("POST", path, _json_body(members), headers, timeout)


def _query_pairs(name: str, value: Any) -> list[tuple[str, str]]:
    if name in _REPEATED:
        values = [value] if isinstance(value, str) else value
        return [(name, json.dumps(one) if isinstance(one, Mapping) else str(one)) for one in values]
    return [(name, value if isinstance(value, str) else json.dumps(value, allow_nan=False))]


# --------------------------------------------------------------------------- what is written once


class once(Generic[P, T]):
    """Marks a method that is written once, with ``await``. In `Jobs` it returns a job with that result."""

    def __init__(self, flow: Callable[Concatenate[Any, P], Awaited[T]]) -> None:
        self._flow = flow

    @overload
    def __get__(self, owner: Client | Job[Any], kind: object) -> Callable[P, T]: ...
    @overload
    def __get__(self, owner: AsyncClient | AsyncJob[Any], kind: object) -> Callable[P, Awaited[T]]: ...
    @overload
    def __get__(self, owner: Jobs, kind: object) -> Callable[P, Job[T]]: ...
    @overload
    def __get__(self, owner: AsyncJobs, kind: object) -> Callable[P, Awaited[AsyncJob[T]]]: ...
    @overload
    def __get__(self, owner: None, kind: object) -> Callable[..., Any]: ...
    def __get__(self, owner: object, kind: object) -> Any:
        return self

    def method(self, kind: type, *, blocks: bool) -> Callable[..., Any]:
        """The method itself, as a class has it."""
        flow = self._flow

        def blocking(*arguments: Any, **more: Any) -> T:
            return connections.finished(flow(*arguments, **more))

        async def awaited(*arguments: Any, **more: Any) -> T:
            return await flow(*arguments, **more)

        method = functools.update_wrapper(blocking if blocks else awaited, flow)
        method.__qualname__ = f"{kind.__name__}.{flow.__name__}"
        if (job := getattr(kind, "_job", None)) is not None:  # of `Jobs`
            signature = inspect.signature(flow)
            *parameters, last = signature.parameters.values()
            if last.kind is last.VAR_KEYWORD:
                key = inspect.Parameter(
                    "idempotency_key", last.KEYWORD_ONLY, default=None, annotation="str | None"
                )
                parameters.append(key)
            result = f"{job.__name__}[{signature.return_annotation}]"
            signature = signature.replace(parameters=[*parameters, last], return_annotation=result)
            vars(method)["__signature__"] = signature
        return method


class _Kind:
    """A class with methods that are written once."""

    def __init_subclass__(cls, *, blocks: bool | None = None) -> None:
        super().__init_subclass__()
        for name, mark in inspect.getmembers(cls) if blocks is not None else ():
            if isinstance(mark, once):
                setattr(cls, name, mark.method(cls, blocks=blocks is True))


# -------------------------------------------------------------------------------------------- tasks


class _Tasks(_Kind):
    """The tasks of a service, each a request that `_do` sends and awaits."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def _do(self, task: Task[T], timeout: Timeout) -> T:
        request = await self._connection.network.call(task.request, timeout)
        return read(await self._connection.ask(request), task.of)

    @once
    async def plan(
        self, /, graph: GraphLike, options: Options = None, *, timeout: Timeout = None, **more: Option
    ) -> PlanResult:
        """Plan a graph (``batch=32, capacity="24MiB"``), or a model of another tool (``loss="mse"``).

        Raises `CapacityExceeded` if a capacity is among the options and the arena does not fit it.
        """
        return await self._do(Task("plan", PlanResult.of, graph, merged(options, more)), timeout)

    @once
    async def deploy(
        self,
        /,
        models: GraphLike | Mapping[str, GraphLike],
        entries: Sequence[Entry] = (),
        options: Options = None,
        *,
        ties: Sequence[str] = (),
        timeout: Timeout = None,
        **more: Option,
    ) -> PlanResult:
        """Plan several programs for one arena, in which they run one at a time.

        `models` is a network as for `plan`, or several graphs and programs by name. `entries` are as
        ``["train", "infer:batch=1", {"purpose": "infer", "batch": 1, "name": "camera"}]``, with the name of
        the model in front of the purpose where there are several; without entries each model is one. `ties`
        join values of different models: ``["a.encoder.*=b.encoder.*"]``. Options as for `plan`; the capacity
        is that of the whole arena.
        """
        members = {"entries": listed(entries, "entries"), "ties": listed(ties, "ties")}
        member = "models" if isinstance(models, Mapping) and "format" not in models else "graph"
        task = Task("plan", PlanResult.of, models, merged(options, more), members, member)
        return await self._do(task, timeout)

    @once
    async def plan_program(
        self, /, program: GraphLike, options: Options = None, *, timeout: Timeout = None, **more: Option
    ) -> PlanResult:
        """Plan explicit operations; options as for `plan` (``parallelism=2``). It is kept where plans are."""
        task = Task("program", PlanResult.of, program, merged(options, more), member="program")
        return await self._do(task, timeout)

    @once
    async def layout(
        self, /, problem: GraphLike, options: Options = None, *, timeout: Timeout = None, **more: Option
    ) -> LayoutResult:
        """Place bare buffers (``capacity=2**20, alignment=16``).

        Raises `CapacityExceeded` if there is a capacity and no layout within it was found.
        """
        task = Task("layout", LayoutResult.of, problem, merged(options, more), member="problem")
        return await self._do(task, timeout)

    @once
    async def tradeoff(
        self,
        /,
        graph: GraphLike,
        options: Options = None,
        *,
        points: int = 10,
        timeout: Timeout = None,
        **more: Option,
    ) -> TradeOffResult:
        """The costs of smaller peaks in modelled time, of a graph or a model of another tool.

        Options are those of `plan`; a capacity is ignored.
        """
        task = Task("tradeoff", TradeOffResult.of, graph, merged(options, more), {"points": points})
        return await self._do(task, timeout)

    @once
    async def explain(
        self,
        /,
        graph: GraphLike,
        capacity: int | str,
        options: Options = None,
        *,
        training: bool = True,
        scores: Scores = None,
        timeout: Timeout = None,
        **more: Option,
    ) -> VerdictResult:
        """Whether a capacity (bytes, or text as "24MiB") is enough, and which measures make it so.

        The network is a graph or a model of another tool. Without `training`, measures that change what is
        learned are not tried. With `scores` of layers the remedy is to train those that fit with the largest
        sum.
        """
        chosen = merged(options, {**more, "capacity": capacity})
        members = merged({"training": training}, {"scores": scores})
        return await self._do(Task("explain", VerdictResult.of, graph, chosen, members), timeout)

    @once
    async def validate(
        self,
        /,
        graph: GraphLike | Mapping[str, GraphLike],
        plan: GraphLike,
        *,
        steps: int = 5,
        seed: int = 0,
        timeout: Timeout = None,
        **more: Option,
    ) -> ValidationResult:
        """Let the service train `steps` steps in the planned arena and compare bit for bit.

        Of a plan of several models, `graph` has their graphs by name. Of a model of another tool, `more` says
        how it is trained (``loss="mse"``). A job takes any plan of it; a call without a job needs a plan that
        the service still keeps, as only its digest is sent.
        """
        members = {"steps": steps, "seed": seed, "plan": plan}
        # No value of a graph document is a document, but that of a rule.
        several = isinstance(graph, Mapping) and all(isinstance(v, _DOCUMENTS) for v in graph.values())
        member = "models" if several else "graph"
        task = Task("validate", ValidationResult.of, graph, merged(None, more), members, member)
        return await self._do(task, timeout)


# ------------------------------------------------------------------------------------------ clients


class _Client(_Tasks):
    """The methods of both clients."""

    @once
    async def save_plan(
        self,
        /,
        graph: GraphLike,
        path: PathLike[str] | str,
        options: Options = None,
        *,
        timeout: Timeout = None,
        **more: Option,
    ) -> SavedPlan:
        """Plan as `plan` does, and write the plan to a file as it comes, so that it need not fit into memory.

        If that fails, a file that was there stays as it was.
        """
        call, file = self._connection.network.call, Path(path)
        request = await call(Task("plan", PlanResult.of, graph, merged(options, more)).request, timeout)
        response = check(await self._connection.ask(replace(request, save=file)))
        digest, size = response.headers.get("ETag", "").strip('"'), (await call(file.stat)).st_size
        return SavedPlan(digest, file, size, is_cached(response), notes_of(response))

    @once
    async def fits(
        self, /, graph: GraphLike, capacity: int | str, *, timeout: Timeout = None, **more: Option
    ) -> bool:
        """Whether an arena of at most `capacity` (bytes, or text as "24MiB") was found."""
        options = merged(more, {"capacity": capacity})
        try:
            await self._do(Task("plan", PlanResult.of, graph, options), timeout)
        except CapacityExceeded:
            return False
        return True

    @once
    async def stored_plan(
        self, digest: str, *, entry_point: str | None = None, timeout: Timeout = None
    ) -> PlanResult:
        """A plan that the service still keeps; `ProblemError` with status 404 if it does not.

        Of a plan with entry points all of them, or the plan of the one named `entry_point`.
        """
        path = path_of("plans", digest, entry_point=entry_point)
        response = await self._connection.ask(Request("GET", path, timeout=timeout))
        return replace(read(response, PlanResult.of), cached=True)

    @once
    async def stored_layout(self, digest: str, *, timeout: Timeout = None) -> LayoutResult:
        """A layout that the service still keeps; `ProblemError` with status 404 if it does not."""
        response = await self._connection.ask(Request("GET", path_of("layouts", digest), timeout=timeout))
        return replace(read(response, LayoutResult.of), cached=True)

    @once
    async def export(
        self,
        digest: str,
        format_: str,
        *,
        against: str | None = None,
        entry_point: str | None = None,
        weights: str | None = None,
        timeout: Timeout = None,
    ) -> bytes:
        """A plan that the service still keeps, as a file: c-header, report, perfetto, offsets-csv and others.

        A report shows the changes `against` the plan with that digest. Of a plan with entry points all of
        them are written, or the one named `entry_point`. `c-training` is a zip archive, in which `weights`
        (embed, blob or none) says where first values are. Raises `ProblemError` if the plan is not kept, or
        the format is unknown.
        """
        path = path_of("plans", digest, format_, against=against, entry_point=entry_point, weights=weights)
        return check(await self._connection.ask(Request("GET", path, timeout=timeout))).content

    @once
    async def ready(self, *, timeout: Timeout = None) -> bool:
        """Whether the service is up and can plan; asks once."""
        try:
            return (await self._connection.send(Request("GET", "/readyz", timeout=timeout))).is_success
        except httpx.TransportError:
            return False


class Client(_Client, blocks=True):
    """Talks to one service. Safe to share between threads; close it, or use it in a ``with``.

    `base_url` is `ARENAPLAN_SERVER` of the environment unless given, else port 8080 of this machine. The key
    is `api_key`, else `ARENAPLAN_API_KEY`; `auth` is for other ways to say who asks. `timeout` and `limits`
    have the meaning they have in httpx, but a call may wait for one of the client's connections as long as
    it takes, unless a `httpx.Timeout` says otherwise; `transport` replaces the network in tests, `sleep` and
    `clock` the time. `jobs` submits work that takes long.

    Options of a call are given as a mapping or by name, `timeout` is that of one call, in the place of the
    client's. All calls raise `ProblemError` if the service declines, `ConnectionFailed` if it cannot be
    reached.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        auth: httpx.Auth | None = None,
        timeout: httpx.Timeout | float | None = connections.DEFAULT_TIMEOUT,
        limits: httpx.Limits | None = None,
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        arguments = connections.http_arguments(base_url, timeout, limits, headers, api_key, auth)
        self._http = httpx.Client(transport=transport, **arguments)
        super().__init__(Connection(connections.BlockingNetwork(self._http, sleep, clock), retry or Retry()))
        self.jobs = Jobs(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()


class AsyncClient(_Client, blocks=False):
    """`Client` with ``await``. Safe to share between tasks; close it, or use it in an ``async with``.

    Files are read in threads.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        auth: httpx.Auth | None = None,
        timeout: httpx.Timeout | float | None = connections.DEFAULT_TIMEOUT,
        limits: httpx.Limits | None = None,
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        arguments = connections.http_arguments(base_url, timeout, limits, headers, api_key, auth)
        self._http = httpx.AsyncClient(transport=transport, **arguments)
        super().__init__(Connection(connections.AsyncNetwork(self._http, sleep, clock), retry or Retry()))
        self.jobs = AsyncJobs(self._connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()


# --------------------------------------------------------------------------------------------- jobs


class _Job(_Kind, Generic[T]):
    """The methods of both kinds of jobs, with a result of type T."""

    def __init__(self, connection: Connection, id: str, read: Callable[[httpx.Response], T]) -> None:
        self.id = id
        #: Notes on the import of the model, once the result was read. Empty where a graph was sent.
        self.notes: tuple[str, ...] = ()
        self._connection = connection
        self._path = path_of("jobs", id)
        self._read = read

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}>"

    @once
    async def status(self, *, timeout: Timeout = None) -> JobStatus:
        """The job as it is now."""
        request = Request("GET", self._path, timeout=timeout)
        return read(await self._connection.ask(request), JobStatus.of)

    @once
    async def wait(
        self, progress: Callable[[JobStatus], None] | None = None, *, timeout: float | None = None
    ) -> T:
        """The result, once it is there; `progress` is called with each news of the job until then.

        Connections that break are made again. After `timeout` seconds in all `JobNotFinished` is raised, and
        the job goes on; without it, this waits for as long as the job takes. Raises what `result` raises.
        """
        deadline = None
        if timeout is not None:
            clock = self._connection.network.clock
            deadline = Deadline(timeout, JobNotFinished(self.id, timeout), clock)
        async with contextlib.aclosing(self._events(None, deadline)) as events:
            async for event in events:
                if progress is not None:
                    progress(event.status)
            return await self._result(self._read, deadline=deadline)

    @once
    async def result(self, *, timeout: Timeout = None) -> T:
        """The result of a job that has succeeded.

        Raises the `ProblemError` that a job has failed with, also `CapacityExceeded`; `JobCancelled`; and
        `ProblemError` where the job is not finished, or its result is kept no longer.
        """
        return await self._result(self._read, timeout=timeout)

    @once
    async def save(self, path: PathLike[str] | str, *, timeout: Timeout = None) -> int:
        """Write the document of the result to a file as it comes, and return its bytes; raises as `result`.

        If that fails, a file that was there stays as it was.
        """
        await self._result(check, timeout=timeout, save=Path(path))
        return (await self._connection.network.call(Path(path).stat)).st_size

    @once
    async def cancel(self, *, timeout: Timeout = None) -> JobStatus:
        """End the job; one that has ended stays as it is."""
        request = Request("DELETE", self._path, timeout=timeout)
        return read(await self._connection.ask(request), JobStatus.of)

    async def _result(
        self,
        read: Callable[[httpx.Response], R],
        timeout: Timeout = None,
        save: Path | None = None,
        deadline: Deadline | None = None,
    ) -> R:
        request = Request("GET", f"{self._path}/result", timeout=timeout, save=save)
        response = await self._connection.ask(request, deadline)
        self.notes = notes_of(response)
        try:
            return read(response)
        except ProblemError as problem:
            if problem.type.endswith("/job-cancelled"):
                raise JobCancelled(problem.document) from None
            cause = problem.document.get("problem")
            if problem.type.endswith("/job-failed") and isinstance(cause, dict) and "type" in cause:
                raise problem_of(cause) from None
            raise

    async def _events(self, timeout: Timeout, deadline: Deadline | None) -> AsyncGenerator[JobEvent, None]:
        """Events over as many connections as it takes; each goes on after the last event."""
        connection = self._connection
        place = connections.address(connection.network.http.base_url, self._path)
        headers = {"Accept": "text/event-stream"}
        silent_connections = 0
        while True:
            broken: httpx.TransportError | None = None
            request = Request("GET", f"{self._path}/events", None, dict(headers), timeout, stream=True)
            response = await connection.ask(request, deadline)
            longest = response.request.extensions["timeout"]["read"]
            async with connection.network.body(response) as pieces:
                if not check(response).headers.get("Content-Type", "").startswith("text/event-stream"):
                    raise UnexpectedAnswer(f"{place}/events answered without events.")
                silent_connections += 1
                begun = b""
                try:
                    async for piece in pieces:
                        silent_connections = 0
                        *blocks, begun = (begun + piece).split(b"\n\n")
                        for block in blocks:
                            if block.startswith(b":"):  # a comment
                                continue
                            try:
                                # The service writes a line for each field of an event.
                                lines = block.decode().split("\n")
                                fields = dict(line.split(": ", 1) for line in lines)
                                kind, headers["Last-Event-ID"] = fields["event"], fields["id"]
                                status = JobStatus.of(json.loads(fields["data"]))
                            except (KeyError, TypeError, ValueError) as error:
                                words = f"{place} sent an event of another form: {error!r}."
                                raise UnexpectedAnswer(words) from error
                            yield JobEvent(kind, status)
                            if kind == "end":
                                return
                        if deadline is not None and deadline.left() < longest:
                            break
                except httpx.TransportError as error:
                    broken = error
            pause = connection.retry.after_error(silent_connections or 1, httpx.ReadError("ended"))
            if pause is None:
                raise ConnectionFailed(f"{place}/events: the events break off: {broken!r}") from broken
            await connection.pause(pause, deadline)


class Job(_Job[T], blocks=True):
    """A job at the service, with a result of type T."""

    def events(self, *, timeout: Timeout = None) -> Iterator[JobEvent]:
        """News of the job as they come, until it has ended. Connections that break are made again."""
        return connections.iterated(self._events(timeout, None))


class AsyncJob(_Job[T], blocks=False):
    """`Job` with ``await``, and with asynchronous iterators."""

    def events(self, *, timeout: Timeout = None) -> AsyncIterator[JobEvent]:
        """News of the job as they come, until it has ended. Connections that break are made again."""
        return self._events(timeout, None)


def _itself(document: dict[str, Any], *_facts: object) -> dict[str, Any]:
    return document


#: How results are made, by the name of the task.
_RESULTS: Final[Mapping[str, Callable[..., Any]]] = {
    "plan": PlanResult.of, "program": PlanResult.of, "layout": LayoutResult.of, "tradeoff": TradeOffResult.of,
    "explain": VerdictResult.of, "validate": ValidationResult.of,
}  # fmt: skip


def _page(document: dict[str, Any], *_facts: object) -> tuple[list[JobStatus], bool]:
    """The jobs of a page, and whether there is another one."""
    return [JobStatus.of(row) for row in document["jobs"]], document.get("next") is not None


class _Jobs(_Tasks):
    """The methods of both kinds of `jobs`."""

    _job: ClassVar[type[Job[Any] | AsyncJob[Any]]]

    async def _do(self, task: Task[T], timeout: Timeout) -> T:
        """The job that was submitted. A large graph or a model is stored first, unless the service has it."""
        connection = self._connection
        store, submit = await connection.network.call(task.job_requests, timeout)
        if store is not None:
            known = await connection.ask(Request("HEAD", store.path, timeout=timeout))
            if not known.is_success:
                check(await connection.ask(store))
        return cast(T, self._made(await connection.ask(submit), task.of))  # `once` says that it is a job of T

    def _made(self, response: httpx.Response, of: Callable[..., Any] | None = None) -> Any:
        status = read(response, JobStatus.of)
        make = of or _RESULTS.get(status.task, _itself)
        return self._job(self._connection, status.id, lambda response: read(response, make))

    @once
    async def import_model(
        self, /, model: GraphLike, *, timeout: Timeout = None, **more: Option
    ) -> dict[str, Any]:
        """The graph document of a model of another tool, with how it is trained (``loss="mse"``)."""
        return await self._do(Task("import", _itself, model, merged(None, more)), timeout)

    @once
    async def get(self, job: str, *, timeout: Timeout = None) -> Any:
        """A job by its id. Raises `ProblemError` with status 404 if there is no such job."""
        return self._made(await self._connection.ask(Request("GET", path_of("jobs", job), timeout=timeout)))

    async def _list(self, state: str | None, timeout: Timeout) -> AsyncGenerator[JobStatus, None]:
        last: str | None = None
        more = True
        while more:
            path = path_of("jobs", limit="100", state=state, after=last)
            response = await self._connection.ask(Request("GET", path, timeout=timeout))
            page, more = read(response, _page)
            for status in page:
                last = status.id
                yield status


class Jobs(_Jobs, blocks=True):
    """`client.jobs`: its methods return as soon as the service has accepted the job, and keeps it.

    Methods that a client has, too, take the same arguments and return a `Job` with the result of that method.
    The same `idempotency_key` with the same request is the same job; without it, each call makes a new one.
    """

    _job = Job

    def list(self, *, state: str | None = None, timeout: Timeout = None) -> Iterator[JobStatus]:
        """All jobs, or those in a state, the newest first; they are fetched page by page."""
        return connections.iterated(self._list(state, timeout))


class AsyncJobs(_Jobs, blocks=False):
    """`Jobs` with ``await``."""

    _job = AsyncJob

    def list(self, *, state: str | None = None, timeout: Timeout = None) -> AsyncIterator[JobStatus]:
        """All jobs, or those in a state, the newest first; they are fetched page by page."""
        return self._list(state, timeout)
