"""What a caller may choose about a plan."""

from __future__ import annotations

from dataclasses import dataclass

from solver.program import Costs, Tier

__all__ = ["PlanOptions"]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a caller may choose. Sizes are bytes, ``None`` leaves the choice to the target.

    Each option belongs to the driver, to a preparation or to a pass (`solver.passes`, `solver.preparations`).

    `capacity` makes an arena beyond it an error. `deadline_seconds` bounds the layout search by
    wall time; without it budgets are counted in work and the plan is deterministic. `update` is
    ``immediate`` (apply each gradient as soon as that is legal) or ``end``. `batch` is the value of
    the symbolic batch that the graph was read with. With a `parallelism` of k up to k steps run at the same
    time, on one concurrency level. `in_place` defines values in the bytes of others where that changes no
    result; with `sub_ranges` also in contiguous parts of others, and others as parts of them. `rewrite`
    replaces parts of the graph by equivalent ones where that does not raise the peak; results may round
    differently. `recompute` runs steps again where the capacity asks for it, at the least
    cost in time that was found; it changes no result. `order` lets the steps run in another order where one
    with a lower peak is left and found.
    `tiers` are the memories of a device: kernels run in
    the first one, whose size is the capacity then, and what does not fit is paged out to the others.
    `costs` are what steps take on the device; without them a roofline says it, the same everywhere.
    `storage` is the type, ``float16`` or ``bfloat16``, in which activations wait for the backward pass; it
    computes with what was rounded then. `fit_scratch` makes the scratch budget smaller where scratch would
    make the peak; a plan has the budget that was chosen.
    """

    target: str = "reference"
    solver: str = "portfolio"
    batch: int | None = None
    alignment: int | None = None
    capacity: int | None = None
    deadline_seconds: float | None = None
    scratch_budget: int = 2 * 1024 * 1024
    update: str = "immediate"
    parallelism: int = 1
    in_place: bool = False
    rewrite: bool = False
    sub_ranges: bool = False
    recompute: bool = False
    order: bool = False
    tiers: tuple[Tier, ...] = ()
    costs: Costs | None = None
    storage: str | None = None
    fit_scratch: bool = False
