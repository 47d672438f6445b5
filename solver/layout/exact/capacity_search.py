"""The capacity search: from "does it fit under C?" to the smallest C, with a proof where there is one.

    bytes   incumbent  ----------------  a YES at C brings it down to the new peak
                        |  asked: strides below it, half the way at first; twice as far after a YES,
                        v  half as far while a question stays open, until one step is too far
            proved     ----------------  a NO at C lifts it to the next multiple of the unit
            max-load   ----------------  asked first

A round spends the same work on every question on the way down, and the next one has half as much again for
each. Far questions come first because they are hardly less often answered than near ones, and an answer saves
all that lie between. There the incumbent shows which buffers may lie low (solution-guided search, Beck,
2007).

Most of the work goes to the lowest question, at the goal or the bound: that is where the optimum most often
is, and its answer ends everything. How long it takes is drawn anew with each seed, about exponentially, so
what goes to other questions is added to the longest of all waits several times over. It goes without a guide,
which is of no use so far below an incumbent.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Final, Protocol

import numpy as np

from solver.layout.bounds import max_load, pinned_top, settle
from solver.layout.exact.feasibility import MANY, Answer, FeasibilitySearch, Watch
from solver.layout.greedy.placement import greedy_portfolio, place
from solver.layout.model.instance import FREE, Instance, Integers, layout_of, round_up
from solver.layout.model.options import USUAL, USUAL_WORK, Progress, SolveOptions
from solver.layout.model.problem import MAX_BYTES, Deadline, Layout, LayoutProblem, LayoutSolver, Outcome
from solver.layout.model.reduce import peel, stretches

__all__ = ["BranchAndBound", "CapacitySearch", "Listener", "Tightened", "negligible"]

#: Work of each question in the first round, and its growth: a few milliseconds, then more.
FIRST_WORK: Final = 2_000_000
FIRST_WORK_PER_SQUARE: Final = 10

#: The first question at the bound is shorter where there are many buffers: strides find more there.
PROBE_WORK_PER_SQUARE: Final = 2
WORK_GROWTH: Final = 1.5

#: Work of the second question about a capacity that is enough, a fifth of a second. It comes before greedy
#: orders, which take a quarter of that and rarely meet a capacity that the first question has not met.
GOAL_WORK: Final = 16_000_000

#: Ratio of the work at the lowest capacity to the work above it. At a goal, its answer is all that counts. At
#: the bound, better layouts are worth something too: half of the work, or a third once the gap is at most
#: 1 / `NEAR_GAP_INVERSE`, where few better layouts are left.
FOCUS_ON_GOAL: Final = 15
FOCUS_ON_BOUND: Final = 1
FOCUS_NEAR_BOUND: Final = 2
NEAR_GAP_INVERSE: Final = 50

#: Sets of buffers whose searches are kept for the next question, which bounds memory; of more than `MANY`
#: buffers only the last one.
KEPT: Final = 64

#: Buffers joined through their lifespans that are searched at most: each takes some 500 bytes. Of 67 shapes
#: of 20,000 buffers, searching them at once closed one, which is a structure now.
SEARCHED_AT_ONCE: Final = 6000

#: From `LARGE` buffers on, the work of one full descent is the whole budget: greedy layouts are good there,
#: and longer search has not closed a gap that the first descents left.
DESCENTS_WHEN_LARGE: Final = 1
LARGE: Final = 5000

#: A gap of at most 1 / `NEGLIGIBLE_GAP_INVERSE` gets this work at most: padding makes the bound a few bytes
#: too low, and a search for the last bytes takes seconds or never ends.
NEGLIGIBLE_GAP_INVERSE: Final = 1_000_000
NEGLIGIBLE_WORK: Final = 100_000_000


def negligible(peak: int, bound: int) -> bool:
    """Whether the gap is at most 1 / `NEGLIGIBLE_GAP_INVERSE`."""
    return (peak - bound) * NEGLIGIBLE_GAP_INVERSE <= bound


class Listener(Protocol):
    """Hears of each better layout or bound."""

    def __call__(self, layout: Layout, proved: int, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Tightened:
    """The best layout, and the bytes that the search has proved necessary (0: nothing proved)."""

    layout: Layout
    proved: int


class CapacitySearch:
    """One problem, from its incumbent and bound to the optimum.

    `goal` is the peak (bytes) below which nothing more is asked: the capacity where that is enough. Above the
    `capacity` no optimality gap is negligible.
    """

    def __init__(
        self,
        instance: Instance,
        layout: Layout,
        bound: int,
        watch: Watch,
        listener: Listener,
        capacity: int = MAX_BYTES,
    ) -> None:
        self._instance, self._watch, self._listener = instance, watch, listener
        self._options, self._capacity = watch.options, capacity
        # Offsets of some best layout are multiples of the unit, so its peak is a multiple of this.
        self._step = int(np.gcd(instance.unit, np.gcd.reduce(instance.exact)))
        self._layout, self._low, self._proved = layout, round_up(bound, self._step), 0
        self._left = self._options.limit(self._affordable(USUAL_WORK))
        self._peels = self._options.rules.peel and not (instance.misaligning or instance.pinned)
        self._searches: dict[bytes, FeasibilitySearch] = {}
        # Of all work, that at the lowest capacity asked about, and the rest.
        self._lowest, self._at_lowest, self._above = 0, 0, 0

    def probe(self, goal: int = 0) -> Tightened:
        """A short question at the goal or the bound, which often settles it, and a longer one at a goal."""
        capacity, work = self._floor(goal), self._first_at(goal, self._first_work)
        self._lowest = capacity
        if not self._finished(goal):
            self._question(capacity, work)
        # Half of a caller's budget is left for what makes the layout better where this does not meet it.
        longer = min(GOAL_WORK, self._left // 2)
        if goal and longer > work and not self._finished(goal):
            self._question(capacity, longer)
        return Tightened(self._layout, self._proved)

    def offer(self, layout: Layout) -> None:
        """A layout from elsewhere to start from, if it is better."""
        self._layout = min(self._layout, layout, key=lambda candidate: candidate.peak)

    def _affordable(self, work: int) -> int:
        """`work`, or for large problems one descent, which looks at up to all buffers for each buffer."""
        many = len(self._instance)
        return work if many < LARGE else min(work, DESCENTS_WHEN_LARGE * many**2)

    @property
    def _first_work(self) -> int:
        """A descent looks at all that is left for each buffer."""
        return max(FIRST_WORK, FIRST_WORK_PER_SQUARE * len(self._instance) ** 2)

    def _first_at(self, goal: int, work: int) -> int:
        """Of the work of other questions, that of the first one at the lowest capacity."""
        probe = max(FIRST_WORK, PROBE_WORK_PER_SQUARE * len(self._instance) ** 2)
        return work if goal else work * probe // self._first_work

    def tighten(self, goal: int = 0) -> Tightened:
        """Rounds of questions until the optimality gap is closed or small enough, or the work is spent."""
        work = self._first_work
        self._weigh()
        while not self._finished(goal):
            self._round(work, goal)
            work = int(work * WORK_GROWTH)
        return Tightened(self._layout, self._proved)

    def _weigh(self) -> None:
        """Lowers the usual budget where the gap is negligible; a caller's own budget stays."""
        peak, usual = self._layout.peak, self._options.work is USUAL
        if usual and peak <= self._capacity and negligible(peak, self._low):
            self._left = min(self._left, NEGLIGIBLE_WORK)

    def _finished(self, goal: int) -> bool:
        enough = max(goal, self._options.within_gap(self._low))
        hopeless = 0 < goal < self._low
        return self._layout.peak <= enough or hopeless or self._left <= 0 or self._watch()

    def _round(self, work: int, goal: int) -> None:
        """Strides down from the incumbent, with questions at the goal or the bound between them."""
        self._focus(work, goal)
        stride = self._gap(self._floor(goal)) // 2
        while not self._finished(goal):
            stride = max(1, min(stride, self._gap(self._floor(goal)) // 2))
            ask = (self._layout.peak - 1) // self._step * self._step - (stride - 1) * self._step
            answer = self._question(ask, work, guided=ask > self._floor(goal))
            self._focus(work, goal)
            if answer is Answer.YES:
                stride *= 2
            elif stride == 1:
                break
            else:
                stride //= 2

    def _focus(self, least: int, goal: int) -> None:
        """Asks at the lowest capacity, with the work that is due there, if it is no less than `least`."""
        lowest = self._floor(goal)
        if lowest > self._lowest:
            self._lowest, self._at_lowest = lowest, 0
        near = (self._layout.peak - lowest) * NEAR_GAP_INVERSE <= lowest
        share = FOCUS_ON_GOAL if goal else FOCUS_NEAR_BOUND if near else FOCUS_ON_BOUND
        due = share * self._above - self._at_lowest
        if not self._at_lowest:
            due = least = self._first_at(goal, least)
        if due >= least and not self._finished(goal):
            self._question(lowest, due)

    def _floor(self, goal: int) -> int:
        """The lowest capacity that is worth a question."""
        return max(self._low, goal // self._step * self._step)

    def _gap(self, low: int) -> int:
        """Steps from the incumbent down to what would be enough."""
        return -(-(self._layout.peak - max(low, self._low)) // self._step)

    def _question(self, capacity: int, work: int, *, guided: bool = False) -> Answer:
        """Asks, and draws the conclusion: a new incumbent, a new bound, or nothing."""
        left = self._left
        answer, offsets = self._ask(capacity, min(work, left), guided=guided)
        if capacity == self._lowest:
            self._at_lowest += left - self._left
        else:
            self._above += left - self._left
        if offsets is not None:
            self._layout = layout_of(self._instance, offsets)
            self._weigh()
        elif answer is Answer.NO:
            self._low = self._proved = max(self._low, capacity // self._step * self._step + self._step)
        if answer is not Answer.UNKNOWN:
            self._listener(self._layout, self._proved)
        return answer

    def _ask(self, capacity: int, work: int, *, guided: bool) -> tuple[Answer, Integers | None]:
        """Whether everything fits, with offsets if so. Peels, then solves what never meets one by one."""
        instance, everything = self._instance, np.arange(len(self._instance))
        core, peeled = peel(instance, capacity, self._watch) if self._peels else (everything, everything[:0])
        parts, placed = stretches(instance, core), list[Integers]()
        del core, everything
        if parts and len(parts[-1]) > SEARCHED_AT_ONCE:
            self._left = 0
            return Answer.UNKNOWN, None
        for members in parts:
            known = self._known(members)
            if (known + instance.exact[members]).max() <= capacity:
                placed.append(known)
                continue
            del known
            search = self._search(members)
            decision = search.decide(capacity, work, self._watch, self._known(members) if guided else None)
            self._left -= decision.work
            if decision.offsets is None:
                return decision.answer, None
            placed.append(decision.offsets)
        offsets = np.full(len(instance), FREE, dtype=np.int64)
        for members, there in zip(parts, placed, strict=True):
            offsets[members] = there
        return Answer.YES, _with_peeled(instance, offsets, peeled)

    def _known(self, members: Integers) -> Integers:
        """Their offsets in the incumbent."""
        return np.array(self._layout.offsets, np.int64)[members]

    def _search(self, members: Integers) -> FeasibilitySearch:
        key = sha256(members.tobytes()).digest()
        if key not in self._searches:
            if len(self._searches) == KEPT or len(members) > MANY:
                self._searches.clear()
            self._searches[key] = FeasibilitySearch(self._instance.subset(members).compact(), self._options)
        return self._searches[key]


def _with_peeled(instance: Instance, offsets: Integers, peeled: Integers) -> Integers:
    """All offsets: what was searched where it is, then the peeled buffers by first fit."""
    if not len(peeled):
        return offsets
    return place(replace(instance, offset=offsets), peeled)[0]


@dataclass(frozen=True, slots=True)
class BranchAndBound:
    """The capacity search alone, started from the greedy orders."""

    options: SolveOptions = field(default_factory=SolveOptions)
    name: str = "branch-and-bound"

    def configured(self, options: SolveOptions) -> LayoutSolver:
        return replace(self, options=options)

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        bound, instance, watch = max_load(problem), Instance.of(problem), Watch(deadline, self.options)
        enough = self.options.enough(bound.bytes, problem.capacity)
        layout = incumbent
        if layout is None:
            first = greedy_portfolio(instance, enough, deadline)
            layout, watch.cut = first.layout, first.cut

        def report(layout: Layout, proved: int) -> None:
            if self.options.progress is not None:
                seconds = time.perf_counter() - began
                self.options.progress(Progress(layout.peak, max(bound.bytes, proved), seconds, self.name))

        search = CapacitySearch(instance, layout, max(bound.bytes, pinned_top(problem)), watch, report)
        result = search.tighten(enough if enough > bound.bytes else 0)
        return settle(
            problem,
            result.layout,
            bound,
            self.name,
            began,
            proved=result.proved,
            deterministic=watch.deterministic,
        )
