"""The measures that a plan takes when its user has not chosen them: those that are needed, cheapest first.

    as written ──► in place ──► in a listed order      no time and no bit: the smallest plan is taken
         │ beyond the capacity, or the first tier
         ▼
    in every order, with steps that run again, and with paging where there are tiers: the cheapest that fits

No measure here changes a bit of any result. What does (rewriting, 16-bit storage, a smaller scratch budget,
which decides in which order kernels sum) is an option that only the user takes. Bounds come before searches:
a measure that does not lower the peak is not taken.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from solver.collector import collector_paused
from solver.graph import TrainableGraph
from solver.layout import Deadline
from solver.native import heeding_deadline
from solver.pipeline.options import with_capacity
from solver.pipeline.paths import GraphPlans, Plans, ProgramPlans
from solver.pipeline.ranges import at_largest, with_planned_sizes
from solver.pipeline.rows import Rows, cost_of, exactly
from solver.pipeline.scheduling import MANY_STEPS
from solver.pipeline.strategy import Candidate, Cost, Row, Strategy, until
from solver.pipeline.watch import Follower, Observer
from solver.plan import Plan, PlanOptions, RequestedOptions, refuse_ranges
from solver.program import Program, loads
from solver.reports.records import paging

if TYPE_CHECKING:
    from solver.training import BlockProgram

__all__ = ["candidate_requested", "free_measures", "plan", "plan_program", "plan_requested", "plans_of"]


@collector_paused()
@heeding_deadline
def plan(
    graph: TrainableGraph,
    options: PlanOptions | None = None,
    *,
    observe: Observer | None = None,
    follow: Follower | None = None,
    advise: bool = True,
) -> Plan:
    """Plan the memory of one training iteration, and prove that the plan computes what the graph says.

    The options are taken exactly as they are; `plan_requested` chooses some of them. Without
    `options.deadline_seconds` the same arguments give the same plan, byte for byte. Raises OptionsError for
    an option out of range, CapacityError when no arena within the capacity was found; with `advise` it says
    which capacity is enough, also where finding that takes as long as some plans.
    """
    options = options or PlanOptions()
    plans = GraphPlans(graph, options, observe, follow)
    return plans.proved(exactly(plans, options, advise=advise))


@collector_paused()
@heeding_deadline
def plan_program(
    program: BlockProgram,
    options: PlanOptions | None = None,
    *,
    observe: Observer | None = None,
    follow: Follower | None = None,
) -> Plan:
    """Plan the memory of an explicit program, under the promises of `plan`; `graph` is the program's name.

    The default target means `PROGRAM` here. `in_place` uses the permissions to overwrite, `order` that to
    reorder; `recompute` repeats operations that are pure. Raises OptionsError for what only graphs have
    (batch, scratch budget, update mode, rewriting) and for what the program does not permit, DimensionError
    when the blocks, rounded up to the alignment, do not fit the 64-bit offsets of any runtime.
    """
    options = options or PlanOptions()
    plans = ProgramPlans(program, options, observe, follow)
    return plans.proved(exactly(plans, options))


@collector_paused()
@heeding_deadline
def plan_requested(
    subject: TrainableGraph | BlockProgram,
    requested: RequestedOptions | None = None,
    *,
    observe: Observer | None = None,
    follow: Follower | None = None,
    advise: bool = True,
    deadline: Deadline | None = None,
) -> Plan:
    """Plan a graph or an explicit program as a user asks for it: see `plan` and `plan_program`.

    `options` of the plan are exact: they say which measures it takes. It is never larger than the plan of the
    program as written. With a capacity or tiers, plans without extra time go before others. Cost without a
    capacity: that of the plan as written, and at most 30 % more. With ranges of sizes the plan is that of the
    largest size, and is proved at others, too. A `deadline` takes the place of that of the options, and its
    work that of `EFFORT` units.
    """
    requested = requested or RequestedOptions()
    options = requested.options
    if requested.ranges:
        deadline = deadline or until(options.deadline_seconds)
        graph = at_largest(subject, requested)
        alone = replace(requested, ranges=())
        plan = plan_requested(graph, alone, observe=observe, follow=follow, advise=advise, deadline=deadline)
        return with_planned_sizes(plan, graph, requested.ranges, deadline.by_time())
    plans = plans_of(subject, options, observe, follow, deadline)
    return plans.proved(candidate_requested(plans, requested, advise=advise))


def plans_of(
    subject: TrainableGraph | BlockProgram,
    options: PlanOptions,
    observe: Observer | None = None,
    follow: Follower | None = None,
    deadline: Deadline | None = None,
) -> Plans:
    """The plans of a graph or of an explicit program. Raises OptionsError for an option out of range."""
    if isinstance(subject, TrainableGraph):
        return GraphPlans(subject, options, observe, follow, deadline)
    return ProgramPlans(subject, options, observe, follow, deadline)


def candidate_requested(plans: Plans, requested: RequestedOptions, *, advise: bool = True) -> Candidate:
    """The plan of `plan_requested` among these, not proved yet. Raises as it does."""
    if not requested.automatic:
        return exactly(plans, requested.options, advise=advise)
    return _cheapest(plans, requested.options, advise=advise)


def free_measures(subject: TrainableGraph | BlockProgram, requested: RequestedOptions) -> PlanOptions:
    """The options with the measures that take no time, as in the first plan that `plan_requested` tries.

    Raises OptionsError for an option out of range, and for ranges of sizes: curves, verdicts and costs, which
    begin with these options, are of one size.
    """
    refuse_ranges(requested.ranges, "A curve, a verdict or a list of costs")
    if not requested.automatic:
        return requested.options
    return _free_choices(plans_of(subject, requested.options), requested.options)[0].options


@dataclass(frozen=True, slots=True)
class _Choice:
    """Options with measures that take no time, and the bytes that each plan under them takes at least."""

    options: PlanOptions
    bound: int


def _cheapest(plans: Plans, options: PlanOptions, *, advise: bool) -> Candidate:
    """The candidate that takes the least time, and of those that take none, the one of the fewest bytes."""
    within = with_capacity(options).capacity
    dearer = [] if within is None else list(_dearer_choices(plans, options))
    listed = Rows(plans, advise=not dearer)
    free = Strategy(plans.deadline, _bytes_alone if not options.memories else cost_of(options))
    for choice in _free_choices(plans, options):
        bytes_ = 0 if options.memories else choice.bound
        if within is None or choice.bound <= within or not (dearer or free.refused or free.best):
            free.run(
                replace(row, bound=(0, bytes_))
                for row in listed.under(choice.options, listed=choice.options.order)
            )
    if free.best is not None and not ((moves := paging(free.best.plan)) and moves.moved):
        return free.best  # nothing is moved to slower memory and back
    if not dearer:
        return free.plan(())
    strategy = Strategy(plans.deadline, cost_of(options), free.best, free.refused)
    rows = Rows(plans, advise=advise)
    best = strategy.plan(row for dear in dearer for row in _dear_rows(rows, dear))
    return rows.with_every_order(best)


def _dear_rows(rows: Rows, dear: _Dear) -> Iterator[Row]:
    for row in rows.under(dear.options):
        yield replace(row, wanted=lambda best: best is None) if dear.only_if_refused else row


def _bytes_alone(candidate: Candidate) -> Cost:
    """Of plans that take no extra time the smaller one is better."""
    return 0, candidate.bytes


# ------------------------------------------------------------------------- measures that take no time


def _free_choices(plans: Plans, options: PlanOptions) -> list[_Choice]:
    """The options as written, and with measures that lower the peak, the lowest one first."""
    if not plans.capabilities.trains:
        return [_Choice(options, 0)]  # what other runtimes do is not ours to choose
    if options.rewrite:  # what is rewritten depends on the measures, so nothing is known of each other's peak
        return [_Choice(options, 0), _Choice(_in_place(plans, options), 0)]
    written = plans.behind(options).program
    choices = [_Choice(options, _peak(written))]

    def add(measures: PlanOptions) -> None:
        program = plans.behind(measures).program
        if program is not written and (peak := _peak(program)) < choices[-1].bound:
            choices.append(_Choice(measures, peak))

    add(_in_place(plans, options))
    if plans.capabilities.order and options.parallelism == 1:
        add(replace(_in_place(plans, options), order=True))
    choices.reverse()
    shared = _in_place(plans, options)
    if options.pins and all(choice.options != shared for choice in choices):
        # Values that share bytes may have pins that collide otherwise.
        choices.append(_Choice(shared, _peak(plans.behind(shared).program)))
    return choices


def _peak(program: Program) -> int:
    """The bytes that are live at once, in all spaces together."""
    return sum(max(curve, default=0) for curve in loads(program))


def _in_place(plans: Plans, options: PlanOptions) -> PlanOptions:
    able = plans.capabilities
    return replace(options, in_place=able.in_place, sub_ranges=able.sub_ranges)


# --------------------------------------------------------------------------- measures that take time


@dataclass(frozen=True, slots=True)
class _Dear:
    """Options with measures that take time, which may be tried only where all before them are refused."""

    options: PlanOptions
    only_if_refused: bool = False


def _dearer_choices(plans: Plans, options: PlanOptions) -> Iterator[_Dear]:
    """With all that the target is able to, which no plan with less is cheaper than; sub-ranges apart."""
    able = plans.capabilities
    every = replace(_in_place(plans, options), recompute=able.recompute, order=able.order)
    if every == options:
        return
    program = plans.behind(_in_place(plans, options)).program
    if able.recompute and len(program.steps) > MANY_STEPS:
        yield _Dear(replace(every, order=False))
        yield _Dear(every, only_if_refused=True)
    else:
        yield _Dear(every)
    whole = replace(options, in_place=able.in_place)
    if able.sub_ranges and plans.behind(whole).program.aliases != program.aliases:
        yield _Dear(replace(every, sub_ranges=False))
