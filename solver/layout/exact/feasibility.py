"""One question, "does everything fit under C bytes?", put to the compiled search by two racing seeds.

Search times are heavy-tailed: a seed that is lost for seconds stands beside one that finds an answer
at once, so two of them run side by side. Whose answer counts is decided by work, not by the clock:
the seed that needed the least, and of equals the first. Each stops as soon as it has done more than
the best answer so far, so the loser is not waited for long, and the answer is the same on any number
of threads. What a loser has learnt depends on when it was stopped, so it is forgotten.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import TYPE_CHECKING, Final

import numpy as np

from solver.layout.compiled.fallback import warn_uncompiled
from solver.layout.compiled.priorities import ORDERS, priorities, ranked
from solver.layout.compiled.skyline_state import (
    ANY_PLATEAU,
    BEST_SEED,
    BEST_WORK,
    CAPACITY,
    DECOMPOSE,
    FILL,
    FORCED_WASTE,
    FULL,
    GUIDED,
    JUMPS,
    NO,
    PAUSE,
    PRIME,
    PROMOTION,
    RULES,
    RUNS,
    SEED,
    SPAN,
    STOP,
    TABLE,
    TABLE_FIELDS,
    UNKNOWN,
    WALLS,
    WEIGHTS,
    WORK,
    WORK_LIMIT,
    YES,
    SearchState,
    allocate,
    kinds,
)
from solver.layout.model.instance import Instance, Integers
from solver.layout.model.options import Rules, SolveOptions
from solver.layout.model.problem import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Answer", "Decision", "FeasibilitySearch", "Watch", "compiled_search"]

#: Searches that race.
SEEDS: Final = 2

#: States remembered by each seed: 2**18 are 6 MiB. Fresh memory takes longer to come than a question of up to
#: `SHORT` work does, which remembers fewer.
TABLE_BITS: Final = 18
SHORT_TABLE_BITS: Final = 14
SHORT: Final = 4_000_000

#: Depth that always suffices in practice; where it does not, the answer is "unknown".
DEPTH_PER_BUFFER: Final = 12

#: Nodes of the first run, enough for a few descents, and how much longer the runs of each next round are.
FIRST_RUN: Final = 500
FIRST_RUN_PER_BUFFER: Final = 3
GROWTH: Final = 1.3

#: Seconds between looks at the clock and at the cancel event.
TICK: Final = 0.01

_NEVER: Final = 2**62


class Answer(Enum):
    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


_ANSWERS: Final = {YES: Answer.YES, NO: Answer.NO, UNKNOWN: Answer.UNKNOWN, FULL: Answer.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Decision:
    """`offsets` in bytes with YES; `work` is what the deciding seed has done."""

    answer: Answer
    offsets: Integers | None
    work: int


@dataclass(slots=True)
class Watch:
    """Why to stop early: the deadline or the caller. `cut` tells that it happened."""

    deadline: Deadline
    options: SolveOptions
    cut: bool = False

    def __call__(self) -> bool:
        self.cut = self.cut or self.options.cancelled or self.deadline.expired
        return self.cut


@cache
def compiled_search() -> Callable[[SearchState, Integers, int, float], int] | None:
    """The compiled kernel, tried once; None, and one warning, where nothing compiles here."""
    try:
        from solver.layout.compiled.skyline_kernel import race

        if race(*_nothing()) == YES:
            return race
        reason: object = "a trial went wrong"
    except Exception as error:  # noqa: BLE001 - numba, LLVM and the file system fail in ways of their own
        reason = error
    warn_uncompiled(reason)
    return None


def _nothing() -> tuple[SearchState, Integers, int, float]:
    """Arguments for a problem of one buffer: compiling, or loading from the cache, happens here."""
    one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
    instance = Instance(zero, one, one, one, one, zero - 1, 1)
    state = allocate(instance, 1, one, 1, 4, np.array([0, _NEVER, _NEVER], np.int64), 0)
    state.counters[[CAPACITY, WORK_LIMIT]] = (1, 10)
    return state, np.zeros((ORDERS, 1), np.int64), 1, GROWTH


class FeasibilitySearch:
    """Questions about one set of buffers; what a question teaches helps the next.

    Memory: for each of two seeds 6 MiB and about 4 kB a buffer.
    """

    def __init__(self, instance: Instance, options: SolveOptions) -> None:
        race = compiled_search()
        if race is None:
            raise RuntimeError("there is no compiled search")
        self._order = np.argsort(instance.start, kind="stable")
        self._race, self._instance, self._options = race, instance.subset(self._order), options
        self._unit = instance.unit
        self._load = int(instance.load().max(initial=0)) // self._unit
        self._signals = np.zeros(3, dtype=np.int64)
        shared = kinds(instance) if options.rules.symmetry else np.arange(len(instance))
        self._shared = shared
        ranks = priorities(instance, shared)[:, self._order]
        # Rows that lie in one piece: as the kernel is compiled, for this layout of memory alone.
        self._ranks = np.ascontiguousarray(np.concatenate((ranks, ranks[:1])))
        self._states: list[SearchState | None] = [None] * SEEDS
        self._residue = -1
        self._runs: dict[tuple[int, int], int] = {}

    def decide(self, capacity: int, work: int, watch: Watch, guide: Integers | None = None) -> Decision:
        """At most `work` by each seed. NO only after a search has been exhausted.

        `guide`: offsets (bytes) of a layout that is too high; half of the runs try first the buffers that
        lie low in it.
        """
        limit = (capacity + self._instance.size - self._instance.exact) // self._unit
        overfull = self._load > int(limit.max(initial=0))
        lowest = np.maximum(self._instance.offset, 0) // self._unit
        if overfull or (lowest + self._instance.size // self._unit > limit).any():
            return Decision(Answer.NO, None, 0)
        self._signals[:] = (0, _NEVER, _NEVER)
        self._forget(capacity if self._instance.pinned else capacity % self._unit)
        states = [self._state(k, capacity, limit, work) for k in range(SEEDS)]
        if guide is not None:
            self._ranks[ORDERS] = _upwards(guide, self._instance.size, self._shared)[self._order]
            for state in states:
                state.counters[GUIDED] = 1
        answers = [UNKNOWN] * SEEDS
        if self._options.threads > 1:
            self._together(states, answers, watch)
        else:
            self._in_turn(states, answers, watch)
        # What short runs could find has been looked for: asked again, go on with the longer ones.
        self._runs.update({(capacity, k): int(state.counters[RUNS]) for k, state in enumerate(states)})
        return self._verdict(states, answers)

    def _forget(self, residue: int) -> None:
        """Where the remainder by the unit changes, buffers end at other heights: nothing learnt holds.

        Nor where pins come to lie further from, or nearer to, the capacity.
        """
        if residue != self._residue:
            self._residue = residue
            self._states = [None] * SEEDS

    def _state(self, k: int, capacity: int, limit: Integers, work: int) -> SearchState:
        state, bits = self._states[k], TABLE_BITS if work > SHORT else SHORT_TABLE_BITS
        if state is not None and len(state.table) < 1 << bits:
            state = self._states[k] = state._replace(table=np.zeros((1 << bits, TABLE_FIELDS), np.int64))
        if state is None:
            depth = DEPTH_PER_BUFFER * len(self._instance) + 1000
            seed = self._options.seed + k
            state = allocate(self._instance, self._unit, limit, bits, depth, self._signals, seed)
            self._states[k] = state
        counters = state.counters
        state.limit[:] = limit
        counters[:] = 0
        counters[RUNS] = self._runs.get((capacity, k), 0)
        counters[CAPACITY], counters[WORK_LIMIT], counters[SEED] = int(limit.max()), work, k
        counters[RULES] = _bits(
            self._options.rules,
            uniform=bool((limit == limit[0]).all())
            and not (self._instance.misaligning or self._instance.pinned),
            hashable=int(limit.max()) < PRIME,
        )
        return state

    def _step(self, state: SearchState, k: int, answers: list[int]) -> int:
        growth = GROWTH if self._options.rules.restarts else 0.0
        first = max(FIRST_RUN, FIRST_RUN_PER_BUFFER * len(self._instance))
        answers[k] = self._race(state, self._ranks, first, growth)
        mine = (int(state.counters[WORK]), k)
        if answers[k] in (YES, NO):
            if self._options.race:
                self._signals[STOP] = 1
            if mine < (int(self._signals[BEST_WORK]), int(self._signals[BEST_SEED])):
                self._signals[BEST_WORK], self._signals[BEST_SEED] = mine
        return answers[k]

    def _together(self, states: list[SearchState], answers: list[int], watch: Watch) -> None:
        """Each seed on a thread of its own; this one looks at the clock."""
        threads = [
            threading.Thread(target=self._step, args=(state, k, answers), daemon=True)
            for k, state in enumerate(states)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(TICK)
                if watch():
                    self._signals[STOP] = 1

    def _in_turn(self, states: list[SearchState], answers: list[int], watch: Watch) -> None:
        """The same on one thread: a round of runs each, until none goes on."""
        active = list(range(SEEDS))
        while active:
            for k in list(active):
                states[k].counters[PAUSE] = 1
                runs = int(states[k].counters[RUNS])
                self._together_one(states[k], k, answers, watch)
                if answers[k] != UNKNOWN or states[k].counters[RUNS] == runs or self._out(states[k]):
                    active.remove(k)

    def _together_one(self, state: SearchState, k: int, answers: list[int], watch: Watch) -> None:
        thread = threading.Thread(target=self._step, args=(state, k, answers), daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(TICK)
            if watch():
                self._signals[STOP] = 1

    def _out(self, state: SearchState) -> bool:
        counters = state.counters
        mine = (int(counters[WORK]), int(counters[SEED]))
        best = (int(self._signals[BEST_WORK]), int(self._signals[BEST_SEED]))
        return bool(self._signals[STOP]) or int(counters[WORK]) >= int(counters[WORK_LIMIT]) or mine > best

    def _verdict(self, states: list[SearchState], answers: list[int]) -> Decision:
        decided = [k for k in range(SEEDS) if answers[k] in (YES, NO)]
        if not decided:
            return Decision(Answer.UNKNOWN, None, max(int(b.counters[WORK]) for b in states))
        winner = min(decided, key=lambda k: (int(states[k].counters[WORK]), k))
        state = states[winner]
        for k in range(SEEDS):
            if k != winner:
                self._states[k] = None
        offsets = np.empty_like(state.offset)
        offsets[self._order] = state.offset * self._unit
        found = offsets if answers[winner] == YES else None
        return Decision(_ANSWERS[answers[winner]], found, int(state.counters[WORK]))


def _upwards(offsets: Integers, size: Integers, kind: Integers) -> Integers:
    """Ranks from the bottom to the top of a layout."""
    return ranked(offsets, -size, kind)


def _bits(rules: Rules, *, uniform: bool, hashable: bool) -> int:
    """Rules as the kernel takes them. Span exchanges buffers, so all must fit everywhere.

    Heights from the prime of the hashes on would not be told apart, so nothing is remembered then.
    """
    chosen = {
        ANY_PLATEAU: rules.plateaus,
        FORCED_WASTE: rules.gaps,
        TABLE: rules.transposition and hashable,
        DECOMPOSE: rules.decomposition,
        WEIGHTS: rules.weights,
        FILL: rules.fill,
        SPAN: rules.span and uniform,
        WALLS: rules.walls,
        JUMPS: rules.jumps,
        PROMOTION: rules.promotion,
    }
    return sum(bit for bit, on in chosen.items() if on)
