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
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from solver.collector import collector_paused
from solver.errors import CapacityError, ConstraintError
from solver.graph import TrainableGraph
from solver.layout import Deadline
from solver.native import heeding_deadline
from solver.pipeline.options import with_capacity
from solver.pipeline.paths import Candidate, GraphPlans, Plans, ProgramPlans, nearest
from solver.pipeline.ranges import at_largest, with_planned_sizes
from solver.pipeline.scheduling import MANY_STEPS
from solver.pipeline.watch import Follower, Observer
from solver.plan import Plan, PlanOptions, RequestedOptions, refuse_ranges
from solver.program import Program, loads
from solver.reports.records import paging

if TYPE_CHECKING:
    from solver.training import BlockProgram

__all__ = ["candidate_requested", "free_measures", "plan_requested"]

#: The share of the remaining time that is kept for recomputation, while plans without it are tried.
_FOR_RECOMPUTATION = 0.75


@collector_paused()
@heeding_deadline
def plan_requested(
    subject: TrainableGraph | BlockProgram,
    requested: RequestedOptions | None = None,
    *,
    observe: Observer | None = None,
    follow: Follower | None = None,
    advise: bool = True,
) -> Plan:
    """Plan a graph or an explicit program as a user asks for it: see `plan` and `plan_program`.

    `options` of the plan are exact: they say which measures it takes. It is never larger than the plan of the
    program as written. With a capacity or tiers, plans without extra time go before others. Cost without a
    capacity: that of the plan as written, and at most 30 % more. With ranges of sizes the plan is that of the
    largest size, and is proved at others, too.
    """
    requested = requested or RequestedOptions()
    options = requested.options
    if requested.ranges:
        deadline = Deadline.after(options.deadline_seconds)
        graph = at_largest(subject, requested)
        alone = replace(requested, ranges=())
        plan = plan_requested(graph, alone, observe=observe, follow=follow, advise=advise)
        return with_planned_sizes(plan, graph, requested.ranges, deadline)
    plans = _plans_of(subject, options, observe, follow)
    return plans.proved(candidate_requested(plans, requested, advise=advise))


def _plans_of(
    subject: TrainableGraph | BlockProgram,
    options: PlanOptions,
    observe: Observer | None = None,
    follow: Follower | None = None,
) -> Plans:
    if isinstance(subject, TrainableGraph):
        return GraphPlans(subject, options, observe, follow)
    return ProgramPlans(subject, options, observe, follow)


def candidate_requested(plans: Plans, requested: RequestedOptions, *, advise: bool = True) -> Candidate:
    """The plan of `plan_requested` among these, not proved yet. Raises as it does."""
    if not requested.automatic:
        return plans.candidate(requested.options, advise=advise)
    return _cheapest(plans, requested.options, advise=advise)


def free_measures(subject: TrainableGraph | BlockProgram, requested: RequestedOptions) -> PlanOptions:
    """The options with the measures that take no time, as in the first plan that `plan_requested` tries.

    Raises OptionsError for an option out of range, and for ranges of sizes: curves, verdicts and costs, which
    begin with these options, are of one size.
    """
    refuse_ranges(requested.ranges, "A curve, a verdict or a list of costs")
    if not requested.automatic:
        return requested.options
    return _free_choices(_plans_of(subject, requested.options), requested.options)[0].options


@dataclass(frozen=True, slots=True)
class _Refused:
    """Why the candidates that were tried do not exist, the last one last."""

    by_capacity: list[CapacityError] = field(default_factory=list)
    by_constraints: list[ConstraintError] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.by_capacity or self.by_constraints)

    def error(self) -> CapacityError | ConstraintError:
        """The refusal by the capacity that lacks the fewest bytes; else that of the steps as written."""
        return nearest(self.by_capacity) if self.by_capacity else self.by_constraints[-1]


@dataclass(frozen=True, slots=True)
class _Choice:
    """Options with measures that take no time, and the bytes that each plan under them takes at least."""

    options: PlanOptions
    bound: int


def _cheapest(plans: Plans, options: PlanOptions, *, advise: bool) -> Candidate:
    """The candidate that takes the least time, and of those that take none, the one of the fewest bytes."""
    within = with_capacity(options).capacity
    choices = _free_choices(plans, options)
    dearer = [] if within is None else list(_dearer_choices(plans, options))
    refused = _Refused()
    best: Candidate | None = None
    deadline = plans.deadline
    if dearer:
        plans.deadline = deadline.leaving(_FOR_RECOMPUTATION)
    for choice in choices:
        if best is not None and best.bytes <= choice.bound and not options.memories:
            break
        if within is not None and choice.bound > within and (dearer or refused):
            continue
        candidate = _tried(plans, choice.options, refused, advise=not dearer, listed=choice.options.order)
        if candidate is not None and (best is None or _is_better(candidate, best, options)):
            best = candidate
    plans.deadline = deadline
    if best is not None and not ((moves := paging(best.plan)) and moves.moved):
        return best  # nothing is moved to slower memory and back
    for k, dear in enumerate(dearer):
        if best is not None and (deadline.expired or dear.only_if_refused):
            break
        candidate = _tried(plans, dear.options, refused, advise=advise and not k)
        if candidate is not None and (best is None or candidate.nanoseconds < best.nanoseconds):
            best = candidate
        elif candidate is None and any(error.proved for error in refused.by_capacity[-1:]):
            break
    if best is None:
        raise refused.error()
    return best


def _is_better(candidate: Candidate, best: Candidate, options: PlanOptions) -> bool:
    """Of plans that take no extra time the smaller one; homes in several memories have times of their own."""
    if options.memories:
        return (candidate.nanoseconds, candidate.bytes) < (best.nanoseconds, best.bytes)
    return candidate.bytes < best.bytes


def _tried(
    plans: Plans, options: PlanOptions, refused: _Refused, *, advise: bool, listed: bool = False
) -> Candidate | None:
    """The candidate under these options; None, and one more in `refused`, where there is none that fits."""
    try:
        return plans.candidate(options, advise=advise, listed=listed)
    except CapacityError as error:
        refused.by_capacity.append(error)
    except ConstraintError as error:
        refused.by_constraints.append(error)
    return None


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
