"""The trade-off curve: budgets from the peak down, each search starting from the last schedule.

extra time
  │ o                              o  a schedule: its peak, and what its repetitions cost
  │ ┆ o                            ┆  the floor: no schedule of any order takes less
  │ ┆    o
  │ ┆         o  o
  │ ┆                 o            the rightmost point is the program as it is
  └─┴──────────────────────► peak
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from solver.errors import OptionsError
from solver.graph import TrainableGraph
from solver.native import heeding_deadline
from solver.options import CONSTRAINTS
from solver.pipeline import until
from solver.pipeline.watch import Follower
from solver.plan import PlanOptions
from solver.reports.verdict import TradeOff, TradeOffPoint
from solver.schedules.recompute.least import descending
from solver.verdict.subject import Found, Subject

if TYPE_CHECKING:
    from solver.pipeline import BlockProgram

__all__ = ["MOST_POINTS", "tradeoff"]

#: More points than a picture can show.
MOST_POINTS = 100

#: Share of a search's usual work for each point, so that ten of them cost what two or three plans do.
_SHARE = 0.2


@heeding_deadline
def tradeoff(
    network: TrainableGraph | BlockProgram,
    options: PlanOptions | None = None,
    *,
    points: int = 10,
    observe: Callable[[TradeOffPoint], None] | None = None,
    follow: Follower | None = None,
) -> TradeOff:
    """The cost of smaller peaks in modelled time, down to the smallest peak found.

    As many searches as `points`, and one more where the memory ends; only schedules are kept that no other
    one beats in both respects, so there may be fewer points. `options.capacity` is left aside; `observe` is
    called with the result of each search, `follow` with its progress. `options.deadline_seconds` ends the
    search with the points so far; without it the same arguments give the same curve. Raises OptionsError for
    a number of points out of range, for options that no plan takes, for tiers, for a target that does not
    recompute, for constraints on places, and for an explicit program without pure operations. Cost: a second
    for some hundred steps, more near floors.
    """
    options = options or PlanOptions()
    if not 2 <= points <= MOST_POINTS:
        raise OptionsError(
            f"A curve of {points:,} points is asked for.",
            remedy=f"Ask for 2 to {MOST_POINTS} points.",
            path=("points",),
        )
    for name in CONSTRAINTS:
        if getattr(options, name):
            raise OptionsError(
                "A curve is about the bytes that are live, wherever they lie, and places are constrained.",
                remedy="Leave the constraint out, and plan with it within a capacity that the curve shows.",
                path=(name,),
            )
    if not isinstance(network, TrainableGraph) and not any(each.pure for each in network.operations):
        raise OptionsError(
            f"No operation of {network.name!r:.80} may run again, since none says that it is pure: its curve"
            " has one point, which is its plan.",
            remedy='Write "pure": true into each operation whose reads decide what it writes.',
        )
    deadline = until(options.deadline_seconds)
    subject = Subject(network, options, deadline, follow)
    curve = _Curve(subject, observe)
    low = subject.floor.bytes
    budgets = descending(subject.peak, low, points)
    while not deadline.expired and (budget := next(budgets, None)) is not None:
        if not curve.add(budget):
            break
    for _ in budgets:  # searches that smaller budgets no longer need
        between = curve.widest()
        if between is None or deadline.expired:
            break
        curve.add(between)
    return TradeOff(
        graph=network.name,
        points=curve.points(),
        floor=low,
        floor_step=subject.problem.steps[subject.floor.step],
        impossible=subject.impossible,
        step_nanoseconds=subject.step_nanoseconds,
        step_flops=sum(subject.flops),
        complete=subject.complete and not deadline.late,
    )


class _Curve:
    """The points of the curve so far."""

    def __init__(self, subject: Subject, observe: Callable[[TradeOffPoint], None] | None) -> None:
        self._subject, self._observe = subject, observe
        self._found = [subject.unscheduled()]
        #: Proved costs, by the budgets that they hold for.
        self._bounds: dict[int, int] = {}
        self._tried: set[int] = set()

    def add(self, budget: int) -> bool:
        """Search within a budget, from the schedule of the next larger one; false where nothing fits.

        Then the least peak that was found becomes a budget, so that its cost comes down, too.
        """
        before = min((f for f in self._found if f.schedule.peak >= budget), key=_peak, default=self._found[0])
        candidate = self._search(budget, before)
        if not candidate.schedule.fits:
            self._search(candidate.schedule.peak, candidate)
        return candidate.schedule.fits

    def _search(self, budget: int, before: Found) -> Found:
        candidate = self._subject.schedule(budget, before.schedule, _SHARE)
        self._found.append(candidate)
        self._bounds[budget] = candidate.schedule.bound
        if self._observe:
            self._observe(candidate.point(candidate.schedule.bound))
        return candidate

    def widest(self) -> int | None:
        """The budget half-way between the two neighbours that leave the most open: bytes times
        nanoseconds.
        """
        kept = sorted(self._kept(), key=_peak)
        gaps = [
            ((b.schedule.peak - a.schedule.peak) * (a.schedule.extra - b.schedule.extra), middle)
            for a, b in pairwise(kept)
            if (middle := (a.schedule.peak + b.schedule.peak) // 2) not in self._tried
        ]
        if not gaps:
            return None
        self._tried.add(max(gaps)[1])
        return max(gaps)[1]

    def _kept(self) -> list[Found]:
        """The program as it is, and those that no other one beats in both respects, by rising cost. Where
        some steps cost nothing, less memory may cost nothing, too.
        """
        kept = self._found[:1]
        for candidate in sorted(self._found, key=lambda f: (f.schedule.extra, f.peak)):
            if candidate.peak < kept[-1].peak:
                kept.append(candidate)
        return kept

    def points(self) -> tuple[TradeOffPoint, ...]:
        """A bound holds for its budget and for every smaller peak. With values in place nothing is proved:
        the bound counts each value by itself, and there some share bytes.
        """
        proved = {} if self._subject.in_place else self._bounds
        return tuple(
            candidate.point(
                max((bound for budget, bound in proved.items() if budget >= candidate.peak), default=0)
            )
            for candidate in self._kept()
        )


def _peak(candidate: Found) -> int:
    return candidate.schedule.peak
