"""The options of a plan: exactly, and as they are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from solver.layout import Alignment, Pin
from solver.options import PLAN_OPTIONS, documented
from solver.plan.ranges import SizeRange
from solver.program import Constraints, Costs, ReservedRange, Tier

__all__ = ["PlanOptions", "RequestedOptions"]


@documented(PLAN_OPTIONS)
@dataclass(frozen=True, slots=True)
class PlanOptions:
    """The options of a plan. None leaves the choice to the target or the planner.

    Each option belongs to the pipeline, to a preparation or to a pass (`solver.preparations`,
    `solver.passes`). Without `deadline_seconds` budgets are counted in work, and the plan is deterministic.
    With `tiers` the size of the first one is the capacity, with `memories` that of all of them together.
    Without `costs` a roofline says how long steps take, the same everywhere.
    """

    target: str = PLAN_OPTIONS["target"].default
    solver: str = PLAN_OPTIONS["solver"].default
    batch: int | None = PLAN_OPTIONS["batch"].default
    alignment: int | None = PLAN_OPTIONS["alignment"].default
    capacity: int | None = PLAN_OPTIONS["capacity"].default
    deadline_seconds: float | None = PLAN_OPTIONS["deadline_seconds"].default
    scratch_budget: int = PLAN_OPTIONS["scratch_budget"].default
    update: str = PLAN_OPTIONS["update"].default
    parallelism: int = PLAN_OPTIONS["parallelism"].default
    in_place: bool = PLAN_OPTIONS["in_place"].default
    rewrite: bool = PLAN_OPTIONS["rewrite"].default
    chunked_head: bool = PLAN_OPTIONS["chunked_head"].default
    sub_ranges: bool = PLAN_OPTIONS["sub_ranges"].default
    recompute: bool = PLAN_OPTIONS["recompute"].default
    order: bool = PLAN_OPTIONS["order"].default
    tiers: tuple[Tier, ...] = PLAN_OPTIONS["tiers"].default
    memories: tuple[Tier, ...] = PLAN_OPTIONS["memories"].default
    place: tuple[str, ...] = PLAN_OPTIONS["place"].default
    costs: Costs | None = PLAN_OPTIONS["costs"].default
    storage: str | None = PLAN_OPTIONS["storage"].default
    frozen_storage: str | None = PLAN_OPTIONS["frozen_storage"].default
    tile_bytes: int | None = PLAN_OPTIONS["tile_bytes"].default
    fit_scratch: bool = PLAN_OPTIONS["fit_scratch"].default
    pins: tuple[Pin, ...] = PLAN_OPTIONS["pins"].default
    alignments: tuple[Alignment, ...] = PLAN_OPTIONS["alignments"].default
    reserved: tuple[ReservedRange, ...] = PLAN_OPTIONS["reserved"].default

    @property
    def constraints(self) -> Constraints:
        """The constraints on the places of single values."""
        return Constraints(self.pins, self.alignments, self.reserved)


@dataclass(frozen=True, slots=True)
class RequestedOptions:
    """The options that a user asks for. If `automatic`, the planner chooses the measures that change no bit:
    those of `options` are off. Otherwise `options` describe the plan exactly. The plan is to serve every size
    in the `ranges`; the batch of the options is then the largest.
    """

    options: PlanOptions = field(default_factory=PlanOptions)
    automatic: bool = True
    ranges: tuple[SizeRange, ...] = ()

    @property
    def deadline_seconds(self) -> float | None:
        return self.options.deadline_seconds

    def having(self, **changes: Any) -> RequestedOptions:
        """The same request with other options."""
        return replace(self, options=replace(self.options, **changes))
