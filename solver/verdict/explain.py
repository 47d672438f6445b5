"""The verdict on a capacity: impossible, open or a plan; and what would make the network fit.

    capacity < floor             impossible, whatever the order and the recomputation
    a plan within it was found   a plan, with its cost and the least that is proved
    neither                      open

Then the measures: first each by itself, then two and more together, as long as no part of a combination is
enough. What a remedy says is not an estimate: it has been planned, and its plan proved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from typing import TYPE_CHECKING

from solver import pipeline
from solver.accounting import ScheduleProblem, step_costs
from solver.errors import ArenaplanError, CapacityError, GraphError, OptionsError
from solver.graph import TrainableGraph
from solver.layout import Deadline
from solver.native import heeding_deadline
from solver.pipeline import EFFORT, until
from solver.pipeline.watch import Follower
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.reports.records import paging, recomputation
from solver.reports.verdict import Attempt, Changes, Remedy, Verdict, VerdictStatus
from solver.verdict.measures import MEASURES, Batches, Measure, Request, Setting, fields_of
from solver.verdict.subject import TRIAL, Subject, check_subject

if TYPE_CHECKING:
    from solver.pipeline import BlockProgram

__all__ = ["Brief", "brief", "explain"]

#: The part of all work for the request as it is asked for.
_ASKED = 0.6

#: Combinations with recomputation that are searched at most; each takes as long as a plan with it does.
_MOST_SEARCHES = 5

#: Where fewer remedies than this are found, all measures are tried together.
_FEW = 2

#: Settings that change more than the mildest one which are tried at most, as their plans may take less time.
_MOST_STRONGER = 4

#: Such a setting is offered as well if it saves this part of an update's time.
_MUCH_CHEAPER = 20

#: A combination must save this part of an update's time more than what it adds to: more measures for a gain
#: that nobody can measure help nobody.
_WORTH_IT = 200


@dataclass(frozen=True, slots=True)
class Brief:
    """Bounds alone: no schedule takes less than `floor` bytes, at `floor_step`; the program in which nothing
    runs again takes `peak`.
    """

    floor: int
    floor_step: str
    peak: int


@heeding_deadline
def brief(graph: TrainableGraph, options: PlanOptions, *, automatic: bool = False) -> Brief:
    """Milliseconds for some hundred steps, and what rewriting takes. `automatic` says that plans choose their
    measures, and may take values in place besides. Raises OptionsError as `explain` does.
    """
    subject = Subject(graph, options, Deadline.after(options.deadline_seconds), automatic=automatic)
    return Brief(subject.floor.bytes, subject.problem.steps[subject.floor.step], subject.peak)


@heeding_deadline
def explain(
    network: TrainableGraph | BlockProgram,
    requested: RequestedOptions,
    *,
    training: bool = True,
    batches: Batches | None = None,
    measures: Sequence[Measure] = MEASURES,
    observe: Callable[[tuple[str, ...]], None] | None = None,
    follow: Follower | None = None,
    deadline: Deadline | None = None,
) -> Verdict:
    """The verdict on the capacity of these options for a graph or explicit program, with recomputation and
    without.

    The floor and the peak are those of the program with the measures that cost nothing, as a plan takes them.
    Measures that change what is learned are tried unless `training` is false; smaller batches and
    micro-batches need `batches` (see `batches_of`). `observe` is called with the measures
    that are tried, and with none when the search for the smallest capacity begins; `follow` with the progress
    of each plan and each search. Without a deadline the same arguments give the same verdict; the deadline
    cuts in, with what is known by then. Raises OptionsError without a capacity, for options that no plan
    takes, for tiers, and for a target that does not recompute. Cost: some tens of plans; near floors some
    seconds for each hundred steps.
    """
    options = requested.options
    check_subject(network, options)
    capacity = options.capacity
    if capacity is None:
        raise OptionsError(
            "Nothing says which capacity to explain.", remedy="Give a capacity.", path=("capacity",)
        )
    deadline = deadline or until(options.deadline_seconds)
    free = pipeline.free_measures(network, requested)
    subject = Subject(network, free, deadline, follow, automatic=requested.automatic)
    asked = Request(network, requested, batches, fields_of(requested))
    iterations = asked.iterations
    trial = _Trial(capacity, subject.update_nanoseconds(iterations), deadline, observe, follow)
    problem, lowest = subject.problem, subject.floor
    plain = asked if requested.automatic else replace(asked, requested=requested.having(recompute=False))
    planned = trial.remedy(plain, (), Changes.NOTHING)
    repeated = 0
    if planned is None and lowest.bytes <= capacity and (requested.automatic or options.recompute):
        again = replace(asked, searches=True)
        planned, repeated = trial.remedy(again, (), Changes.NOTHING), trial.repeated_steps(again)
    fits_as_it_is = planned is not None and not planned.extra and not repeated
    tried = [m for m in measures if training or m.changes is not Changes.TRAINING]
    if not isinstance(network, TrainableGraph):
        tried = [measure for measure in tried if measure.programs]
    remedies = () if fits_as_it_is else _remedies(trial, asked, tried)
    # Last, as what a deadline may cut first: remedies help more than the smallest capacity does.
    if observe:
        observe(())
    best = subject.smallest() if subject.peak > lowest.bytes else subject.unscheduled()
    smallest = (subject.arena(best), best.schedule.extra * iterations)
    if planned is not None:
        smallest = min(smallest, (planned.arena_bytes, planned.extra))
    status = VerdictStatus.OPEN if planned is None else VerdictStatus.PLAN
    if capacity < lowest.bytes and planned is None:
        status = VerdictStatus.IMPOSSIBLE
    touched = {*problem.reads[lowest.step], *problem.writes[lowest.step]}
    return Verdict(
        graph=network.name,
        capacity=capacity,
        status=status,
        peak=subject.peak,
        floor=lowest.bytes,
        floor_step=problem.steps[lowest.step],
        fixed=problem.fixed,
        scratch=problem.scratch[lowest.step],
        touched=_named(problem, touched),
        waiting=_named(problem, set(lowest.live) - touched),
        smallest=smallest[0],
        smallest_extra=smallest[1],
        impossible=subject.impossible,
        update_nanoseconds=trial.usual,
        extra=planned.extra if planned else None,
        bound=planned.bound if planned else None,
        remedies=tuple(remedies),
        attempts=() if planned is not None or remedies else trial.attempts,
        complete=subject.complete and trial.complete and not deadline.late,
        arena_bytes=planned.arena_bytes if planned else None,
        repeated_steps=repeated,
    )


def _named(problem: ScheduleProblem, values: Iterable[int]) -> tuple[tuple[str, int], ...]:
    """Labels with bytes, the largest first."""
    sizes = ((problem.values[v], problem.size[v]) for v in values)
    return tuple(sorted(sizes, key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True)
class _Miss:
    """A request whose plan takes `bytes`, more than the capacity; `proved` that all of its plans do."""

    bytes: int
    proved: bool


class _Trial:
    """Plans requests within one capacity. `usual` is the modelled time of an update as it was asked for."""

    def __init__(
        self,
        capacity: int,
        usual: int,
        deadline: Deadline,
        observe: Callable[[tuple[str, ...]], None] | None,
        follow: Follower | None,
    ) -> None:
        self.capacity, self.usual, self.deadline = capacity, usual, deadline
        self.observe, self.follow = observe, follow
        self.complete = True
        self._attempts: dict[tuple[str, ...], Attempt] = {}
        #: By graph and options; the graphs stay, so that no other one comes to have their identity.
        self._made: dict[
            tuple[int, RequestedOptions], tuple[TrainableGraph | BlockProgram, Plan | _Miss | None]
        ] = {}

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The combinations that did not fit, the nearest first, but for those of which a part is as near."""
        tried = sorted(self._attempts.values(), key=lambda one: (one.arena_bytes, len(one.names)))
        return tuple(
            one
            for one in tried
            if not any(
                set(part.names) < set(one.names) and part.arena_bytes <= one.arena_bytes for part in tried
            )
        )

    def remedy(self, request: Request, names: tuple[str, ...], changes: Changes) -> Remedy | None:
        """The request as a remedy, if a plan of it fits; otherwise it is one of the attempts."""
        if self.observe and names:
            self.observe(names)
        plan = self._within(request)
        if isinstance(plan, _Miss) and names:
            self._attempts[names] = Attempt(names, changes, plan.bytes, plan.proved)
        if not isinstance(plan, Plan):
            return None
        iterations = request.iterations
        again, moved = recomputation(plan), paging(plan)
        # Of as many examples as an update has that was asked for.
        time = int(_update_nanoseconds(plan, iterations) * request.updates) - self.usual
        bound = None if again is None or not again.bound else time + again.bound * iterations
        extra = time + (again.extra * iterations if again else 0)
        if moved is not None:
            extra += (moved.time - moved.compute) * iterations
        facts = (request.fields, request.choices, request.graph_fields, request.note)
        return Remedy(names, changes, plan.sizes[0] if moved else plan.arena_bytes, extra, bound, *facts)

    def saves(self, request: Request, usual: Request) -> bool:
        """Whether a request takes fewer bytes than another one, whatever the capacity."""
        less, more = (self._planned(each.requested.having(capacity=None), each) for each in (request, usual))
        return isinstance(less, Plan) and isinstance(more, Plan) and less.arena_bytes < more.arena_bytes

    def repeated_steps(self, request: Request) -> int:
        """How many steps of its plan run again; 0 without a plan."""
        plan = self._within(request)
        return sum(run > 0 for run in plan.program.runs) if isinstance(plan, Plan) else 0

    def _within(self, request: Request) -> Plan | _Miss | None:
        """The plan within the capacity; None if there is none, or if time has run out before it was known.

        A request that may not search has the plan that costs no time, if that fits.
        """
        if request.requested.automatic and not request.searches:
            plan = self._planned(request.requested.having(capacity=None), request)
            if not isinstance(plan, Plan):
                return plan
            if plan.arena_bytes > self.capacity:
                return _Miss(plan.arena_bytes, proved=plan.lower_bound > self.capacity)
        return self._planned(request.requested, request)

    def _planned(self, requested: RequestedOptions, request: Request) -> Plan | _Miss | None:
        key = (id(request.subject), requested)
        if key not in self._made:
            if self.deadline.expired:
                self.complete &= not self.deadline.late
                return None
            result: Plan | _Miss | None = None
            try:
                result = pipeline.plan_requested(
                    request.subject,
                    requested,
                    follow=self.follow,
                    advise=False,
                    # The request as it is asked for gets most of the work: what `plan` finds, this finds.
                    deadline=self.deadline.within(TRIAL if self._made else _ASKED * EFFORT),
                )
                self.complete &= result.deterministic
            except CapacityError as error:
                result = _Miss(error.required, error.proved)
                self.complete &= not self.deadline.late
            except (GraphError, OptionsError):
                self.complete &= not self.deadline.late
            self._made[key] = request.subject, result
        return self._made[key][1]


