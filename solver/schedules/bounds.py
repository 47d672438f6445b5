"""Bounds on the peak that hold for every order of the steps, without recomputation and with any.

At a step is there at the same time: what is fixed, what the step touches, its scratch, and what must come
before it and is read behind it. What can be made again need not be there; so the floor leaves it out, and
the order bound does not.

Both are sums that anyone can add up at their step.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.schedules.problem import ScheduleProblem

__all__ = ["PeakBound", "floor", "order_bound"]


@dataclass(frozen=True, slots=True)
class PeakBound:
    """At least `bytes` are live at step `step`, whatever the order; `live` are the values there."""

    bytes: int
    step: int
    live: tuple[int, ...]


def order_bound(problem: ScheduleProblem) -> PeakBound:
    """Holds for every order in which each step runs once. O(n v / 64) for n steps and v values."""
    return _bound(problem, again=False)


def floor(problem: ScheduleProblem) -> PeakBound:
    """Holds for every order and any recomputation: no schedule takes less. O(n v / 64)."""
    return _bound(problem, again=True)


def _bound(problem: ScheduleProblem, *, again: bool) -> PeakBound:
    waiting = _waiting(problem, again=again)
    best = PeakBound(0, 0, ())
    for t, (read, wrote) in enumerate(zip(problem.reads, problem.writes, strict=True)):
        live = set(read).union(wrote, waiting[t])
        largest: dict[int, int] = {}
        for v in live:
            root = problem.together[v]
            largest[root] = max(largest.get(root, 0), problem.size[v])
        total = problem.fixed + problem.scratch[t] + sum(largest.values())
        if total > best.bytes:
            best = PeakBound(total, t, tuple(sorted(live)))
    return best


def _waiting(problem: ScheduleProblem, *, again: bool) -> list[list[int]]:
    """For each step the values that a step before it makes, in every order, and one behind it reads.

    Sets of steps are the bits of a number. A step that updates a value in place reads it and makes it. With
    `again` values that can be made again do not wait.
    """
    steps, values = len(problem.steps), len(problem.values)
    before = [0] * steps
    makers: list[int] = [0] * values
    readers: list[int] = [0] * values
    for t in range(steps):
        for v in problem.reads[t]:
            rest = makers[v]
            readers[v] |= 1 << t
            while rest:
                low = rest & -rest
                before[t] |= before[low.bit_length() - 1] | low
                rest ^= low
        for v in (*problem.writes[t], *problem.updates[t]):
            makers[v] |= 1 << t
    after = [0] * steps
    for t in range(steps):
        rest = before[t]
        while rest:
            low = rest & -rest
            after[low.bit_length() - 1] |= 1 << t
            rest ^= low
    waits = [v for v in range(values) if not again or problem.maker[v] < 0]
    return [
        [
            v
            for v in waits
            if (problem.given[v] or before[t] & makers[v]) and (problem.kept[v] or after[t] & readers[v])
        ]
        for t in range(steps)
    ]
