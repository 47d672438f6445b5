"""The pass `search_order`: another order of the steps, where one with a lower peak is left.

    a ──► b (large) ──► c (small)          a b d c e f    both large values at the same time
    a ──► d (large) ──► e (small)          a b c d e f    one after the other
    c, e ──► f

A bound that holds for every order is computed first. Most training steps meet it in their present order, or
nearly: then nothing is searched, and the record says so. If steps may run again to keep a capacity, the best
order is not that of the lowest peak but the one in which recomputation costs least. A bound on that cost, for
every order, is computed first as well: mostly the present order costs hardly more, and no other is searched
for. Otherwise the search is for an order in which less has to run again, even if its peak is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, TypeVar

from solver.accounting import ScheduleProblem, order_bound, schedule_problem, step_costs
from solver.layout import Deadline
from solver.passes.aliases import define_in_place
from solver.passes.base import Applied, Pass, Tell, silent
from solver.program import UPDATE, Costs, Program, Tier, dependencies, loads
from solver.schedules import SearchProgress
from solver.schedules.order.rounds import Rounds

__all__ = ["Lowest", "SearchOrder", "in_given_order", "in_listed_order", "in_order_of"]

#: Another order counts as better if its peak is lower by 1/100 at least. Most training steps gain less, and
#: bytes alone do not tell which of their orders is best for recomputation.
_DIFFER = 100

#: The share of the remaining time that is kept for the search after the bound on the cost of recomputation.
_AFTER_BOUND = 0.8

#: No other order is searched for if recomputation in the present one costs at most 1/1,000 of the step more
#: than the bound for every order.
_NEAR = 1_000

#: The most steps of a program for which an order with the same peak and a lower cost of recomputation is
#: searched for: in larger programs one round of that search takes seconds. The most for list scheduling as
#: well: the bound that comes first takes memory and time by the square of the steps.
_LARGEST = 3_000


@dataclass(frozen=True, slots=True, eq=False)
class Lowest:
    """An order of a program's steps, and its peak in bytes; the problem that was searched, and its facts.

    `before` has, for each step, those that it must follow. `complete` is false where a deadline ended the
    search.
    """

    problem: ScheduleProblem
    before: Sequence[frozenset[int]]
    facts: Mapping[str, int]
    order: tuple[int, ...]
    peak: int
    complete: bool


@dataclass(frozen=True, slots=True)
class SearchOrder(Pass):
    """Whether another order may be searched for."""

    name: ClassVar[str] = "search_order"
    requires: ClassVar[frozenset[str]] = frozenset({"sequential", "own memory"})
    searches: ClassVar[bool] = True
    #: See `for_own_bytes`.
    own_bytes: ClassVar[bool] = False

    order: bool = False
    in_place: bool = False
    update: str = "immediate"
    recompute: bool = False
    capacity: int | None = None
    costs: Costs | None = None
    tiers: tuple[Tier, ...] = ()

    def run(self, program: Program) -> Program:
        return self.apply(program, Deadline()).program

    def apply(self, program: Program, deadline: Deadline, tell: Tell = silent) -> Applied:
        """Search until the deadline. The facts are bytes: the bound for all orders, the peaks, what is left;
        and with `recompute` nanoseconds: what repetitions cost at least in every order.

        With `recompute` and a `capacity` that no order keeps, the order taken is the one in which what runs
        again costs least. What will be defined in place counts where two orders are compared, not while one
        is searched for. Where values will be defined in place or paged out, only a lower peak counts.
        """
        if not self.order:
            return Applied(program)
        return self.choose(program, self.lowest(program, deadline, tell), deadline)

    def lowest(self, program: Program, deadline: Deadline, tell: Tell = silent) -> Lowest:
        """The order with the lowest peak that is found. `update` and `costs` alone have a say in it."""
        tell(None)
        problem, before = _problem(program, self.update, self.costs)
        rounds = Rounds.of(program, problem)
        facts = _given(program, problem, before, deadline, rounds)
        peak_before, bound = facts["peak_before"], facts["order_bound"]
        tell(SearchProgress(peak_before, bound))
        order, peak, complete = tuple(range(len(program.steps))), peak_before, True
        if peak_before > bound:
            from solver.schedules.order.search import best_order  # numba, only where it is needed

            best = best_order(problem, before, deadline, bound=bound)
            order, peak, complete = best.order, best.peak, best.complete
            if rounds is not None and peak > bound:
                order = rounds.lowest(problem, order, deadline, bound)
                peak = max(loads(program.reordered(order))[0])
            tell(SearchProgress(peak, bound))
        return Lowest(problem, before, facts, order, peak, complete)

    def choose(self, program: Program, lowest: Lowest, deadline: Deadline) -> Applied:
        """The program in the order to take, where `lowest` is the program's order with the lowest peak."""
        problem, before, order = lowest.problem, lowest.before, lowest.order
        facts, complete = dict(lowest.facts), lowest.complete
        peak_before, bound = facts["peak_before"], facts["order_bound"]
        differ = peak_before - lowest.peak > peak_before // _DIFFER
        if not self.recompute or self.capacity is None or self._fits(program, order, self.capacity):
            return self._taken(program, facts, order, complete)
        load = [0] * len(order)
        for t, bytes_ in zip(order, loads(program.reordered(order))[0], strict=True):
            load[t] = bytes_
        least = self._least_cost(program, before, load, deadline)
        if self._shares or not self.in_place:
            facts |= least  # else it is proved for values with bytes of their own, which some will not have
        if not differ and (self._shares or self.tiers or len(order) > _LARGEST):
            # What repetitions cost is not known before values lie in place, or others are paged.
            return self._taken(program, facts, order, complete)
        from solver.schedules.recompute.joint import order_to_repeat  # OR-Tools, as well

        # What runs again is searched for afterwards, in half of the time.
        best = order_to_repeat(
            problem,
            before,
            self.capacity,
            deadline.leaving(0.5),
            bound=bound,
            least=least.get("every_order_nanoseconds", 0),
            near=None if differ else sum(problem.cost) // _NEAR,
        )
        if not differ and best.order != tuple(range(len(order))):
            changed = program.reordered(best.order)
            facts |= {"peak_after": max(loads(changed)[0]), "for_recomputation": True}
            return Applied(changed, facts, best.complete)
        return self._taken(program, facts, best.order if differ else order, best.complete)

    def _taken(
        self, program: Program, facts: dict[str, int], order: tuple[int, ...], complete: bool
    ) -> Applied:
        """The program in this order, if its peak is lower then; with what is in place as well."""
        changed = program.reordered(order)
        peak = max(loads(changed)[0])
        if peak >= facts["peak_before"] or self._peak(changed) >= self._peak(program):
            return Applied(program, facts, complete)
        return Applied(changed, {**facts, "peak_after": peak}, complete)

    def _least_cost(
        self,
        program: Program,
        before: Sequence[frozenset[int]],
        load: Sequence[int],
        deadline: Deadline,
    ) -> dict[str, int]:
        """A proved lower bound on the cost of repetitions that keep the capacity in any order, if any."""
        if not self.recompute or self.capacity is None or self.tiers or max(load) <= self.capacity:
            return {}
        from solver.schedules.recompute.cut_costs import least_cost  # OR-Tools, only where it is needed

        cost = step_costs(program, self.costs)
        problem = schedule_problem(program, cost, in_place=self._shares)
        least = least_cost(problem, before, self.capacity, load, deadline.leaving(_AFTER_BOUND))
        return {"every_order_nanoseconds": least.bound, "step_nanoseconds": sum(cost)} if least.bound else {}

    def for_own_bytes(self) -> SearchOrder:
        """The pass that chooses the order as if every value had bytes of its own, though some will not."""
        return _OwnBytes(**{field.name: getattr(self, field.name) for field in fields(self)})

    @property
    def _shares(self) -> bool:
        return self.in_place and not self.own_bytes

    def _fits(self, program: Program, order: tuple[int, ...], capacity: int) -> bool:
        """Whether nothing has to run again, in this order or in the one that steps have."""
        return self._peak(program.reordered(order)) <= capacity or self._peak(program) <= capacity

    def _peak(self, program: Program) -> int:
        """The bytes that are live at once, with what will be defined in place."""
        return max(loads(define_in_place(program) if self._shares else program)[0])


