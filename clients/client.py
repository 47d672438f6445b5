"""The clients: `Client` for ordinary programs, `AsyncClient` for programs with an event loop."""

from __future__ import annotations

import asyncio
import time
from asyncio import to_thread
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Self, TypeVar

import httpx

from clients import tasks
from clients.connections import DEFAULT_TIMEOUT, AsyncConnection, Connection, http_arguments
from clients.errors import CapacityExceeded
from clients.jobs import AsyncJobs, Jobs
from clients.results import (
    LayoutResult,
    PlanResult,
    SavedPlan,
    TradeOffResult,
    ValidationResult,
    VerdictResult,
)
from clients.retry import Retry
from clients.tasks import Entry, GraphLike, Option, Options, Request, Scores, Task, Timeout

__all__ = ["AsyncClient", "Client"]

T = TypeVar("T")


def _saved(response: httpx.Response, path: Path) -> SavedPlan:
    if not response.is_success:
        tasks.read_answer(response)
    digest = response.headers.get("ETag", "").strip('"')
    return SavedPlan(digest, path, path.stat().st_size, tasks.is_cached(response), tasks.notes_of(response))


class Client:
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
        timeout: httpx.Timeout | float | None = DEFAULT_TIMEOUT,
        limits: httpx.Limits | None = None,
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        arguments = http_arguments(base_url, timeout, limits, headers, api_key, auth)
        http = httpx.Client(transport=transport, **arguments)
        self._connection = Connection(http, retry or Retry(), sleep, clock)
        self.jobs = Jobs(self._connection)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connection.http.close()

    def plan(
        self, /, graph: GraphLike, options: Options = None, *, timeout: Timeout = None, **more: Option
    ) -> PlanResult:
        """Plan a graph (``batch=32, capacity="24MiB"``), or a model of another tool (``loss="mse"``).

        Raises `CapacityExceeded` if a capacity is among the options and the arena does not fit it.
        """
        return self._done(tasks.plan(graph, options, more), timeout)

    def deploy(
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
        return self._done(tasks.deploy(models, entries, ties, options, more), timeout)

    def plan_program(
        self, /, program: GraphLike, options: Options = None, *, timeout: Timeout = None, **more: Option
    ) -> PlanResult:
        """Plan explicit operations; options as for `plan` (``parallelism=2``). It is kept where plans are."""
        return self._done(tasks.program(program, options, more), timeout)

    def tradeoff(
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
        return self._done(tasks.tradeoff(graph, options, more, points), timeout)

    def explain(
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
        return self._done(tasks.explain(graph, capacity, options, more, training, scores), timeout)

    def layout(
        self, /, problem: GraphLike, options: Options = None, *, timeout: Timeout = None, **more: Option
    ) -> LayoutResult:
        """Place bare buffers (``capacity=2**20, alignment=16``).

        Raises `CapacityExceeded` if there is a capacity and no layout within it was found.
        """
        return self._done(tasks.layout(problem, options, more), timeout)

    def validate(
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
        how it is trained (``loss="mse"``), and the plan is one that the service still keeps: only its digest
        is sent.
        """
        return self._done(tasks.validate(graph, plan, steps, seed, more), timeout)

    def save_plan(
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
        task = tasks.plan(graph, options, more)
        response = self._connection.ask(task.request(timeout), save=Path(path))
        return _saved(response, Path(path))

    def fits(
        self, /, graph: GraphLike, capacity: int | str, *, timeout: Timeout = None, **more: Option
    ) -> bool:
        """Whether an arena of at most `capacity` (bytes, or text as "24MiB") was found."""
        try:
            self.plan(graph, {**more, "capacity": capacity}, timeout=timeout)
        except CapacityExceeded:
            return False
        return True

    def stored_plan(
        self, digest: str, *, entry_point: str | None = None, timeout: Timeout = None
    ) -> PlanResult:
        """A plan that the service still keeps; `ProblemError` with status 404 if it does not.

        Of a plan with entry points all of them, or the plan of the one named `entry_point`.
        """
        response = self._connection.ask(tasks.plan_request(digest, entry_point, timeout))
        return replace(tasks.read_plan(response), cached=True)

    def stored_layout(self, digest: str, *, timeout: Timeout = None) -> LayoutResult:
        """A layout that the service still keeps; `ProblemError` with status 404 if it does not."""
        response = self._connection.ask(Request("GET", f"/v1/layouts/{digest}", timeout=timeout))
        return replace(tasks.read_layout(response), cached=True)

    def export(
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
        request = tasks.export_request(
            digest, format_, timeout, against=against, entry_point=entry_point, weights=weights
        )
        response = self._connection.ask(request)
        return tasks.read_file(response)

    def ready(self, *, timeout: Timeout = None) -> bool:
        """Whether the service is up and can plan; asks once."""
        try:
            return self._connection.send(Request("GET", "/readyz", timeout=timeout)).is_success
        except httpx.TransportError:
            return False

    def _done(self, task: Task[T], timeout: Timeout) -> T:
        return task.read(self._connection.ask(task.request(timeout)))


class AsyncClient:
    """`Client` with ``await``. Safe to share between tasks; close it, or use it in an ``async with``.

    Files are read in threads.
    """

    def __init__(
        self,
        base_url: str | None = None,
        *,
        api_key: str | None = None,
        auth: httpx.Auth | None = None,
        timeout: httpx.Timeout | float | None = DEFAULT_TIMEOUT,
        limits: httpx.Limits | None = None,
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        arguments = http_arguments(base_url, timeout, limits, headers, api_key, auth)
        http = httpx.AsyncClient(transport=transport, **arguments)
        self._connection = AsyncConnection(http, retry or Retry(), sleep)
        self.jobs = AsyncJobs(self._connection)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.http.aclose()

    async def plan(
        self, /, graph: GraphLike, options: Options = None, *, timeout: Timeout = None, **more: Option
    ) -> PlanResult:
        """See `Client.plan`."""
        return await self._done(await to_thread(tasks.plan, graph, options, more), timeout)

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
        """See `Client.deploy`."""
        return await self._done(await to_thread(tasks.deploy, models, entries, ties, options, more), timeout)

    async def plan_program(
        self, /, program: GraphLike, options: Options = None, *, timeout: Timeout = None, **more: Option
    ) -> PlanResult:
        """See `Client.plan_program`."""
        return await self._done(await to_thread(tasks.program, program, options, more), timeout)

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
        """See `Client.tradeoff`."""
        return await self._done(await to_thread(tasks.tradeoff, graph, options, more, points), timeout)

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
        """See `Client.explain`."""
        return await self._done(
            await to_thread(tasks.explain, graph, capacity, options, more, training, scores), timeout
        )

    async def layout(
        self, /, problem: GraphLike, options: Options = None, *, timeout: Timeout = None, **more: Option
    ) -> LayoutResult:
        """See `Client.layout`."""
        return await self._done(await to_thread(tasks.layout, problem, options, more), timeout)

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
        """See `Client.validate`."""
        return await self._done(await to_thread(tasks.validate, graph, plan, steps, seed, more), timeout)

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
        """See `Client.save_plan`."""
        task = await to_thread(tasks.plan, graph, options, more)
        response = await self._connection.ask(task.request(timeout), save=Path(path))
        return await to_thread(_saved, response, Path(path))

    async def fits(
        self, /, graph: GraphLike, capacity: int | str, *, timeout: Timeout = None, **more: Option
    ) -> bool:
        """See `Client.fits`."""
        try:
            await self.plan(graph, {**more, "capacity": capacity}, timeout=timeout)
        except CapacityExceeded:
            return False
        return True

    async def stored_plan(
        self, digest: str, *, entry_point: str | None = None, timeout: Timeout = None
    ) -> PlanResult:
        """See `Client.stored_plan`."""
        response = await self._connection.ask(tasks.plan_request(digest, entry_point, timeout))
        return replace(tasks.read_plan(response), cached=True)

    async def stored_layout(self, digest: str, *, timeout: Timeout = None) -> LayoutResult:
        """See `Client.stored_layout`."""
        response = await self._connection.ask(Request("GET", f"/v1/layouts/{digest}", timeout=timeout))
        return replace(tasks.read_layout(response), cached=True)

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
        """See `Client.export`."""
        request = tasks.export_request(
            digest, format_, timeout, against=against, entry_point=entry_point, weights=weights
        )
        response = await self._connection.ask(request)
        return tasks.read_file(response)

    async def ready(self, *, timeout: Timeout = None) -> bool:
        """See `Client.ready`."""
        try:
            return (await self._connection.send(Request("GET", "/readyz", timeout=timeout))).is_success
        except httpx.TransportError:
            return False

    async def _done(self, task: Task[T], timeout: Timeout) -> T:
        return task.read(await self._connection.ask(task.request(timeout)))
