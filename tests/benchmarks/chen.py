"""Chen et al.'s two heuristics on scheduling problems: what recomputation cost before it was optimised.

*Training deep nets with sublinear memory cost*, 2016 (arXiv 1604.06174), algorithms 2 and 3. Some values of
the forward pass are kept, all others are made again when the backward pass wants them, and then held.

    sqrt(n)   every k-th value that alone crosses its step is kept, k the root of their number
    greedy    a value is kept where the bytes since the last kept one exceed a budget, for many such budgets
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import isqrt

from solver.accounting import ScheduleProblem
from solver.layout.model.instance import Integers
from solver.schedules.recompute.simulate import Simulator
from solver.schedules.tables import AGAIN

__all__ = ["Heuristic", "greedy", "square_root"]

#: Budgets of a segment that greedy tries, from the largest value to the sum of all.
_BUDGETS = 40


@dataclass(frozen=True, slots=True)
class Heuristic:
    """Peak in bytes, and what the repetitions cost in nanoseconds."""

    peak: int
    extra: int


def square_root(problem: ScheduleProblem) -> Heuristic:
    """Every k-th of the values that alone cross a step of the forward pass."""
    crossing = _alone(problem)
    k = max(1, isqrt(len(crossing)))
    return _kept(problem, Simulator(problem), set(crossing[k - 1 :: k]))


def greedy(problem: ScheduleProblem) -> tuple[Heuristic, ...]:
    """Those that no other one beats in both respects, by peak.

    Kept are some of all values, or of those that cross a step alone.
    """
    simulator = Simulator(problem)
    again = [v for v, maker in enumerate(problem.maker) if maker >= 0]
    if not again:
        return ()
    again.sort(key=lambda v: (problem.maker[v], v))
    low, high = max(problem.size[v] for v in again), sum(problem.size[v] for v in again)
    found = []
    for pool in (set(again), set(_alone(problem))):
        for k in range(_BUDGETS):
            budget = low * (high / low) ** (k / (_BUDGETS - 1))
            kept, since = set[int](), 0
            for v in again:
                since += problem.size[v]
                if v in pool and since > budget:
                    kept.add(v)
                    since = 0
            found.append(_kept(problem, simulator, kept))
    front: list[Heuristic] = []
    for each in sorted(found, key=lambda each: (each.peak, each.extra)):
        if each.peak >= 0 and (not front or each.extra < front[-1].extra):
            front.append(each)
    return tuple(front)


def _turn(problem: ScheduleProblem) -> int:
    """The first step behind all that may run again."""
    return max((maker for maker in problem.maker), default=-1) + 1


def _alone(problem: ScheduleProblem) -> list[int]:
    """Values that are the only ones to cross a step of the forward pass, in its order."""
    turn = _turn(problem)
    rows = [[t for t in row if t < turn] for row in problem.touches]
    crosses: list[list[int]] = [[] for _ in range(turn)]
    for v, row in enumerate(rows):
        if row and problem.maker[v] >= 0:
            for t in range(row[0], row[-1]):
                crosses[t].append(v)
    return list(dict.fromkeys(found[0] for found in crosses if len(found) == 1))


def _kept(problem: ScheduleProblem, simulator: Simulator, kept: Collection[int]) -> Heuristic:
    numbers: Integers = simulator.start()
    turn, at = _turn(problem), 0
    for v, row in enumerate(problem.touches):
        if problem.maker[v] >= 0 and v not in kept:
            before = sum(t < turn for t in row)
            if 0 < before < len(row):
                numbers[at + before - 1] = AGAIN
        at += len(row)
    run = simulator.run(numbers)
    return Heuristic(run.peak, run.extra)
