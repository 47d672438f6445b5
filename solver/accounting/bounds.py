"""Bounds on the peak that hold for every order of the steps, without recomputation and with any.

While a step runs, these bytes are live at the same time: fixed values, the values that the step touches, its
scratch, and values that must be made before it and are read after it. A value that can be made again need not
wait, so the floor leaves it out; the order bound counts it.

Both are sums that anyone can add up at their step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.accounting.problem import ScheduleProblem, joined, may_share
from solver.layout.model.instance import Integers
from solver.program import Program, lives

__all__ = ["PeakBound", "floor", "order_bound", "shareable"]


@dataclass(frozen=True, slots=True)
class PeakBound:
    """At least `bytes` are live at step `step`, whatever the order; `live` are the values there."""

    bytes: int
    step: int
    live: tuple[int, ...]


def order_bound(problem: ScheduleProblem) -> PeakBound:
    """Holds for every order in which each step runs once. O(n (n + v)) words and bytes; n steps, v values."""
    return _bound(problem, again=False)


def floor(problem: ScheduleProblem) -> PeakBound:
    """Holds for every order and any recomputation: no schedule takes less. Cost: as `order_bound`."""
    return _bound(problem, again=True)


def shareable(program: Program) -> list[int]:
    """For each level the most bytes that aliases can save there, in a program that has none of them yet.

    Of live values that operators permit to share bytes, directly or by way of others, that is all but the
    largest. Linear in bindings, and in the levels on which such values live.
    """
    pairs = (pair for step in program.steps for pair in may_share(program, step))
    members: dict[int, list[int]] = {}
    for value, root in enumerate(joined(len(program.values), pairs)):
        members.setdefault(root, []).append(value)
    alive = lives(program)
    saved = np.zeros(program.duration, np.int64)
    for values in members.values():
        if len(values) == 1:
            continue
        largest = np.zeros(program.duration, np.int64)
        for value in values:
            if value in alive:
                span = slice(alive[value].start, alive[value].end)
                alignment = program.spaces[program.values[value].space].alignment
                size = -(-program.values[value].type.nbytes // alignment) * alignment
                saved[span] += size
                np.maximum(largest[span], size, out=largest[span])
        saved -= largest
    return [int(each) for each in saved]


def _bound(problem: ScheduleProblem, *, again: bool) -> PeakBound:
    steps = len(problem.steps)
    if not steps:
        return PeakBound(problem.fixed, 0, ())
    there = _there(problem, again=again)
    members: dict[int, list[int]] = {}
    for v, root in enumerate(problem.together):
        members.setdefault(root, []).append(v)
    total: Integers = np.array(problem.scratch, np.int64) + problem.fixed
    for values in members.values():
        # Values that may share bytes take those of the largest.
        largest = _flags(there[values[0]], steps) * problem.size[values[0]]
        for v in values[1:]:
            np.maximum(largest, _flags(there[v], steps) * problem.size[v], out=largest)
        total += largest
    fullest = int(np.argmax(total))
    live = tuple(v for v, when in enumerate(there) if when >> fullest & 1)
    return PeakBound(int(total[fullest]), fullest, live)


def _flags(when: int, steps: int) -> Integers:
    """A set of steps as zeros and ones."""
    raw = np.frombuffer(when.to_bytes(-(-steps // 8), "little"), np.uint8)
    return np.unpackbits(raw, count=steps, bitorder="little").astype(np.int64)


def _there(problem: ScheduleProblem, *, again: bool) -> list[int]:
    """For each value the steps at which it is there in every order, as the bits of a number.

    At those that touch it; and behind one that makes it, if one that reads it comes behind them. A step that
    updates a value in place reads it and makes it. With `again`, what can be made again does not wait.
    """
    steps, values = len(problem.steps), len(problem.values)
    defined = [(*problem.writes[t], *problem.updates[t]) for t in range(steps)]
    makers: list[list[int]] = [[] for _ in range(values)]
    before = [0] * steps
    for t in range(steps):
        for v in problem.reads[t]:
            for m in makers[v]:
                before[t] |= before[m] | 1 << m
        for v in defined[t]:
            makers[v].append(t)
    readers: list[list[int]] = [[] for _ in range(values)]
    behind = [0] * steps
    for t in range(steps - 1, -1, -1):
        for v in defined[t]:
            for r in readers[v]:
                behind[t] |= behind[r] | 1 << r
        for v in problem.reads[t]:
            readers[v].append(t)
    always = (1 << steps) - 1
    present = [0] * values
    for v in range(values):
        if not again or problem.maker[v] < 0:
            since = until = always
            if not problem.fed[v]:
                since = 0
                for m in makers[v]:
                    since |= behind[m]
            if not problem.kept[v]:
                until = 0
                for r in readers[v]:
                    until |= before[r]
            present[v] = since & until
    for t in range(steps):
        for v in (*problem.reads[t], *problem.writes[t]):
            present[v] |= 1 << t
    return present
