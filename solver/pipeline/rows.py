"""The rows of a request (`solver.pipeline.strategy`): the plans that it may have, and what is known of each.

    no capacity, no tiers      the passes as asked for, once
    a capacity                 the order as written, with 5 %, 20 % and all of the usual work; if it misses, a
                               descent to the least peak; then orders that are searched for, likewise
    tiers                      paging with and without repetitions and sharing, in one order or two
    fewer preparations         if no plan was found, or the best one takes time; without a capacity, too

`solver.pipeline.measures` asks for rows under several options, `exactly` for those under given ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Final

from solver.accounting import step_costs
from solver.errors import CapacityError
from solver.layout import Deadline
from solver.passes import SearchOrder, in_given_order, in_listed_order
from solver.passes.recompute import Recompute, attempting, to_least_peak
from solver.passes.search_order import in_order_of
from solver.pipeline.options import with_capacity
from solver.pipeline.paths import Plans, Start
from solver.pipeline.scheduling import MANY_STEPS, Passes, Placed, first_runs, fitted
from solver.pipeline.strategy import EFFORT, Candidate, Cost, Made, Row, Strategy
from solver.plan import PlanOptions
from solver.program import Program
from solver.targets import Lowered

__all__ = ["Rows", "cost_of", "exactly"]

#: The parts of the usual work with which repetitions are searched for, one after the other.
_SHARES: Final = (0.05, 0.2, 1.0)

#: Estimates of work: steps that a whole search for repetitions takes a unit for, and a search for an order.
_STEPS_A_UNIT, _ORDER_STEPS_A_UNIT = 20, 30

#: The part of all work that a descent to the least peak may take, and a search for an order.
_DESCENT, _ORDER = EFFORT / 3, EFFORT / 2

#: The work of a descent, in whole searches: it comes before orders that are searched for, so that a refusal
#: names a capacity that is enough. And of the rows with fewer preparations, which come later.
_DESCENT_WORK, _PREPARATIONS_WORK = 0.5, 2.0

#: Once there is a plan, an order that missed the capacity by more than this part of it is not tried again.
_NEAR_MISS: Final = 0.02

#: The bound on repetitions in every order, and the time of the steps that it is a part of.
_EVERY_ORDER = ("every_order_nanoseconds", "step_nanoseconds")


def exactly(plans: Plans, options: PlanOptions, *, advise: bool = True) -> Candidate:
    """The plan under these options as they are. Raises CapacityError and OptionsError as `plan` does."""
    rows = Rows(plans, advise=advise)
    strategy = Strategy(plans.deadline, cost_of(options))
    return rows.with_every_order(strategy.plan(rows.under(options)))


def cost_of(options: PlanOptions) -> Callable[[Candidate], Cost]:
    """What plans under these options are compared by: their time within a number of bytes, else bytes."""
    if is_within(options):
        return lambda candidate: (candidate.nanoseconds, 0)
    return lambda candidate: (0, candidate.bytes)


def is_within(options: PlanOptions) -> bool:
    """Whether plans have to keep a number of bytes."""
    return options.capacity is not None or bool(options.tiers or options.memories)


@dataclass(slots=True)
class Rows:
    """The rows of one request, and what they have found out together.

    With `advise` a descent is also made if it is proved that no schedule in this order keeps the capacity.
    """

    plans: Plans
    advise: bool = True
    #: The figures of `_EVERY_ORDER`, by the identity of the reference program that they hold for; it stands
    #: beside them, so that no other program comes to have its identity.
    every_order: dict[int, tuple[int, int, Lowered]] = field(default_factory=dict)

    def under(self, options: PlanOptions, *, listed: bool = False) -> Iterator[Row]:
        """The rows under these options. `listed`: another order comes from list scheduling alone."""
        starts = self.plans.starts(options)
        start = next(starts)
        yield from self._of(start, listed=listed)

        def fewer_preparations(_: Deadline) -> Made:
            return Made(rows=[row for start in starts for row in self._of(start, listed=listed)])

        def wanted(best: Candidate | None) -> bool:
            return best is None or not is_within(options) or _takes_time(best)

        yield Row(fewer_preparations, work=_PREPARATIONS_WORK * self.whole(start), wanted=wanted)

    def with_every_order(self, candidate: Candidate) -> Candidate:
        """The plan; its record of the order has the bound that a row has proved for every order."""
        known = self.every_order.get(id(candidate.reference))
        if known is None:
            return candidate
        records = tuple(
            replace(record, facts={**record.facts, **dict(zip(_EVERY_ORDER, known[:2], strict=True))})
            if record.name == SearchOrder.name
            else record
            for record in candidate.plan.records
        )
        return replace(candidate, plan=replace(candidate.plan, records=records))

    def _of(self, start: Start, *, listed: bool) -> Iterator[Row]:
        options = start.options
        passes: Passes = in_listed_order(start.passes) if listed else start.passes
        if options.tiers:
            return iter([_Tiers(self, start, passes).first()])
        if options.recompute:
            return self._repeating(start, passes)
        return iter([Row(lambda deadline: self._once(start, passes, deadline))])

    def _once(self, start: Start, passes: Passes, deadline: Deadline) -> Made:
        if not start.options.memories:  # which make further values, with names of their own
            start.options.constraints.rules(start.reference.program)
        return Made(self.finished(start, self.fitted(start, passes, start.options, deadline)))

    def fitted(self, start: Start, passes: Passes, options: PlanOptions, deadline: Deadline) -> Placed:
        """See `solver.pipeline.scheduling.fitted`."""
        plans = self.plans
        return fitted(start.reference, passes, options, deadline, plans.watch, plans.results)

    def finished(self, start: Start, placed: Placed) -> Candidate:
        """The plan of what was placed; the bound for every order is kept for the plans of other rows."""
        self._learn(start, *(placed.applied.fact(SearchOrder.name, figure) for figure in _EVERY_ORDER))
        return self.plans.finished(start, placed)

    def _learn(self, start: Start, least: int, step: int) -> None:
        """A bound that holds for every order of this reference program."""
        known = self.every_order.get(id(start.reference))
        if least > (0 if known is None else known[0]):
            self.every_order[id(start.reference)] = least, step, start.reference

    def whole(self, start: Start) -> float:
        """An estimate of the work of a whole search for repetitions."""
        return len(start.reference.program.steps) / _STEPS_A_UNIT

    # ------------------------------------------------------------------------ repetitions within a capacity

    def _repeating(self, start: Start, passes: Passes) -> Iterator[Row]:
        """The order as written; then orders that are searched for, by peaks with and without aliases."""
        options = start.options
        program, search = _before_order(start, passes)
        tried = {first_runs(program)}
        written = in_given_order(passes) if options.order else passes
        yield _Order(self, start, written).attempt(0)
        if search is None or not options.order:
            return

        def searched(by: SearchOrder, deadline: Deadline) -> Made:
            lowest = self.plans.results.lowest(by, program, deadline, self.plans.watch)
            applied = by.choose(program, lowest, deadline)
            self._learn(start, *(int((applied.facts or {}).get(figure, 0)) for figure in _EVERY_ORDER))
            order = first_runs(applied.program)
            if order in tried:
                return Made()
            tried.add(order)
            return Made(rows=[_Order(self, start, in_order_of(passes, applied)).attempt(0)])

        work, bound = len(program.steps) / _ORDER_STEPS_A_UNIT, (_least_time(start), 0)
        for by in (search, search.for_own_bytes()) if options.in_place else (search,):
            yield Row(partial(searched, by), bound, work, _ORDER, start)


def _before_order(start: Start, passes: Passes) -> tuple[Program, SearchOrder | None]:
    """The program in the order as written, and the pass that would search for another one."""
    program = start.reference.program
    for pass_ in passes(with_capacity(start.options)):
        if isinstance(pass_, SearchOrder):
            return program, pass_
        program = pass_.run(program)
    return program, None


def _takes_time(candidate: Candidate) -> bool:
    options = candidate.plan.options
    return bool(
        any(candidate.plan.program.runs) or options.tiers or options.memories or options.parallelism > 1
    )


def _least_time(start: Start) -> int:
    """Nanoseconds of an iteration in which nothing runs again and nothing is moved; 0 where steps run beside
    each other, or memories have times of their own.
    """
    options = start.options
    if options.parallelism > 1 or options.memories:
        return 0
    return sum(step_costs(start.reference.program, options.costs))


def _near(error: CapacityError, best: Candidate | None) -> bool:
    """Whether more work is worth it behind a miss: there is no plan, or few bytes were lacking."""
    return best is None or error.excess <= _NEAR_MISS * error.available


@dataclass(slots=True)
class _Order:
    """Plans of one order of the steps, in which steps run again."""

    rows: Rows
    start: Start
    passes: Passes
    #: Repetitions in this order cost so much at least, in nanoseconds.
    least: int = 0

    def attempt(self, level: int) -> Row:
        """A search with this part of the usual work."""
        bound = _least_time(self.start)
        return Row(
            lambda deadline: self._attempted(level, deadline),
            (bound + self.least if bound else 0, 0),
            _SHARES[level] * self.rows.whole(self.start),
            group=self.start,
        )

    def _attempted(self, level: int, deadline: Deadline) -> Made:
        last = level + 1 == len(_SHARES)
        try:
            placed = self._fitted(attempting(self.passes, _SHARES[level]), deadline)
        except CapacityError as error:
            if error.of_order:
                return Made(refused=error, rows=[] if level or not self.rows.advise else [self._descent()])
            more = [] if last else [replace(self.attempt(level + 1), wanted=partial(_near, error))]
            return Made(refused=error, rows=more if level else [*more, self._descent()])
        self.least = max(self.least, placed.applied.fact(Recompute.name, "bound_nanoseconds"))
        candidate = self.rows.finished(self.start, placed)
        return Made(candidate, rows=[] if last else [self.attempt(level + 1)])

    def _descent(self) -> Row:
        work = _DESCENT_WORK * self.rows.whole(self.start)
        bound = _least_time(self.start), 0
        return Row(self._descended, bound, work, _DESCENT, self.start, lambda best: best is None)

    def _descended(self, deadline: Deadline) -> Made:
        return Made(self.rows.finished(self.start, self._fitted(to_least_peak(self.passes), deadline)))

    def _fitted(self, passes: Passes, deadline: Deadline) -> Placed:
        return self.rows.fitted(self.start, passes, self.start.options, deadline)


@dataclass(slots=True)
class _Tiers:
    """Plans with paging. What is paged depends on what is defined in place and on what runs again, and no
    bound says which is best: so plans with fewer of these freedoms are made as well.
    """

    rows: Rows
    start: Start
    passes: Passes
    #: Whether the layout of a plan exceeded the first tier.
    tight: bool = False
    #: Orders of the steps that were tried, with the freedoms.
    tried: set[tuple[bool, bool, tuple[int, ...]]] = field(default_factory=set)

    def first(self) -> Row:
        """The order as written; the others follow from it, unless it is proved that there is none."""
        return Row(self._first, (_least_time(self.start), 0), self.rows.whole(self.start))

    def _first(self, deadline: Deadline) -> Made:
        made = self._made(self.start.options, False, deadline)
        impossible = isinstance(made.refused, CapacityError) and made.refused.proved
        return made if impossible else replace(made, rows=self._others())

    def _others(self) -> Iterator[Row]:
        """With an order that is searched for; and without each of the freedoms."""
        asked, program = self.start.options, self.start.reference.program
        large = len(program.steps) > MANY_STEPS and asked.recompute
        freedoms = [(True, False) if has else (False,) for has in (asked.recompute, asked.in_place)]
        for recompute, in_place in product(*freedoms):
            fewer = replace(
                asked, recompute=recompute, in_place=in_place, sub_ranges=asked.sub_ranges and in_place
            )
            with_fewer = fewer != asked
            if_tight = with_fewer and (recompute != asked.recompute or not (asked.order or recompute))
            wanted = partial(self._wanted, only_if_tight=if_tight, only_if_refused=large and with_fewer)
            for searched in (False, True)[: 1 + asked.order]:
                if fewer == asked and not searched:
                    continue
                work = self.rows.whole(self.start) * (1 + searched)
                make = partial(self._made, fewer, searched)
                yield Row(make, (_least_time(self.start), 0), work, _ORDER, wanted=wanted)

    def _wanted(self, best: Candidate | None, *, only_if_tight: bool, only_if_refused: bool) -> bool:
        return (self.tight or not only_if_tight) and (best is None or not only_if_refused)

    def _made(self, options: PlanOptions, searched: bool, deadline: Deadline) -> Made:
        freedoms = options.in_place, options.recompute
        program, search = _before_order(self.start, self.passes)
        passes = self.passes
        if searched and search is not None:
            plans = self.rows.plans
            lowest = plans.results.lowest(search, program, deadline, plans.watch)
            applied = search.choose(program, lowest, deadline)
            program, passes = applied.program, in_order_of(self.passes, applied)
        elif self.start.options.order:
            passes = in_given_order(self.passes)
        if (*freedoms, first_runs(program)) in self.tried:
            return Made()
        self.tried.add((*freedoms, first_runs(program)))
        try:
            placed = self.rows.fitted(self.start, passes, options, deadline)
        except CapacityError as error:
            self.tight = True
            return Made(refused=error)
        self.tight = self.tight or placed.reduced
        if options.in_place != self.start.options.in_place:
            placed = replace(placed, applied=placed.applied.without_bounds_of_own_bytes())
        return Made(self.rows.finished(self.start, placed))