@dataclass(frozen=True, slots=True)
class _OwnBytes(SearchOrder):
    own_bytes: ClassVar[bool] = True


@dataclass(frozen=True, slots=True)
class _Listed(SearchOrder):
    """Takes the place of `SearchOrder`: list scheduling, where the order bound leaves 1/100 of the peak.

    It takes some milliseconds for 600 steps, and finds most of what the search finds there (ResNet-50 of the
    gallery: 2.4 % of the peak, as the search of 3 seconds). Programs above `_LARGEST` steps stay as they are.
    """

    searches: ClassVar[bool] = False

    def apply(self, program: Program, deadline: Deadline, tell: Tell = silent) -> Applied:
        if not self.order or len(program.steps) > _LARGEST:
            return Applied(program)
        problem, before = _problem(program, self.update, self.costs)
        peak = max(loads(program)[0], default=0)
        # Where rounds of a block may change places this bound is too high, but they are a special case.
        if peak - order_bound(problem).bytes <= peak // _DIFFER:
            return Applied(program)
        rounds = Rounds.of(program, problem)
        bound = order_bound(problem if rounds is None else rounds.problem).bytes
        facts = {"order_bound": bound, "peak_before": peak, "peak_after": peak}
        from solver.schedules.order.search import best_order  # numba, only where it is needed

        best = best_order(problem, before, deadline, bound=bound, turns=0)
        return self._taken(program, facts, best.order, best.complete)


