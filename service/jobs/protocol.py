"""The protocol of one task, as the service speaks it.

    service ──► plan {limits} body ──► worker
            ◄── offer {key}                        the worker tells which request this is
            ──► go, or stop                        stop: the answer is at hand already
            ◄── progress {facts}                   for jobs, as often as there is news
            ◄── fallback {facts} body              only with a deadline: in case the search is killed
            ◄── result {facts} body, or problem {facts}

Frames of other kinds (``log``, ``warmed``) belong to no task; `service.jobs.pool` takes them out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from service.jobs.frames import Frame
from service.jobs.pool import DEFAULT_TENANT, SMALL_BYTES, Worker, WorkerPool
from service.jobs.requests import named_deadline
from service.jobs.spool import Spool
from service.problems import Problem

__all__ = ["Known", "Limits", "converse", "run_task"]

_log = structlog.get_logger("service.jobs")

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
                        raise _problem(frame)
                    case _:
                        return frame
    except TimeoutError:
        if fallback is not None:
            return fallback
        raise _late(first) from None


def _late(seconds: float) -> Problem:
    return Problem(
        "time-limit",
        f"There was no answer within {seconds:g} s.",
        remedy='Ask for the "greedy" solver, name a deadline, or take a smaller graph.',
    )


def _problem(frame: Frame) -> Problem:
    facts = dict(frame.head)
    trace = facts.pop("traceback", None)
    facts.pop("last", None)
    if trace is not None:
        _log.error("task failed", traceback=trace)
    return Problem(**facts)
