"""Another order of the same steps, with a lower peak: list scheduling, then walks through neighbours.

    order bound met? ──► lists: least growth first, what frees most first ──► walks from the best one

The bound comes first, for most training steps meet it as they are: then nothing is tried. Where branches wait
for each other, as in networks with many paths or captured programs, orders differ by a fifth.

A walk looks for less over a cut, in bytes summed over places. Where nothing is over it, the cut falls: so the
peak does. With a budget the cut stays there, for what is over it is what recomputation has to take off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from solver.layout import Deadline
from solver.layout.compiled.jit import addressed
from solver.layout.model.instance import Integers
from solver.schedules.bounds import order_bound
from solver.schedules.order_kernel import Links, Room, peak_of, walk
from solver.schedules.problem import ScheduleProblem
from solver.schedules.tables import Tables, end_to_end, tables

__all__ = ["Ordered", "best_order", "load_walks"]

#: Turns of all walks for a step of the program, and at most: tenths of a second for some hundred steps, and
#: some seconds. A small program has few orders.
_TURNS_A_STEP, _TURNS = 6_000, 3_000_000

#: Turns between two looks at the deadline: some milliseconds.
_SLICE = 5_000

#: Walks, one behind the other: the part of the peak that all places together may be worse by at first, and
#: the percent of the peak at which the first cut is. A low cut leads to a low sum, and a high one to a peak.
_WALKS = ((16, 90), (5, 97), (16, 97), (50, 97))


@dataclass(frozen=True, slots=True)
class Ordered:
    """`order` has the steps by number; peaks are in bytes. No order has a smaller peak than `bound`.

    `complete` is false where wall time ended the search.
    """

    order: tuple[int, ...]
    peak: int
    given_peak: int
    bound: int
    complete: bool = True


def best_order(
    problem: ScheduleProblem,
    before: Sequence[frozenset[int]],
    deadline: Deadline | None = None,
    *,
    budget: int | None = None,
    turns: int = _TURNS,
) -> Ordered:
    """The order with the lowest peak that was found; the given one where the bound says that none is better.

    With `budget` the order that is least over it, in bytes summed over steps; none is lower than it needs to
    be. `before[t]` are steps that step t must follow, which stand in front of it in the given order. `turns`
    are those of all walks, so that the answer is the same everywhere; a deadline cuts in. Cost: that of the
    bound, milliseconds, or a microsecond for each turn.
    """
    deadline = deadline or Deadline()
    plain, count = tables(problem), len(problem.steps)
    given: Integers = np.arange(count, dtype=np.int64)
    loads = _room(plain, count)
    arrays, links, room = addressed(plain), addressed(_links(problem, before)), addressed(loads)
    bound, given_peak = order_bound(problem).bytes, int(peak_of(given, arrays, links, room)) if count else 0
    target = max(bound, budget or 0)
    if given_peak <= target or count < 2:
        return Ordered(tuple(range(count)), given_peak, given_peak, bound)
    starts = [given] + [
        np.array(_list(problem, before, key), np.int64)
        for key in (lambda adds, frees: adds - frees, lambda adds, frees: (-frees, adds))
    ]

    def rank(order: Integers) -> tuple[int, int]:
        peak = int(peak_of(order, arrays, links, room))
        return 0 if budget is None else int(np.maximum(loads.load - budget, 0).sum()), peak

    best = min(starts, key=rank)
    peak, complete = rank(best)[1], True
    most = min(turns, _TURNS_A_STEP * count) // len(_WALKS)
    for seed, (part, percent) in enumerate(_WALKS):
        if peak <= target:
            break
        order, found = best.copy(), best.copy()
        cut = max(target, peak * percent // 100) if budget is None else budget
        state: Integers = np.array([seed + 1, cut, -1], np.int64)
        walked, kept, numbers = map(addressed, (order, found, state))
        for begin in range(0, most, _SLICE):
            if deadline.expired:
                complete = False
                break
            end = min(begin + _SLICE, most)
            if not walk(walked, kept, begin, end, most, target, peak // part, numbers, arrays, links, room):
                break
        best = min(best, found, key=rank)
        peak = rank(best)[1]
        if not complete:
            break
    return Ordered(tuple(best.tolist()), peak, given_peak, bound, complete)


def load_walks(problem: ScheduleProblem) -> None:
    """Compiled code of the search into this process, with the types that it is called with."""
    arrays, count = tables(problem), len(problem.steps)
    order: Integers = np.arange(count, dtype=np.int64)
    state: Integers = np.array([1, 0, -1], np.int64)
    links = _links(problem, [frozenset(range(t)) for t in range(count)])
    room = _room(arrays, count)
    peak_of(order, arrays, links, room)
    walk(order, order.copy(), 0, 1, 1, 0, 1, state, arrays, links, room)


def _room(arrays: Tables, count: int) -> Room:
    values = len(arrays.size)
    lengths = (values, values, values, values, count, count, count, count, count)
    return Room(*(np.zeros(length, np.int64) for length in lengths))


def _links(problem: ScheduleProblem, before: Sequence[frozenset[int]]) -> Links:
    after: list[list[int]] = [[] for _ in before]
    for t, earlier in enumerate(before):
        for s in sorted(earlier):
            after[s].append(t)
    touched = [sorted({*reads, *writes}) for reads, writes in zip(problem.reads, problem.writes, strict=True)]
    rows = [sorted(earlier) for earlier in before], after, touched
    return Links(*(column for row in rows for column in end_to_end(row)))


def _list(
    problem: ScheduleProblem, before: Sequence[frozenset[int]], key: Callable[[int, int], object]
) -> list[int]:
    """List scheduling: of the steps that may run next the one whose bytes, added and freed, rank first."""
    count = len(problem.steps)
    waits = [len(earlier) for earlier in before]
    after: list[list[int]] = [[] for _ in range(count)]
    for t, earlier in enumerate(before):
        for s in earlier:
            after[s].append(t)
    touched = [tuple(dict.fromkeys((*problem.reads[t], *problem.writes[t]))) for t in range(count)]
    uses = [0] * len(problem.values)
    for values in touched:
        for v in values:
            uses[v] += 1
    there, ready, order = set[int](), {t for t in range(count) if not waits[t]}, list[int]()
    while ready:

        def rank(t: int) -> tuple[object, int]:
            adds = sum(problem.size[v] for v in problem.writes[t] if v not in there)
            frees = sum(problem.size[v] for v in touched[t] if uses[v] == 1 and not problem.kept[v])
            return key(adds, frees), t

        t = min(ready, key=rank)
        ready.remove(t)
        order.append(t)
        there.update(problem.writes[t])
        for v in touched[t]:
            uses[v] -= 1
        for u in after[t]:
            waits[u] -= 1
            if not waits[u]:
                ready.add(u)
    return order
