"""The end of a range: the largest size of a dimension within a capacity, with its plan.

    size        1 ........ 20 | 21 ....... 23 | 24 ........
                plans fit     | no plan found | proved: no schedule fits

The last part is proved for all of its sizes at once: without scratch, what is live at a step in every order
and with any recomputation only grows with a dimension. In between each size is a question of its own, as
scratch may shrink where a kernel takes another way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from solver import pipeline
from solver.accounting import floor
from solver.collector import collector_paused
from solver.errors import CapacityError, GraphError, OptionsError
from solver.graph import TrainableGraph
from solver.layout import Deadline
from solver.pipeline import until
from solver.pipeline.watch import Follower
from solver.plan import Plan, RequestedOptions, SizeRange
from solver.reports.verdict import Verdict
from solver.verdict.explain import explain
from solver.verdict.measures import MEASURES, Batches
from solver.verdict.subject import TRIAL, Subject, check_subject, with_more_scratch

__all__ = ["Largest", "largest"]

#: Sizes beyond this are not looked for.
_MOST: Final = 2**31

#: Sizes behind the largest that fits which are planned one by one, as needs may fall where scratch does.
_NEIGHBOURS: Final = 4

#: Sizes between the largest that fits and those that are proved not to, whose bounds are added up one by one.
_MOST_BETWEEN: Final = 256


@dataclass(frozen=True, slots=True)
class Largest:
    """The largest `size` of dimension `name` for which a plan within `capacity` was found; 0 without one.

    Of the sizes behind it, those in `open` have no plan that was found, and nothing is proved about them;
    every other one is proved not to fit, all from `impossible_from` on among them. `next_floor` are the bytes
    that the next size takes at least, in every order and with any recomputation. `more` says what makes the
    next size fit. `complete` is false where the deadline cut in.
    """

    graph: str
    name: str
    capacity: int
    size: int
    plan: Plan | None
    open: tuple[int, ...]
    impossible_from: int
    next_floor: int
    complete: bool
    more: Verdict | None = None

    @property
    def exact(self) -> bool:
        """Whether it is proved that no larger size fits."""
        return self.complete and not self.open


@collector_paused()
def largest(
    graph: TrainableGraph,
    requested: RequestedOptions,
    name: str,
    *,
    training: bool = True,
    observe: Callable[[str], None] | None = None,
    follow: Follower | None = None,
) -> Largest:
    """The largest size of dimension `name` that fits the capacity of the options, by bisection over plans.

    Every size that is said to fit has a proved plan; what is proved holds for its scratch budget. Where no
    size fits, less scratch is tried than was asked for. Verdicts on the next size, in `more`, try measures
    that change what is learned unless `training` is false. `observe` is called with the size that is tried.
    Raises OptionsError without a capacity, for one that billions of elements fit, for a dimension that is not
    symbolic, and as `explain` does. Cost: a plan for each halving of the range, and a verdict.
    """
    if requested.options.capacity is None:
        raise OptionsError(
            "Nothing says which capacity to fill.", remedy="Give a capacity.", path=("capacity",)
        )
    check_subject(graph, requested.options)
    if name not in graph.sizes:
        known = ", ".join(graph.sizes)
        raise OptionsError(
            f"The graph {graph.name!r:.80} has no symbolic dimension {name!r:.60}.",
            remedy=f"Its symbolic dimensions are {known}." if known else f'Write "{name}" in shapes for it.',
            path=("largest",),
        )
    deadline = until(requested.deadline_seconds)
    search = _Search(graph, requested, name, deadline, observe, follow)
    result = search.result()
    if result.plan is None and result.impossible_from > 1 and not deadline.expired:
        least = _Search(graph, requested.having(scratch_budget=1), name, deadline, observe, follow)
        result = least.result()
        if result.plan is not None:
            at, asked = graph.at(**{name: result.size}), search.asked(result.size)
            result = replace(result, plan=with_more_scratch(at, asked, result.plan, deadline, follow))
    if not deadline.late and result.size + 1 < _MOST:
        result = replace(result, more=search.verdict(result.size + 1, training=training))
    return replace(result, complete=result.complete and not deadline.late)


class _Search:
    """Plans and bounds by size; lives for one call of `largest`."""

    def __init__(
        self,
        graph: TrainableGraph,
        requested: RequestedOptions,
        name: str,
        deadline: Deadline,
        observe: Callable[[str], None] | None,
        follow: Follower | None,
    ) -> None:
        self.graph, self.requested, self.name = graph, requested, name
        self.capacity = requested.options.capacity or 0
        self.deadline = deadline
        self.observe, self.follow = observe, follow
        self.complete = True
        self._plans: dict[int, Plan | None] = {}
        self._floors: dict[int, tuple[int, int]] = {}
        #: Sizes that are proved not to fit.
        self.refuted: set[int] = set()

    def result(self) -> Largest:
        """The largest size, without the verdict on the next one."""
        limit = self._limit()
        low, high = 0, limit
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.plan(middle) is not None else (low, middle)
        size = low
        while (beyond := self._neighbour(size, limit)) is not None:
            size = beyond
        between = range(size + 1, limit)
        if len(between) <= _MOST_BETWEEN:
            self.refuted.update(each for each in between if self.floors(each)[0] > self.capacity)
        return Largest(
            self.graph.name,
            self.name,
            self.capacity,
            size,
            self._plans.get(size),
            tuple(each for each in between if each not in self.refuted),
            limit,
            self.floors(size + 1)[0],
            self.complete and not self.deadline.late,
        )

    def _neighbour(self, size: int, limit: int) -> int | None:
        """A larger size nearby that fits all the same."""
        for each in range(size + 1, min(size + 1 + _NEIGHBOURS, limit)):
            if self.plan(each) is not None:
                return each
        return None

    def plan(self, size: int) -> Plan | None:
        """The plan at a size, if one within the capacity is found."""
        if size in self._plans:
            return self._plans[size]
        if self.floors(size)[0] > self.capacity:
            self.refuted.add(size)
            return None
        if self.deadline.expired:
            self.complete &= not self.deadline.late
            return None
        if self.observe is not None:
            self.observe(f"{self.name} {size}")
        self._plans[size] = None
        try:
            graph = self.graph.at(**{self.name: size})
            self._plans[size] = pipeline.plan_requested(
                graph,
                self.asked(size),
                follow=self.follow,
                advise=False,
                deadline=self.deadline.within(TRIAL),
            )
        except CapacityError as error:
            if error.proved:
                self.refuted.add(size)
        except GraphError:
            self.refuted.add(size)  # the graph cannot have this size
        return self._plans[size]

    def asked(self, size: int) -> RequestedOptions:
        if self.name == "batch":
            return self.requested.having(batch=size)
        return replace(self.requested, ranges=(SizeRange(self.name, size, size),))

    def floors(self, size: int) -> tuple[int, int]:
        """Bytes that are live at once in every order and with any recomputation: with scratch, and without.

        Sizes that the graph cannot have take more than there is.
        """
        if size not in self._floors:
            try:
                graph = self.graph.at(**{self.name: size})
                options = pipeline.free_measures(graph, self.requested)
                automatic = self.requested.automatic
                problem = Subject(graph, options, Deadline(), automatic=automatic).first_runs
            except GraphError:
                self._floors[size] = (self.capacity + 1, self.capacity + 1)
            else:
                bare = replace(problem, scratch=(0,) * len(problem.scratch))
                self._floors[size] = (floor(problem).bytes, floor(bare).bytes)
        return self._floors[size]

    def _limit(self) -> int:
        """The smallest size from which on every size is proved not to fit.

        The bound grows with the size, mostly along a line, so the first guess is where the line meets the
        capacity.
        """
        if self.floors(1)[1] > self.capacity:
            return 1
        slope = self.floors(2)[1] - self.floors(1)[1]
        high = 2 if slope <= 0 else max(2, (self.capacity - self.floors(1)[1]) // slope + 2)
        low = 1
        while high < _MOST and self.floors(high)[1] <= self.capacity:
            low, high = high, 2 * high
        if high >= _MOST:
            raise OptionsError(
                f"In {self.capacity:,} bytes there may be room for every {self.name} up to {_MOST:,}.",
                remedy="Give a smaller capacity.",
                path=("capacity",),
            )
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self.floors(middle)[1] > self.capacity else (middle, high)
        return high

    def verdict(self, size: int, *, training: bool) -> Verdict | None:
        """The verdict on a size, and what makes it fit: smaller batches do not count."""
        try:
            graph = self.graph.at(**{self.name: size})
        except GraphError:
            return None
        batches = None
        if self.name == "batch":
            batches = Batches(size, lambda batch: self.graph.at(batch=batch))
        measures = [measure for measure in MEASURES if measure.name != "batch"]
        asked = self.requested.having(batch=size) if self.name == "batch" else self.requested
        return explain(
            graph,
            asked,
            training=training,
            batches=batches,
            measures=measures,
            follow=self.follow,
            deadline=self.deadline,
        )
