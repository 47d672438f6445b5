"""Budgets: limits that a build enforces, and those that a plan exceeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from solver.plan.options import RequestedOptions
from solver.plan.recomputation import recomputation
from solver.plan.views import PlanView

__all__ = ["Allowance", "Budget", "Check", "checks"]


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


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one network. Sizes are bytes, shares are parts of one; None is no limit.

    `model` is planned with `options`, one of another tool trained as `training` says, in the words of
    `solver.importers.options`; where there is a `plan` instead, that document is judged. `baseline` is the
    plan document that `max_growth` counts from. Paths are as they were written.
    """

    name: str
    model: str | None = None
    plan: str | None = None
    options: RequestedOptions = field(default_factory=RequestedOptions)
    max_arena: int | None = None
    max_spaces: Mapping[str, int] = field(default_factory=dict)
    max_recompute: float | None = None
    baseline: str | None = None
    max_growth: Allowance | None = None
    training: Mapping[str, Any] = field(default_factory=dict)


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


def checks(budget: Budget, plan: PlanView, baseline: PlanView | None = None) -> Iterator[Check]:
    """Each limit of a budget, in its order. A memory that the plan does not have takes nothing."""
    if budget.max_arena is not None:
        yield Check("arena", plan.arena_bytes, budget.max_arena)
    sizes = {arena.name: arena.size for arena in plan.arenas}
    for name, most in budget.max_spaces.items():
        yield Check(f"memory {name}", sizes.get(name, 0), most)
    if budget.max_recompute is not None:
        again = recomputation(plan)
        extra = again.extra / max(again.step, 1) if again else 0.0
        yield Check("recomputation", extra, budget.max_recompute, is_share=True)
    if budget.max_growth is not None and baseline is not None:
        limit = budget.max_growth.limit(baseline.arena_bytes)
        yield Check(f"arena (growth of at most {budget.max_growth})", plan.arena_bytes, limit)
