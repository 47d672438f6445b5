"""The default solver: the cheapest argument first, and a valid layout whatever happens.

    max-load bound -> structure, one order -> probe of the bound -> greedy -> windows of time
                   -> capacity search | local search -> CP-SAT
                   ^ the bound is met, or proved to be out of reach: done

What is tried is a table, `STAGES`: a name, which problems it is for, what it may spend, how it runs. Each
begins with what those before it have found. Where there are thousands of buffers, the problem is made small
before the capacity search: `coarse`.

Memory is bounded: what `FeasibilitySearch` states for each set of buffers searched, of which the capacity
search keeps `KEPT`; 60 to 150 bytes a buffer for a greedy placement, and of two at a time only where sections
are few; where nothing compiles, some 160 MB.

Every budget is counted in work, so that the same problem gives the same layout on any machine. The
deadline and the caller's cancel event cut in on top; what was found until then is returned, and the
outcome says so. Where nothing can be compiled, branch and bound in Python takes the place of the capacity
search.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product
from types import ModuleType
from typing import Any, Final, TypeAlias

from solver.layout.bounds.max_load import max_load, pinned_top
from solver.layout.bounds.settle import settle
from solver.layout.exact.branch_and_bound import tighten
from solver.layout.exact.capacity_search import NEGLIGIBLE, SEARCHED_AT_ONCE, CapacitySearch, negligible
from solver.layout.exact.coarse import FINE, MIDDLE, ROUGH, Grain, search_coarsely
from solver.layout.exact.cp_sat import refine
from solver.layout.exact.feasibility import Watch, compiled_search
from solver.layout.exact.skyline_search import Budget
from solver.layout.exact.windows import repair
from solver.layout.greedy.in_time import in_order_of_time, sweepable, time_kernel
from solver.layout.greedy.in_windows import MORE_PASSES, PASSES, lowered_in_windows, window_kernel
from solver.layout.greedy.index import kernel
from solver.layout.greedy.large import GOOD_ENOUGH, LARGE
from solver.layout.greedy.local_search import Improvement, improve
from solver.layout.greedy.placement import (
    BY_SIZE,
    CLASSES_FROM,
    DEEP_ATTEMPTS,
    DEEP_IN_HASTE,
    DEPTH,
    IN_TURNS,
    LARGE_ORDERS,
    PINNED_ATTEMPTS,
    SHALLOW_IN_HASTE,
    SOONEST,
    SWEPT,
    SWIFT_ATTEMPTS,
    TIME_ATTEMPTS,
    USUAL_ATTEMPTS,
    attempt,
    greedy_portfolio,
    place_many,
    place_once,
    place_suited,
    soon_in_time,
    suited,
)
from solver.layout.greedy.reorder import reorder
from solver.layout.greedy.rewind import rewind
from solver.layout.kernels.window_kernel import MOST
from solver.layout.model.heap import give_back
from solver.layout.model.instance import FREE, Instance, Integers, layout_of
from solver.layout.model.options import USUAL, InPieces, Progress, SolveOptions
from solver.layout.model.problem import MAX_BYTES, Deadline, Layout, LayoutProblem, LayoutSolver, Outcome
from solver.layout.model.sorting import in_order
from solver.layout.structures.colouring import depth
from solver.layout.structures.recognise import structured

__all__ = ["STAGES", "Portfolio", "Stage"]

#: Buffers up to which the compiled search, and the one in Python, are asked.
CAPACITY_SEARCH_BUFFERS: Final = 20_000
PYTHON_BUFFERS: Final = 1500

#: Up to here one short question comes before the greedy portfolio, which takes longer.
PROBE_BUFFERS: Final = 3000

#: Above that and up to here, questions about the problem made small: grain, one part in how many of the bound
#: is granted on top of it (0: none), and work. Different ones fail on different problems. The short ones come
#: before the greedy portfolio where the capacity search is asked too, and of more buffers where one order is
#: good enough: a question then takes less than the orders that seldom win the rest.
COARSE_BUFFERS: Final = 2_000_000
SHORT_QUESTIONS: Final = ((MIDDLE, 0, 2_000_000), (ROUGH, GOOD_ENOUGH, 2_000_000))
LONG_QUESTIONS: Final = ((FINE, 0, 5_000_000), (MIDDLE, 0, 10_000_000))

#: Where the layout is far above the bound: questions about capacities between the two. How coarse, and the
#: work of a question. Then shares of the time, with the numbers of parts into which the room between is cut:
#: first, and after windows, which leave this share of the time to what follows.
GRAINS_BETWEEN: Final = (Grain(100, 5), Grain(100, 15))
WORK_BETWEEN: Final = 2_000_000
BETWEEN: Final = (0.3, (6,))
FURTHER: Final = (1.0, (12, 24, 48, 96))
WINDOWS_BETWEEN: Final = 0.5

#: Windows find more than other orders from a layout above the bound by no more than one part in so many.
LITTLE_HIGH: Final = 100

#: First fit in windows has this share of the time that is left, of which it seldom takes much.
WINDOWS_SHARE: Final = 0.5

#: Windows of time hold enough that can move where so many times as many buffers live in all as live at once.
#: Their work is worth about two seconds; where the capacity search has its turn after them, no caller's
#: budget raises it to more than twice that.
SHALLOW: Final = 20
WINDOWS_WORK: Final = 150_000_000

#: CP-SAT takes many seconds to start on more than this, and then rarely improves on the other stages.
CP_SAT_BUFFERS: Final = 100

#: Deterministic time of CP-SAT for buffers with holes: more than without, as no other stage proves any.
CP_SAT_WORK_IN_PIECES: Final = 0.1

#: Budgets of the other stages, each worth two to three seconds at most: what branch and bound in Python
#: looks at, placements of the two local searches, deterministic time of CP-SAT.
PYTHON_WORK: Final = 6_000_000
REORDER_WORK: Final = 200_000
REWIND_WORK: Final = 500_000
SEARCH_WORK: Final = 60_000
SEARCH_WORK_PER_BUFFER: Final = 400
CP_SAT_WORK: Final = 0.02

#: Where much lives at once, going back in an order of time has this share of the time.
REWIND_SHARE: Final = 0.5

#: An order of time is worth going back in if its peak is above the bound by no more than one part in so many
#: more than the best.
TIMELY: Final = 5

#: Changing the order takes half of the time that is left with so many buffers. With more it takes more, as
#: exact questions find the less the more there are, but less where windows of time follow: these are as many
#: as what is too high. Within one part in so many of the bound exact questions find more than it does.
HALF_TO_REORDER: Final = 5000
REORDERED: Final = 1000

#: Seconds before the deadline at which CP-SAT is no longer started: loading it takes that long.
CP_SAT_START: Final = 1.5

#: Buffers up to which a few greedy orders, a millisecond or two each, come before the compiled search, whose
#: code takes a third of a second to load. A question about a capacity goes to the search at once.
PROMISING_BUFFERS: Final = 400
PROMISING: Final = 5

#: Where more than one buffer in so many is pinned, orders that may have made the pins go first.
MUCH_PINNED: Final = 20

#: Of very many buffers of which few live at once, orders of time have this share of the time; all of it where
#: so many seconds a buffer are not left, in which windows come to nothing. With pins, where there is time for
#: it, the order by size has this share.
TIMELY_SHARE: Final = 0.05
WINDOWS_A_BUFFER: Final = 1e-6
BY_SIZE_SHARE: Final = 0.5
BY_SIZE_A_BUFFER: Final = 5e-6

#: What a sweep of best fit takes, times buffers and those that live at once: where less is left, one of first
#: fit goes first.
BEST_FIT_SECONDS: Final = 3e-10

#: Attempts with many buffers that suit a sample best, in front of the usual ones; how many of these come
#: before those that win most often where much lives at once; and their share of the time where little does.
ATTEMPTS: Final = 6
SUITED_FIRST: Final = 2
SUITED_SHARE: Final = 0.3

#: Buffers from which looking for a structure costs less than placing in one order.
STRUCTURE_FIRST: Final = 3000

#: Seconds a buffer before the deadline from which a sample is asked for the order of the first layout, and
#: seconds in any case: a sample takes about as long of few buffers as of many.
SUITED_SECONDS: Final = 2e-5
SUITED_LEAST: Final = 0.15

#: Where few live at once, seconds, and seconds a buffer on top, in which sweeps end and the order by size
#: may not.
PRESSED: Final = 0.03
PRESSED_SECONDS: Final = 1.3e-6

#: Seconds in which a first question to the exact search may not end.
PRESSED_TO_ASK: Final = 0.1

#: Buffers from which what a stage has freed goes back to the system, a fraction of a millisecond.
TIDY_FROM: Final = 3000

_Questions: TypeAlias = tuple[tuple[Grain, int, int], ...]


@dataclass(slots=True)
class _Run:
    """One call: what is asked, what is known so far, and which stage found the layout."""

    instance: Instance
    bound: int
    watch: Watch
    began: float
    goal: int = 0
    capacity: int = MAX_BYTES
    proved: int = 0
    layout: Layout = field(default_factory=lambda: Layout((), MAX_BYTES + 1))
    stage: str = ""
    search: CapacitySearch | None = None
    #: Names of attempts, what suits a sample first; and the layout before these, where they lowered it.
    suited: list[str] = field(default_factory=list)
    before: Layout | None = None
    #: The attempt with many buffers that gave the layout, none where something else did; and which have had
    #: their turn.
    attempt: str = ""
    tried: tuple[str, ...] = ()
    #: The lowest attempt with an order of time, and its peak.
    timely: str = ""
    timely_peak: int = MAX_BYTES
    #: Whether orders of time can be swept, once somebody has asked.
    swept: bool | None = None
    #: Whether a question in between has lowered the layout.
    answered: bool = False
    #: How often an order has been changed: each time with other random numbers.
    turns: int = 0
    #: Whether, at the beginning, there was so little time that sweeps go before all else.
    pressed: bool = False
    #: Whether time ended a part of a stage, and others may follow.
    hurried: bool = False

    def take(
        self, stage: str, layout: Layout, *, attempt: str = "", proved: int = 0, cut: bool = False
    ) -> None:
        better = layout.peak < self.layout.peak
        if better:
            self.layout, self.stage, self.attempt = layout, stage, attempt
        if attempt in TIME_ATTEMPTS and layout.peak < self.timely_peak:
            self.timely, self.timely_peak = attempt, layout.peak
        if better or proved > self.proved:
            self.proved = max(self.proved, proved)
            self.report()
        self.watch.cut = self.watch.cut or cut

    def untried(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those attempts that have not had their turn, each once."""
        return tuple(dict.fromkeys(name for name in names if name not in self.tried))

    def report(self) -> None:
        progress, low = self.watch.options.progress, max(self.bound, self.proved)
        if progress is not None:
            progress(Progress(self.layout.peak, low, time.perf_counter() - self.began, self.stage))

    def tidy(self) -> None:
        """Before each stage: what the one before has freed counts no more."""
        if len(self.instance) >= TIDY_FROM:
            give_back()

    def sample(self) -> list[str]:
        """Names of attempts, what suits a sample first; none where the deadline leaves no time for it."""
        self.hurried = self.hurried or self.hasty
        return [] if self.hasty else suited(self.instance, self.watch.deadline)

    @property
    def hasty(self) -> bool:
        """Whether a sample would take too long: of very many buffers it takes little beside a pass."""
        buffers, remaining = len(self.instance), self.watch.deadline.remaining
        least = SUITED_LEAST if buffers >= STRUCTURE_FIRST else 0.0
        return not self.many and remaining < max(least, SUITED_SECONDS * buffers)

    @property
    def low(self) -> int:
        return max(self.bound, self.proved)

    @property
    def enough(self) -> int:
        return max(self.goal, self.watch.options.within_gap(self.low))

    @property
    def negligible(self) -> bool:
        """Whether the optimality gap is too small for stages that prove nothing, with the usual budget."""
        usual, peak = self.watch.options.work is USUAL, self.layout.peak
        return usual and peak <= self.capacity and negligible(peak, self.low)

    @property
    def finished(self) -> bool:
        return self.layout.peak <= self.enough or 0 < self.goal < self.low or self.watch()

    @property
    def many(self) -> bool:
        """Whether there are so many buffers that an order by size takes seconds."""
        return len(self.instance) >= CLASSES_FROM

    @property
    def simple(self) -> bool:
        """Whether offsets are sums of sizes: nothing is pinned, and sums of sizes keep all alignments."""
        return not (self.instance.pinned or self.instance.misaligning)

    @property
    def searched(self) -> bool:
        """Whether the capacity search has a turn; asking loads it."""
        return len(self.instance) <= CAPACITY_SEARCH_BUFFERS and compiled_search() is not None

    @property
    def searched_at_once(self) -> bool:
        """Whether it is asked about everything there is, in the end."""
        return self.searched and (len(self.instance) <= SEARCHED_AT_ONCE or not self.shallow)

    @property
    def searched_in_python(self) -> bool:
        """Whether branch and bound in Python takes its place."""
        return self.simple and len(self.instance) <= PYTHON_BUFFERS and compiled_search() is None

    @property
    def coarse(self) -> bool:
        """Whether there are so many buffers that making them fewer pays, and all can be in boxes."""
        return (
            PROBE_BUFFERS < len(self.instance) <= COARSE_BUFFERS
            and self.simple
            and compiled_search() is not None
        )

    @property
    def shallow(self) -> bool:
        """Whether there are many more buffers than live at any one time."""
        return (
            len(self.instance) > PROBE_BUFFERS
            and SHALLOW * depth(self.instance) <= len(self.instance)
            and compiled_search() is not None
        )

    @property
    def few(self) -> bool:
        """Whether it is shallow, and so few live at once that a sweep takes a tenth of an order by size."""
        return self.shallow and depth(self.instance) <= DEPTH

    @property
    def windowed(self) -> bool:
        """Whether windows hold what lives at once, and as much again that can move."""
        many = len(self.instance) > PROMISING_BUFFERS and window_kernel() is not None
        return many and depth(self.instance) <= min(len(self.instance) // SHALLOW, MOST // 2)

    @property
    def left_to_windows(self) -> bool:
        """Whether what is too high is so little that windows of it find more than other orders."""
        return self.few and self.windowed and LITTLE_HIGH * (self.layout.peak - self.bound) <= self.bound

    @property
    def long(self) -> bool:
        """Whether in addition it is so large that greedy orders and boxes take longer than windows."""
        return len(self.instance) > CAPACITY_SEARCH_BUFFERS and self.few

    @property
    def far(self) -> bool:
        """Whether the layout is a tenth above the bound, which windows seldom make good."""
        return 10 * (self.layout.peak - self.bound) > self.bound and not self.many

    @property
    def between(self) -> bool:
        """Whether windows take turns with questions that have been of use, where work has no limit."""
        return self.answered and self.far and self.watch.options.work is None

    @property
    def near(self) -> bool:
        """Whether the layout is good enough already: what is left to win is in a few crowded moments."""
        return self.layout.peak - self.bound <= self.bound // GOOD_ENOUGH

    @property
    def timely_first(self) -> bool:
        """Whether sweeps go before all but windows: others may not end in time, or it is far too high."""
        if len(self.instance) <= PROBE_BUFFERS:
            return self.pressed and not self.goal
        return not self.many and (self.pressed or (self.windowed and self.far))

    @property
    def sweeps(self) -> bool:
        """Whether orders of time are swept, which takes little."""
        return not self.much_pinned and self.sweepable

    @property
    def sweepable(self) -> bool:
        """Whether they could be."""
        if self.swept is None:
            self.swept = sweepable(self.instance)
        return self.swept

    @property
    def much_pinned(self) -> bool:
        """Whether pins are so many that they tell most of a layout."""
        return MUCH_PINNED * int((self.instance.offset != FREE).sum()) > len(self.instance)

    @property
    def reordered(self) -> bool:
        """Whether changing the order that gave the layout may lower it."""
        far = (self.layout.peak - self.bound) * REORDERED > self.bound
        return bool(self.attempt) and len(self.instance) >= LARGE and far

    @property
    def rewound(self) -> bool:
        """Whether going back in the best order of time may lower the layout."""
        gap, many = self.layout.peak - self.bound, len(self.instance) >= LARGE
        near = TIMELY * (self.timely_peak - self.bound) <= (TIMELY + 1) * gap
        return many and bool(self.timely) and near and self.sweepable

    @property
    def capacities(self) -> CapacitySearch:
        """One for all questions, which learns from each."""
        if self.search is None:
            self.search = CapacitySearch(
                self.instance,
                self.layout,
                self.bound,
                self.watch,
                lambda layout, p: self.take("capacity-search", layout, proved=p),
                self.capacity,
            )
        return self.search


def _begin(run: _Run, incumbent: Layout | None) -> None:
    """A first layout, whatever the deadline says: for many training steps it is the optimum."""
    instance, structure = run.instance, run.watch.options.rules.structure
    if structure and len(instance) >= STRUCTURE_FIRST:
        _structure(run)
    if run.layout.peak > run.enough or not run.stage:
        _first(run)
    if structure and run.layout.peak > run.enough and len(instance) < STRUCTURE_FIRST:
        _structure(run)
    if incumbent is not None:
        run.take("incumbent", incumbent)


def _first(run: _Run) -> None:
    """What one order places: of time where few live at once; what suits a sample, or by size, elsewhere."""
    instance, deadline = run.instance, run.watch.deadline
    run.pressed = _pressed(run)
    run.hurried = run.hurried or run.pressed
    # A sweep through few at a time takes less than anything else, so it has no deadline.
    offsets = in_order_of_time(instance, Deadline()) if run.windowed and run.sweeps else None
    # Where few live at a time, the order by size takes less than a sample.
    shallow = SHALLOW * depth(instance) <= len(instance)
    deep = len(instance) >= STRUCTURE_FIRST and not (shallow or run.many)
    if deep and not run.much_pinned:
        run.suited = run.sample()
        run.tidy()
    if offsets is not None:
        run.tried = () if run.many else (SWEPT,)
    elif run.suited:
        named = TIME_ATTEMPTS[0] if run.sweeps else run.suited[0]
        offsets, name = place_suited(instance, named, deadline)
        run.tried = (name,)
    elif run.many or (run.pressed and run.sweeps and soon_in_time(instance, deadline)):
        offsets = place_many(instance, deadline)
    else:
        offsets = place_once(instance, _by_size(instance), deadline)
    run.take("greedy", layout_of(instance, offsets), attempt="".join(run.tried), cut=deadline.expired)


def _first_fit_windows(run: _Run, _: int) -> None:
    """Of the first layout, a sweep."""
    _lowered(run, run.layout, run.attempt)


def _lowered(run: _Run, layout: Layout, attempt: str) -> None:
    """What an attempt gave, and windows of it placed anew."""
    run.take("greedy", layout, attempt=attempt)
    if run.windowed and not run.finished:
        part = run.watch.deadline.leaving(1 - WINDOWS_SHARE)
        # Of few buffers the exact search makes more in the same time.
        levels = MORE_PASSES if run.few else (PASSES,)
        lowered = lowered_in_windows(run.instance, layout, run.enough, part, levels)
        run.take("first-fit-windows", lowered)
        run.hurried = run.hurried or part.expired


def _pressed(run: _Run) -> bool:
    """Whether sweeps go before all else: where few live at once, more time is worth more for windows."""
    buffers, remaining = len(run.instance), run.watch.deadline.remaining
    if buffers <= PROBE_BUFFERS:
        return buffers > PROMISING_BUFFERS and remaining < PRESSED_TO_ASK
    return remaining < PRESSED + PRESSED_SECONDS * buffers if run.few else run.hasty


def _by_size(instance: Instance) -> Integers:
    """The largest first, of equal ones the longest."""
    return in_order(-instance.size, instance.start - instance.end)


def _structure(run: _Run) -> None:
    """What a theorem places."""
    for name, offsets in structured(run.instance):
        run.take(name, layout_of(run.instance, offsets))


def _promising(run: _Run, attempts: int) -> None:
    """The orders that win most often: where they meet the bound, nothing compiled has to be loaded."""
    run.tried = USUAL_ATTEMPTS if len(run.instance) >= LARGE else ()
    greedy = greedy_portfolio(run.instance, run.bound, run.watch.deadline, attempts, run.layout, run.tried)
    run.take("greedy", greedy.layout, attempt=greedy.order, cut=greedy.cut)


def _probe(run: _Run, _: int) -> None:
    run.capacities.probe(run.goal)


def _greedy(run: _Run, attempts: int) -> None:
    """All orders and fits; of many buffers those that suit a sample, and the usual ones.

    Where much lives at once, those that win most often there take turns with those that suit the sample, of
    which the better half follows where work has no limit. Elsewhere these have a part of the time.
    """

    def tried(names: Sequence[str], deadline: Deadline) -> None:
        greedy = greedy_portfolio(run.instance, enough, deadline, None, run.layout, names)
        run.take("greedy", greedy.layout, attempt=greedy.order)
        run.hurried = run.hurried or greedy.cut

    usual, deadline = run.watch.options.work is USUAL, run.watch.deadline
    swift = () if run.instance.misaligning or run.much_pinned else SWIFT_ATTEMPTS
    # Of very many buffers a sweep ends in time where other orders may not, and of first fit before best fit.
    many, timely = run.many, TIME_ATTEMPTS if run.sweeps else ()
    soonest = (*timely[:1], BY_SIZE, *timely[1:]) if many and timely else ()
    if soonest and deadline.remaining < BEST_FIT_SECONDS * len(run.instance) * depth(run.instance):
        soonest = (SOONEST, *soonest)
    enough = run.bound + (run.bound // NEGLIGIBLE if usual else 0)
    if len(run.instance) < LARGE or run.near:
        tried((), deadline)
    elif run.shallow:
        tried(run.untried((*soonest, *swift, *USUAL_ATTEMPTS)), deadline)
        before, part = run.layout, deadline.leaving(1 - SUITED_SHARE)
        if not (run.finished or run.negligible) and (names := suited(run.instance, part)):
            tried(names[:attempts], part)
        run.before = before if run.layout.peak < before.peak else None
    else:
        run.suited = run.suited or run.sample()
        unlimited = run.suited and run.watch.options.work is None
        better = run.suited[: len(run.suited) // 2 if unlimited else attempts]
        rest = better if unlimited else (*better, *USUAL_ATTEMPTS)
        in_turns = chain.from_iterable(zip(DEEP_ATTEMPTS, better[SUITED_FIRST:], strict=False))
        order = (*soonest, *better[:SUITED_FIRST], *swift, *in_turns, *DEEP_ATTEMPTS, *rest)
        chosen = run.untried(order)
        run.tried += chosen
        for some in (chosen[:SUITED_FIRST], chosen[SUITED_FIRST:]):
            if some and not run.finished:
                tried(some, deadline)
            if run.rewound and not run.turns and not run.finished:
                _rewind(run, deadline.leaving(1 - REWIND_SHARE))


def _orders_of_pins(run: _Run, _: int) -> None:
    """Those that may have made the pins, but by size, which gave the first layout."""
    run.tried = (BY_SIZE,)
    names = run.untried(PINNED_ATTEMPTS)
    greedy = greedy_portfolio(run.instance, run.bound, run.watch.deadline, None, run.layout, names)
    run.take("greedy", greedy.layout, attempt=greedy.order)
    run.hurried = run.hurried or greedy.cut
    run.tried += names


def _orders_of_time(run: _Run, _: int) -> None:
    """All of them: a pass takes a fraction of what other orders take.

    In haste, what takes least comes first, and some other orders are among them.
    """
    names = TIME_ATTEMPTS
    if run.windowed and run.few:
        names = (*((BY_SIZE,) if run.far else ()), *IN_TURNS)
    elif run.few and run.pressed:
        names = (*SHALLOW_IN_HASTE, *names)
    elif run.hasty and not run.few:
        names = DEEP_IN_HASTE
    if names := run.untried(names):
        # Windows make more of some orders than of others with a lower peak.
        known = Layout((), run.timely_peak) if run.windowed else run.layout
        greedy = greedy_portfolio(run.instance, run.bound, run.watch.deadline, None, known, names)
        if greedy.order:
            _lowered(run, greedy.layout, greedy.order)
        run.hurried = run.hurried or greedy.cut
        run.tried += names


def _other_orders(run: _Run, _: int) -> None:
    """All that were left out, those first that suit the sample. What is good enough has ended them early."""
    names = tuple(run.suited[1:]) if run.near else run.untried(run.suited)
    greedy = greedy_portfolio(run.instance, run.bound, run.watch.deadline, None, run.layout, names, parts=0)
    run.take("greedy", greedy.layout, cut=greedy.cut)


def _reorder(run: _Run, work: int) -> None:
    """The order that did best, changed; or one of time that is about as good, gone back in."""
    share = HALF_TO_REORDER / (HALF_TO_REORDER + len(run.instance))
    part = run.watch.deadline.leaving(1 - share if run.shallow else share)
    if run.rewound and (run.attempt in TIME_ATTEMPTS or not run.reordered):
        _rewind(run, part)
    elif run.reordered and (module := kernel()) is not None:
        order, best_fit = attempt(run.instance, run.attempt)
        _changed(run, "reorder", reorder, module, order, work, part, best_fit)


def _rewind(run: _Run, part: Deadline) -> None:
    """The best order of time, gone back in again and again."""
    if (module := time_kernel()) is not None:
        order, best_fit = attempt(run.instance, run.timely)
        _changed(run, "rewind", rewind, module, order, REWIND_WORK, part, best_fit)


def _changed(
    run: _Run,
    stage: str,
    change: Callable[..., Improvement],
    module: ModuleType,
    order: Integers,
    work: int,
    part: Deadline,
    best_fit: bool,
) -> None:
    limit, seed = run.watch.options.limit(work), run.watch.options.seed + run.turns
    known, enough = run.layout, run.enough
    improved = change(run.instance, module, order, known, enough, limit, part, seed, best_fit=best_fit)
    run.take(stage, improved.layout)
    run.hurried, run.turns = run.hurried or improved.cut, run.turns + 1


def _coarsely(run: _Run, questions: _Questions) -> None:
    """The problem made small, until the layout is good enough."""
    for grain, parts, work in questions:
        capacity = max(run.enough, run.bound + (run.bound // parts if parts else 0))
        if run.finished or run.negligible or capacity >= run.layout.peak:
            continue
        limited = min(work, run.watch.options.limit(work))
        found = search_coarsely(run.instance, capacity, run.layout.peak - 1, grain, limited, run.watch)
        if found is not None:
            run.take("coarse", found)


def _in_between(run: _Run, plan: tuple[float, tuple[int, ...]]) -> None:
    """Where the layout is far above the bound, the problem made small, and capacities between the two.

    What is large decides there, and finds places that no order finds. What is easy comes last and may end
    above the capacity, so a lower capacity is not always the better one: all are asked from above, and again
    while that lowers the layout.
    """
    share, counts = plan
    part = Watch(run.watch.deadline.leaving(1 - share), run.watch.options)
    work = min(WORK_BETWEEN, run.watch.options.limit(WORK_BETWEEN))
    for count in counts:
        peak = MAX_BYTES
        while run.layout.peak < peak:
            low, peak = run.low, run.layout.peak
            for grain, above in product(GRAINS_BETWEEN, range(count - 1, 0, -1)):
                if run.finished or not run.far or part():
                    run.hurried = run.hurried or part.cut
                    return
                capacity, limit = low + (peak - low) * above // count, run.layout.peak - 1
                found = search_coarsely(run.instance, capacity, limit, grain, work, part)
                if found is not None:
                    run.take("coarse", found)
                    run.before, run.answered = None, True


def _in_order_of_time(run: _Run, _: int) -> None:
    """By birth, a tenth of the time of other orders where few live at once. Of very many buffers the first
    layout is that already, and others follow, with pins the one by size; windows begin with the first, as
    they make less of some lower ones.
    """
    if not run.many:
        offsets = in_order_of_time(run.instance, run.watch.deadline)
        run.take("greedy", run.layout if offsets is None else layout_of(run.instance, offsets))
        return
    deadline, many, before = run.watch.deadline, len(run.instance), run.layout
    names, part = TIME_ATTEMPTS, deadline
    if not run.sweeps or (run.instance.pinned and deadline.remaining > BY_SIZE_A_BUFFER * many):
        names, part = (BY_SIZE,), deadline.leaving(1 - BY_SIZE_SHARE)
    elif deadline.remaining > WINDOWS_A_BUFFER * many:
        part = deadline.leaving(1 - TIMELY_SHARE)
    greedy = greedy_portfolio(run.instance, run.bound, part, None, before, names)
    run.take("greedy", greedy.layout)
    run.hurried = run.hurried or greedy.cut
    run.before = before if run.layout.peak < before.peak else None


def _windows(run: _Run, work: int) -> None:
    """Where the layout is too high, a window of time after the other.

    Windows make less of some lower layouts than of some higher ones. So where an order that suits a sample
    gave the layout, that of the usual orders comes first: three quarters of the time, half of the work.
    """
    limit = run.watch.options.limit(work)
    if run.searched_at_once:
        limit = min(limit, 2 * work)
    if run.before is not None:
        limit //= 2
        part = Watch(run.watch.deadline.leaving(0.25), run.watch.options)
        _repair(run, run.before, limit, part)
        run.before, run.hurried = None, run.hurried or part.cut
    if not (run.layout.peak <= run.enough or run.watch.deadline.expired):
        part = Watch(run.watch.deadline.leaving(WINDOWS_BETWEEN if run.between else 0.0), run.watch.options)
        _repair(run, run.layout, limit, part)
        run.hurried = run.hurried or part.cut


def _repair(run: _Run, layout: Layout, limit: int, watch: Watch) -> None:
    repair(run.instance, layout, run.enough, limit, watch, lambda better: run.take("windows", better))


def _capacity_search(run: _Run, _: int) -> None:
    run.capacities.offer(run.layout)
    run.capacities.tighten(run.goal)


def _in_python(run: _Run, work: int) -> None:
    """Branch and bound where nothing can be compiled."""
    budget = Budget(work, run.watch.deadline)
    tightened = tighten(run.instance, run.layout, run.bound, budget)
    run.take("branch-and-bound", tightened.layout, proved=tightened.proved, cut=budget.cut)


def _local_search(run: _Run, work: int) -> None:
    work = min(work, SEARCH_WORK_PER_BUFFER * len(run.instance))
    improved = improve(run.instance, run.layout, run.bound, work, run.watch.deadline)
    run.take("search", improved.layout, cut=improved.cut)


def _exact(run: _Run, work: float) -> None:
    """CP-SAT, from what the search has found and proved."""
    if run.watch.deadline.remaining < CP_SAT_START:
        run.watch.cut = True
        return
    refined = refine(run.instance, run.layout, run.low, run.watch.deadline, work)
    run.take("cp-sat", refined.layout, proved=refined.proved, cut=refined.cut)


@dataclass(frozen=True, slots=True)
class Stage:
    """Something to try: its name, whether it is for a problem, its budget, and how it spends that.

    `applies` is asked when it is the stage's turn and the problem is still open.
    """

    name: str
    applies: Callable[[_Run], bool]
    budget: Any
    run: Callable[[_Run, Any], None]


#: In this order. Units of budgets are those of the function that runs; 0 where that has a budget of its own.
STAGES: Final = (
    Stage(
        "first fit in windows", lambda run: run.windowed and (run.few or not run.goal), 0, _first_fit_windows
    ),
    Stage("orders of time first", lambda run: run.timely_first and run.sweeps, 0, _orders_of_time),
    Stage(
        "a few orders",
        lambda run: not run.goal and len(run.instance) <= PROMISING_BUFFERS,
        PROMISING,
        _promising,
    ),
    Stage(
        "orders of pins",
        lambda run: len(run.instance) >= LARGE and not run.many and run.much_pinned,
        0,
        _orders_of_pins,
    ),
    Stage(
        "orders of many",
        lambda run: not run.goal and LARGE <= len(run.instance) <= PROBE_BUFFERS,
        len(LARGE_ORDERS),
        _promising,
    ),
    Stage("probe", lambda run: run.searched and len(run.instance) <= PROBE_BUFFERS, 0, _probe),
    Stage(
        "short coarse questions",
        lambda run: run.coarse and (run.searched or (run.near and not run.long)),
        SHORT_QUESTIONS,
        _coarsely,
    ),
    Stage("order of time", lambda run: run.long and (run.many or not run.windowed), 0, _in_order_of_time),
    Stage(
        "orders of time",
        lambda run: len(run.instance) >= LARGE and not run.many and run.sweeps and not (run.near or run.long),
        0,
        _orders_of_time,
    ),
    Stage(
        "greedy",
        lambda run: run.far if run.long else not (run.negligible or run.left_to_windows),
        ATTEMPTS,
        _greedy,
    ),
    Stage("coarse questions in between", lambda run: run.coarse and run.far, BETWEEN, _in_between),
    Stage("long coarse questions", lambda run: run.coarse and not run.long, LONG_QUESTIONS, _coarsely),
    Stage("reorder", lambda run: run.reordered or run.rewound, REORDER_WORK, _reorder),
    Stage("windows", lambda run: run.shallow and not run.negligible, WINDOWS_WORK, _windows),
    Stage("capacity search", lambda run: run.searched_at_once, 0, _capacity_search),
    Stage("more questions in between", lambda run: run.between, FURTHER, _in_between),
    Stage("more windows", lambda run: run.shallow and run.between, WINDOWS_WORK, _windows),
    Stage(
        "other orders",
        lambda run: bool(run.suited) and run.watch.options.work is None,
        0,
        _other_orders,
    ),
    Stage("branch and bound", lambda run: run.searched_in_python, PYTHON_WORK, _in_python),
    Stage(
        "local search",
        lambda run: not (run.searched or run.searched_in_python or run.negligible),
        SEARCH_WORK,
        _local_search,
    ),
    Stage("CP-SAT", lambda run: len(run.instance) <= CP_SAT_BUFFERS, CP_SAT_WORK, _exact),
)


@dataclass(frozen=True, slots=True)
class Portfolio:
    """Lower bound, a first layout, then `STAGES` until the bound is met or the work is spent.

    The outcome's solver is ``portfolio/`` and what found the layout.
    """

    options: SolveOptions = field(default_factory=SolveOptions)
    stages: tuple[Stage, ...] = STAGES
    name: str = "portfolio"

    @property
    def in_pieces(self) -> InPieces:
        """All that there is."""
        return InPieces(
            greedy=True,
            search=True,
            exact_work=CP_SAT_WORK_IN_PIECES,
            exact_buffers=CP_SAT_BUFFERS,
            staged=True,
        )

    def configured(self, options: SolveOptions) -> LayoutSolver:
        return replace(self, options=options)

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        bound, watch = max_load(problem), Watch(deadline, self.options)
        goal = problem.capacity or 0 if self.options.fit else 0
        capacity = MAX_BYTES if problem.capacity is None else problem.capacity
        run = _Run(Instance.of(problem), bound.bytes, watch, began, goal, capacity, pinned_top(problem))
        run.tidy()
        _begin(run, incumbent)
        for stage in self.stages:
            if not run.finished and stage.applies(run):
                run.tidy()
                stage.run(run, stage.budget)
        run.search = None  # it refers to the run
        run.tidy()
        return settle(
            problem,
            run.layout,
            bound,
            f"{self.name}/{run.stage}",
            began,
            proved=run.proved,
            deterministic=not (watch.cut or run.hurried or self.options.race),
        )
