"""The schedule of the least peak that some short searches find, each starting from the best so far.

    floor ├──────────┼─────┼───────────┼──────────────────────┤ peak as it is
                     │     │           1 found, with less
                     2 not found       │
                           3 found ... and so on, between the last found and the last not found

A search that starts from a schedule of nearly as few bytes finds schedules that a search from the program as
it is does not. The budgets depend on the problem alone, so a later request for the least peak tries the same
budgets and finds the same schedule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from solver.layout import Deadline
from solver.schedules.schedule import Schedule

__all__ = ["SHARE", "Reached", "descending", "least_peak"]

#: Searches, and the share of a search's usual work that each of them has: together they cost what two or
#: three ordinary ones do.
_SOLVES, SHARE = 10, 0.2

#: No further search if the smallest peak is known to 1/1000.
_CLOSE = 1000


class Reached(Protocol):
    """A schedule, and the bytes that are live at once behind all that changes its program."""

    @property
    def schedule(self) -> Schedule: ...

    @property
    def peak(self) -> int: ...


_Reached = TypeVar("_Reached", bound=Reached)


def least_peak(
    search: Callable[[int, Schedule, float], _Reached],
    start: _Reached,
    low: int,
    deadline: Deadline,
    *,
    enough: int = 0,
) -> _Reached:
    """The candidate with the least peak, the cheapest of equals, by about ten calls of `search`.

    `search` takes a budget in bytes, a schedule to start from, and a share of the usual work. `start` is the
    program as it is; `low` bytes are too few. It ends at a peak of `enough` bytes.
    """
    best, high = start, start.schedule.peak
    for _ in range(_SOLVES):
        if best.peak <= enough or high - low <= max(1, high // _CLOSE) or deadline.expired:
            break
        budget = (low + high) // 2
        candidate = search(budget, best.schedule, SHARE)
        if (candidate.peak, candidate.schedule.extra) < (best.peak, best.schedule.extra):
            best = candidate
        high = min(high, candidate.schedule.peak)
        if not candidate.schedule.fits:
            low = max(low, budget)
    return best


def descending(high: int, low: int, points: int) -> Iterator[int]:
    """The budgets below `high` bytes down to `low`, in equal parts: with `high` as many as `points`."""
    return (high - (high - low) * k // (points - 1) for k in range(1, points))
