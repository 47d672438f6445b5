"""The search for steps to run again, so that a sequence keeps a budget of bytes at the least cost.

    fits as it is? ──► moments ──► ... with the moments that exceed the budget ──► repair ──► segments, walks
                          │
      a solution is a schedule of known cost: stop at the first one that fits and costs what the bound says

Each answer is simulated exactly; no estimate of saved bytes is ever trusted. Budgets are counted in work, so
that the same problem has the same answer everywhere; a deadline ends the search with the best so far.

Plans in segments are starting points near the floor of bytes: only the boundaries of segments are held.

    forward    a  b  c | d  e  f | g  h  i      values that cross a bar are held until the backward pass,
               ......... ......... .........    the other values of a segment are made again for it

Chen et al., *Training deep nets with sublinear memory cost*, 2016, with boundaries by bytes. On its own such
a plan is far from the least cost; repaired, and walked from, it reaches budgets that a descent from the given
order does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.layout.model.instance import Integers
from solver.schedules.recompute.moments import Moments, Relaxed, tightest
from solver.schedules.recompute.sequences import Sequences
from solver.schedules.recompute.simulate import Simulator
from solver.schedules.schedule import Schedule, ScheduleProof, SearchProgress, Teller
from solver.schedules.tables import AGAIN

__all__ = ["cheapest", "in_segments", "repaired"]


def in_segments(problem: ScheduleProblem, start: Integers, counts: Iterable[int]) -> Iterator[Integers]:
    """For each count of segments, each with about an equal part of all bytes that can be made again,
    the numbers of gaps. Linear in the touches once, and in the steps for each.
    """
    again = [v for v, maker in enumerate(problem.maker) if maker >= 0]
    turn = max((problem.maker[v] for v in again), default=-1) + 1  # the first step behind all that may repeat
    size = sum(problem.size[v] for v in again)
    repeatable_bytes = [
        sum(problem.size[v] for v in problem.writes[t] if problem.maker[v] >= 0) for t in range(turn)
    ]
    # Values that wait for the turn: the gap, the step that makes them, the last one before the turn to read.
    waiting: list[tuple[int, int, int]] = []
    at = 0
    for v, row in enumerate(problem.touches):
        if problem.maker[v] >= 0:
            waiting += [
                (at + k, row[0], row[k])
                for k in range(len(row) - 1)
                if row[k] < turn <= row[k + 1] and row[k + 1] > row[k] + 1
            ]
        at += len(row)
    gaps, first, last = np.array(waiting, np.int64).reshape(-1, 3).T
    for parts in counts:
        boundaries, bytes_ = [], 0
        for t in range(turn):
            bytes_ += repeatable_bytes[t]
            if bytes_ > size / max(parts, 1):
                boundaries.append(t)
                bytes_ = 0
        bars: Integers = np.array(boundaries, np.int64)
        crosses = np.searchsorted(bars, first) < np.searchsorted(bars, last)
        numbers = start.copy()
        numbers[gaps[~crosses]] = AGAIN
        yield numbers


#: Steps simulated by greedy repair: from the given order (seconds), and from a solution (tenths of a second).
_REPAIR_STEPS, _REPAIR_AGAIN_STEPS = 300_000_000, 10_000_000

#: Turns of each walk: for each step of the program, at most, and at least to be worth it; and the steps that
#: one walk may measure, about a second.
_TURNS_PER_STEP, _MAX_TURNS, _MIN_TURNS, _WALK_STEPS = 500, 100_000, 500, 30_000_000

#: Rounds of the relaxation; and of programs so large that a model has few moments, for each takes seconds.
_MAX_ROUNDS, _MAX_ROUNDS_LARGE = 32, 5

#: CP-SAT's deterministic seconds: for all rounds, for one round, for all rounds for each step of a small
#: problem, and for each step and value at each moment, which stands for writing the model.
_ROUNDS_SECONDS, _ROUND_SECONDS, _SECONDS_PER_STEP, _MODEL_SECONDS = 12.0, 4.0, 0.01, 4e-6

#: Steps and values, times moments, of the largest model: writing one of 100,000 takes seconds.
_MAX_PAIRS = 200_000

#: Deterministic seconds of a first solve: it mostly ends near the optimum, and seconds from the proof.
_FIRST_SECONDS = 1.0

#: Moments at which least can be held, which are solved together at last, and the deterministic seconds.
_TIGHTEST_MOMENTS, _TIGHTEST_SECONDS = 6, 1.0


class _Walk(NamedTuple):
    """A walk, by divisors of the cost of a step: of its first temperature, and of the cost of excess bytes,
    as many as the budget. Cheap excess bytes lead through sequences that do not fit; dear ones avoid them.
    """

    temperature: int
    excess: int


#: Walks from each solution of the relaxation, and the steps that each of them measures.
_NEAR, _NEAR_STEPS = _Walk(300, 5), 1_000_000

#: Walks at a high temperature from the best plan, before and after those from plans in segments.
_HOT, _HOT_AGAIN = (_Walk(30, 1), _Walk(60, 20)), (_Walk(300, 1), _Walk(60, 20))

#: Walks at a low temperature: how many follow each other, each from the best so far, and their part of turns.
_COLD, _COLD_WALKS, _COLD_DIVISOR = _Walk(2000, 20), 5, 2

#: The last walks restart from the first plan at a high temperature, to leave local minima; each is followed
#: by walks at a low one.
_RESTARTS, _RESTART_COLD_WALKS = (_Walk(250, 50), _Walk(250, 50), _Walk(250, 50), _Walk(20, 5)), 2

#: Walks while nothing fits: the excess of the best plan costs as much as the whole step, however small it is.
#: Divisors of the first temperature.
_INTO_BUDGET = (30, 300)

#: Programs with this number of steps get a share of all budgets, and one hot walk with a share of its turns,
#: followed by cold walks: mostly an answer within a second. If nothing fits then, or the gap to the bound is
#: more than 1/30 of the step's cost, the search runs again with full budgets.
_SMALL_STEPS, _SMALL_SHARE = range(60, 129), 0.12
_SMALL_HOT, _SMALL_TURNS, _SMALL_COLD_WALKS, _SMALL_GAP_DIVISOR = _Walk(60, 20), 0.6, 3, 30

#: A gap to the bound of at most this part of the step's cost, 1/10,000, is not worth a search.
_CLOSE_DIVISOR = 10_000

#: Numbers of segments that are tried; how many of these plans are repaired, and how many are walked from.
_MAX_SEGMENTS, _SEGMENTS_REPAIRED, _SEGMENTS_WALKED = 30, 8, 2


def cheapest(
    problem: ScheduleProblem,
    budget: int,
    deadline: Deadline | None = None,
    *,
    before: Schedule | None = None,
    share: float = 1.0,
    tell: Teller | None = None,
) -> Schedule:
    """The cheapest schedule found that keeps `budget` bytes, with a bound; else that of the least peak.

    `before` is a schedule of the same problem to start from, `share` the part of the usual budgets of work
    that this search may use; `tell` receives its progress. The bound holds for all schedules that keep the
    order of first runs. Where even the relaxation shows that none of them keeps the budget, `impossible` is
    set. Cost: some milliseconds for a program that fits, seconds for some hundred steps.
    """
    return _Search(problem, budget, deadline or Deadline(), before, share, tell).run()


def repaired(
    problem: ScheduleProblem, budget: int, before: Schedule, deadline: Deadline | None = None
) -> Schedule:
    """The schedule of the least peak that greedy repair of `before` comes by on its way to `budget` bytes.

    It is searched for even where no schedule keeps the budget. Cost: tenths of a second at most.
    """
    search = _Search(problem, budget, deadline or Deadline(), before)
    search.begin(before)
    return search.schedule(None)


class _Search:
    """One search; lives for one call of `cheapest`."""

    def __init__(
        self,
        problem: ScheduleProblem,
        budget: int,
        deadline: Deadline,
        before: Schedule | None = None,
        share: float = 1.0,
        tell: Teller | None = None,
    ) -> None:
        self.tell = tell
        self.problem, self.budget, self.deadline = problem, budget, deadline
        self.before = before
        self.small = len(problem.steps) in _SMALL_STEPS
        #: The part of the usual budgets that walks may use, and all others.
        self.walks, self.share = share, share * _SMALL_SHARE if self.small else share
        self.simulator, self.sequences = Simulator(problem), Sequences(problem)
        self.start = self.simulator.start()
        self.total = sum(problem.cost)
        #: The most moments that a model may have.
        self.most_moments = max(1, _MAX_PAIRS // (len(problem.steps) + len(problem.values) + 1))
        self.few = self.most_moments < _TIGHTEST_MOMENTS
        #: The best so far: the cheapest that fits, else the least peak. `best` has its numbers of
        #: gaps, unless it is a `sequence` that no numbers give.
        self.best, self.peak, self.extra = self.start, self.simulator.run(self.start).peak, 0
        self.sequence: tuple[int, ...] | None = None
        self.given_peak = self.peak
        self.bound = 0
        self.impossible = self.cut = False
        #: The steps of the relaxation so far, and plans in segments once they have been computed.
        self.moments: set[int] = set()
        self.segments: list[Integers] | None = None
        self.report()

    def report(self) -> None:
        """Report the best schedule and the bound to `tell`."""
        if self.tell is not None:
            bound = min(self.bound, self.extra) if self.peak <= self.budget else self.bound
            self.tell(SearchProgress(self.peak, None, self.extra, bound, self.total))

    def done(self) -> bool:
        """Whether nothing cheaper can be found."""
        return self.impossible or (self.peak <= self.budget and self.extra <= self.bound)

    def close(self) -> bool:
        """Whether the remaining gap to the bound is not worth a search."""
        near = self.extra - self.bound <= self.total // _CLOSE_DIVISOR
        return self.impossible or (self.peak <= self.budget and near)

    def run(self) -> Schedule:
        if self.peak <= self.budget:
            return self.schedule(ScheduleProof.ORDER)
        if self.before is not None:
            self.begin(self.before)
        self._look()
        far = self.peak > self.budget or self.extra - self.bound > self.total // _SMALL_GAP_DIVISOR
        if self.small and far and not self.impossible:
            self.small, self.share = False, self.walks
            self._look()
        return self.schedule(ScheduleProof.RELAXATION if self.bound else None)

    def begin(self, before: Schedule) -> None:
        """Offer a schedule, and what greedy repair makes of it."""
        self._offer_sequence(before.sequence)
        numbers = np.array(before.numbers, np.int64)
        self._offer(numbers)
        self._offer(self._repair(numbers, _REPAIR_AGAIN_STEPS))

    def _look(self) -> None:
        """Moments, then repair if nothing fits, then walks if a gap to the bound remains."""
        self._moments()
        if self.peak > self.budget and not self.impossible and self.few:
            # For very large programs few moments prove little, and greedy repair fails.
            self._segments()
        if self.peak > self.budget and not self.impossible:
            self._offer(self._repair(self.start, _REPAIR_STEPS))
        # For very large programs such a model takes CP-SAT as long as all walks.
        needed = not self.few or not self.bound or self.peak > self.budget
        if needed and not self.close():
            # Near the floor, moments at which little else can be held prove the highest bounds.
            moments = tightest(self.problem, self.budget, min(_TIGHTEST_MOMENTS, self.most_moments))
            relaxed = Moments(self.problem, self.budget, moments).solve(
                self.share * _TIGHTEST_SECONDS, self.deadline
            )
            self.bound = max(self.bound, relaxed.bound)
            self.impossible |= relaxed.infeasible
            self.cut |= relaxed.cut
            self.report()
        if not self.close():
            self._walk()

    def schedule(self, proof: ScheduleProof | None) -> Schedule:
        """The best so far, and what is proved of it."""
        sequence = self._sequence()
        late = self.deadline.late and not self.done()
        cut = self.cut or late
        figures = (self.budget, self.peak, self.given_peak, self.extra, min(self.bound, self.extra), proof)
        numbers = tuple(self.best.tolist())
        moments = tuple(sorted(self.moments))
        return Schedule(
            sequence,
            *figures,
            impossible=self.impossible,
            complete=not cut,
            numbers=numbers,
            moments=moments,
        )

    def _sequence(self) -> tuple[int, ...]:
        return self.simulator.sequence(self.best) if self.sequence is None else self.sequence

    def _better(self, peak: int, extra: int) -> bool:
        if peak < 0:
            return False
        if self.peak <= self.budget:
            return peak <= self.budget and extra < self.extra
        return peak <= self.budget or (peak, extra) < (self.peak, self.extra)

    def _offer(self, numbers: Integers) -> None:
        run = self.simulator.run(numbers)
        if self._better(run.peak, run.extra):
            self.best, self.sequence = numbers.copy(), None
            self.peak, self.extra = run.peak, run.extra
            self.report()

    def _offer_sequence(self, sequence: tuple[int, ...]) -> None:
        peak, extra = self.sequences.measure(sequence)
        if self._better(peak, extra):
            self.sequence, self.peak, self.extra = sequence, peak, extra
            self.report()

    def _repair(self, numbers: Integers, work: int) -> Integers:
        most = max(1, int(self.share * work) // max(1, len(self.problem.steps)))
        return self.simulator.repair(numbers, self.budget, most, self.deadline)

    def _moments(self) -> None:
        """Solve for the fullest moment; then again with the moments at which the plan exceeds the budget.

        One moment more in each round: with few moments CP-SAT needs milliseconds, with a dozen alike seconds.
        """
        load = self.simulator.loads(self.start)
        moments = self.moments = {max(range(len(load)), key=load.__getitem__)}
        less: dict[int, int] = {}
        solved = set[int]()
        left = self.share * min(_ROUNDS_SECONDS, _SECONDS_PER_STEP * len(self.problem.steps))
        written = _MODEL_SECONDS * (len(self.problem.steps) + len(self.problem.values))
        for number in range(_MAX_ROUNDS_LARGE if self.few else _MAX_ROUNDS):
            if self.deadline.expired:
                return
            # A bound with some moments holds with more of them, and with less room, too.
            model = Moments(self.problem, self.budget, moments, less)
            left -= written * len(moments)
            relaxed = self._relaxed(model, max(0.1, min(left, _ROUND_SECONDS)))
            left -= relaxed.work
            self.cut |= relaxed.cut
            if not less:
                self.impossible = relaxed.infeasible
                self.bound = max(self.bound, relaxed.bound)
                self.report()
            if relaxed.dropped is None:
                if self.few and solved:
                    self.moments = solved  # CP-SAT did not solve these, so a proof at them would fail
                return
            solved = set(moments)
            # The solution costs no more than the bound: it is the answer, if it keeps the budget throughout.
            sequence = model.sequence(relaxed)
            self._offer_sequence(sequence)
            missed = self.sequences.overloads(sequence, self.budget)
            if missed and not self.few:
                self._walk_from(sequence, self._turns(_NEAR_STEPS), number, _NEAR)
            if not self.done():
                numbers = model.numbers(relaxed, self.start)
                self._offer(numbers)
                self._offer(self._repair(numbers, _REPAIR_AGAIN_STEPS))
            if self.done() or left <= 0 or len(moments) == self.most_moments:
                return
            new = [t for t in missed if t not in moments]
            # Next to a moment mostly repetitions exceed the budget, about which another moment says little.
            apart = [t for t in new if t - 1 not in moments]
            t = max(apart or new or missed, key=lambda t: (missed[t], -t), default=-1)
            if new:
                moments.add(t)
                less.clear()
            elif missed:
                less[t] = less.get(t, 0) + missed[t]
            else:
                return

    def _relaxed(self, model: Moments, work: float) -> Relaxed:
        """Solve a model briefly first, and in full only if that answer is not near its bound.

        The second solve begins anew. For a very large model the first would end before the linear relaxation
        is solved, with nothing.
        """
        if self.few:
            return model.solve(work, self.deadline)
        first = model.solve(min(work, _FIRST_SECONDS), self.deadline)
        cost = None if first.dropped is None else sum(self.problem.cost[p] for p, _ in first.repeated)
        near = cost is not None and cost - first.bound <= self.total // _CLOSE_DIVISOR
        if near or first.infeasible or work <= _FIRST_SECONDS or self.deadline.expired:
            return first
        second = model.solve(work - first.work, self.deadline)
        answer = first if second.dropped is None and not second.infeasible else second
        both = max(first.bound, second.bound), first.work + second.work
        return replace(answer, bound=both[0], work=both[1], cut=second.cut)

    def _segments(self) -> list[Integers]:
        """The most promising plans in segments, repaired: those that fit first, then by cost."""
        if self.segments is not None:
            return self.segments
        plans = []
        for parts, numbers in enumerate(in_segments(self.problem, self.start, range(2, _MAX_SEGMENTS)), 2):
            run = self.simulator.run(numbers)
            if run.peak >= 0:
                plans.append((max(run.peak - self.budget, 0), run.extra, parts, numbers))
        plans.sort(key=lambda each: each[:3])
        repaired = []
        for _, _, parts, numbers in plans[:_SEGMENTS_REPAIRED]:
            better = self._repair(numbers, _REPAIR_AGAIN_STEPS)
            self._offer(better)
            run = self.simulator.run(better)
            repaired.append((run.peak > self.budget, run.extra, parts, better))
            if self.deadline.expired:
                break
        repaired.sort(key=lambda each: each[:3])
        self.segments = [numbers for *_, numbers in repaired]
        return self.segments

    def _walk(self) -> None:
        """Hot walks from the best plan and from segments; cold walks from the first plan and from the best
        plan so far; at last restarts from the first plan.
        """
        most = self._turns(_WALK_STEPS)
        if most < _MIN_TURNS:
            return
        first = self._sequence()
        if self.small:
            most = int(_SMALL_TURNS * most)
            self._walk_from(first, most, 1, _SMALL_HOT)
            self._cool_both(first, most // _COLD_DIVISOR, _SMALL_COLD_WALKS)
            return
        segments = [self.simulator.sequence(numbers) for numbers in self._segments()[:_SEGMENTS_WALKED]]
        turns: list[tuple[tuple[int, ...] | None, _Walk]] = [(None, walk) for walk in _HOT]
        turns += [(start, _HOT[0]) for start in segments]
        turns += [(None, walk) for walk in _HOT_AGAIN]
        for seed, (start, walk) in enumerate(turns):
            self._walk_from(start or self._sequence(), most, seed, walk)
        part = most // _COLD_DIVISOR
        self._cool_both(first, part, _COLD_WALKS)
        for seed, walk in enumerate(_RESTARTS):
            plan = self._walk_from(first, part, seed, walk)
            if plan is not None:
                self._cool(plan, part, _RESTART_COLD_WALKS)
        for seed, divisor in enumerate(_INTO_BUDGET):
            if self.peak > self.budget:
                weight = min(self.total * self.budget // (self.peak - self.budget), 2**62)
                self._walk_at(self._sequence(), most, seed, self.total // divisor, weight)

    def _cool_both(self, first: tuple[int, ...], most: int, times: int) -> None:
        """Cold walks from the first plan, and then from the best plan if that is another one."""
        self._cool(first, most, times)
        if (best := self._sequence()) != first:
            self._cool(best, most, times)

    def _cool(self, best: tuple[int, ...], most: int, times: int) -> None:
        """Cold walks, each from the best plan of the walks before."""
        for seed in range(times):
            plan = self._walk_from(best, most, seed, _COLD)
            if plan is not None:
                best = min(best, plan, key=self._cost)

    def _turns(self, work: int) -> int:
        """The turns of a walk that measures about `work` steps."""
        steps = max(1, len(self.problem.steps))
        return int(self.walks * min(_MAX_TURNS, _TURNS_PER_STEP * steps, work // steps))

    def _cost(self, sequence: tuple[int, ...]) -> tuple[int, int]:
        """The bytes by which a sequence exceeds the budget, and the nanoseconds of its repetitions."""
        peak, extra = self.sequences.measure(sequence)
        return max(peak - self.budget, 0), extra

    def _walk_from(self, start: tuple[int, ...], most: int, seed: int, walk: _Walk) -> tuple[int, ...] | None:
        """Walk from a plan and offer the result; None if there is none, or little to gain."""
        temperature, excess = self.total // walk.temperature, self.total // walk.excess
        return self._walk_at(start, most, seed, temperature, excess)

    def _walk_at(
        self, start: tuple[int, ...], most: int, seed: int, hot: int, weight: int
    ) -> tuple[int, ...] | None:
        """As `_walk_from`, with the temperature and the cost of bytes in nanoseconds."""
        if self.close() or self.deadline.expired:
            return None
        sequence = self.sequences.walk(
            start, self.budget, most, seed=seed, hot=hot, weight=weight, deadline=self.deadline
        )
        if sequence is not None:
            self._offer_sequence(sequence)
        return sequence
