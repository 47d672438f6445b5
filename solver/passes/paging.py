"""The pass `paging`: what leaves for slower memory, so that the fast one keeps its bytes.

    sram     x ──► Relu ...                       ... x@stay1 ──► Relu's derivative
    flash          └─ page_out ─► x@flash ─ page_in ─┘

Kernels run in the first tier. Which values leave is searched for (`solver.schedules.paging`): few bytes moved
for a number of levels that transfers have, the lookahead; and of some lookaheads the one with which an
iteration is modelled to be fastest. Copies change nothing, so no bit does; the proof follows them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

from solver.errors import CapacityError
from solver.layout import Deadline
from solver.passes.aliases import define_in_place
from solver.passes.base import Applied, Pass, Tell, silent
from solver.program import Costs, Program, Tier, check_tiers, loads
from solver.schedules import SearchProgress
from solver.schedules.paging import (
    PagingProblem,
    elapsed,
    in_tiers,
    is_copy,
    level_costs,
    paging_problem,
    slow_lives,
    traffic,
    with_transfers,
)

__all__ = ["LOOKAHEADS", "Paging"]

#: Levels that a transfer may take beside steps: none, so that steps wait for all of them, up to four.
LOOKAHEADS = (0, 1, 2, 4)

#: The share of the usual work where recomputation is tried with several budgets, each with a search here.
_SHARE = 0.25

#: Where values are defined in place, capacities are tried that are smaller by this part at least.
_STEP = 50


@dataclass(frozen=True, slots=True)
class Paging(Pass):
    """The memories; none: everything stays in one. With `costs`, steps take what these say.

    Raises OptionsError for tiers that nothing can be paged between; when run, CapacityError where a
    tier cannot hold what must be in it.
    """

    name: ClassVar[str] = "paging"
    requires: ClassVar[frozenset[str]] = frozenset({"own memory"})
    keeps: ClassVar[frozenset[str]] = frozenset({"own memory"})
    searches: ClassVar[bool] = True

    tiers: tuple[Tier, ...] = ()
    recompute: bool = False
    in_place: bool = False
    costs: Costs | None = None

    def __post_init__(self) -> None:
        check_tiers(self.tiers)

    def run(self, program: Program) -> Program:
        return self.apply(program, Deadline()).program

    def apply(self, program: Program, deadline: Deadline, tell: Tell = silent) -> Applied:
        """Search until the deadline; the facts are bytes and nanoseconds of one iteration.

        Where values will be defined in place, so much more may be live in the first tier without that.
        """
        if not self.tiers:
            return Applied(program)
        spread = in_tiers(program, self.tiers)
        compute = sum(level_costs(program, self.costs))
        given = self._peak(spread)
        most = self.tiers[0].bytes
        if given <= most:
            nothing = _Paged(spread, 0, compute, 0, 0, complete=True)
            figures = {"peak_before": given, "peak_after": given, "compute_nanoseconds": compute}
            return Applied(spread, figures | nothing.facts(self.tiers))
        tell(None)
        spread = spread.at_same_residues()
        budget = most + max(loads(spread)[0]) - self._peak(spread)
        while True:
            found = self._best(spread, budget, deadline, tell)
            if found is None:
                raise self._does_not_fit(spread)
            reached = self._peak(found.program)
            if reached <= most:
                figures = {"peak_before": given, "peak_after": reached, "compute_nanoseconds": compute}
                return Applied(found.program, figures | found.facts(self.tiers), found.complete)
            budget = max(most, min(budget - (reached - most), budget - budget // _STEP))

    def _best(self, program: Program, budget: int, deadline: Deadline, tell: Tell) -> _Paged | None:
        """The fastest of some lookaheads, the smallest of equals; None where none keeps the budget.

        Which one that is, greedy covers tell. Only that one is searched for a better cover.
        """
        from solver.schedules.paging.cover import WORK, greedy, least_moved

        compute = sum(level_costs(program, self.costs))
        problems = [(ahead, paging_problem(program, ahead)) for ahead in LOOKAHEADS]
        tried: list[tuple[int, int, PagingProblem, frozenset[int]]] = []
        for ahead, problem in problems:
            if problem.smallest > budget:
                continue
            taken = greedy(problem, budget)
            took = self._elapsed(program, problem, taken)
            tried.append((took, ahead, problem, taken))
            tell(SearchProgress(moved_bytes=sum(problem.cost(taken))))
            if took <= compute or deadline.expired:
                break
        if not tried:
            return None
        _, ahead, problem, taken = min(tried, key=lambda each: each[:2])
        cover = least_moved(problem, budget, deadline, work=WORK * _SHARE if self.recompute else WORK)
        if self._elapsed(program, problem, cover.taken) <= self._elapsed(program, problem, taken):
            taken = cover.taken
        tell(SearchProgress(moved_bytes=sum(problem.cost(taken))))
        homes = self._homes(problem, taken)
        made = with_transfers(program, problem, taken, homes, self.tiers, self.costs)
        baseline = sum(problem.cost(frozenset(range(len(problem.gaps)))))
        complete = cover.complete and not deadline.expired
        took = elapsed(made, self.tiers, self.costs)
        return _Paged(made, ahead, took, cover.bound, baseline, complete)

    def _elapsed(self, program: Program, problem: PagingProblem, taken: Collection[int]) -> int:
        """Nanoseconds of an iteration with these gaps paged; endless where there is no room for that."""
        try:
            homes = self._homes(problem, taken)
        except CapacityError:
            return 2**62
        made = with_transfers(program, problem, taken, homes, self.tiers, self.costs)
        return elapsed(made, self.tiers, self.costs)

    def _homes(self, problem: PagingProblem, taken: Collection[int]) -> dict[int, int]:
        """The tier that each value leaves for: the first with room, those that move most bytes first.

        Raises CapacityError where the last one has none.
        """
        size = {problem.gaps[j].value: problem.gaps[j].size for j in taken}
        times: dict[int, int] = {}
        for j in taken:
            times[problem.gaps[j].value] = times.get(problem.gaps[j].value, 0) + 1
        spans = slow_lives(problem, taken)
        room = [[tier.bytes] * problem.levels for tier in self.tiers]
        homes: dict[int, int] = {}
        for value in sorted(spans, key=lambda value: (-times[value], -size[value], value)):
            low, high = spans[value]
            for k in range(1, len(self.tiers)):
                if min(room[k][low : high + 1]) >= size[value]:
                    homes[value] = k
                    room[k][low : high + 1] = [left - size[value] for left in room[k][low : high + 1]]
                    break
            else:
                raise _no_room(self.tiers, spans, size, problem.levels)
        return homes

    def _peak(self, program: Program) -> int:
        """The bytes that are live at once in the first tier, with what will be defined in place."""
        return max(loads(define_in_place(program) if self.in_place else program)[0], default=0)

    def _does_not_fit(self, program: Program) -> CapacityError:
        problem = paging_problem(program, 0)
        level = max(range(problem.levels), key=problem.fixed.__getitem__)
        touched = {b.value for s in program.steps if s.level == level for b in s.bindings}
        live = [(program.values[v].label, program.values[v].type.nbytes) for v in touched]
        label = next(program.step_labels[t] for t, s in enumerate(program.steps) if s.level == level)
        tier = self.tiers[0]
        proved = not self.in_place
        return CapacityError(
            f"Kernels run in tier {tier.name!r}, which has {tier.bytes:,} bytes; step {label} touches"
            f" {problem.smallest:,} at once, scratch and alignment included.",
            remedy=f"Give {tier.name!r} that much, reduce the batch or the scratch budget.",
            required=problem.smallest,
            available=tier.bytes,
            live_at_peak=sorted(live, key=lambda item: (-item[1], item[0])),
            path=("tiers", 0, "bytes"),
            proved=proved,
        )


@dataclass(frozen=True, slots=True)
class _Paged:
    """A program with copies. `bound` are the bytes that are moved at least with this lookahead.

    The `baseline` moves all that can be, as nntrainer's swap does.
    """

    program: Program
    lookahead: int
    nanoseconds: int
    bound: int
    baseline: int
    complete: bool

    def facts(self, tiers: Sequence[Tier]) -> dict[str, int]:
        moved = traffic(self.program)
        written = {
            f"written.{tier.name}": written
            for tier, written in zip(tiers[1:], moved.written[1:], strict=True)
        }
        return {
            "lookahead": self.lookahead,
            "moved_in": moved.moved_in,
            "moved_out": moved.moved_out,
            "bound": self.bound,
            "baseline": self.baseline,
            "nanoseconds": self.nanoseconds,
            "transfers": sum(is_copy(self.program, step) for step in self.program.steps),
            **written,
        }


def _no_room(
    tiers: Sequence[Tier], spans: dict[int, tuple[int, int]], size: dict[int, int], levels: int
) -> CapacityError:
    """All that leaves at the same time is more than the slower tiers hold."""
    change = [0] * (levels + 1)
    for value, (low, high) in spans.items():
        change[low] += size[value]
        change[high + 1] -= size[value]
    needed, there = max(accumulate(change)), sum(tier.bytes for tier in tiers[1:])
    names = " and ".join(repr(tier.name) for tier in tiers[1:])
    return CapacityError(
        f"Paged out are {needed:,} bytes at the same time; there is room for {there:,} in {names}.",
        remedy=f"Give {tiers[-1].name!r} {max(needed - there, 0):,} bytes more, or {tiers[0].name!r}.",
        required=needed,
        available=there,
        live_at_peak=[],
        path=("tiers", len(tiers) - 1, "bytes"),
    )