def _update_nanoseconds(plan: Plan, iterations: int) -> int:
    """The modelled time of an update without what runs again."""
    total, seen = 0, set[int | None]()
    for step, cost in zip(plan.program.steps, step_costs(plan.program, plan.options.costs), strict=True):
        if step.reference is not None and step.reference not in seen:
            total += cost if step.due else cost * iterations
        seen.add(step.reference)
    return total


_Taken = tuple[tuple[Measure, Setting], ...]


def _stage(combination: Sequence[Measure], measures: Sequence[Measure]) -> int:
    """The place of a combination among all: first those that change no bit, then those that round otherwise,
    then a second memory that nobody has said there is, then those that change the training, by their risk.
    """
    stages = []
    for measure in combination:
        if measure.changes is Changes.TRAINING:
            stages.append(3 + [each.name for each in measures].index(measure.name))
        else:
            stages.append(2 if measure.alone else list(Changes).index(measure.changes))
    return max(stages)


def _remedies(trial: _Trial, asked: Request, measures: Sequence[Measure]) -> list[Remedy]:
    """Combinations that fit, none of which has a part that is enough or as cheap; the best first."""
    usual = [m for m in measures if m.changes is not Changes.TRAINING and m.settings(asked)]
    last = [measure for measure in usual if measure.last]
    usual = [measure for measure in usual if not measure.last]
    quick, slow = ([m for m in usual if m.searches is searches] for searches in (False, True))
    remedies: list[tuple[Sequence[Measure], Remedy]] = []

    def offer(combination: Sequence[Measure]) -> None:
        names = {measure.name for measure in combination}
        inside = [remedy for other, remedy in remedies if {measure.name for measure in other} <= names]
        if any(not any(m.searches for m in combination) or remedy.extra <= 0 for remedy in inside):
            return
        remedy = _mildest(trial, asked, combination)
        if remedy is not None and all(
            other.extra - remedy.extra > trial.usual // _WORTH_IT for other in inside
        ):
            remedies.append((combination, remedy))

    for size in range(1, len(quick) + 1):
        for combination in combinations(quick, size):
            offer(combination)
    # What saves nothing by itself, where nothing runs again, is not worth a search of seconds beside one.
    saving = [measure for measure in quick if trial.saves(measure.settings(asked)[-1].apply(asked), asked)]
    slow, alone = ([m for m in slow if m.alone is stands] for stands in (False, True))
    for again in slow:
        searched = ((again, *more) for size in range(3) for more in combinations(saving, size))
        for combination in islice(searched, _MOST_SEARCHES):
            offer(combination)
    # Paging needs a memory that nobody has named, and the longest search.
    beside_last = [(measure, *more) for measure in last for more in ((), *zip(slow))]
    for combination in (*beside_last, *zip(alone)):
        if not remedies:
            offer(combination)
    able = [m for m in measures if m.changes is Changes.TRAINING and m.settings(asked)]
    # Where nothing that keeps the training is enough, it lets the training change less.
    nothing_keeps = all(part[0].alone for part, _ in remedies)
    beside = tuple(saving) if nothing_keeps else ()
    for measure in able:
        remedy = _mildest(trial, asked, (measure,))
        if remedy is not None:
            remedies.append(((measure,), remedy))
        milder = _mildest(trial, asked, (measure, *beside)) if beside else None
        if milder is not None and (remedy is None or milder.names[0] != remedy.names[0]):
            remedies.append(((measure, *beside), milder))
        for again in slow if remedy is None or nothing_keeps else ():
            for part, found in _with_search(trial, asked, measure, again):
                if remedy is None or found.names[0] != remedy.names[0]:
                    remedies.append((part, found))
    if len(remedies) < _FEW and len(usual) + len(able) > 1:
        known = {frozenset(remedy.names) for _, remedy in remedies}
        together = _together(trial, asked, quick, able, slow)
        remedies += [one for one in together if frozenset(one[1].names) not in known]

    def rank(one: tuple[Sequence[Measure], Remedy]) -> tuple[int, int, int, int]:
        combination, remedy = one
        return _stage(combination, measures), max(remedy.extra, 0), len(combination), remedy.arena_bytes

    return [remedy for _, remedy in sorted(remedies, key=rank)]