@dataclass(frozen=True, slots=True, eq=False)
class _Found(Pass):
    """Takes the place of `SearchOrder`, with the result of an earlier run."""

    name: ClassVar[str] = SearchOrder.name
    searches: ClassVar[bool] = True
    requires: ClassVar[frozenset[str]] = SearchOrder.requires

    applied: Applied

    def run(self, program: Program) -> Program:
        return self.applied.program

    def apply(self, program: Program, deadline: Deadline, tell: Tell = silent) -> Applied:
        return self.applied


@dataclass(frozen=True, slots=True)
class _KeptOrder(Pass):
    """Takes the place of `SearchOrder`: every step stays where it is, and the record says so."""

    name: ClassVar[str] = SearchOrder.name
    requires: ClassVar[frozenset[str]] = SearchOrder.requires

    update: str

    def run(self, program: Program) -> Program:
        return program

    def apply(self, program: Program, deadline: Deadline, tell: Tell = silent) -> Applied:
        problem, before = _problem(program, self.update)
        rounds = Rounds.of(program, problem)
        return Applied(program, _given(program, problem, before, deadline, rounds))


_Options = TypeVar("_Options")


def in_given_order(passes: Callable[[_Options], Sequence[Pass]]) -> Callable[[_Options], Sequence[Pass]]:
    """The same passes, none of which looks for another order of the steps."""
    return lambda options: [
        _KeptOrder(p.update) if isinstance(p, SearchOrder) else p for p in passes(options)
    ]


def in_listed_order(passes: Callable[[_Options], Sequence[Pass]]) -> Callable[[_Options], Sequence[Pass]]:
    """The same passes, which look for another order of the steps by list scheduling alone."""
    return lambda options: [
        _Listed(p.order, p.in_place, p.update, costs=p.costs) if isinstance(p, SearchOrder) else p
        for p in passes(options)
    ]


def in_order_of(
    passes: Callable[[_Options], Sequence[Pass]], applied: Applied
) -> Callable[[_Options], Sequence[Pass]]:
    """The same passes, with the result of an earlier search for an order instead of that search."""
    return lambda options: [_Found(applied) if isinstance(p, SearchOrder) else p for p in passes(options)]


def _problem(
    program: Program, update: str, costs: Costs | None = None
) -> tuple[ScheduleProblem, list[frozenset[int]]]:
    """The problem, and the steps that each step must follow; updates at the end stay behind all others."""
    before = list(dependencies(program.touches()))
    if update == "end":
        updates = {t for t, step in enumerate(program.steps) if program.kernel(step) == UPDATE}
        others = frozenset(range(len(program.steps))) - updates
        ends = others.difference(*(before[t] for t in others))  # behind which all others are done
        before = [ends | earlier if t in updates else earlier for t, earlier in enumerate(before)]
    return schedule_problem(program, step_costs(program, costs)), before


def _given(
    program: Program,
    problem: ScheduleProblem,
    before: Sequence[frozenset[int]],
    deadline: Deadline,
    rounds: Rounds | None,
) -> dict[str, int]:
    """The facts about the present order of steps: the bound for all orders, and the peak, which stays."""
    if rounds is not None:
        problem, before = rounds.problem, rounds.before
    load = loads(program)[0]
    peak, bound = max(load, default=0), order_bound(problem).bytes
    if peak > bound:
        from solver.schedules.order.cuts import least_peak  # OR-Tools, only where something seems to be left

        bound = least_peak(problem, before, load, deadline)
    return {"order_bound": bound, "peak_before": peak, "peak_after": peak}
