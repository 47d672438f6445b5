"""The pass `paging`: what leaves for slower memory, so that the fast one keeps its bytes.

    sram     x ──► Relu ...                       ... x@stay1 ──► Relu's derivative
    flash          └─ page_out ─► x@flash ─ page_in ─┘

Kernels run in the first tier. Which values leave is searched for (`solver.schedules.paging`): few bytes moved
for a number of levels that transfers have, the lookahead; and of some lookaheads the one with which an
iteration is modelled to be fastest. Copies change nothing, so no bit does; the proof follows them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from operator import sub
from typing import ClassVar

from solver.accounting import PagingProblem, elapsed, is_copy, level_costs, paging_problem, traffic
from solver.accounting.bounds import shareable
from solver.accounting.gaps import contents_apart
from solver.accounting.problem import joined, may_share
from solver.errors import CapacityError
from solver.layout import Deadline
from solver.passes.aliases import define_in_place
from solver.passes.base import Applied, Pass, Tell, silent
from solver.program import Costs, Program, Tier, check_tiers, loads
from solver.schedules import SearchProgress
from solver.schedules.paging import in_tiers, with_transfers

__all__ = ["LOOKAHEADS", "Paging"]

#: Levels that a transfer may take beside steps: none, so that steps wait for all of them, up to four.
LOOKAHEADS = (0, 1, 2, 4)

#: The share of the usual work where recomputation is tried with several budgets, each with a search here.
_SHARE = 0.25

#: Where values are defined in place, capacities are tried that are smaller by this part at least.
_STEP = 50

#: The time of an iteration for which the slower memories have no room.
_ENDLESS = 2**62


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
        most = self.tiers[0].bytes
        if self._peak(spread) > most:
            spread = contents_apart(spread)
        peak_before = self._peak(spread)
        if peak_before <= most:
            nothing = _Paged(spread, None, compute, 0, 0, complete=True)
            figures = {
                "peak_before": peak_before,
                "peak_after": peak_before,
                "compute_nanoseconds": compute,
            }
            return Applied(spread, figures | nothing.facts(self.tiers))
        tell(None)
        spread = spread.at_same_residues()
        budget = most + max(loads(spread)[0]) - self._peak(spread)
        ways = self._ways(spread)
        best: _Paged | None = None
        refused: CapacityError | None = None
        while True:
            try:
                paged = self._best(spread, ways, budget, deadline, tell)
            except CapacityError as error:
                refused, paged = error, None
            else:
                if paged is None:
                    break  # no budget that is smaller is enough
            over = 0 if paged is None else self._peak(paged.program) - most
            if paged is not None and over <= 0 and (best is None or paged.nanoseconds < best.nanoseconds):
                best = paged
            if budget <= most or (best is not None and (best.nanoseconds <= compute or deadline.expired)):
                break
            # The budget `most` counts on no aliases: those that others count on must not make it slower.
            done = best is not None or paged is None
            budget = most if done else max(most, min(budget - over, budget - budget // _STEP))
        if best is None:
            raise refused or self._does_not_fit(spread)
        best = replace(best, bound=self._bound(best, deadline))
        peak = self._peak(best.program)
        figures = {"peak_before": peak_before, "peak_after": peak, "compute_nanoseconds": compute}
        return Applied(best.program, figures | best.facts(self.tiers), best.complete)

    def check(self, program: Program) -> None:
        """Raises CapacityError if a step touches more at once than the first tier has: then nothing that is
        paged, and nothing that runs again, is of use. Linear.
        """
        spread = in_tiers(program, self.tiers)
        pairs = (pair for step in spread.steps for pair in may_share(spread, step))
        roots = joined(len(spread.values), pairs if self.in_place else ())
        alignment = spread.spaces[0].alignment
        largest: list[dict[int, int]] = [{} for _ in range(spread.duration)]  # of those that may share bytes
        for step in spread.steps:
            for value in {binding.value for binding in step.bindings}:
                size = -(-spread.values[value].type.nbytes // alignment) * alignment
                level = largest[step.level]
                level[roots[value]] = max(level.get(roots[value], 0), size)
        if max((sum(level.values()) for level in largest), default=0) > self.tiers[0].bytes:
            raise self._does_not_fit(spread)

    def _ways(self, program: Program) -> list[_Way]:
        """The lookaheads with which the first tier may be enough."""
        ways = []
        for ahead in LOOKAHEADS:
            problem, relaxed = paging_problem(program, ahead), self._relaxed(program, ahead)
            if relaxed.smallest <= self.tiers[0].bytes:
                ways.append(_Way(program, ahead, problem, relaxed))
        return ways

    def _relaxed(self, program: Program, ahead: int) -> PagingProblem:
        """The problem that every way of paging with a lookahead solves."""
        relaxed = paging_problem(program, ahead, relaxed=True)
        if not self.in_place:
            return relaxed
        return replace(relaxed, fixed=tuple(map(sub, relaxed.fixed, shareable(program))))

    def least_bytes(
        self, program: Program, lookahead: int, moved: int, deadline: Deadline, share: float = _SHARE
    ) -> int:
        """The bytes that are moved at least in a program without copies and aliases, whatever is paged.

        Each copy has as many levels as the lookahead. A plan that moves fewer bytes, `moved`, has copies that
        began late and took fewer; then each copy may have none. Cost: a second or two, as counted in work, by
        `share`.
        """
        from solver.schedules.paging.cover import WORK, least_moved

        most = self.tiers[0].bytes
        for ahead in dict.fromkeys((lookahead, 0)):
            relaxed = self._relaxed(program, ahead)
            bound = least_moved(relaxed, most, deadline, work=WORK * share, polish=False).bound
            if bound <= moved:
                return bound
        return 0

    def _best(
        self, program: Program, ways: Sequence[_Way], budget: int, deadline: Deadline, tell: Tell
    ) -> _Paged | None:
        """The fastest of some lookaheads, the smallest of equals; None where none keeps the budget.

        Which one that is, greedy covers tell. Only that one is searched for a better cover.
        """
        from solver.schedules.paging.cover import WORK, least_moved
        from solver.schedules.paging.tiers import tier_by_value

        tried = self._greedy(program, ways, budget, deadline, tell)
        if not tried:
            return None
        took, way, taken = min(tried, key=lambda each: (each[0], each[1].lookahead))
        if took == _ENDLESS:
            raise self._no_room(program, [(way.problem, taken) for _, way, taken in tried])
        problem = way.problem
        work = WORK * _SHARE if self.recompute else WORK
        cover = least_moved(problem, budget, deadline, work=work)
        if self._elapsed(program, problem, cover.taken) <= took:
            taken = cover.taken
        tell(SearchProgress(moved_bytes=sum(problem.cost(taken))))
        places = tier_by_value(problem, taken, self.tiers)
        assert places is not None  # its time was found
        paged = with_transfers(program, problem, taken, places, self.tiers, self.costs)
        baseline = sum(problem.cost(frozenset(range(len(problem.gaps)))))
        complete = cover.complete and not deadline.late
        took = elapsed(paged, self.tiers, self.costs)
        return _Paged(paged, way, took, cover.bound, baseline, complete)

    def _greedy(
        self, program: Program, ways: Sequence[_Way], budget: int, deadline: Deadline, tell: Tell
    ) -> list[tuple[int, _Way, frozenset[int]]]:
        """Nanoseconds of an iteration by each lookahead that may keep the budget, with its greedy cover."""
        from solver.schedules.paging.cover import greedy

        compute = sum(level_costs(program, self.costs))
        fitting = [way for way in ways if way.problem.smallest <= budget]
        tried: list[tuple[int, _Way, frozenset[int]]] = []
        # Where slower memory has no room for what is cheapest to move, what takes least of it leaves.
        for thrifty in (False, True):
            for way in fitting:
                taken = greedy(way.problem, budget, thrifty=thrifty)
                took = self._elapsed(program, way.problem, taken)
                tried.append((took, way, taken))
                tell(SearchProgress(moved_bytes=sum(way.problem.cost(taken))))
                if took <= compute or (deadline.expired and took < _ENDLESS):
                    break
            if any(took < _ENDLESS for took, *_ in tried):
                break
        return tried

    def estimate(self, program: Program) -> int:
        """Nanoseconds of an iteration with greedy covers, each value in bytes of its own; more than any
        iteration takes where none was found.
        """
        spread = contents_apart(in_tiers(program, self.tiers))
        tried = self._greedy(spread, self._ways(spread), self.tiers[0].bytes, Deadline(), silent)
        return min((took for took, *_ in tried), default=_ENDLESS)

    def _bound(self, paged: _Paged, deadline: Deadline) -> int:
        """The bytes that are moved at least with the same lookahead."""
        way = paged.way
        if way is None or way.relaxed == way.problem:
            return paged.bound
        # The search holds more than it has to, so its bound is about less than all ways of paging.
        moved = traffic(paged.program)
        total = moved.moved_in + moved.moved_out
        share = _SHARE if self.recompute else 1
        return self.least_bytes(way.program, way.lookahead, total, deadline, share)

    def _elapsed(self, program: Program, problem: PagingProblem, taken: Collection[int]) -> int:
        """Nanoseconds of an iteration with these gaps paged; `_ENDLESS` where there is no room for that."""
        from solver.schedules.paging.tiers import tier_by_value

        places = tier_by_value(problem, taken, self.tiers)
        if places is None:
            return _ENDLESS
        paged = with_transfers(program, problem, taken, places, self.tiers, self.costs)
        return elapsed(paged, self.tiers, self.costs)

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
        relaxed = paging_problem(program, 0, relaxed=True)
        proved = not self.in_place and relaxed.smallest > tier.bytes
        return CapacityError(
            f"Kernels run in tier {tier.name!r}, which has {tier.bytes:,} bytes; step {label} needs"
            f" {problem.smallest:,} at once, with scratch, alignment and what cannot leave.",
            remedy=f"Give {tier.name!r} that much, reduce the batch or the scratch budget.",
            required=problem.smallest,
            available=tier.bytes,
            live_at_peak=sorted(live, key=lambda item: (-item[1], item[0])),
            path=("tiers", 0, "bytes"),
            proved=proved,
        )

    def _no_room(
        self, program: Program, tried: Sequence[tuple[PagingProblem, frozenset[int]]]
    ) -> CapacityError:
        """The error if paged values do not fit the slower tiers. It names the tier that lacks least."""
        from solver.schedules.paging.tiers import shortage

        least = min(
            (shortage(problem, taken, self.tiers) for problem, taken in tried),
            key=lambda each: each.missing,
        )
        tier, value = self.tiers[least.tier], program.values[least.value]
        rounded = value.type.nbytes + -value.type.nbytes % program.spaces[0].alignment
        live = [(program.values[v].label, program.values[v].type.nbytes) for v in least.there]
        return CapacityError(
            f"No slower tier has room for {value.label!r} ({rounded:,} bytes) while it is paged out:"
            f" {tier.name!r} would hold {tier.bytes + least.missing:,} at once, and has {tier.bytes:,}.",
            remedy=f"Give {tier.name!r} {least.missing:,} bytes more, which is enough for what leaves,"
            f" or raise {self.tiers[0].name!r}, so that less does.",
            required=tier.bytes + least.missing,
            available=tier.bytes,
            live_at_peak=sorted(live, key=lambda item: (-item[1], item[0])),
            path=("tiers", least.tier, "bytes"),
        )


@dataclass(frozen=True, slots=True)
class _Way:
    """A lookahead, the problem of the program that is searched, and the `relaxed` one that all ways of paging
    solve: with `in_place` every way of sharing bytes as well.
    """

    program: Program
    lookahead: int
    problem: PagingProblem
    relaxed: PagingProblem


@dataclass(frozen=True, slots=True)
class _Paged:
    """A program with copies, by a `way` of paging. `bound` are the bytes that are moved at least with its
    lookahead.

    The `baseline` moves all that can be, as nntrainer's swap does.
    """

    program: Program
    way: _Way | None
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
            "lookahead": self.way.lookahead if self.way else 0,
            "moved_in": moved.moved_in,
            "moved_out": moved.moved_out,
            "bound": self.bound,
            "baseline": self.baseline,
            "nanoseconds": self.nanoseconds,
            "transfers": sum(is_copy(self.program, step) for step in self.program.steps),
            **written,
        }
