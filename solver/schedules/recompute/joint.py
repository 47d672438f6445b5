"""An order of the steps together with the steps that will run again, where the order alone does not suffice.

    order with least over the budget ──► a sequence that keeps it, with repetitions ──┐
                                                                                      ▼
         ┌───► leave repetitions out ──► walk through orders ──► where over the budget, through sequences
         └────────────────────────────── taken where that costs no more ◄─────────────┘

The least cost for one order, proved, says nothing about others: steps move into the room that a repetition
makes, and then another one is not needed any more. In the walk through orders repetitions are steps like all
others. Every sequence is measured exactly; the first runs of the cheapest one are the order that is answered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.schedules.order.search import Ordered, Orders, best_order
from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.sequences import Sequences

__all__ = ["order_to_repeat"]

#: The most rounds, and the most steps in all of them, about ten seconds. After 40 rounds without a cheaper
#: sequence the search restarts from the first one.
_ROUNDS, _STEPS, _IDLE = 120, 40_000, 40

#: Turns of a round: of the walk through orders, for each step of the program and at most; of the walk through
#: sequences, at most; and the steps that this walk may measure.
_TURNS_A_STEP, _TURNS, _SEQUENCE_TURNS, _SEQUENCE_STEPS = 120, 30_000, 3_000, 2_000_000

#: By this part of the peak, 1/16 to 1/800, a round's walk through orders may be worse at first.
_HOT = (16, 200, 50, 800)

#: How many repetitions a round leaves out; 0 for all.
_LEAVE_OUT = (1, 1, 2, 3, 0)

#: The divisors of walks through sequences: first temperature, cost of excess bytes (`search._Walk`).
_SEQUENCE_HOT, _SEQUENCE_WEIGHT = 300, 5

#: The share of the usual budgets for the first sequence, and the most steps of a program whose first order
#: gets all of them where that decides: of larger ones it takes half a minute.
_FIRST, _FULL = 0.1, 400


def order_to_repeat(
    problem: ScheduleProblem,
    before: Sequence[frozenset[int]],
    budget: int,
    deadline: Deadline | None = None,
    *,
    bound: int | None = None,
    least: int = 0,
    near: int | None = None,
) -> Ordered:
    """The order in which repetitions that keep `budget` were found to cost least.

    It is that of `best_order` where no other one is cheaper, or where nothing is over the budget; `before`
    and `bound` are as there. The search ends at repetitions of `least` nanoseconds, which no order goes
    below. With `near` it begins with the given order, and ends there if its repetitions cost at
    most `near` nanoseconds more than `least`. Cost: that of `best_order`, and some seconds.
    """
    deadline = deadline or Deadline()
    if near is None:
        ordered = best_order(problem, before, deadline, budget=budget, bound=bound)
    else:
        peak = Orders(problem, before).peak(range(len(before)))
        ordered = Ordered(tuple(range(len(before))), peak, peak, bound or 0)
    if ordered.peak <= budget or deadline.expired:
        return ordered
    order = _Search(problem, before, budget, deadline, least, near or 0).run(ordered.order)
    peak = Orders(problem, before).peak(order)
    return replace(ordered, order=order, peak=peak, complete=not deadline.late)


class _Search:
    """One search; lives for one call of `order_to_repeat`."""

    def __init__(
        self,
        problem: ScheduleProblem,
        before: Sequence[frozenset[int]],
        budget: int,
        deadline: Deadline,
        least: int,
        near: int,
    ) -> None:
        self.problem, self.before, self.budget, self.deadline = problem, before, budget, deadline
        self.least, self.near = least, near
        self.dice = random.Random(1)

    def run(self, order: tuple[int, ...]) -> tuple[int, ...]:
        """The order of first runs of the cheapest sequence, from this order on."""
        present = self.problem.in_order(order)
        start = cheapest(present, self.budget, self.deadline, share=_FIRST)
        if not start.fits or start.extra <= self.least + self.near:
            return order
        first = best = now = tuple(order[k] for k in start.sequence)
        idle = 0
        for number in range(min(_ROUNDS, _STEPS // len(order))):
            if self._cost(best) <= self.least or self.deadline.expired:
                break
            if idle == _IDLE:
                now, idle = first, 0
            sequence = self._round(now, number)
            idle += 1
            if sequence is not None and self._cost(sequence) <= self._cost(now):
                idle = idle if self._cost(sequence) == self._cost(now) else 0
                now = sequence
                best = min(best, now, key=self._cost)
        extra = self._cost(best)
        if start.bound <= extra < start.extra and len(order) <= _FULL and not self.deadline.expired:
            # A full search of the first order may find less than what a short one found.
            start = cheapest(present, self.budget, self.deadline)
        if extra >= start.extra:
            return order
        # Only an order counts in which a short search finds as much again.
        other = tuple(dict.fromkeys(best))
        again = cheapest(self.problem.in_order(other), self.budget, self.deadline, share=_FIRST)
        return other if again.fits and again.extra < start.extra else order

    def _round(self, sequence: Sequence[int], number: int) -> tuple[int, ...] | None:
        """A sequence within the budget that was found near this one, if any."""
        sequence = self._with_less(sequence)
        unrolled, before = self._unrolled(sequence)
        orders, same = Orders(unrolled, before), range(len(sequence))
        walked = orders.walk(
            same,
            self.budget,
            min(_TURNS, _TURNS_A_STEP * len(self.before)),
            target=self.budget,
            hot=orders.peak(same) // _HOT[number % len(_HOT)],
            seed=number,
            deadline=self.deadline,
        )
        fits = orders.peak(walked) <= self.budget
        sequence = [sequence[k] for k in walked]
        if fits:
            return self._read(sequence)
        firsts = tuple(dict.fromkeys(sequence))
        place = {t: k for k, t in enumerate(firsts)}
        total = sum(self.problem.cost)
        result = Sequences(self.problem.in_order(firsts)).walk(
            [place[t] for t in sequence],
            self.budget,
            min(_SEQUENCE_TURNS, _SEQUENCE_STEPS // len(firsts)),
            seed=number,
            hot=total // _SEQUENCE_HOT,
            weight=total // _SEQUENCE_WEIGHT,
            deadline=self.deadline,
        )
        return None if result is None else self._read([firsts[k] for k in result])

    def _cost(self, sequence: Sequence[int]) -> int:
        return sum(self.problem.cost[sequence[k]] for k in _again(sequence))

    def _with_less(self, sequence: Sequence[int]) -> tuple[int, ...]:
        """A sequence without some of its repetitions."""
        again = _again(sequence)
        count = self.dice.choice(_LEAVE_OUT) or len(again)
        left_out = set(self.dice.sample(again, min(count, len(again))))
        return self._read([t for k, t in enumerate(sequence) if k not in left_out])

    def _read(self, sequence: Sequence[int]) -> tuple[int, ...]:
        """A sequence without the repetitions whose values no later step reads."""
        again, backwards = set(_again(sequence)), list[int]()
        needed = {v for v, kept in enumerate(self.problem.kept) if kept}
        for k in range(len(sequence) - 1, -1, -1):
            t = sequence[k]
            if k not in again or not needed.isdisjoint(self.problem.writes[t]):
                needed.difference_update(self.problem.writes[t])
                needed.update(self.problem.reads[t])
                backwards.append(t)
        return tuple(reversed(backwards))

    def _unrolled(self, sequence: Sequence[int]) -> tuple[ScheduleProblem, list[frozenset[int]]]:
        """Each event of a sequence is a step, each instance a value; and what each of them must follow.

        A repetition stays behind the first run, and in front of what changes that which it reads.
        """
        base, again = self.problem, set(_again(sequence))
        instances = [v for v, there in enumerate(base.fed) if there]
        current, entries = {v: i for i, v in enumerate(instances)}, len(instances)
        maker = [-1] * entries
        first, ends = dict[int, int](), dict[int, list[int]]()
        reads, writes, before = list[tuple[int, ...]](), list[tuple[int, ...]](), list[frozenset[int]]()
        for k, t in enumerate(sequence):
            reads.append(tuple(current[v] for v in base.reads[t]))
            earlier = {maker[i] for i in reads[-1]} - {-1}
            if k in again:
                earlier.add(first[t])
                ends.setdefault(base.until[t], []).append(k)
            else:
                earlier.update(first[s] for s in self.before[t])
                earlier.update(ends.get(t, ()))
                first[t] = k
            before.append(frozenset(earlier))
            wrote = tuple(range(len(instances), len(instances) + len(base.writes[t])))
            writes.append(wrote)
            current.update(zip(base.writes[t], wrote, strict=True))
            instances += base.writes[t]
            maker += [k] * len(wrote)
        last, count = {i for v, i in current.items() if base.kept[v]}, len(sequence)
        problem = replace(
            base,
            steps=tuple(base.steps[t] for t in sequence),
            reads=tuple(reads),
            writes=tuple(writes),
            updates=((),) * count,
            scratch=tuple(
                (base.scratch_again if k in again else base.scratch)[t] for k, t in enumerate(sequence)
            ),
            scratch_again=(0,) * count,
            cost=(0,) * count,
            until=(-1,) * count,
            values=tuple(base.values[v] for v in instances),
            size=tuple(base.size[v] for v in instances),
            fed=tuple(i < entries for i in range(len(instances))),
            kept=tuple(i in last for i in range(len(instances))),
            maker=(-1,) * len(instances),
            together=tuple(range(len(instances))),
        )
        return problem, before


def _again(sequence: Sequence[int]) -> list[int]:
    """The places of repetitions."""
    seen, places = set[int](), list[int]()
    for k, t in enumerate(sequence):
        if t in seen:
            places.append(k)
        seen.add(t)
    return places
