"""Homes whose layouts fit: where one does not, the next homes avoid it.

homes ──► layout of each memory ──► all fit: done
  ▲           │ one does not
  │           ├─ proved: a cut, these items never lie there together; nothing is lost
  └───────────┴─ else:   that memory gets fewer bytes for homes, as many as the layout was too large
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from solver.accounting.homes import HomeProblem
from solver.layout import Deadline, Layout, Lifespan, Outcome
from solver.program import HomeBound
from solver.schedules.homes.relaxation import Rows, relaxed
from solver.schedules.homes.search import Cut, chosen_homes

__all__ = ["Banked", "Housed", "LayOut", "Unhoused", "housed", "in_banks"]


#: Layout of some items, by number, in a memory; it may start from a layout of them.
LayOut = Callable[[int, tuple[int, ...], Layout | None], Outcome]

#: Searches for homes: with cuts, and with smaller memories.
_CUTS, _SHRINKS = 60, 6

#: The least part of a memory by which it shrinks.
_STEP = 200

#: Items up to which the relaxation is solved behind a deadline, too.
_RELAXED_ITEMS = 5_000

#: Items of a cut that are left out one by one where the others have no layout either.
_FILTERED = 24


@dataclass(frozen=True, slots=True)
class Housed:
    """Homes by item, and the layout of each memory. At least `bound` nanoseconds are proved for accesses;
    `certificate` proves its own part of that to anyone.
    """

    homes: tuple[int, ...]
    outcomes: tuple[Outcome, ...]
    bound: int
    certificate: HomeBound
    complete: bool


@dataclass(frozen=True, slots=True)
class Unhoused:
    """No homes were found. `proved`: there are none. Else a layout in memory `memory` has `excess` bytes too
    many; None where bytes do not even fit level by level.
    """

    proved: bool
    memory: int | None = None
    excess: int = 0


def housed(
    problem: HomeProblem, alignments: Sequence[int], lay_out: LayOut, deadline: Deadline
) -> Housed | Unhoused:
    """Homes at little time, each memory with a layout that fits. Deterministic until the deadline."""
    return _Refinement(problem, alignments, lay_out, deadline).run()


class _Refinement:
    def __init__(
        self, problem: HomeProblem, alignments: Sequence[int], lay_out: LayOut, deadline: Deadline
    ) -> None:
        self.problem, self.alignments, self.deadline = problem, alignments, deadline
        self._lay_out = lay_out
        self._known: dict[tuple[int, tuple[int, ...]], Outcome] = {}
        self.best: tuple[int, tuple[int, ...], tuple[Outcome, ...]] | None = None
        self.rows = Rows(problem)
        # Without it nothing is proved, and it takes tenths of a second.
        soon = len(problem.items) <= _RELAXED_ITEMS
        self.relaxation = relaxed(problem, self.rows, Deadline(None, deadline.cancel) if soon else deadline)
        self.bound = self.relaxation.bound.nanoseconds

    def run(self) -> Housed | Unhoused:
        problem, capacities = self.problem, list(self.problem.capacities)
        cuts: list[Cut] = []
        shrinks, complete = 0, True
        failure = Unhoused(proved=False)
        for _ in range(_CUTS):
            found = chosen_homes(
                problem, self.rows, self.relaxation, self.deadline, capacities=capacities, cuts=cuts
            )
            complete = complete and found.complete
            if not shrinks:
                self.bound = max(self.bound, found.bound)
            if found.homes is None:
                if found.impossible and not shrinks:
                    return Unhoused(proved=True)
                break
            if self.best is not None and problem.nanoseconds(found.homes) >= self.best[0]:
                break
            failing = self._laid_out(found.homes)
            if not failing:
                break
            self._repaired(found.homes)
            for k in failing:
                inside = _inside(found.homes, k)
                outcome = self._layout(k, inside)
                peak = outcome.layout.peak if outcome.layout else outcome.lower_bound
                failure = Unhoused(proved=False, memory=k, excess=peak - problem.capacities[k])
                if outcome.lower_bound > problem.capacities[k]:
                    cuts.append((k, frozenset(self._without_bystanders(k, inside))))
                else:
                    shrinks += 1
                    less = max(failure.excess, problem.capacities[k] // _STEP, 1)
                    capacities[k] = max(0, capacities[k] - less)
            if shrinks > _SHRINKS or self.deadline.expired:
                break
        else:
            shrinks += 1
        if self.best is None or shrinks:
            self._greedily()
        if self.best is None:
            return failure
        _, homes, outcomes = self.best
        complete = complete and not self.deadline.late
        return Housed(homes, outcomes, self.bound, self.relaxation.bound, complete)

    def _layout(self, k: int, inside: tuple[int, ...], start: Layout | None = None) -> Outcome:
        key = k, inside
        if key not in self._known or (start is not None and not self._fits(self._known[key], k)):
            self._known[key] = self._lay_out(k, inside, start)
        return self._known[key]

    def _fits(self, outcome: Outcome, k: int) -> bool:
        return outcome.layout is not None and outcome.layout.peak <= self.problem.capacities[k]

    def _laid_out(self, homes: tuple[int, ...], starts: Sequence[Layout] | None = None) -> list[int]:
        """The memories whose layout does not fit; without any the homes are taken if they are the best."""
        failing, outcomes = [], []
        for k in range(len(self.problem.capacities)):
            outcome = self._layout(k, _inside(homes, k), starts[k] if starts else None)
            outcomes.append(outcome)
            if not self._fits(outcome, k):
                failing.append(k)
        if not failing:
            time = self.problem.nanoseconds(homes)
            if self.best is None or time < self.best[0]:
                self.best = time, homes, tuple(outcomes)
        return failing

    def _without_bystanders(self, k: int, inside: tuple[int, ...]) -> tuple[int, ...]:
        """Items of which no layout fits, without some that make no difference: fewer of them cut off more."""
        if len(inside) > _FILTERED:
            return inside
        for i in inside:
            fewer = tuple(j for j in inside if j != i)
            if fewer and self._layout(k, fewer).lower_bound > self.problem.capacities[k]:
                inside = fewer
        return inside

    def _repaired(self, homes: tuple[int, ...]) -> None:
        """The homes with what finds no room there elsewhere: largest first, in one greedy layout."""
        order = sorted(range(len(homes)), key=lambda i: (-self.problem.items[i].size, i))
        ways = [[home, *(k for k in self._ways(i) if k != home)] for i, home in enumerate(homes)]
        self._take(order, ways)

    def _greedily(self) -> None:
        """Greedy layouts in several orders."""
        items = self.problem.items
        ways = [self._ways(i) for i in range(len(items))]
        length = [sum(span.end - span.start for span in item.spans) for item in items]
        saved = [
            (items[i].nanoseconds[way[-1]] or 0) - (items[i].nanoseconds[way[0]] or 0)
            for i, way in enumerate(ways)
        ]
        for key in (
            lambda i: (-items[i].size, i),
            lambda i: (-items[i].size * length[i], i),
            lambda i: (-saved[i] / max(1, items[i].size * length[i]), i),
            lambda i: (len(ways[i]), -items[i].size, i),
            lambda i: (items[i].spans[0].start, -length[i], i),
        ):
            self._take(sorted(range(len(items)), key=key), ways)

    def _ways(self, i: int) -> list[int]:
        times = self.problem.items[i].nanoseconds
        return [k for _, k in sorted((t, k) for k, t in enumerate(times) if t is not None)]

    def _take(self, order: Sequence[int], ways: Sequence[Sequence[int]]) -> None:
        banked = in_banks(self.problem, self.alignments, order, ways)
        if banked is None:
            return
        homes, layouts = banked
        if self.best is None or self.problem.nanoseconds(homes) < self.best[0]:
            self._laid_out(homes, layouts)


def _inside(homes: Sequence[int], k: int) -> tuple[int, ...]:
    return tuple(i for i, home in enumerate(homes) if home == k)


#: Homes by item, and a layout of the items of each memory, in their order.
Banked = tuple[tuple[int, ...], tuple[Layout, ...]]


def in_banks(
    problem: HomeProblem,
    alignments: Sequence[int],
    order: Sequence[int],
    ways: Sequence[Sequence[int]],
) -> Banked | None:
    """Place the items in `order`, each in the first of its `ways` with room; None where one finds no room.

        memory tcm     | a a a a | c c |            items in an order, each to the first memory with room,
        memory psram   | b b b b b b b |  d d       at the lowest offset that is free for all of its levels

    Runtimes with several memory pools do it like that; here it stands behind the search, for homes whose
    layout does not fit. Quadratic in the items.
    """
    placed: list[list[tuple[int, int, tuple[Lifespan, ...]]]] = [[] for _ in problem.capacities]
    homes, offsets = [-1] * len(problem.items), [0] * len(problem.items)
    for i in order:
        item = problem.items[i]
        for k in ways[i]:
            offset = _lowest(placed[k], item.size, item.spans, alignments[i])
            if offset + item.size <= problem.capacities[k]:
                break
        else:
            return None
        homes[i], offsets[i] = k, offset
        placed[k].append((offset, offset + item.size, item.spans))
    layouts = []
    for k in range(len(problem.capacities)):
        inside = [i for i, home in enumerate(homes) if home == k]
        peak = max((offsets[i] + problem.items[i].size for i in inside), default=0)
        layouts.append(Layout(tuple(offsets[i] for i in inside), peak))
    return tuple(homes), tuple(layouts)


def _lowest(
    placed: Sequence[tuple[int, int, tuple[Lifespan, ...]]],
    size: int,
    spans: tuple[Lifespan, ...],
    alignment: int,
) -> int:
    """The lowest offset at which `size` bytes meet nothing that is placed, on all levels of `spans`."""
    first, last = spans[0].start, spans[-1].end
    meeting = sorted(
        (low, high)
        for low, high, others in placed
        if others[0].start < last
        and first < others[-1].end
        and any(a.overlaps(b) for a in spans for b in others)
    )
    offset = 0
    for low, high in meeting:
        if low >= offset + size:
            break
        offset = max(offset, -(-high // alignment) * alignment)
    return offset
