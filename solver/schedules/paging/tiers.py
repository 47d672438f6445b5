"""Which slower memory each value leaves for; and what is missing where some of them find no room.

levels       0  1  2  3  4  5
tier b0      ████████░░░░░░████       the first tier with room on all levels of a value's time away
tier b1      ░░░░░░░░███████░░░       takes it
x away             [--------)         no room in b0, none in b1: the refusal names x, and a tier
                                      that needs some bytes more, so that all have a place
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from solver.accounting.gaps import PagingProblem
from solver.layout.model.instance import Integers
from solver.program import Tier
from solver.schedules.paging.transfers import slow_lives

__all__ = ["Shortage", "shortage", "tier_by_value"]


@dataclass(frozen=True, slots=True)
class Shortage:
    """With `missing` bytes more in tier number `tier` all that is paged out has a place.

    `value` is the first that finds none; `there` are the values that would be in that tier where most are.
    """

    tier: int
    value: int
    missing: int
    there: tuple[int, ...]


def tier_by_value(
    problem: PagingProblem, taken: Collection[int], tiers: Sequence[Tier]
) -> dict[int, int] | None:
    """The tier that each value leaves for: the first with room, those that move most often first.

    Where some find none the largest go first; None where that does not help. O(v k l) for v values, k tiers
    and l levels.
    """
    away = _Away(problem, taken)
    for order in away.orders():
        fit = away.first_fit(order, tiers)
        if fit.missing == 0:
            return fit.tiers
    return None


def shortage(problem: PagingProblem, taken: Collection[int], tiers: Sequence[Tier]) -> Shortage:
    """The fewest bytes that one tier must have more so that all have a place, if `tier_by_value` finds none.

    Cost: that of `tier_by_value` for each tier.
    """
    away = _Away(problem, taken)
    best: Shortage | None = None
    for order in away.orders():
        for k in range(len(tiers) - 1, 0, -1):
            fit = away.first_fit(order, tiers, forced=k)
            if best is not None and fit.missing >= best.missing:
                continue
            # What goes to a tier because it is larger may take the room that others counted on.
            larger = [replace(t, bytes=t.bytes + fit.missing) if i == k else t for i, t in enumerate(tiers)]
            if away.first_fit(order, larger).missing == 0:
                assert fit.first is not None  # nothing is missing where all have a place
                best = Shortage(k, fit.first, fit.missing, fit.there)
    assert best is not None  # the last tier holds all that has no place elsewhere
    return best


@dataclass(frozen=True, slots=True)
class _Fit:
    """Where values went; `first` found no room, and `missing` bytes are what the forced tier lacks.

    `there` are the values in it on the level where most is.
    """

    tiers: dict[int, int]
    first: int | None
    missing: int
    there: tuple[int, ...]


class _Away:
    """The values that leave, with their sizes and the levels on which slower memory holds them."""

    def __init__(self, problem: PagingProblem, taken: Collection[int]) -> None:
        self.levels = problem.levels
        self.size = {problem.gaps[j].value: problem.gaps[j].size for j in taken}
        self.times = dict.fromkeys(self.size, 0)
        for j in taken:
            self.times[problem.gaps[j].value] += 1
        self.spans = slow_lives(problem, taken)

    def orders(self) -> tuple[list[int], ...]:
        size, spans = self.size, self.spans
        return (
            sorted(spans, key=lambda v: (-self.times[v], -size[v], v)),
            sorted(spans, key=lambda v: (-size[v], v)),
        )

    def first_fit(self, order: Sequence[int], tiers: Sequence[Tier], forced: int | None = None) -> _Fit:
        """Each value to the first tier with room; to the `forced` one, the last by default, without."""
        forced = len(tiers) - 1 if forced is None else forced
        room: list[Integers] = [np.full(self.levels, tier.bytes, np.int64) for tier in tiers]
        chosen: dict[int, int] = {}
        first = None
        for value in order:
            low, high = self.spans[value]
            size = self.size[value]
            fits = (k for k in range(1, len(tiers)) if room[k][low : high + 1].min() >= size)
            tier = next(fits, None)
            if tier is None:
                tier, first = forced, value if first is None else first
            chosen[value] = tier
            room[tier][low : high + 1] -= size
        fullest = int(np.argmin(room[forced]))
        there = (v for v, k in chosen.items() if k == forced)
        there = (v for v in there if self.spans[v][0] <= fullest <= self.spans[v][1])
        return _Fit(chosen, first, max(0, -int(room[forced][fullest])), tuple(there))
