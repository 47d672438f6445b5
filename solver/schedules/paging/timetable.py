"""On which levels the transfers of a plan run.

    levels of steps      0     1     2     3     4
    out behind level 0         [-----------)              any of the levels 1, 2 with two steps ahead
    back for level 4                 [-----------)        any of the levels 2, 3
    no steps ahead       0  o  1     2     3  b  4        levels of their own, on which steps wait

A channel runs one transfer at a time, the most urgent of those that may begin. What has not begun on the
last level of its window gets a level of its own behind it, on which the steps wait: first what leaves, then
what comes, so that no such level holds more than the levels of steps around it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Timetable", "Transfer", "timetable"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer that may run on the levels `first` to `last`, or behind `last` if these are none.

    It takes so many `nanoseconds` on its `channel`. `leaves`: it goes out of the fast memory.
    """

    first: int
    last: int
    leaves: bool
    channel: int
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Timetable:
    """The new numbers of the levels of steps, and for each transfer the levels from the first to the last."""

    levels: tuple[int, ...]
    transfers: tuple[tuple[int, int], ...]


def timetable(costs: Sequence[int], transfers: Sequence[Transfer]) -> Timetable:
    """Levels for all transfers. `costs` are nanoseconds of the levels of steps.

    O((n + t) log t) for n levels and t transfers; by earliest deadline (Jackson, 1955).
    """
    # Where each one begins: (level, 0) beside the steps, (level, 1 or 2, rank) behind them.
    places: list[tuple[int, int, int]] = [(0, 0, 0)] * len(transfers)
    ranks: dict[tuple[int, int, int], int] = {}

    def behind(i: int, level: int) -> None:
        kind = 1 if transfers[i].leaves else 2
        rank = ranks.get((level, kind, transfers[i].channel), 0)
        ranks[level, kind, transfers[i].channel] = rank + 1
        places[i] = (level, kind, rank)

    for channel in sorted({transfer.channel for transfer in transfers}):
        starting: dict[int, list[int]] = {}
        for i, transfer in enumerate(transfers):
            if transfer.channel != channel:
                continue
            if transfer.first > transfer.last:
                behind(i, transfer.last)
            else:
                starting.setdefault(transfer.first, []).append(i)
        waiting: list[int] = []
        now = free = 0
        for level, cost in enumerate(costs):
            waiting += starting.get(level, ())
            waiting.sort(key=lambda i: (transfers[i].last, not transfers[i].leaves, i))
            if waiting and (free < now + cost or transfers[waiting[0]].last == level):
                first = waiting.pop(0)
                places[first] = (level, 0, 0)
                free = max(free, now) + transfers[first].nanoseconds
            while waiting and transfers[waiting[0]].last == level:
                behind(waiting.pop(0), level)
            now += cost
    slots = sorted({(level, 0, 0) for level in range(len(costs))} | set(places))
    number = {slot: k for k, slot in enumerate(slots)}
    levels = tuple(number[level, 0, 0] for level in range(len(costs)))
    found = [(number[place], number[place]) for place in places]
    # A transfer beside steps may take until the next one of its channel, or the end of its window.
    following: dict[int, int] = {}
    for i in sorted(range(len(transfers)), key=lambda i: -found[i][0]):
        transfer, begin = transfers[i], found[i][0]
        if not places[i][1]:
            end = min(levels[transfer.last], following.get(transfer.channel, len(slots)) - 1)
            found[i] = (begin, end)
        following[transfer.channel] = begin
    return Timetable(levels, tuple(found))
