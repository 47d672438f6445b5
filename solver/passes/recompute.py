"""The pass `recompute`: values are dropped and made again, so that the program keeps a capacity.

    conv1 ──► x ──► conv2 ──► ... ──► conv2's gradient reads x          x waits through the whole forward pass
    conv1 ──► x ──► conv2 ──► ... conv1 ──► x@again1 ──► conv2's gradient     x waits no longer

`solver.schedules` searches for the steps that run again, and when, at the least cost, by a roofline or by
measured costs, with a proved bound on that cost. A repeated step is the same kernel with the same attributes
on the same contents, so it writes the same bits; the proof checks this in every plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

from solver.accounting import (
    PeakBound,
    ScheduleProblem,
    floor,
    flops_of,
    order_bound,
    schedule_problem,
    step_costs,
)
from solver.errors import CapacityError, OptionsError
from solver.layout import Deadline
from solver.passes.aliases import define_in_place
from solver.passes.base import Applied, Pass, Tell, silent
from solver.program import RESIDUE, CostBound, Costs, EntryKind, Program, Tier, loads
from solver.schedules import Schedule, rerun

__all__ = ["Recompute", "attempting", "read_only_bytes", "to_least_peak", "weights_apart"]

#: If values are defined in place, each next budget is smaller by 1/50 at least.
_STEP = 50

#: If values are defined in place: how many budgets below the least peak found are tried.
_FEWER = 4

#: If values are defined in place: budgets from the peak down to the floor, as many as a curve has by default.
_DESCENT = 10

#: Full steps at which a bound is tried if the moments of the search leave a gap.
_MOMENTS = 12

#: The share of the usual work for each budget if paging can save the remaining bytes.
_SHARE = 0.2


_Options = TypeVar("_Options")


@dataclass(frozen=True, slots=True)
class Recompute(Pass):
    """Whether steps may run again to keep `capacity` bytes. With `costs`, they take what these say.

    Raises OptionsError without a capacity. `run` raises CapacityError where no schedule keeps
    it, or none was found.
    """

    name: ClassVar[str] = "recompute"
    requires: ClassVar[frozenset[str]] = frozenset({"sequential", "own memory"})
    searches: ClassVar[bool] = True

    recompute: bool = False
    capacity: int | None = None
    in_place: bool = False
    costs: Costs | None = None
    tiers: tuple[Tier, ...] = ()

    def __post_init__(self) -> None:
        if self.recompute and self.capacity is None:
            raise OptionsError(
                "Nothing says how many bytes recomputation has to keep.",
                remedy="Give a capacity.",
                path=("capacity",),
            )

    def run(self, program: Program) -> Program:
        return self.apply(program, Deadline()).program

    def apply(self, program: Program, deadline: Deadline, tell: Tell = silent) -> Applied:
        """Search until the deadline; the facts are the schedule's figures, in bytes and nanoseconds.

        Where values will be defined in place, the peak is that with aliases, for several budgets in turn.
        """
        if not self.recompute or self.capacity is None:
            return Applied(program)
        peak_before = self._peak(program)
        if peak_before <= self.capacity:
            return Applied(program)
        tell(None)
        cost = step_costs(program, self.costs)
        problem = self._problem(program, cost)
        lowest = floor(problem)
        if lowest.bytes > self.capacity:
            raise _impossible(problem, lowest, self.capacity)
        given_program, program = program, program.at_same_residues()
        if program is not given_program:
            problem = self._problem(program, cost)
        searches = _Searches(program, problem, self._peak, deadline, tell)
        reached = self._reached(searches, lowest)
        if reached.peak <= self.capacity:
            return self._applied(program, problem, reached, lowest, peak_before, deadline)
        raise _not_found(
            problem,
            lowest,
            self.capacity,
            min(reached.peak, peak_before),  # the search may end above what it began with
            impossible=searches.impossible(self.capacity) and not self.in_place,
            late=deadline.late and not reached.schedule.complete,
            worked=deadline.expired and not deadline.late,
            coarser=given_program is not program,
        )

    def _reached(self, searches: _Searches, lowest: PeakBound) -> _Reached:
        """The cheapest schedule found that keeps the capacity; else that of the least peak found."""
        assert self.capacity is not None  # else nothing would be searched for
        reached = self._within(searches, self.capacity, _SHARE if self.tiers else 1.0)
        if reached.peak <= self.capacity or self.tiers:
            return reached
        # Beginning with schedules of other budgets finds more; and what it ends with is good advice.
        return min(reached, self._least(searches, lowest), key=lambda each: each.peak)

    def _within(self, searches: _Searches, capacity: int, share: float = 1.0) -> _Reached:
        """The schedule found for a capacity, which may exceed it. Budgets count bytes without aliases: bytes
        that aliases save need no recomputation. At first these are the bytes saved in the program as it is.
        """
        budget = capacity + max(self._loads(searches.program)) - self._peak(searches.program)
        while True:
            reached = searches.within(budget, share=share)
            if reached.peak <= capacity or budget <= capacity:
                break
            over = reached.peak - capacity
            budget = max(capacity, min(budget - over, budget - budget // _STEP))
        if budget > capacity and not reached.schedule.optimal and not searches.deadline.expired:
            # A search with more bytes may end at a higher cost than one that counts on no aliases.
            other = searches.within(capacity, share=share)
            if other.schedule.fits and other.schedule.extra < reached.schedule.extra:
                reached = other
        return reached

    def _least(self, searches: _Searches, lowest: PeakBound) -> _Reached:
        """The least peak that is found, or one that keeps the capacity: then at the least cost."""
        from solver.schedules.recompute.least import SHARE, least_peak

        assert self.capacity is not None  # else nothing would be searched for
        deadline = searches.deadline
        start = searches.within(2**62)
        least = least_peak(searches.within, start, lowest.bytes - 1, deadline, enough=self.capacity)
        for _ in range(_FEWER if self.in_place else 0):
            if least.peak <= self.capacity or deadline.expired:
                break
            # What aliases save is not in the budgets of these searches, and may be more elsewhere.
            fewer = self._within(searches, least.peak - 1, SHARE)
            if fewer.peak >= least.peak:
                break
            least = fewer
        if least.peak > self.capacity and self.in_place:
            descent = self._descent(searches, start, lowest)
            least = min(least, descent, key=lambda each: (each.peak, each.schedule.extra))
        if least.peak > self.capacity:
            return least
        cheaper = searches.within(max(self.capacity, least.schedule.peak), least.schedule, 2 * SHARE)
        return cheaper if cheaper.peak <= self.capacity else least

    def _descent(self, searches: _Searches, start: _Reached, lowest: PeakBound) -> _Reached:
        """The least peak on the way down to the floor, as a curve goes, or the first that keeps the capacity.

        Each search begins with the schedule of the budget above. A repair towards the floor, which no
        schedule may keep without aliases, often ends at a peak of its own that is known already, and at one
        with aliases that is smaller than all others.
        """
        from solver.schedules.recompute.least import SHARE, descending

        assert self.capacity is not None  # else nothing would be searched for
        least = above = start
        for budget in descending(start.peak, lowest.bytes, _DESCENT):
            if least.peak <= self.capacity or searches.deadline.expired or not above.schedule.fits:
                break
            above = searches.within(budget, above.schedule, SHARE)
            below = searches.repaired(lowest.bytes, above.schedule)
            least = min(least, above, below, key=lambda each: (each.peak, each.schedule.extra))
        return least

    def _applied(
        self,
        program: Program,
        problem: ScheduleProblem,
        reached: _Reached,
        lowest: PeakBound,
        peak_before: int,
        deadline: Deadline,
    ) -> Applied:
        """The program with its repetitions, what is proved of their cost, and the figures."""
        assert self.capacity is not None  # it is kept
        schedule = reached.schedule
        facts = {"floor": lowest.bytes, "peak_before": peak_before, "peak_after": reached.peak}
        proved = self._proved(program, problem, schedule, deadline)
        checked = proved.nanoseconds if proved else 0
        # The search's relaxation counts every value: it bounds nothing where some share bytes.
        bound = checked if self.in_place else max(schedule.bound, checked)
        facts["checked_nanoseconds"] = checked
        # A bound that the deadline cut off may be there another time.
        complete = schedule.complete and (proved is not None or not deadline.late)
        figures = facts | _facts(program, problem, schedule, self.capacity, bound)
        return Applied(reached.program, figures, complete, proved)

    def least_nanoseconds(self, program: Program, deadline: Deadline) -> int:
        """What repetitions that keep the capacity cost at least in a program of `run`, as far as a linear
        program at some full steps proves it. Cost: tenths of a second.
        """
        from solver.schedules.recompute.dual import proved_cost  # OR-Tools, as the search
        from solver.schedules.recompute.moments import fullest

        if self.capacity is None:
            return 0
        program = program.at_same_residues()
        problem = self._problem(program, step_costs(program, self.costs))
        moments = fullest(loads(program)[0], self.capacity, _MOMENTS)
        bound = proved_cost(program, problem, self.capacity, moments, deadline, in_place=self.in_place)
        return 0 if bound is None else bound.nanoseconds

    def _proved(
        self, program: Program, problem: ScheduleProblem, schedule: Schedule, deadline: Deadline
    ) -> CostBound | None:
        """The bound on the cost that multipliers prove: at the moments of the search, and, if these do not
        prove that the schedule is the cheapest, at a dozen full steps besides.
        """
        if not schedule.extra or self.capacity is None:
            return None
        from solver.schedules.recompute.dual import proved_cost  # OR-Tools, as the search
        from solver.schedules.recompute.moments import fullest

        at = partial(proved_cost, program, problem, self.capacity, deadline=deadline, in_place=self.in_place)
        best = at(schedule.moments)
        if schedule.optimal and not self.in_place:
            return best
        other = at((*schedule.moments, *fullest(loads(program)[0], self.capacity, _MOMENTS)))
        return max((b for b in (best, other) if b is not None), key=lambda b: b.nanoseconds, default=None)

    def _peak(self, program: Program) -> int:
        """The bytes that are live at once, with what will be defined in place."""
        return max(self._loads(define_in_place(program) if self.in_place else program))

    def _loads(self, program: Program) -> Sequence[int]:
        """The bytes that are live on each level."""
        return loads(program)[0]

    def _problem(self, program: Program, cost: Sequence[int]) -> ScheduleProblem:
        return schedule_problem(program, cost, in_place=self.in_place)


@dataclass(frozen=True, slots=True)
class _Attempt(Recompute):
    """One search for a schedule that keeps the capacity, with a share of the usual work."""

    share: float = 1.0

    def _reached(self, searches: _Searches, lowest: PeakBound) -> _Reached:
        assert self.capacity is not None  # else nothing would be searched for
        return self._within(searches, self.capacity, self.share)


@dataclass(frozen=True, slots=True)
class _Descent(Recompute):
    """Short searches down to the least peak, which end at one that keeps the capacity."""

    def _reached(self, searches: _Searches, lowest: PeakBound) -> _Reached:
        return self._least(searches, lowest)


def _as(
    kind: type[Recompute], passes: Callable[[_Options], Sequence[Pass]], **more: Any
) -> Callable[[_Options], Sequence[Pass]]:
    """The same passes with another kind of recomputation."""
    return lambda options: [
        kind(**{field.name: getattr(p, field.name) for field in fields(p)}, **more)
        if isinstance(p, Recompute)
        else p
        for p in passes(options)
    ]


def attempting(
    passes: Callable[[_Options], Sequence[Pass]], share: float
) -> Callable[[_Options], Sequence[Pass]]:
    """The same passes, where recomputation searches once, with a share of its usual work."""
    return _as(_Attempt, passes, share=share)


def to_least_peak(passes: Callable[[_Options], Sequence[Pass]]) -> Callable[[_Options], Sequence[Pass]]:
    """The same passes, where recomputation goes down to the least peak until one keeps the capacity."""
    return _as(_Descent, passes)


@dataclass(frozen=True, slots=True)
class _WeightsApart(Recompute):
    """Counts what no step writes only where steps read it, and `ahead` levels before: paging moves the rest.

    levels          0    1    2    3    4    5
    weight of 3                 ahead  R               at 2 ahead it takes bytes on levels 1, 2 and 3
    """

    ahead: int = 0

    def _loads(self, program: Program) -> Sequence[int]:
        total, moved = _read_only(program, self.ahead)
        return [load - total + there for load, there in zip(loads(program)[0], moved, strict=True)]

    def _problem(self, program: Program, cost: Sequence[int]) -> ScheduleProblem:
        problem = Recompute._problem(self, program, cost)
        total, moved = _read_only(program, self.ahead)
        scratch, again = (
            tuple(size + moved[step.level] for size, step in zip(sizes, program.steps, strict=True))
            for sizes in (problem.scratch, problem.scratch_again)
        )
        return replace(problem, fixed=problem.fixed - total, scratch=scratch, scratch_again=again)

    def _applied(
        self,
        program: Program,
        problem: ScheduleProblem,
        reached: _Reached,
        lowest: PeakBound,
        peak_before: int,
        deadline: Deadline,
    ) -> Applied:
        """The record counts every value, as others do: with all that no step writes in the budget."""
        whole = Recompute(in_place=self.in_place)
        before, after = whole._peak(program), whole._peak(reached.program)
        facts = {"floor": lowest.bytes, "peak_before": before, "peak_after": after, "checked_nanoseconds": 0}
        assert self.capacity is not None  # it is kept
        budget = self.capacity + read_only_bytes(program)
        figures = facts | _facts(program, problem, reached.schedule, budget, 0)
        return Applied(reached.program, figures, reached.schedule.complete)


def read_only_bytes(program: Program) -> int:
    """The bytes of values that stay from iteration to iteration and that no step writes. Linear."""
    return _read_only(program, 0)[0]


def _read_only(program: Program, ahead: int) -> tuple[int, list[int]]:
    """Those bytes, and for each level the bytes of those that it and the next `ahead` levels read."""
    alignment = program.spaces[0].alignment
    written = {b.value for step in program.steps for b in step.bindings if b.access.defines}
    size = {
        entry.value: -(-program.values[entry.value].type.nbytes // alignment) * alignment
        for entry in program.entry
        if entry.kind in (EntryKind.CARRIED, EntryKind.CONSTANT) and entry.value not in written
    }
    moved = [0] * program.duration
    last: dict[int, int] = {}
    read = {b.value for step in program.steps for b in step.bindings if b.value in size}
    for step in program.steps:
        for value in {b.value for b in step.bindings if b.value in read}:
            first = max(step.level - ahead, last.get(value, -1) + 1)
            for level in range(first, step.level + 1):
                moved[level] += size[value]
            last[value] = step.level
    return sum(size[value] for value in read), moved


def weights_apart(
    passes: Callable[[_Options], Sequence[Pass]], ahead: int
) -> Callable[[_Options], Sequence[Pass]]:
    """The same passes, where recomputation leaves what no step writes to paging, `ahead` levels ahead."""
    return _as(_WeightsApart, passes, ahead=ahead)


@dataclass(frozen=True, slots=True)
class _Reached:
    """A schedule, the program with its repetitions, and the bytes that are live at once with aliases."""

    schedule: Schedule
    program: Program
    peak: int


class _Searches:
    """The searches of one run of the pass: of one problem, for many budgets."""

    def __init__(
        self,
        program: Program,
        problem: ScheduleProblem,
        peak: Callable[[Program], int],
        deadline: Deadline,
        tell: Tell,
    ) -> None:
        """`peak` counts the bytes that are live at once in a program, with aliases."""
        self.program, self.deadline = program, deadline
        self._impossible = -1
        self._problem, self._peak, self._tell = problem, peak, tell

    def within(self, budget: int, before: Schedule | None = None, share: float = 1.0) -> _Reached:
        """See `cheapest`."""
        from solver.schedules.recompute.search import (
            cheapest,  # numba and OR-Tools, only where they are needed
        )

        key = self._problem, budget, share, None if before is None else before.sequence
        answers = self.deadline.work.answers
        schedule = answers.get(key)
        if not isinstance(schedule, Schedule):
            schedule = cheapest(
                self._problem, budget, self.deadline, before=before, share=share, tell=self._tell
            )
            if not self.deadline.expired:
                answers[key] = schedule
        return self._reached(schedule)

    def repaired(self, budget: int, before: Schedule) -> _Reached:
        """See `repaired`."""
        from solver.schedules.recompute.search import repaired

        return self._reached(repaired(self._problem, budget, before, self.deadline))

    def impossible(self, budget: int) -> bool:
        """Whether a search has proved that too few, where each value has bytes of its own."""
        return budget <= self._impossible

    def _reached(self, schedule: Schedule) -> _Reached:
        if schedule.impossible:
            self._impossible = max(self._impossible, schedule.budget)
        changed = rerun(self.program, schedule.sequence)
        return _Reached(schedule, changed, self._peak(changed))


def _facts(
    program: Program, problem: ScheduleProblem, schedule: Schedule, budget: int, bound: int
) -> dict[str, int | str | bool]:
    flops = [flops_of(program, step) for step in program.steps]
    return {
        "budget": budget,
        "order_bound": order_bound(problem).bytes,
        "repeated_steps": len(schedule.sequence) - len(program.steps),
        "step_nanoseconds": sum(problem.cost),
        "extra_nanoseconds": schedule.extra,
        "bound_nanoseconds": bound,
        "step_flops": sum(flops),
        "extra_flops": sum(flops[t] for t in schedule.sequence) - sum(flops),
    }


def _impossible(problem: ScheduleProblem, lowest: PeakBound, capacity: int) -> CapacityError:
    live = [(problem.values[v], problem.size[v]) for v in lowest.live]
    live.sort(key=lambda item: (-item[1], item[0]))
    scratch = problem.scratch[lowest.step]
    writers = Counter(v for t, wrote in enumerate(problem.writes) for v in {*wrote, *problem.updates[t]})
    several = [problem.values[v] for v in lowest.live if writers[v] > 1]
    parts = f", as {several[0]}, which several steps write" if several else ""
    return CapacityError(
        f"No order of the steps and no recomputation takes less than {lowest.bytes:,} bytes where only"
        f" steps run again that may; the capacity is {capacity:,}. Step {problem.steps[lowest.step]} needs"
        f" them: {problem.fixed:,} for weights, optimizer variables and constants, {scratch:,} for scratch,"
        f" and the rest for what it touches or what waits for later steps and cannot be made again{parts}.",
        remedy="Raise the capacity (`explain` finds out how far), reduce the batch or the scratch budget, or"
        " train fewer parameters.",
        required=lowest.bytes,
        available=capacity,
        live_at_peak=live,
        path=("capacity",),
        proved=True,
    )


def _not_found(
    problem: ScheduleProblem,
    lowest: PeakBound,
    capacity: int,
    peak: int,
    *,
    impossible: bool,
    late: bool,
    worked: bool,
    coarser: bool,
) -> CapacityError:
    live = [(problem.values[v], problem.size[v]) for v in lowest.live]
    more = "Give more time, r" if late else "R"
    longer = " give a deadline, within which the search goes on," if worked else ""
    known = " The search ended after its usual work." if worked else ""
    known += " None that keeps the order of the steps exists." if impossible else ""
    if coarser:
        known += f" Steps that run again need places at multiples of {RESIDUE} bytes."
    error = CapacityError(
        f"No schedule was found that keeps {capacity:,} bytes{' in time' if late else ''}; the smallest takes"
        f" {peak:,}.{known}"
        f" {lowest.bytes:,} bytes at least are proved, at step {problem.steps[lowest.step]}.",
        remedy=f"{more}aise the capacity to {peak:,},{longer} reduce the batch, or train fewer parameters.",
        required=peak,
        available=capacity,
        live_at_peak=sorted(live, key=lambda item: (-item[1], item[0])),
        path=("capacity",),
    )
    error.of_order = impossible
    return error
