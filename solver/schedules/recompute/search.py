"""What to run again so that a sequence of steps keeps a budget of bytes at the least cost.

    fits as it is? ──► moments ──► ... with those that were missed ──► greedy repair ──► segments, walks
                          │
      a solution is a schedule of its own cost: stop as soon as one that costs what the bound says fits

Each answer is simulated exactly; no estimate of bytes saved is ever trusted. Budgets are counted in work, so
that the same problem has the same answer everywhere; a deadline cuts in with the best so far.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.layout.model.instance import Integers
from solver.schedules.recompute.moments import Moments, Relaxed, tightest
from solver.schedules.recompute.segments import in_segments
from solver.schedules.recompute.sequences import Sequences
from solver.schedules.recompute.simulate import Simulator
from solver.schedules.schedule import Schedule, ScheduleProof, SearchProgress, Teller

__all__ = ["cheapest"]

#: Steps simulated by greedy repair from the given order, and from each solution of the relaxation: some
#: seconds, and some tenths of one.
_REPAIR, _REPAIR_AGAIN = 300_000_000, 10_000_000

#: Turns of each walk for a step of the program, at most so many, and steps measured: about a second. Fewer
#: turns than the last lead nowhere.
_TURNS_A_STEP, _TURNS, _WALK_STEPS, _FEWEST_TURNS = 500, 100_000, 30_000_000, 500

#: Rounds of the relaxation, and the deterministic time that CP-SAT has for all of them and for one: seconds.
#: A small problem gets less, by its steps. Writing a model down takes some, too, for each step and value at
#: each moment. Programs so large that there are few moments get few rounds: each takes seconds.
_ROUNDS, _ROUNDS_FEW = 32, 5
_CP_SAT, _CP_SAT_ROUND, _CP_SAT_A_STEP, _CP_SAT_WRITTEN = 12.0, 4.0, 0.01, 4e-6

#: Steps and values, times moments, of the largest model: writing one of a hundred thousand takes seconds.
_PAIRS = 200_000

#: What CP-SAT has for a model first: mostly it is near the optimum by then, and seconds from the proof.
_CP_SAT_FIRST = 1.0

#: Moments at which least can be held, tried together at last, and CP-SAT's deterministic time for them.
_TIGHTEST, _CP_SAT_TIGHTEST = 6, 1.0

#: Walks: the share of the step's cost at which one begins, and the share of it that a budget's worth of bytes
#: too many costs. Cheap bytes lead through what does not fit, dear ones stay near. From a solution of the
#: relaxation, with so many steps measured; hot ones, that leave the plan that they begin with; and cold
#: ones, so many in a chain and of such a part of the turns, each from the best of those before. The last
#: ones lead out of hollows in which all others end: cheap bytes, a very hot one; each with cold ones behind.
_NEAR, _NEAR_STEPS = (300, 5), 1_000_000
_HOT, _HOT_AGAIN = ((30, 1), (60, 20)), ((300, 1), (60, 20))
_COLD, _COLD_TIMES, _COLD_PART = (2000, 20), 5, 2
_LAST, _LAST_COLD = ((250, 50), (250, 50), (250, 50), (20, 5)), 2

#: Where nothing fits after these: walks in which the bytes that are left over the budget cost as much as the
#: whole step, however few they are, and the part of its cost at which one begins. In the others few bytes
#: cost little, and what takes off the last ones may be dear.
_INTO = (30, 300)

#: Programs of so many steps are mostly answered within about a second. Smaller ones need less than that for
#: all budgets; what larger ones find last, near their floors, takes budgets in full. CP-SAT and repair get a
#: part of theirs, and there is one hot walk of a part of its turns, with so many cold ones behind. Where
#: nothing fits then, or more than a 30th of the step's cost is left to find, budgets in full follow.
_SMALL, _SMALL_SHARE = range(60, 129), 0.12
_SMALL_HOT, _SMALL_TURNS, _SMALL_COLD_TIMES, _SMALL_FAR = (60, 20), 0.6, 3, 30

#: The part of the step's cost that is too little to look for.
_CLOSE = 10_000

#: Numbers of segments that are tried, how many of these plans are repaired, and how many are walked from.
_MOST_SEGMENTS, _SEGMENTS_REPAIRED, _SEGMENTS_WALKED = 30, 8, 2


def cheapest(
    problem: ScheduleProblem,
    budget: int,
    deadline: Deadline | None = None,
    *,
    before: Schedule | None = None,
    share: float = 1.0,
    tell: Teller | None = None,
) -> Schedule:
    """The cheapest schedule that was found to keep `budget` bytes, with a bound; else that of the least peak.

    `before` is a schedule of the same problem to start from, `share` the part of the usual budgets of work
    that this search may use; `tell` hears how far it is. The bound holds for all schedules that keep the
    order of first runs. Where even the relaxation shows that none of them keeps the budget, `impossible` is
    set. Cost: some milliseconds for a program that fits, seconds for some hundred steps.
    """
    return _Search(problem, budget, deadline or Deadline(), before, share, tell).run()


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
        self.small = len(problem.steps) in _SMALL
        #: The part of the usual budgets that walks may use, and all others.
        self.walks, self.share = share, share * _SMALL_SHARE if self.small else share
        self.simulator, self.sequences = Simulator(problem), Sequences(problem)
        self.start = self.simulator.start()
        self.total = sum(problem.cost)
        #: How many moments a model may have.
        self.most_moments = max(1, _PAIRS // (len(problem.steps) + len(problem.values) + 1))
        self.few = self.most_moments < _TIGHTEST
        #: The best so far: the cheapest that fits, else the one with the least peak. It is what the numbers
        #: say, unless there is a better sequence that none say.
        self.best, self.peak, self.extra = self.start, self.simulator.run(self.start).peak, 0
        self.sequence: tuple[int, ...] | None = None
        self.given_peak = self.peak
        self.bound = 0
        self.impossible = self.cut = False
        #: The steps of the relaxation so far, and plans in segments once they have been looked for.
        self.moments: set[int] = set()
        self.segments: list[Integers] | None = None
        self.told()

    def told(self) -> None:
        """The best and the bound as they are now."""
        if self.tell is not None:
            bound = min(self.bound, self.extra) if self.peak <= self.budget else self.bound
            self.tell(SearchProgress(self.peak, None, self.extra, bound, self.total))

    def done(self) -> bool:
        """Whether nothing cheaper can be found."""
        return self.impossible or (self.peak <= self.budget and self.extra <= self.bound)

    def close(self) -> bool:
        """Whether what may be left to find is not worth a search."""
        near = self.extra - self.bound <= self.total // _CLOSE
        return self.impossible or (self.peak <= self.budget and near)

    def run(self) -> Schedule:
        if self.peak <= self.budget:
            return self._schedule(ScheduleProof.ORDER)
        if self.before is not None:
            self._offer_sequence(self.before.sequence)
            numbers = np.array(self.before.numbers, np.int64)
            self._offer(numbers)
            self._offer(self._repair(numbers, _REPAIR_AGAIN))
        self._look()
        far = self.peak > self.budget or self.extra - self.bound > self.total // _SMALL_FAR
        if self.small and far and not self.impossible:
            self.small, self.share = False, self.walks
            self._look()
        return self._schedule(ScheduleProof.RELAXATION if self.bound else None)

    def _look(self) -> None:
        """Moments, then repair where nothing fits, then walks where something is left to find."""
        self._moments()
        if self.peak > self.budget and not self.impossible and self.few:
            # Of very large programs few moments say little, and greedy repair gets nowhere.
            self._segments()
        if self.peak > self.budget and not self.impossible:
            self._offer(self._repair(self.start, _REPAIR))
        # Of very large programs such a model takes CP-SAT as long as all walks.
        needed = not self.few or not self.bound or self.peak > self.budget
        if needed and not self.close():
            # Near floors those moments prove most at which little else can be held.
            moments = tightest(self.problem, self.budget, min(_TIGHTEST, self.most_moments))
            relaxed = Moments(self.problem, self.budget, moments).solve(
                self.share * _CP_SAT_TIGHTEST, self.deadline
            )
            self.bound = max(self.bound, relaxed.bound)
            self.impossible |= relaxed.infeasible
            self.cut |= relaxed.cut
            self.told()
        if not self.close():
            self._walk()

    def _schedule(self, proof: ScheduleProof | None) -> Schedule:
        sequence = self._sequence()
        late = self.deadline.expired and not self.done()
        cut = self.cut or late
        found = (self.budget, self.peak, self.given_peak, self.extra, min(self.bound, self.extra), proof)
        numbers = tuple(self.best.tolist())
        moments = tuple(sorted(self.moments))
        return Schedule(
            sequence,
            *found,
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
        found = self.simulator.run(numbers)
        if self._better(found.peak, found.extra):
            self.best, self.sequence = numbers.copy(), None
            self.peak, self.extra = found.peak, found.extra
            self.told()

    def _offer_sequence(self, sequence: tuple[int, ...]) -> None:
        peak, extra = self.sequences.measure(sequence)
        if self._better(peak, extra):
            self.sequence, self.peak, self.extra = sequence, peak, extra
            self.told()

    def _repair(self, numbers: Integers, work: int) -> Integers:
        most = max(1, int(self.share * work) // max(1, len(self.problem.steps)))
        return self.simulator.repair(numbers, self.budget, most, self.deadline)

    def _moments(self) -> None:
        """Solve for the fullest moment; then again with those at which the plan goes over the budget.

        One more in each round: with few moments CP-SAT needs milliseconds, with a dozen equal ones seconds.
        """
        load = self.simulator.loads(self.start)
        moments = self.moments = {max(range(len(load)), key=load.__getitem__)}
        less: dict[int, int] = {}
        solved = set[int]()
        left = self.share * min(_CP_SAT, _CP_SAT_A_STEP * len(self.problem.steps))
        written = _CP_SAT_WRITTEN * (len(self.problem.steps) + len(self.problem.values))
        for number in range(_ROUNDS_FEW if self.few else _ROUNDS):
            if self.deadline.expired:
                return
            # Whatever bounds the cost with some moments does so with more of them, and with less room.
            model = Moments(self.problem, self.budget, moments, less)
            left -= written * len(moments)
            relaxed = self._relaxed(model, max(0.1, min(left, _CP_SAT_ROUND)))
            left -= relaxed.work
            self.cut |= relaxed.cut
            if not less:
                self.impossible = relaxed.infeasible
                self.bound = max(self.bound, relaxed.bound)
                self.told()
            if relaxed.dropped is None:
                if self.few and solved:
                    self.moments = solved  # a proof at those that CP-SAT did not master would fail as well
                return
            solved = set(moments)
            # What the solution itself says costs no more than the bound, so either it is the answer, or it is
            # over the budget somewhere.
            sequence = model.sequence(relaxed)
            self._offer_sequence(sequence)
            missed = self.sequences.overloads(sequence, self.budget)
            if missed and not self.few:
                self._walk_from(sequence, self._turns(_NEAR_STEPS), number, _NEAR)
            if not self.done():
                numbers = model.numbers(relaxed, self.start)
                self._offer(numbers)
                self._offer(self._repair(numbers, _REPAIR_AGAIN))
            if self.done() or left <= 0 or len(moments) == self.most_moments:
                return
            new = [t for t in missed if t not in moments]
            # Next to a moment mostly repetitions in front of a step are over, of which another says little.
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
        """Solve a model: in full only where what is found soon is not near its bound.

        The second time begins anew. Of a very large model the first would end before the linear relaxation is
        solved, and so with nothing.
        """
        if self.few:
            return model.solve(work, self.deadline)
        first = model.solve(min(work, _CP_SAT_FIRST), self.deadline)
        found = None if first.dropped is None else sum(self.problem.cost[p] for p, _ in first.repeated)
        near = found is not None and found - first.bound <= self.total // _CLOSE
        if near or first.infeasible or work <= _CP_SAT_FIRST or self.deadline.expired:
            return first
        second = model.solve(work - first.work, self.deadline)
        answer = first if second.dropped is None and not second.infeasible else second
        both = max(first.bound, second.bound), first.work + second.work
        return replace(answer, bound=both[0], work=both[1], cut=second.cut)

    def _segments(self) -> list[Integers]:
        """The most promising plans in segments, repaired: those that fit first, then by cost."""
        if self.segments is not None:
            return self.segments
        found = []
        for parts, numbers in enumerate(in_segments(self.problem, self.start, range(2, _MOST_SEGMENTS)), 2):
            run = self.simulator.run(numbers)
            if run.peak >= 0:
                found.append((max(run.peak - self.budget, 0), run.extra, parts, numbers))
        found.sort(key=lambda each: each[:3])
        repaired = []
        for _, _, parts, numbers in found[:_SEGMENTS_REPAIRED]:
            better = self._repair(numbers, _REPAIR_AGAIN)
            self._offer(better)
            run = self.simulator.run(better)
            repaired.append((run.peak > self.budget, run.extra, parts, better))
            if self.deadline.expired:
                break
        repaired.sort(key=lambda each: each[:3])
        self.segments = [numbers for *_, numbers in repaired]
        return self.segments

    def _walk(self) -> None:
        """Hot ones from the best plan and from segments; cold ones from the first plan, and from the best one
        then; at last some more from the first plan.
        """
        most = self._turns(_WALK_STEPS)
        if most < _FEWEST_TURNS:
            return
        first = self._sequence()
        if self.small:
            most = int(_SMALL_TURNS * most)
            self._walk_from(first, most, 1, _SMALL_HOT)
            self._cool_both(first, most // _COLD_PART, _SMALL_COLD_TIMES)
            return
        segments = [self.simulator.sequence(numbers) for numbers in self._segments()[:_SEGMENTS_WALKED]]
        turns: list[tuple[tuple[int, ...] | None, tuple[int, int]]] = [(None, walk) for walk in _HOT]
        turns += [(start, _HOT[0]) for start in segments]
        turns += [(None, walk) for walk in _HOT_AGAIN]
        for seed, (start, walk) in enumerate(turns):
            self._walk_from(start or self._sequence(), most, seed, walk)
        part = most // _COLD_PART
        self._cool_both(first, part, _COLD_TIMES)
        for seed, walk in enumerate(_LAST):
            found = self._walk_from(first, part, seed, walk)
            if found is not None:
                self._cool(found, part, _LAST_COLD)
        for seed, hot in enumerate(_INTO):
            if self.peak > self.budget:
                weight = min(self.total * self.budget // (self.peak - self.budget), 2**62)
                self._walk_at(self._sequence(), most, seed, self.total // hot, weight)

    def _cool_both(self, first: tuple[int, ...], most: int, times: int) -> None:
        """Cold walks from the first plan, and from the best one then, where that is another one."""
        self._cool(first, most, times)
        if (best := self._sequence()) != first:
            self._cool(best, most, times)

    def _cool(self, best: tuple[int, ...], most: int, times: int) -> None:
        """Cold walks, each from the best of those before."""
        for seed in range(times):
            found = self._walk_from(best, most, seed, _COLD)
            if found is not None:
                best = min(best, found, key=self._cost)

    def _turns(self, work: int) -> int:
        """The turns of a walk that measures about as many steps."""
        steps = max(1, len(self.problem.steps))
        return int(self.walks * min(_TURNS, _TURNS_A_STEP * steps, work // steps))

    def _cost(self, sequence: tuple[int, ...]) -> tuple[int, int]:
        """How many bytes a sequence is over the budget, and what its repetitions cost."""
        peak, extra = self.sequences.measure(sequence)
        return max(peak - self.budget, 0), extra

    def _walk_from(
        self, start: tuple[int, ...], most: int, seed: int, walk: tuple[int, int]
    ) -> tuple[int, ...] | None:
        """What a walk finds from there, which is offered; None as well where little cheaper can be found."""
        hot, weight = walk
        return self._walk_at(start, most, seed, self.total // hot, self.total // weight)

    def _walk_at(
        self, start: tuple[int, ...], most: int, seed: int, hot: int, weight: int
    ) -> tuple[int, ...] | None:
        """As `_walk_from`, with the temperature and the cost of bytes in nanoseconds."""
        if self.close() or self.deadline.expired:
            return None
        found = self.sequences.walk(
            start, self.budget, most, seed=seed, hot=hot, weight=weight, deadline=self.deadline
        )
        if found is not None:
            self._offer_sequence(found)
        return found
