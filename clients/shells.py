"""The two ways to carry out the steps of a call: one blocks, the other awaits. The rest is shared."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

import httpx

from clients.steps import (
    Action,
    Close,
    Do,
    Emit,
    Emitting,
    Machine,
    Open,
    Opened,
    Pause,
    Read,
    Request,
    Send,
    Steps,
)
from clients.tracing import trace_context

__all__ = ["AsyncShell", "Asynchronous", "Blocking", "BlockingShell", "call", "iteration"]

P = ParamSpec("P")
T = TypeVar("T")


class BlockingShell:
    """Carries out steps with a `httpx.Client`."""

    def __init__(self, http: httpx.Client, sleep: Callable[[float], None]) -> None:
        self.http = http
        self._sleep = sleep

    def run(self, machine: Machine[T]) -> T:
        """The result of a call."""
        for _ in self.iterate(machine):
            pass
        return machine.result

    def iterate(self, machine: Machine[Any]) -> Iterator[Any]:
        """What a call emits."""
        with contextlib.ExitStack() as held:
            held.callback(machine.close)
            while (action := machine.action) is not None:
                if isinstance(action, Emit):
                    yield action.value
                    machine.done(None)
                    continue
                try:
                    outcome = self._outcome(action, held)
                except Exception as error:  # noqa: BLE001 - any error is raised again in the step that waits
                    machine.failed(error)
                else:
                    machine.done(outcome)

    def _outcome(self, action: Action, held: contextlib.ExitStack) -> Any:
        match action:
            case Send(request):
                return self.http.send(_built(self.http, request))
            case Open(request):
                response = self.http.send(_built(self.http, request), stream=True)
                held.callback(response.close)
                if not response.is_success:
                    response.read()
                return Opened(response, response.iter_bytes())
            case Read(opened):
                return next(opened.pieces, b"")
            case Close(opened):
                opened.response.close()
            case Pause(seconds):
                self._sleep(seconds)
            case Do(work):
                return work()
        return None


class AsyncShell:
    """Carries out steps with a `httpx.AsyncClient`; work on files goes to a thread."""

    def __init__(self, http: httpx.AsyncClient, sleep: Callable[[float], Awaitable[None]]) -> None:
        self.http = http
        self._sleep = sleep

    async def run(self, machine: Machine[T]) -> T:
        """The result of a call."""
        async for _ in self.iterate(machine):
            pass
        return machine.result

    async def iterate(self, machine: Machine[Any]) -> AsyncIterator[Any]:
        """What a call emits."""
        async with contextlib.AsyncExitStack() as held:
            held.callback(machine.close)
            while (action := machine.action) is not None:
                if isinstance(action, Emit):
                    yield action.value
                    machine.done(None)
                    continue
                try:
                    outcome = await self._outcome(action, held)
                except Exception as error:  # noqa: BLE001 - any error is raised again in the step that waits
                    machine.failed(error)
                else:
                    machine.done(outcome)

    async def _outcome(self, action: Action, held: contextlib.AsyncExitStack) -> Any:
        match action:
            case Send(request):
                return await self.http.send(_built(self.http, request))
            case Open(request):
                response = await self.http.send(_built(self.http, request), stream=True)
                held.push_async_callback(response.aclose)
                if not response.is_success:
                    await response.aread()
                return Opened(response, response.aiter_bytes())
            case Read(opened):
                return await anext(opened.pieces, b"")
            case Close(opened):
                await opened.response.aclose()
            case Pause(seconds):
                await self._sleep(seconds)
            case Do(work):
                return await asyncio.to_thread(work)
        return None


def _built(http: httpx.Client | httpx.AsyncClient, request: Request) -> httpx.Request:
    timeout = httpx.USE_CLIENT_DEFAULT if request.timeout is None else request.timeout
    headers = {**trace_context(), **request.headers}
    built = http.build_request(
        request.method, request.path, content=request.body, headers=headers, timeout=timeout
    )
    if (most := request.at_most) is not None:
        waits: dict[str, float | None] = built.extensions["timeout"]
        built.extensions["timeout"] = {
            what: most if long is None else min(long, most) for what, long in waits.items()
        }
    return built


class Blocking:
    """Something whose calls block."""

    shell: BlockingShell


class Asynchronous:
    """Something whose calls are awaited."""

    shell: AsyncShell


class call(Generic[P, T]):
    """A method written once, as steps. Of a `Blocking` object it returns their result, else it is awaited."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self.__doc__ = steps.__doc__
        self._steps = steps

    @overload
    def __get__(self, owner: None, kind: type) -> call[P, T]: ...
    @overload
    def __get__(self, owner: Blocking, kind: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, owner: Asynchronous, kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, owner: Blocking | Asynchronous | None, kind: type) -> Any:
        if owner is None:
            return self
        if isinstance(owner, Blocking):

            def blocking(*args: P.args, **more: P.kwargs) -> T:
                return owner.shell.run(Machine(self._steps(owner, *args, **more)))

            return functools.wraps(self._steps)(blocking)

        async def asynchronous(*args: P.args, **more: P.kwargs) -> T:
            return await owner.shell.run(Machine(self._steps(owner, *args, **more)))

        return functools.wraps(self._steps)(asynchronous)


class iteration(Generic[P, T]):
    """As `call`, of a method that emits values: an iterator, or an asynchronous one."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Emitting[T]]) -> None:
        self.__doc__ = steps.__doc__
        self._steps = steps

    @overload
    def __get__(self, owner: None, kind: type) -> iteration[P, T]: ...
    @overload
    def __get__(self, owner: Blocking, kind: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, owner: Asynchronous, kind: type) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, owner: Blocking | Asynchronous | None, kind: type) -> Any:
        if owner is None:
            return self

        def iterate(*args: P.args, **more: P.kwargs) -> Iterator[T] | AsyncIterator[T]:
            return owner.shell.iterate(Machine(self._steps(owner, *args, **more)))

        return functools.wraps(self._steps)(iterate)
