"""Steps that end in time, whatever they wait for: pauses, answers, and streams that say nothing."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Final, TypeVar

import httpx

from clients.steps import Emit, Machine, Open, Pause, Read, Send, Steps

__all__ = ["within"]

T = TypeVar("T")

#: A stream is asked for anew when half of the time is over, as the time of one read cannot be changed later.
#: Near the end that is not worth it.
_SHORT_SECONDS: Final = 0.5


def within(
    seconds: float,
    steps: Steps[T],
    late: Callable[[], Exception],
    clock: Callable[[], float] = time.monotonic,
) -> Steps[T]:
    """The same call, for so many seconds. Raises `late()` after that; nothing is waited for much longer."""
    until = clock() + seconds
    longest_read = 0.0
    machine = Machine(steps)
    try:
        while (action := machine.action) is not None:
            assert not isinstance(action, Emit), "a call that is bounded as a whole emits nothing"
            left = until - clock()
            if left <= 0 or (isinstance(action, Pause) and action.seconds >= left):
                raise late()
            try:
                if isinstance(action, Open):
                    longest_read = left if left <= _SHORT_SECONDS else left / 2
                    outcome = yield Open(replace(action.request, at_most=longest_read))
                elif isinstance(action, Send):
                    outcome = yield Send(replace(action.request, at_most=left))
                elif isinstance(action, Read) and left < longest_read:
                    raise httpx.ReadTimeout("the stream is asked for anew")
                else:
                    outcome = yield action
            except httpx.TimeoutException as error:
                if clock() >= until:
                    raise late() from error
                if not (isinstance(action, Open) and isinstance(error, httpx.ReadTimeout)):
                    machine.failed(error)
            except Exception as error:  # noqa: BLE001 - any error is raised again in the step that waits
                machine.failed(error)
            else:
                machine.done(outcome)
    finally:
        machine.close()
    return machine.result
