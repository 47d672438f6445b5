"""The one loop over the plans that a request may have: it takes the row that promises most for its work.

    rows ──► the row with the least work for what it may gain ──► its plan: the best so far?
      ▲           │ (rows that cannot win are struck out)             │
      └───────────┴──── rows that follow from it: more work, another order ◄──┘      until work or rows end

A row is a plan that is not made yet: a lower bound on its cost, an estimate of the work that making it
takes, and the function that makes it. While there is no plan, the row with the least work is made. Later it
is the row with the least work for each nanosecond that it may save: a row with the best bound may take more
work than all others together. Work is counted, not timed (`solver.layout.Deadline`), so that the answer is
the same on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from solver.accounting import level_costs
from solver.errors import CapacityError, ConstraintError, InternalError
from solver.layout import Deadline
from solver.passes import Paging
from solver.pipeline.homes import RECORD as HOMES
from solver.plan import Plan
from solver.targets import Lowered

__all__ = ["EFFORT", "Candidate", "Cost", "Made", "Row", "Strategy", "nearest", "until"]

#: Units of work that the searches of one request may take: 10 to 20 seconds of one core.
EFFORT: Final = 10.0


#: A row is not worth its work if it saves less than the best plan's time divided by this.
_LEAST_SAVING: Final = 10_000

#: Nanoseconds of an iteration and bytes. Of plans that have to keep a number of bytes the time counts, of
#: others the bytes; what does not count is 0.
Cost = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A plan without digests that is not proved yet, and the reference program that it must agree with."""

    reference: Lowered
    plan: Plan

    @property
    def bytes(self) -> int:
        """The bytes of all arenas."""
        return sum(self.plan.sizes)

    @property
    def proved_nanoseconds(self) -> int:
        """What repetitions cost at least in its order, as the plan proves it."""
        return 0 if self.plan.cost_bound is None else self.plan.cost_bound.nanoseconds

    @property
    def nanoseconds(self) -> int:
        """How long an iteration is modelled to take: steps of one level run at the same time."""
        for record in self.plan.records:
            if record.name in (HOMES, Paging.name) and "nanoseconds" in record.facts:
                return int(record.facts["nanoseconds"])
        return sum(level_costs(self.plan.program, self.plan.options.costs))


@dataclass(frozen=True, slots=True)
class Row:
    """A plan that is not made yet.

    No plan of the row costs less than `bound`. `make` takes about `work` units of work, and `limit` at most.
    If one row of a `group` is refused with a proof, all rows of the group are dropped. `wanted` says of the
    best plan so far whether the row is still of use.
    """

    make: Callable[[Deadline], Made]
    bound: Cost = (0, 0)
    work: float = 0.0
    limit: float = EFFORT
    group: object = None
    wanted: Callable[[Candidate | None], bool] = lambda best: True


@dataclass(frozen=True, slots=True)
class Made:
    """What came of a row: its plan, or why there is none; and the rows that follow from it."""

    candidate: Candidate | None = None
    refused: CapacityError | ConstraintError | None = None
    rows: Iterable[Row] = ()


@dataclass(slots=True)
class Strategy:
    """The loop. `best` is the plan to improve upon; `cost` is what plans are compared by."""

    deadline: Deadline
    cost: Callable[[Candidate], Cost]
    best: Candidate | None = None
    refused: list[CapacityError | ConstraintError] = field(default_factory=list)

    def run(self, rows: Iterable[Row]) -> Candidate | None:
        """The best plan of these rows and of those that follow from them; None if every row is refused."""
        waiting, impossible = list(rows), set[object]()
        while True:
            waiting = [row for row in waiting if row.group not in impossible and self._may_win(row)]
            answered = self.best is not None or bool(self.refused)
            if not waiting or (answered and self.deadline.expired):
                return self.best
            row = min(waiting, key=self._work_for_its_gain)
            waiting.remove(row)
            try:
                made = row.make(self.deadline.within(row.limit))
            except (CapacityError, ConstraintError) as error:
                made = Made(refused=error)
            if made.refused is not None:
                self.refused.append(made.refused)
                if row.group is not None and getattr(made.refused, "proved", False):
                    impossible.add(row.group)
            if made.candidate is not None and (
                self.best is None or self._is_better(made.candidate, self.best)
            ):
                self.best = made.candidate
            waiting += made.rows

    def _is_better(self, candidate: Candidate, best: Candidate | None) -> bool:
        """Whether a plan costs less, or as much and more of that is proved to be necessary."""
        if best is None:
            return True
        ours, theirs = ((self.cost(plan), -plan.proved_nanoseconds) for plan in (candidate, best))
        return ours < theirs

    def plan(self, rows: Iterable[Row]) -> Candidate:
        """As `run`. Raises the refusal that is nearest to a plan if there is none."""
        best = self.run(rows)
        if best is None:
            raise self.refusal()
        return best

    def refusal(self) -> CapacityError | ConstraintError:
        """The refusal by the capacity, as `nearest` chooses it; without one that of the first constraint."""
        by_capacity = [error for error in self.refused if isinstance(error, CapacityError)]
        if by_capacity or not self.refused:
            return nearest(by_capacity)
        return self.refused[0]

    def _may_win(self, row: Row) -> bool:
        if not row.wanted(self.best):
            return False
        if self.best is None:
            return True
        best = self.cost(self.best)
        if row.bound[0] == best[0]:
            return row.bound[1] < best[1]
        return row.bound[0] + best[0] // _LEAST_SAVING < best[0]

    def _work_for_its_gain(self, row: Row) -> tuple[float, Cost]:
        """Work for each nanosecond that the row may save; work alone while there is no plan."""
        if self.best is None:
            return row.work, row.bound
        return row.work / max(1, self.cost(self.best)[0] - row.bound[0]), row.bound


def until(seconds: float | None) -> Deadline:
    """When the searches of one request end: at the deadline that it names, else after `EFFORT` units."""
    return Deadline(most=EFFORT) if seconds is None else Deadline.after(seconds)


def nearest(refused: Iterable[CapacityError]) -> CapacityError:
    """Of refusals without a proof the one that lacks the fewest bytes; of proved ones if there are no others.

    What is proved of one choice is proved of no other: a refusal is proved if that of every choice is.
    """
    found = min(refused, key=lambda error: (error.proved, error.excess), default=None)
    if found is None:
        raise InternalError("No choice was tried.")
    return found
