"""Another order of the same steps, with a lower peak: list scheduling, then a walk through neighbours.

    order bound met? ──► lists: least growth first, what frees most first ──► walk from the two best

The bound comes first, for most training steps meet it as they are: then nothing is tried. Where branches wait
for each other, as in networks with many paths or captured programs, orders differ by a fifth.
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

#: Steps and values looked at by the walks of one search: some seconds.
_WORK = 2_000_000_000

#: Neighbours between two looks at the deadline.
_SLICE = 500

#: Walks from each of the best lists: the part of the peak by which a neighbour may be worse at first.
_WALKS = (500, 30, 4)

#: A load counts as near the peak from this part of it on, in percent.
_NEAR = 97


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
    work: int = _WORK,
) -> Ordered:
    """The order with the lowest peak that was found; the given one where the bound says that none is better.

    `before[t]` are steps that step t must follow, which stand in front of it in the given order. `work` is
    in steps and values looked at, so that the answer is the same everywhere; a deadline cuts in. Cost: that
    of the bound, milliseconds, or some seconds.
    """
    deadline = deadline or Deadline()
    plain, count = tables(problem), len(problem.steps)
    given: Integers = np.arange(count, dtype=np.int64)
    arrays, room = addressed(plain), addressed(_room(plain, count))
    bound, given_peak = order_bound(problem).bytes, int(peak_of(given, arrays, room)) if count else 0
    if given_peak <= bound or count < 2:
        return Ordered(tuple(range(count)), given_peak, given_peak, bound)
    links = addressed(_links(before))
    starts = [given] + [
        np.array(_list(problem, before, key), np.int64)
        for key in (lambda adds, frees: adds - frees, lambda adds, frees: (-frees, adds))
    ]
    peaks = [int(peak_of(start, arrays, room)) for start in starts]
    ranked = sorted(range(len(starts)), key=lambda k: (peaks[k], k))
    best, least = starts[ranked[0]].copy(), peaks[ranked[0]]
    most = work // (2 * len(_WALKS) * (count + len(problem.values)))
    complete = True
    for start, (seed, part) in ((starts[k], walk_) for k in ranked[:2] for walk_ in enumerate(_WALKS)):
        order, found = start.copy(), best.copy()
        state: Integers = np.array([seed + 1], np.int64)
        cut = least * _NEAR // 100
        walked, kept, random = addressed(order), addressed(found), addressed(state)
        for begin in range(0, most, _SLICE):
            if deadline.expired:
                complete = False
                break
            end = min(begin + _SLICE, most)
            peak = int(walk(walked, kept, begin, end, most, cut, part, random, links, arrays, room))
            if peak < least:
                best, least = found.copy(), peak
            if least <= bound:
                break
        if least <= bound or not complete:
            break
    return Ordered(tuple(best.tolist()), least, given_peak, bound, complete)


def load_walks(problem: ScheduleProblem) -> None:
    """Compiled code of the search into this process, with the types that it is called with."""
    arrays, count = tables(problem), len(problem.steps)
    order: Integers = np.arange(count, dtype=np.int64)
    state: Integers = np.array([1], np.int64)
    links = _links([frozenset(range(t)) for t in range(count)])
    room = _room(arrays, count)
    peak_of(order, arrays, room)
    walk(order, order.copy(), 0, 1, 1, 0, 1, state, links, arrays, room)


def _room(arrays: Tables, count: int) -> Room:
    def zeros(length: int) -> Integers:
        return np.zeros(length, np.int64)

    values = len(arrays.size)
    return Room(zeros(values), zeros(values), zeros(count), zeros(count + 1), zeros(count), zeros(count))


def _links(before: Sequence[frozenset[int]]) -> Links:
    after: list[list[int]] = [[] for _ in before]
    for t, earlier in enumerate(before):
        for s in sorted(earlier):
            after[s].append(t)

    return Links(*end_to_end([sorted(earlier) for earlier in before]), *end_to_end(after))


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