def _together(
    trial: _Trial, asked: Request, quick: Sequence[Measure], able: Sequence[Measure], slow: Sequence[Measure]
) -> list[tuple[Sequence[Measure], Remedy]]:
    """All measures at once, where none is enough with one that searches; then without those that are not
    needed, the riskiest first.
    """
    # Micro-batches make the batch smaller, too, and keep the update.
    split = any(measure.name == "micro-batches" for measure in able)
    chosen = [*quick, *(measure for measure in able if not (split and measure.name == "batch"))]
    remedy = _mildest(trial, asked, chosen) if chosen else None
    if remedy is None and slow:
        chosen += slow
        remedy = _mildest(trial, asked, chosen)
    if remedy is None:
        return []
    for measure in reversed(chosen):
        fewer = [each for each in chosen if each is not measure]
        if fewer and (simpler := _mildest(trial, asked, fewer)) is not None:
            chosen, remedy = fewer, simpler
    return [(chosen, remedy)]


def _with_search(
    trial: _Trial, asked: Request, measure: Measure, again: Measure
) -> list[tuple[Sequence[Measure], Remedy]]:
    """The mildest setting that fits if steps run again, and the cheapest of a few that change more."""
    combination = measure, again
    mildest = _mildest(trial, asked, combination)
    if mildest is None:
        return []
    settings, repeating = measure.settings(asked), again.settings(asked)[-1]
    first = next(k for k, setting in enumerate(settings) if setting.name == mildest.names[0])
    stronger = settings[first + 1 :]
    sample = stronger[:: -(-len(stronger) // _MOST_STRONGER) or 1]
    tried = [_remedy(trial, asked, (setting, repeating), measure.changes) for setting in sample]
    cheapest = min(filter(None, tried), key=lambda remedy: remedy.extra, default=mildest)
    worth_it = mildest.extra - cheapest.extra > trial.usual // _MUCH_CHEAPER
    return [(combination, remedy) for remedy in (mildest, cheapest)[: 1 + worth_it]]


def _remedy(trial: _Trial, asked: Request, taken: Sequence[Setting], changes: Changes) -> Remedy | None:
    """The remedy of these settings together, if a plan of it fits."""
    request = asked
    try:
        for setting in taken:
            request = setting.apply(request)
    except ArenaplanError:
        return None
    return trial.remedy(request, tuple(setting.name for setting in taken), changes)


def _mildest(trial: _Trial, asked: Request, combination: Sequence[Measure]) -> Remedy | None:
    """The combination with the mildest settings that fit; None where the strongest of all do not.

    Settings of one measure take fewer and fewer bytes, so each is looked for by halving, the others staying
    as they are. A measure that searches stands in for what the others leave, so they keep their strongest.
    """
    settings = [measure.settings(asked) for measure in combination]
    chosen = [len(each) - 1 for each in settings]
    changes = max((m.changes for m in combination), key=list(Changes).index)

    def attempt(numbers: Sequence[int]) -> Remedy | None:
        taken = [each[number] for each, number in zip(settings, numbers, strict=True)]
        return _remedy(trial, asked, taken, changes)

    best = attempt(chosen)
    if best is None or (any(m.searches for m in combination) and changes is not Changes.TRAINING):
        return best
    for k in range(len(chosen)):
        low = 0
        while low < chosen[k]:
            middle = (low + chosen[k]) // 2
            milder = attempt([*chosen[:k], middle, *chosen[k + 1 :]])
            if milder is None:
                low = middle + 1
            else:
                best, chosen[k] = milder, middle
    return best
