"""One question, "does everything fit under C bytes?", put to the compiled search by two racing seeds.

Search times are heavy-tailed: a seed that is lost for seconds stands beside one that finds an answer
at once, so two of them take turns, a run each, or run side by side. Whose answer counts is decided by the
turns, not by the clock: on one thread the first answer ends the search, and on two a seed stops as soon as
the other has answered in an earlier turn than its own. Runs are short, so no wait is long, and the
answer is the same on any number of threads. What a loser has learnt depends on when it was stopped, so it is
forgotten.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import copy_context
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.kernels import skyline_kernel as kernel
from solver.layout.kernels.priorities import ORDERS, priorities, ranked
from solver.layout.kernels.skyline_kernel import (
    SEARCHABLE,
    SearchState,
    Short,
    allocate,
    kinds,
    made,
    unchanged,
)
from solver.layout.model.heap import give_back, paged
from solver.layout.model.instance import Instance, Integers
from solver.layout.model.options import Rules, SolveOptions
from solver.layout.model.problem import Deadline
from solver.native import addressed, may_compile, runs_compiled

__all__ = [
    "MANY",
    "SEARCHABLE",
    "SHORT",
    "SHORT_TABLE_BITS",
    "Answer",
    "Decision",
    "FeasibilitySearch",
    "Watch",
    "bind",
    "search_is_compiled",
]

#: States remembered by each seed: 2**18 are 6 MiB. Fresh memory takes longer to come than a question of up to
#: `SHORT` work does, which remembers fewer: no more than one for each 64 of work.
TABLE_BITS: Final = 18
SHORT_TABLE_BITS: Final = 14
LEAST_TABLE_BITS: Final = 8
SHORT: Final = 4_000_000

#: About more buffers than that the seeds share one path and what they remember, on one thread: two of each
#: take twice the memory. They remember fewer states, for each node is as much work.
MANY: Final = 2000

#: Depth that always suffices in practice; where it does not, the answer is "unknown". With a third of it,
#: layouts of six thousand deep buffers that a path of full length finds at once are not found.
DEPTH_PER_BUFFER: Final = 12

#: Nodes of the first run, enough for a few descents, and how much longer the runs of each next round are.
FIRST_RUN: Final = 500
FIRST_RUN_PER_BUFFER: Final = 3
GROWTH: Final = 1.3

#: Looks at the clock and at the cancel event: the work between two of them, ten milliseconds or so, and the
#: seconds where another thread is waited for.
SLICE: Final = 1_000_000
TICK: Final = 0.01

#: How much longer a unit of work takes as Python: where nothing compiles, so much less work is done.
UNCOMPILED_SLOWNESS: Final = 100

_NEVER: Final = 2**62

#: Of a number that holds a height, the bits that a height may take; of the others, those of use.
HEIGHT_BITS: Final = 62
MOST_SPARE: Final = 20


#: A search whose arrays are bound: nodes of the first run and growth in, answer out.
Call: TypeAlias = Callable[[int, float], int]


class Answer(Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


_ANSWERS: Final = {
    kernel.YES: Answer.YES,
    kernel.NO: Answer.NO,
    kernel.UNKNOWN: Answer.UNKNOWN,
    kernel.FULL: Answer.UNKNOWN,
}


@dataclass(frozen=True, slots=True)
class Decision:
    """`offsets` in bytes with YES; `work` is what the deciding seed has done."""

    answer: Answer
    offsets: Integers | None
    work: int


@dataclass(slots=True)
class Watch:
    """Why to stop early: the deadline or the caller. `cut` tells that it happened.

    `slow`: less work was done than elsewhere, because code was not compiled in time.
    """

    deadline: Deadline
    options: SolveOptions
    cut: bool = False
    slow: bool = False

    @property
    def deterministic(self) -> bool:
        """Whether neither time nor what was compiled decided the answer."""
        return not (self.cut or self.slow or self.options.race)

    def __call__(self) -> bool:
        self.cut = self.cut or self.options.cancelled or self.deadline.expired
        return self.cut


@dataclass(slots=True)
class _Race:
    """One question: the seeds that have joined, by number, and what each has answered so far."""

    watch: Watch
    first: int
    states: dict[int, SearchState] = field(default_factory=dict)
    calls: dict[int, Call] = field(default_factory=dict)
    answers: dict[int, int] = field(default_factory=dict)


def search_is_compiled() -> bool:
    """Whether the kernel runs as machine code, or else as Python."""
    if not runs_compiled(kernel.race):
        bind(*_nothing())(1, GROWTH)
    return runs_compiled(kernel.race)


def bind(state: SearchState, ranks: Short) -> Call:
    """The kernel for these arrays, whose addresses are looked up once."""
    return partial(kernel.race, addressed(state), addressed(ranks))


def _nothing() -> tuple[SearchState, Short]:
    """A problem of one buffer: compiling, or loading what is kept, happens with it."""
    one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
    instance = Instance(zero, one, one, one, one, zero - 1, 1)
    state = allocate(instance, 1, one, 1, 4, np.array([0, _NEVER], np.int64), 0)
    state.counters[[kernel.CAPACITY, kernel.WORK_LIMIT]] = (1, 10)
    return state, np.zeros((ORDERS, 1), np.int16)


class FeasibilitySearch:
    """Questions about one set of buffers, at most `SEARCHABLE`; what a question teaches helps the next.

    Memory: for each of two seeds up to 7 MiB (four bytes a slot of ``2**table_bits``, and 24 for each state
    that was refuted) and 40 bytes a buffer; for each thread 50 bytes a buffer, and as far as a path has come,
    100 bytes a choice. Some 40 bytes a buffer are shared. About more than `MANY` buffers there is one path,
    at most 460 kB are remembered, and the second seed takes 8 bytes a buffer.
    """

    def __init__(self, instance: Instance, options: SolveOptions, table_bits: int = TABLE_BITS) -> None:
        self._slowness = 1 if search_is_compiled() or may_compile() else UNCOMPILED_SLOWNESS
        self._options, self._table_bits = options, table_bits
        self._buffers, self._unit = len(instance), instance.unit
        self._many = self._buffers > MANY
        self._in_turns = self._many or options.threads == 1
        self._load = int(instance.load().max(initial=0)) // self._unit
        self._alignment = int(instance.alignment.max(initial=1))
        self._pinned, self._misaligning = instance.pinned, instance.misaligning
        order, kind = np.argsort(instance.start, kind="stable"), kinds(instance)
        self._order, self._signals = order.astype(np.int16), np.zeros(2, dtype=np.int64)
        self._same = unchanged(instance, order, self._unit, kind)
        # Bytes by which each may end above the capacity, padded: 0 for all where nothing is padded.
        padded = len(self._same["limit"]) == len(instance)
        self._padding = (instance.size - instance.exact)[order] if padded else np.zeros(1, np.int64)
        # The last row is for a guide.
        self._ranks = paged(ORDERS + 1, len(instance), of=np.int16)
        shared = kind if options.rules.symmetry else np.arange(len(instance))
        for row, ranks in enumerate(priorities(instance, shared)):
            self._ranks[row] = ranks[order]
        if self._many:
            give_back()  # what was sorted
        self._states: list[SearchState | None] = [None] * kernel.SEEDS
        self._residue = -1
        self._runs: dict[tuple[int, int], int] = {}

    def decide(self, capacity: int, work: int, watch: Watch, guide: Integers | None = None) -> Decision:
        """At most `work` by each seed. NO only after a search has been exhausted.

        `guide`: offsets (bytes) of a layout that is too high; half of the runs try first the buffers that
        lie low in it.
        """
        work //= self._slowness
        watch.slow = watch.slow or self._slowness > 1
        limit = (capacity + self._padding) // self._unit
        overfull = self._load > int(limit.max(initial=0))
        if overfull or (np.maximum(self._same["pin"], 0) + self._same["size"] > limit).any():
            return Decision(Answer.NO, None, 0)
        self._signals[:] = (0, _NEVER)
        self._forget(capacity if self._pinned else capacity % max(self._unit, self._alignment))
        guided = guide is not None
        if guide is not None:
            self._ranks[ORDERS] = self._upwards(guide)
            del guide
        runs = [self._runs.get((capacity, k), 0) for k in range(kernel.SEEDS)]
        race = _Race(watch, first=max(FIRST_RUN, FIRST_RUN_PER_BUFFER * self._buffers))
        # The first turn answers most questions; while it is taken, no second seed is made ready.
        first = runs.index(min(runs))
        self._join(race, first, capacity, limit, work, guided=guided)
        self._turn(race, first, runs[first] + 1)
        if race.answers[first] == kernel.PAUSED:
            for k in range(kernel.SEEDS):
                if k != first:
                    self._join(race, k, capacity, limit, work, guided=guided)
            if self._in_turns or not runs_compiled(kernel.race):
                self._in_turn(race)
            else:
                self._together(race)
        # What short runs could find has been looked for: asked again, go on with the longer ones.
        self._runs.update({(capacity, k): int(race.states[k].counters[kernel.RUNS]) for k in race.states})
        return self._verdict(race)

    def _forget(self, residue: int) -> None:
        """Where the remainder by the unit changes, buffers end at other heights: nothing learnt holds.

        Nor where the remainder by the largest alignment does: so far below the capacity, other buffers may
        start. Nor where pins come to lie further from, or nearer to, the capacity.
        """
        if residue != self._residue:
            self._residue = residue
            self._states = [None] * kernel.SEEDS

    def _join(self, race: _Race, k: int, capacity: int, limit: Integers, work: int, *, guided: bool) -> None:
        """One more seed, with what it has learnt before."""
        state, bits = self._states[k], min(self._table_bits, max(LEAST_TABLE_BITS, work.bit_length() - 6))
        if work <= SHORT:
            bits = min(bits, SHORT_TABLE_BITS)
        if self._many:
            bits = min(self._table_bits, SHORT_TABLE_BITS)
        if state is None:
            depth = DEPTH_PER_BUFFER * self._buffers + 1000
            other = next((known for known in self._states if known is not None), None)
            common = (kernel.PATH if self._in_turns else ()) + (kernel.LEARNT if self._many else ())
            names = () if other is None else common
            shared = {name: getattr(other, name) for name in names}
            state = made(self._same, bits, depth, self._signals, self._options.seed + k, shared)
        elif len(state.table) < 1 << bits:
            more = paged(1 << bits, cleared=True, of=np.int32)
            state = state._replace(table=more, refuted=paged(1 << bits, kernel.REFUTED_FIELDS))
            state.counters[kernel.KNOWN] = 0
        self._states[k] = race.states[k] = state
        race.calls[k] = bind(state, self._ranks)
        race.answers[k] = kernel.PAUSED
        counters = state.counters
        state.limit[:] = limit
        counters[[slot for slot in range(kernel.COUNTERS) if slot not in (kernel.KNOWN, kernel.NOISE)]] = 0
        counters[kernel.SPARE] = max(0, min(MOST_SPARE, HEIGHT_BITS - int(limit.max()).bit_length()))
        counters[kernel.RUNS], counters[kernel.GUIDED] = self._runs.get((capacity, k), 0), guided
        counters[kernel.CAPACITY], counters[kernel.WORK_LIMIT], counters[kernel.SEED] = (
            int(limit.max()),
            work,
            k,
        )
        counters[kernel.RULES] = _bits(
            self._options.rules,
            uniform=bool((limit == limit[0]).all()) and not (self._misaligning or self._pinned),
            hashable=int(limit.max()) < kernel.PRIME,
        )
        if self._many:
            give_back()  # what was drawn and ranked

    def _turn(self, race: _Race, k: int, until: int = 0, *, watching: bool = True) -> None:
        """The runs of one seed, up to this many, or (0) until it stops; with looks at the clock or not."""
        counters, growth = race.states[k].counters, GROWTH if self._options.rules.restarts else 0.0
        if self._many:
            counters[kernel.KNOWN] = max(
                int(state.counters[kernel.KNOWN]) for state in self._states if state is not None
            )
        counters[kernel.UNTIL] = until
        while True:
            part = SLICE if runs_compiled(kernel.race) else SLICE // UNCOMPILED_SLOWNESS
            counters[kernel.PAUSE] = counters[kernel.WORK] + part if watching else 0
            race.answers[k] = race.calls[k](race.first, growth)
            if watching and (race.watch() or self._is_too_slow()):
                self._signals[kernel.STOP] = 1
            if race.answers[k] != kernel.PAUSED or not counters[kernel.GOING]:
                break
        if race.answers[k] in (kernel.YES, kernel.NO):
            if self._options.race:
                self._signals[kernel.STOP] = 1
            self._signals[kernel.BEST] = min(
                int(self._signals[kernel.BEST]), int(counters[kernel.RUNS]) * kernel.SEEDS + k
            )

    def _is_too_slow(self) -> bool:
        """Whether a search that was to be compiled goes on as Python, because compiling has failed."""
        return self._slowness == 1 and not (runs_compiled(kernel.race) or may_compile())

    def _together(self, race: _Race) -> None:
        """Each seed on a thread of its own; this one is the first's, and looks at the clock."""
        turn = partial(self._turn, watching=False)
        threads = [
            threading.Thread(target=copy_context().run, args=(turn, race, k), daemon=True)
            for k in range(1, kernel.SEEDS)
        ]
        for thread in threads:
            thread.start()
        self._turn(race, 0)
        for thread in threads:
            while thread.is_alive():
                thread.join(TICK)
                if race.watch():
                    self._signals[kernel.STOP] = 1

    def _in_turn(self, race: _Race) -> None:
        """The same on one thread: a run each, until one answers or none goes on."""
        while active := [k for k in range(kernel.SEEDS) if race.answers[k] == kernel.PAUSED]:
            runs = [int(race.states[k].counters[kernel.RUNS]) for k in active]
            k = active[runs.index(min(runs))]
            self._turn(race, k, min(runs) + 1)
            if race.answers[k] in (kernel.YES, kernel.NO):
                break

    def _verdict(self, race: _Race) -> Decision:
        decided = [k for k in race.states if race.answers[k] in (kernel.YES, kernel.NO)]
        if not decided:
            work = max(int(state.counters[kernel.WORK]) for state in race.states.values())
            return Decision(Answer.UNKNOWN, None, work * self._slowness)
        winner = min(decided, key=lambda k: (int(race.states[k].counters[kernel.RUNS]), k))
        state = race.states[winner]
        for k in race.states:
            if k != winner:
                self._states[k] = None
        found = self._as_given(state.rank * self._unit) if race.answers[winner] == kernel.YES else None
        work = int(state.counters[kernel.WORK]) * self._slowness
        return Decision(_ANSWERS[race.answers[winner]], found, work)

    def _upwards(self, offsets: Integers) -> Integers:
        """Ranks from the bottom to the top of a layout. What tells equal offsets apart has no meaning."""
        symmetric = self._options.rules.symmetry
        shared = self._as_given(self._same["kind"]) if symmetric else np.arange(self._buffers)
        ranks: Integers = ranked(offsets, -self._same["size"], shared)[self._order]
        return ranks

    def _as_given(self, by_start: npt.NDArray[Any]) -> Integers:
        """The numbers of buffers, in the order in which these were given."""
        given = np.empty(self._buffers, np.int64)
        given[self._order] = by_start
        return given


def _bits(rules: Rules, *, uniform: bool, hashable: bool) -> int:
    """Rules as the kernel takes them. Span exchanges buffers, so all must fit everywhere.

    Heights from the prime of the hashes on would not be told apart, so nothing is remembered then.
    """
    chosen = {
        kernel.ANY_PLATEAU: rules.plateaus,
        kernel.FORCED_WASTE: rules.gaps,
        kernel.TABLE: rules.transposition and hashable,
        kernel.DECOMPOSE: rules.decomposition,
        kernel.WEIGHTS: rules.weights,
        kernel.FILL: rules.fill,
        kernel.SPAN: rules.span and uniform,
        kernel.WALLS: rules.walls,
        kernel.JUMPS: rules.jumps,
        kernel.PROMOTION: rules.promotion,
    }
    return sum(bit for bit, on in chosen.items() if on)
