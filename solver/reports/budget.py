"""Budgets: limits that a build enforces, and those that a plan exceeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from solver.errors import OptionsError
from solver.plan.deployment import Deployment, JoinedPlan, one_plan
from solver.plan.options import RequestedOptions
from solver.plan.plan import Plan
from solver.plan.views import PlanView
from solver.reports.records import recomputation

__all__ = ["Allowance", "Budget", "Check", "Limits", "checks"]


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much larger something may become: `bytes` of it, or a `share` of what it was; one of the two."""

    bytes: int | None = None
    share: float | None = None

    def limit(self, before: int) -> int:
        """The largest size that is allowed where it was `before`; shares are rounded down."""
        return before + (self.bytes if self.bytes is not None else int(before * (self.share or 0.0)))

    def __str__(self) -> str:
        return f"{self.bytes:,} bytes" if self.bytes is not None else f"{100 * (self.share or 0.0):g} %"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The limits of a plan, or of one entry point; None is no limit.

    Sizes are bytes, shares are parts of one. `max_growth` counts from a baseline.
    """

    max_arena: int | None = None
    max_spaces: Mapping[str, int] = field(default_factory=dict)
    max_recompute: float | None = None
    max_growth: Allowance | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget(Limits):
    """The limits of one network.

    `model` is planned with `options`, one of another tool trained as `training` says, in the words of
    `solver.importers.options`; where there is a `plan` instead, that document is judged. With `entries` the
    model is planned as these entry points in one arena, whose limits are `entry_points`, by name; those of
    the budget itself are limits of the whole arena. `baseline` is the plan document that `max_growth` counts
    from. Paths are as they were written.
    """

    name: str
    model: str | None = None
    plan: str | None = None
    options: RequestedOptions = field(default_factory=RequestedOptions)
    baseline: str | None = None
    training: Mapping[str, Any] = field(default_factory=dict)
    entries: tuple[str, ...] = ()
    entry_points: Mapping[str, Limits] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """One limit and the figure of the plan: both in bytes, or both ratios where `is_share`."""

    subject: str
    actual: float
    allowed: float
    is_share: bool = False

    @property
    def kept(self) -> bool:
        return self.actual <= self.allowed

    def __str__(self) -> str:
        sign = "<=" if self.kept else ">"
        if self.is_share:
            return f"{self.subject} {100 * self.actual:.2f} % {sign} {100 * self.allowed:g} %"
        return f"{self.subject} {int(self.actual):,} {sign} {int(self.allowed):,} bytes"


def checks(
    budget: Budget, planned: PlanView | Deployment, baseline: PlanView | Deployment | None = None
) -> Iterator[Check]:
    """Each limit of a budget, in its order. A memory that the plan does not have takes nothing.

    Raises OptionsError for limits of an entry point that the plan or the baseline does not have.
    """
    if not isinstance(planned, Deployment):
        if budget.entry_points:
            raise OptionsError(
                f"Budget {budget.name!r:.80} has limits of entry points, and its plan is for one program.",
                remedy='Leave out entry_points, or add entries = ["train", "infer:batch=1"] to plan them.',
            )
        yield from _checks("", budget, planned, [planned], baseline)
        return
    plans = [entry_point.plan for entry_point in planned.entry_points]
    yield from _checks("", budget, JoinedPlan(planned), plans, baseline)
    for name, limits in budget.entry_points.items():
        plan = one_plan(planned, name)
        before = None if limits.max_growth is None else _baseline(budget, baseline, name)
        yield from _checks(f"{name}: ", limits, plan, [plan], before)


def _baseline(budget: Budget, baseline: PlanView | Deployment | None, entry_point: str) -> Plan:
    if isinstance(baseline, Deployment):
        return one_plan(baseline, entry_point)
    raise OptionsError(
        f"Budget {budget.name!r:.80} limits the growth of entry point {entry_point!r:.80}, and its"
        " baseline is a plan of one program.",
        remedy="Name a plan with entry points as the baseline, or limit the growth of the budget alone.",
    )


def _checks(
    of: str,
    limits: Limits,
    plan: PlanView,
    programs: Sequence[PlanView],
    baseline: PlanView | Deployment | None,
) -> Iterator[Check]:
    """The checks of a plan; of time the program that runs the largest share of its steps again counts."""
    if limits.max_arena is not None:
        yield Check(f"{of}arena", plan.arena_bytes, limits.max_arena)
    sizes = {arena.name: arena.size for arena in plan.arenas}
    for name, most in limits.max_spaces.items():
        yield Check(f"{of}memory {name}", sizes.get(name, 0), most)
    if limits.max_recompute is not None:
        repeated = [again for program in programs if (again := recomputation(program))]
        extra = max((again.extra / max(again.step, 1) for again in repeated), default=0.0)
        yield Check(f"{of}recomputation", extra, limits.max_recompute, is_share=True)
    if limits.max_growth is not None and baseline is not None:
        limit = limits.max_growth.limit(baseline.arena_bytes)
        yield Check(f"{of}arena (growth of at most {limits.max_growth})", plan.arena_bytes, limit)
