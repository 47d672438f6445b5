"""Orders of programs that write a value whole more than once: its rounds may change places.

    write t ──► read t      write t ──► read t         two rounds of t: the second knows nothing of the first,
    └──── round 0 ────┘     └──── round 1 ────┘        so either may run first; but they must not overlap,
                                                       for t is one value, in one place

What is there when an iteration begins is a round that runs first, and what is there at its end one that runs
last. A bound for every order takes each round for a value of its own: that permits all of these orders, and
others besides, in which rounds overlap; and in each of these no more bytes are counted than there are.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Self, TypeAlias

from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.program import Access, Program, dependencies, followers

__all__ = ["Rounds"]

#: A value with rounds that may change places, and one of them, by number.
_Round: TypeAlias = tuple[int, int]

#: How many pairs of rounds change places at most, and the turns of the search for an order behind each: some
#: hundredths of a second.
_SWAPS, _TURNS = 64, 20_000


@dataclass(frozen=True, slots=True)
class Rounds:
    """`problem` has a value for each round, and `before[t]` are the steps that step t follows in every order.

    `steps` has, for each value with rounds that may change places, the steps of each of these rounds: first
    the one that writes it.
    """

    problem: ScheduleProblem
    before: tuple[frozenset[int], ...]
    steps: tuple[tuple[tuple[int, ...], ...], ...]

    @classmethod
    def of(cls, program: Program, problem: ScheduleProblem) -> Self | None:
        """The rounds of a sequential program, whose problem is `problem`; None where none may change places.

        Linear in the bindings.
        """
        if any(step.due for step in program.steps):
            return None  # a write that does not run leaves what was there
        entered = {e.value for e in program.entry}
        rounds: dict[int, list[list[int]]] = {}
        touches = []
        for t, step in enumerate(program.steps):
            keys: tuple[list[tuple[int, int]], list[tuple[int, int]]] = [], []
            for binding in step.bindings:
                value, access = binding.value, binding.access
                if access is Access.SCRATCH:
                    continue
                of = rounds.setdefault(value, [[]] if value in entered else [])
                if not of or access is Access.WRITE:
                    of.append([])
                of[-1].append(t)
                for column, touched in zip(keys, (access.reads, access.defines), strict=True):
                    column.extend([(value, len(of))] * touched)
            touches.append(keys)
        before = [set(earlier) for earlier in dependencies(touches)]
        left = {e.value for e in program.exit}
        free = []
        for value, of in rounds.items():
            first, last = value in entered, len(of) - (value in left and len(of) > 1)
            middle = of[first:last]
            if len(middle) > 1:
                free.append(tuple(map(tuple, middle)))
            for later in of[1:] if first else ():
                before[later[0]].update(of[0])
            for later in of[last:] if last > first else ():
                before[later[0]].update(*middle)
        if not free:
            return None
        return cls(_renamed(problem), tuple(frozenset(s - {t}) for t, s in enumerate(before)), tuple(free))

    def lowest(
        self, problem: ScheduleProblem, order: Sequence[int], deadline: Deadline, bound: int
    ) -> tuple[int, ...]:
        """The order with the lowest peak that is found, `order` if no other has a lower one.

        `problem` is that of the program, `bound` what no order stays below. First rounds stand as they begin,
        or as they end, in an order in which they may overlap. Then pairs of neighbours change places, as long
        as that lowers the peak. Cost: that of `best_order`, and of `_SWAPS` short searches.
        """
        from solver.schedules.order.search import Orders, best_order

        peak = Orders(problem, self.before).peak
        best, least = tuple(order), peak(order)

        def improves(ranks: Mapping[_Round, int], turns: int) -> bool:
            nonlocal best, least
            before = self._placed(ranks)
            legal = _topological(before, freest)
            if legal is None:
                return False
            place = {t: k for k, t in enumerate(legal)}
            rows = [frozenset(place[s] for s in before[t]) for t in legal]
            candidate = best_order(problem.in_order(legal), rows, deadline, bound=bound, turns=turns)
            if candidate.peak >= least:
                return False
            best, least = tuple(legal[k] for k in candidate.order), candidate.peak
            return True

        freest = best_order(self.problem, self.before, deadline, bound=bound).order
        place = {t: k for k, t in enumerate(freest)}
        for key in (min, max):
            if least > bound:
                improves({each: key(place[t] for t in steps) for each, steps in self._all()}, _TURNS)
        swaps = _SWAPS
        improved = True
        while improved and least > bound:
            improved = False
            place = {t: k for k, t in enumerate(best)}
            ranks = {each: place[steps[0]] for each, steps in self._all()}
            for value in range(len(self.steps)):
                mine = sorted((each for each in ranks if each[0] == value), key=ranks.__getitem__)
                for one, other in pairwise(mine):
                    if not swaps or improved or deadline.expired:
                        break
                    swaps -= 1
                    improved = improves({**ranks, one: ranks[other], other: ranks[one]}, _TURNS)
            if not swaps or deadline.expired:
                break
        return best

    def _all(self) -> Iterator[tuple[_Round, tuple[int, ...]]]:
        for value, of in enumerate(self.steps):
            for number, steps in enumerate(of):
                yield (value, number), steps

    def _placed(self, ranks: Mapping[_Round, int]) -> list[set[int]]:
        """The steps that each step must follow where the rounds of each value stand as their ranks say."""
        before = [set(earlier) for earlier in self.before]
        for value, of in enumerate(self.steps):
            placed = sorted(range(len(of)), key=lambda number: ranks[value, number])
            for earlier, later in pairwise(placed):
                before[of[later][0]].update(of[earlier])
        return before


def _topological(before: Sequence[AbstractSet[int]], order: Sequence[int]) -> list[int] | None:
    """The steps in an order that is legal and as near to `order` as steps allow; None where there is none."""
    rank = {t: k for k, t in enumerate(order)}
    waits, after = [len(earlier) for earlier in before], followers(before)
    ready = [rank[t] for t, count in enumerate(waits) if not count]
    heapq.heapify(ready)
    sequence = []
    while ready:
        t = order[heapq.heappop(ready)]
        sequence.append(t)
        for u in after[t]:
            waits[u] -= 1
            if not waits[u]:
                heapq.heappush(ready, rank[u])
    return sequence if len(sequence) == len(order) else None


def _renamed(problem: ScheduleProblem) -> ScheduleProblem:
    """The problem in which each whole write defines a value of its own: nothing that does runs again."""
    labels, size, fed, kept = (
        list(problem.values),
        list(problem.size),
        list(problem.fed),
        list(problem.kept),
    )
    now = list(range(len(labels)))
    touched = [*fed]
    reads, writes, updates = [], [], []
    for t in range(len(problem.steps)):
        reads.append(tuple(now[v] for v in problem.reads[t]))
        updates.append(tuple(now[v] for v in problem.updates[t]))
        for v in problem.writes[t]:
            if touched[v]:
                kept[now[v]], now[v] = False, len(labels)
                labels.append(problem.values[v])
                size.append(problem.size[v])
                fed.append(False)
                kept.append(problem.kept[v])
        for v in (*problem.reads[t], *problem.writes[t]):
            touched[v] = True
        writes.append(tuple(now[v] for v in problem.writes[t]))
    return replace(
        problem,
        reads=tuple(reads),
        writes=tuple(writes),
        updates=tuple(updates),
        values=tuple(labels),
        size=tuple(size),
        fed=tuple(fed),
        kept=tuple(kept),
        maker=(-1,) * len(labels),
        until=(-1,) * len(problem.steps),
        together=tuple(range(len(labels))),
    )
