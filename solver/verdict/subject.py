"""One graph or explicit program under given options, derived once and scheduled for many budgets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from solver import pipeline
from solver.accounting import PeakBound, floor, flops_of, schedule_problem, step_costs
from solver.collector import collector_paused
from solver.errors import CapacityError, OptionsError
from solver.graph import TrainableGraph
from solver.layout import Deadline
from solver.passes import Recompute
from solver.pipeline import checked, checked_of_program
from solver.pipeline.watch import Follower
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import Program, loads
from solver.reports.verdict import TradeOffPoint
from solver.schedules import Schedule, rerun
from solver.schedules.recompute.least import SHARE, least_peak
from solver.targets import TARGETS

if TYPE_CHECKING:
    from solver.pipeline import BlockProgram

__all__ = ["TRIAL", "Found", "Subject", "check_subject", "with_more_scratch"]

#: Units of work for each of the plans that a verdict tries.
TRIAL = pipeline.EFFORT / 8


def check_subject(subject: TrainableGraph | BlockProgram, options: PlanOptions) -> None:
    """Raises OptionsError for what no plan takes, for a target whose steps run once, whatever the memory, and
    for several memories.

    A curve has no capacity, so recomputation may be asked for without one.
    """
    without = options.capacity is None and not (options.tiers or options.memories)
    if without:
        options = replace(options, capacity=0)
    if isinstance(subject, TrainableGraph):
        _check_target(options)
    else:
        checked_of_program(subject, options)
    if options.memories:
        raise OptionsError(
            "Curves and verdicts are about one memory, and several that kernels reach are given.",
            remedy="Leave them out, and give the bytes of all of them together as the capacity of a verdict.",
            path=("memories",),
        )
    if options.tiers:
        raise OptionsError(
            "Curves and verdicts are about one memory, and tiers are given.",
            remedy="Leave them out, and give the size of the first one as the capacity of a verdict, which"
            " tries paging, too.",
            path=("tiers",),
        )


def _check_target(options: PlanOptions) -> None:
    target = checked(options)
    if not target.capabilities.recompute:
        able = ", ".join(name for name, target in TARGETS.items() if target.capabilities.recompute)
        raise OptionsError(
            f"Target {options.target!r} runs each step once, so it has no trade-off between memory and time.",
            remedy=f"Choose a target that recomputes ({able}), or plan with a capacity.",
            path=("target",),
        )


def with_more_scratch(
    graph: TrainableGraph,
    requested: RequestedOptions,
    plan: Plan,
    deadline: Deadline,
    follow: Follower | None,
) -> Plan:
    """A plan of `requested` with as much scratch as its capacity permits, which is more than `plan` has if
    that has the least.

    Kernels that have more are faster. Cost: a plan for each halving of the powers of two in between.
    """
    low, high = plan.options.scratch_budget.bit_length() - 1, requested.options.scratch_budget.bit_length()
    while high - low > 1 and not deadline.expired:
        middle = (low + high) // 2
        asked = requested.having(scratch_budget=1 << middle)
        try:
            plan = pipeline.plan_requested(
                graph, asked, follow=follow, advise=False, deadline=deadline.within(TRIAL)
            )
            low = middle
        except CapacityError:
            high = middle
    return plan


@dataclass(frozen=True, slots=True)
class Found:
    """A schedule with the bytes that are live at once behind all passes, and what it computes again."""

    schedule: Schedule
    peak: int
    extra_flops: int

    def point(self, bound: int) -> TradeOffPoint:
        """As a point of a curve; `bound` nanoseconds are proved for its peak."""
        schedule = self.schedule
        repeated = len(schedule.sequence) - len(set(schedule.sequence))
        return TradeOffPoint(
            self.peak, schedule.extra, min(bound, schedule.extra), self.extra_flops, repeated
        )


class Subject:
    """Peaks are the bytes live at once behind all passes of the options; every arena takes them at least."""

    @collector_paused()
    def __init__(
        self,
        subject: TrainableGraph | BlockProgram,
        options: PlanOptions,
        deadline: Deadline,
        follow: Follower | None = None,
        *,
        automatic: bool = False,
    ) -> None:
        """`follow` hears how far each search is. With `automatic` the floor holds for plans that take values
        in place besides, as those do that choose their measures. Raises OptionsError as `check_subject` does.
        """
        check_subject(subject, options)
        options = replace(options, recompute=False, capacity=None)
        start = pipeline.start_of(subject, options, deadline.by_time())
        passes = start.passes(options)
        at = next(i for i, each in enumerate(passes) if isinstance(each, Recompute))
        self._after = passes[at + 1 :]
        self._options, self._start = options, start
        self.complete = start.complete
        self.deadline = deadline
        self._tell = None if follow is None else partial(follow, Recompute.name)
        self.in_place = options.in_place
        self.program: Program = reduce(
            lambda program, each: each.run(program), passes[:at], start.reference.program
        )
        #: What schedules are made of, where steps run again.
        self._repeatable = self.program.at_same_residues()
        cost = step_costs(self.program, options.costs)
        in_place = options.in_place or automatic
        self.first_runs = schedule_problem(self.program, cost, in_place=in_place)
        self.floor: PeakBound = floor(self.first_runs)
        self.problem = self.first_runs
        if self._repeatable is not self.program or in_place is not options.in_place:
            self.problem = schedule_problem(self._repeatable, cost, in_place=options.in_place)
        self.flops = tuple(flops_of(self.program, step) for step in self.program.steps)
        self.peak = self._peak(self.program)
        #: Bytes that are proved to be too few for every schedule that keeps the order of first runs.
        self.impossible = 0

    @property
    def step_nanoseconds(self) -> int:
        """The modelled time of one iteration in which nothing runs again."""
        return sum(self.problem.cost)

    def update_nanoseconds(self, iterations: int) -> int:
        """The modelled time of one update, in nanoseconds, if it takes `iterations` iterations."""
        steps = zip(self.program.steps, self.problem.cost, strict=True)
        return sum(cost if step.due else cost * iterations for step, cost in steps)

    def unscheduled(self) -> Found:
        """The order as it is, in which nothing runs again."""
        return self.schedule(2**62)

    def schedule(self, budget: int, before: Schedule | None = None, share: float = 1.0) -> Found:
        """The cheapest schedule found whose steps, each with memory of its own, keep `budget` bytes; else
        that of the least peak. `before` is where to start from. See `cheapest`.
        """
        from solver.schedules.recompute.search import (
            cheapest,  # numba and OR-Tools, only where they are needed
        )

        schedule = cheapest(self.problem, budget, self.deadline, before=before, share=share, tell=self._tell)
        self.complete &= schedule.complete
        if schedule.impossible and not self.in_place:
            self.impossible = max(self.impossible, budget)
        return self._found(schedule)

    def _found(self, schedule: Schedule) -> Found:
        again = sum(self.flops[t] for t in schedule.sequence) - sum(self.flops)
        repeats = len(schedule.sequence) > len(self.program.steps)
        program = self._repeatable if repeats else self.program
        return Found(schedule, self._peak(rerun(program, schedule.sequence)), again)

    def _peak(self, program: Program) -> int:
        return sum(max(curve, default=0) for curve in loads(self._behind(program)))

    def _behind(self, program: Program) -> Program:
        return reduce(lambda changed, each: each.run(changed), self._after, program)

    def arena(self, candidate: Found) -> int:
        """The bytes of the layout of a schedule, `candidate.peak` or more; that peak without a layout."""
        repeats = len(candidate.schedule.sequence) > len(self.program.steps)
        program = self._behind(
            rerun(self._repeatable if repeats else self.program, candidate.schedule.sequence)
        )
        try:
            return pipeline.arena_bytes(
                program, self._start.reference, self._options, self.deadline.by_time()
            )
        except OptionsError:
            self.complete = False
            return candidate.peak

    def smallest(self) -> Found:
        """The schedule of the least peak that about ten searches come by, halving what is left each time.

        The cost is then searched for once more.
        """
        low = max(self.floor.bytes - 1, self.impossible)
        whole, self.deadline = self.deadline, self.deadline.within(TRIAL)
        best = least_peak(self.schedule, self.unscheduled(), low, self.deadline)
        if best.schedule.extra and not self.deadline.expired:
            cheaper = self.schedule(best.schedule.peak, best.schedule, 2 * SHARE)
            if cheaper.peak <= best.peak:
                best = cheaper
        self.deadline = whole
        return best
