"""The service's side of one task: what it tells the worker, and when it stops waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import structlog
from fastapi import Request

from service.jobs.frames import Frame
from service.jobs.pool import Worker, WorkerPool
from service.problems import Problem

__all__ = ["GONE", "Limits", "converse", "unless_disconnected"]

_log = structlog.get_logger("service.jobs")

T = TypeVar("T")

#: Status for a caller that has left; only the log ever sees it.
GONE: Final = 499


@dataclass(frozen=True, slots=True)
class Limits:
    """`total` seconds for any answer; once a fallback is there, `after_fallback` seconds for a better one."""

    total: float
    after_fallback: float = 0.0


async def converse(
    pool: WorkerPool,
    task: str,
    head: Mapping[str, Any],
    body: bytes,
    limits: Limits,
    known: Callable[[str], bool] = lambda _key: False,
) -> Frame:
    """Run one task in a worker; its result, or its fallback when time ran out.

    `known` tells whether the answer to a request key is at hand already; the result is then
    empty. Raises `Problem`; a worker that is late is killed.
    """
    async with pool.lease() as worker:
        await worker.send(task, head, body)
        return await _listen(worker, limits, known)


async def _listen(worker: Worker, limits: Limits, known: Callable[[str], bool]) -> Frame:
    fallback: Frame | None = None
    try:
        async with asyncio.timeout(limits.total) as clock:
            while True:
                frame = await worker.receive()
                match frame.kind:
                    case "offer":
                        await worker.send("stop" if known(frame.head["key"]) else "go", {})
                    case "fallback":
                        fallback = frame
                        clock.reschedule(_sooner(clock, frame.head["seconds"] + limits.after_fallback))
                    case "problem":
                        raise _problem(frame)
                    case _:
                        return frame
    except TimeoutError:
        if fallback is not None:
            return fallback
        raise _late(limits.total) from None


def _sooner(clock: asyncio.Timeout, seconds: float) -> float:
    """The earlier of the present end and `seconds` from now, as an instant of the loop's clock."""
    end = clock.when()
    then = asyncio.get_running_loop().time() + seconds
    return then if end is None else min(end, then)


def _late(seconds: float) -> Problem:
    return Problem(
        "time-limit",
        f"There was no answer within {seconds:g} s.",
        remedy='Ask for the "greedy" solver, name a deadline, or take a smaller graph.',
    )


def _problem(frame: Frame) -> Problem:
    facts = dict(frame.head)
    trace = facts.pop("traceback", None)
    if trace is not None:
        _log.error("task failed", traceback=trace)
    return Problem(**facts)


async def unless_disconnected(request: Request, work: Awaitable[T]) -> T | None:
    """Result of `work`; ``None``, with `work` cancelled, once the caller has hung up.

    The request body must have been read to its end.
    """
    task = asyncio.ensure_future(work)
    gone = asyncio.create_task(_hung_up(request))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        return await task if task.done() else None
    finally:
        for other in (task, gone):
            other.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _hung_up(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
