"""Homes of items: greedy orders, local search, and CP-SAT where the problem is small enough.

    relaxation ──► greedy orders ──► local search ──► CP-SAT     stops as soon as the time is the bound
                   (items that found no room go first the next time)

A cut says that a memory has no layout of some items together, although their bytes fit level by level.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from solver.accounting.homes import HomeProblem
from solver.layout import Deadline
from solver.layout.model.instance import Integers
from solver.schedules.homes.relaxation import Relaxation, Rows
from solver.schedules.native import cp_solved, cp_solver

__all__ = ["WORK", "Cut", "Homes", "chosen_homes"]

#: A memory, and items that have no layout in it together.
Cut = tuple[int, frozenset[int]]

#: Deterministic time of CP-SAT.
WORK = 1.0

#: With more than `_EXACT_ITEMS` items CP-SAT runs twice, each time for `WORK`: the first run lets an item
#: choose only memories whose penalty is at most this fraction of the lower bound.
_NEAR = 0.003

#: Terms of all rows together, beyond which CP-SAT takes longer to begin than it is given. Items that are held
#: throughout are one term.
_TERMS = 300_000

#: Relative gap at which CP-SAT stops, and the number of items up to which it closes all of it.
_GAP, _EXACT_ITEMS = 1e-4, 100

#: How often items without room go first in another greedy round.
_REPAIRS = 12

#: Rounds of local search, and items that one move may push out.
_ROUNDS, _PUSHED = 6, 12


@dataclass(frozen=True, slots=True)
class Homes:
    """The memory of each item; None where none were found. `bound` nanoseconds are proved for the capacities
    and cuts; `impossible` says that there are none. `complete`: wall time did not cut the search.
    """

    homes: tuple[int, ...] | None
    bound: int
    impossible: bool = False
    complete: bool = True


def chosen_homes(
    problem: HomeProblem,
    rows: Rows,
    relaxation: Relaxation,
    deadline: Deadline,
    *,
    capacities: Sequence[int] | None = None,
    cuts: Sequence[Cut] = (),
    work: float = WORK,
) -> Homes:
    """Homes of little time within `capacities`, by default those of the problem, that no cut excludes.

    Bounds are those of the `relaxation` where capacities are smaller. Deterministic until the deadline.
    """
    search = _Search(problem, rows, capacities or problem.capacities, cuts, relaxation)
    best = search.greedily(deadline)
    bound = relaxation.bound.nanoseconds
    if best is not None and problem.nanoseconds(best) <= bound:
        return Homes(tuple(best), bound)
    terms = sum(high - low for spans in rows.spans for low, high in spans if high - low < len(rows)) * len(
        problem.capacities
    )
    if terms > _TERMS or deadline.expired:
        return Homes(None if best is None else tuple(best), bound, complete=not deadline.late)
    if len(problem.items) > _EXACT_ITEMS:
        # CP-SAT gets no hints here, because hints from a poor start slow it down.
        near = search.exactly(None, work, deadline, within=int(bound * _NEAR)).homes
        if near is not None and (best is None or problem.nanoseconds(near) < problem.nanoseconds(best)):
            best = list(near)
    exact = search.exactly(best, work, deadline)
    if capacities is not None and tuple(capacities) != problem.capacities:
        return Homes(exact.homes, bound, complete=exact.complete)
    return Homes(exact.homes, max(bound, exact.bound), exact.impossible, exact.complete)


class _Search:
    def __init__(
        self,
        problem: HomeProblem,
        rows: Rows,
        capacities: Sequence[int],
        cuts: Sequence[Cut],
        relaxation: Relaxation,
    ) -> None:
        self.problem, self.rows, self.capacities, self.cuts = problem, rows, capacities, cuts
        self.relaxation = relaxation
        #: By item the memories that it may lie in, the fastest first.
        self.ways = [
            [k for _, k in sorted((t, k) for k, t in enumerate(item.nanoseconds) if t is not None)]
            for item in problem.items
        ]
        self.cuts_of: dict[int, list[Cut]] = {}
        for cut in cuts:
            for i in cut[1]:
                self.cuts_of.setdefault(i, []).append(cut)

    def time(self, i: int, k: int) -> int:
        return self.problem.items[i].nanoseconds[k] or 0

    # ------------------------------------------------------------------------------------------ greedily

    def greedily(self, deadline: Deadline) -> list[int] | None:
        """The best homes of all greedy orders, each behind local search; None where no order has room."""
        best: list[int] | None = None
        for order, ways in self._orders():
            homes = self._repaired(order, ways)
            if homes is None:
                continue
            self._improve(homes, deadline)
            if best is None or self.problem.nanoseconds(homes) < self.problem.nanoseconds(best):
                best = homes
            if deadline.expired or self.problem.nanoseconds(best) <= self.relaxation.bound.nanoseconds:
                break
        return best

    def _orders(self) -> Iterator[tuple[list[int], list[list[int]]]]:
        """Orders of items, with the memories of each in the order in which they are tried."""
        items, rows, parts = self.problem.items, self.rows, self.relaxation.parts
        extent = [
            item.size * max(1, sum(high - low for low, high in spans))
            for item, spans in zip(items, rows.spans, strict=True)
        ]
        saved = [
            self.time(i, ways[-1]) - self.time(i, ways[0]) if ways else 0 for i, ways in enumerate(self.ways)
        ]
        density = sorted(range(len(items)), key=lambda i: (-saved[i] / max(1, extent[i]), -items[i].size, i))
        linear = [sorted(ways, key=lambda k: -parts[i][k]) for i, ways in enumerate(self.ways)]
        whole = sorted(density, key=lambda i: -round(max(parts[i], default=0.0), 3))
        by_size = sorted(range(len(items)), key=lambda i: (-items[i].size, i))
        yield whole, linear
        yield density, self.ways
        yield by_size, self.ways
        yield sorted(density, key=lambda i: len(self.ways[i])), self.ways

    def _repaired(self, order: list[int], ways: list[list[int]]) -> list[int] | None:
        for _ in range(_REPAIRS):
            homes, failed = self._placed(order, ways)
            if not failed:
                return homes
            order = [*failed, *(i for i in order if i not in set(failed))]
        return None

    def _placed(self, order: list[int], ways: list[list[int]]) -> tuple[list[int], list[int]]:
        """The first memory with room for each item; and those that found none."""
        homes, failed = [-1] * len(order), []
        loads = self.loads_of(homes)
        for i in order:
            home = next((k for k in ways[i] if self.fits(i, k, loads, homes)), None)
            if home is None:
                failed.append(i)
                continue
            homes[i] = home
            self.rows.add(loads[home], i, self.rows.size[i])
        return homes, failed

    def loads_of(self, homes: Sequence[int]) -> list[Integers]:
        loads = [np.zeros(len(self.rows), np.int64) for _ in self.capacities]
        for i, home in enumerate(homes):
            if home >= 0:
                self.rows.add(loads[home], i, self.rows.size[i])
        return loads

    def fits(self, i: int, k: int, loads: list[Integers], homes: Sequence[int]) -> bool:
        if not self.rows.room(loads[k], i, self.capacities[k]):
            return False
        return not any(
            memory == k and all(homes[j] == k for j in items if j != i)
            for memory, items in self.cuts_of.get(i, ())
        )

    def _improve(self, homes: list[int], deadline: Deadline) -> None:
        """Moves items to faster memories, in place; what is in the way goes elsewhere if that costs less."""
        placed = _Placed(self, homes)
        for _ in range(_ROUNDS):
            gained = 0
            gains = [self.time(i, home) - self.time(i, self.ways[i][0]) for i, home in enumerate(homes)]
            for i in sorted(range(len(homes)), key=lambda i: (-gains[i], i)):
                for k in self.ways[i]:
                    gain = self.time(i, homes[i]) - self.time(i, k)
                    if gain <= 0:
                        break
                    if self.fits(i, k, placed.loads, homes):
                        placed.move(i, k)
                    else:
                        gain = placed.pushed_in(i, k, gain)
                    if gain:
                        gained += gain
                        break
                if deadline.expired:
                    return
            if not gained:
                return

    # ------------------------------------------------------------------------------------------ exactly

    def exactly(
        self, start: list[int] | None, work: float, deadline: Deadline, *, within: int | None = None
    ) -> Homes:
        """The best homes that CP-SAT finds, from `start` on, and its bound.

        An item is tried only in memories whose penalty leaves a time that is less than that of `start`: most
        items have one such memory. With `within`, in those of at most this penalty; then there is no bound.
        """
        from ortools.sat.python import cp_model

        items, rows = self.problem.items, self.rows
        model = cp_model.CpModel()
        most = within
        if start is not None:
            better = self.problem.nanoseconds(start) - self.relaxation.bound.nanoseconds
            most = better if within is None else min(within, better)
        lies = [
            {
                k: model.new_bool_var("")
                for k in sorted(ways)
                if most is None or penalties[k] <= most or (start is not None and start[i] == k)
            }
            for i, (ways, penalties) in enumerate(zip(self.ways, self.relaxation.penalties, strict=True))
        ]
        for choices in lies:
            model.add_exactly_one(choices.values())
        live: list[list[int]] = [[] for _ in range(len(rows))]
        always = [i for i, spans in enumerate(rows.spans) if spans == [(0, len(rows))]]
        for i in set(range(len(items))).difference(always):
            for low, high in rows.spans[i]:
                for r in range(low, high):
                    live[r].append(i)
        unit = math.gcd(*rows.size) or 1
        for k, most in enumerate(self.capacities):
            capacity = most // unit
            there = [i for i in always if k in lies[i]]
            whole = sum(rows.size[i] for i in there) // unit
            always_there = [(rows.size[i] // unit, lies[i][k]) for i in there]
            if len(there) > 1 and len(rows) > 1:  # one term in each row in the place of many
                kept = model.new_int_var(0, min(whole, capacity), "")
                model.add(kept == sum(size * variable for size, variable in always_there))
                always_there = [(1, kept)]
            for inside in live:
                terms = [(rows.size[i] // unit, lies[i][k]) for i in inside if k in lies[i]]
                if whole + sum(size for size, _ in terms) > capacity:
                    model.add(sum(size * variable for size, variable in always_there + terms) <= capacity)
        for k, together in self.cuts:
            model.add(sum(lies[i].get(k, 0) for i in together) <= len(together) - 1)
        unit = math.gcd(*(t or 0 for item in items for t in item.nanoseconds)) or 1
        model.minimize(
            sum(
                self.time(i, k) // unit * variable
                for i, ways in enumerate(lies)
                for k, variable in ways.items()
            )
        )
        for i, home in enumerate(start or ()):
            for k, variable in lies[i].items():
                model.add_hint(variable, k == home)
        solver = cp_solver(work, deadline, seed=0)
        solver.parameters.relative_gap_limit = 0.0 if len(items) <= _EXACT_ITEMS else _GAP
        status = cp_solved(solver, model, deadline)
        known = None if start is None else tuple(start)
        if status is None:
            return Homes(known, 0, complete=not deadline.late)
        complete = status == cp_model.OPTIMAL or not deadline.late
        if within is not None and status == cp_model.INFEASIBLE:
            return Homes(known, 0)
        if status == cp_model.INFEASIBLE:
            return Homes(None, 0, impossible=True)
        bound = max(0, math.ceil(solver.best_objective_bound - 1e-6)) * unit
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            homes = tuple(next(k for k, variable in row.items() if solver.value(variable)) for row in lies)
            if known is None or self.problem.nanoseconds(homes) < self.problem.nanoseconds(known):
                known = homes
        return Homes(known, bound, complete=complete)


class _Placed:
    """Homes under changes, with the loads that they make."""

    def __init__(self, search: _Search, homes: list[int]) -> None:
        self.search, self.homes, self.rows = search, homes, search.rows
        self.loads = search.loads_of(homes)
        self.home = np.array(homes, np.int64)
        #: The first row of each item, and the one behind its last.
        self.low = np.array([spans[0][0] for spans in self.rows.spans], np.int64)
        self.high = np.array([spans[-1][1] for spans in self.rows.spans], np.int64)
        size = np.maximum(np.array(self.rows.size, np.float64), 1.0)
        #: By memory the nanoseconds a byte that each item loses in the next slower one; endless without one.
        self.loss = [
            np.array(
                [
                    search.time(i, ways[ways.index(k) + 1]) - search.time(i, k) if k in ways[:-1] else np.inf
                    for i, ways in enumerate(search.ways)
                ]
            )
            / size
            for k in range(len(search.capacities))
        ]

    def move(self, i: int, k: int) -> None:
        self.rows.add(self.loads[self.homes[i]], i, -self.rows.size[i])
        self.rows.add(self.loads[k], i, self.rows.size[i])
        self.homes[i] = k
        self.home[i] = k

    def pushed_in(self, i: int, k: int, gain: int) -> int:
        """Moves item i to memory k, and others out of its way; the nanoseconds saved, 0 if nothing is."""
        search, rows = self.search, self.rows
        moved: list[tuple[int, int]] = []
        excluded = {i}
        while gain > 0 and len(moved) < _PUSHED and not search.fits(i, k, self.loads, self.homes):
            row = self._overfull(i, k)
            if row is None:  # a cut excludes it
                break
            there = np.flatnonzero((self.home == k) & (self.low <= row) & (row < self.high))
            there = there[np.argsort(self.loss[k][there], kind="stable")]
            for j in there.tolist():
                if j in excluded or not any(low <= row < high for low, high in rows.spans[j]):
                    continue
                ways = search.ways[j]
                elsewhere = ways[ways.index(k) + 1 :]
                to = next((w for w in elsewhere if search.fits(j, w, self.loads, self.homes)), None)
                if to is not None and (lost := search.time(j, to) - search.time(j, k)) < gain:
                    moved.append((j, k))
                    excluded.add(j)
                    self.move(j, to)
                    gain -= lost
                    break
            else:
                break
        if gain > 0 and search.fits(i, k, self.loads, self.homes):
            self.move(i, k)
            return gain
        for j, before in reversed(moved):
            self.move(j, before)
        return 0

    def _overfull(self, i: int, k: int) -> int | None:
        """The fullest row on which item i has no room in memory k; None where it has room on all."""
        most = self.search.capacities[k] - self.rows.size[i]
        best: tuple[int, int] | None = None
        for low, high in self.rows.spans[i]:
            if low < high:
                row = low + int(self.loads[k][low:high].argmax())
                load = int(self.loads[k][row])
                best = (load, row) if best is None or load > best[0] else best
        return None if best is None or best[0] <= most else best[1]
