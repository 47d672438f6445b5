"""Plans whose persistent values lie at the bottom of their spaces."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from solver.layout import Buffer, Certificate, Hole, LayoutProblem, Proof, Status
from solver.layout.api import solve
from solver.plan import Plan
from solver.program import Region, loads

__all__ = ["settled"]


def settled(plan: Plan, persistent: Sequence[int]) -> Plan:
    """The plan with these values at the bottom of their spaces, in this order; the others move up by as much
    as was below them. They are live all the time, so nothing meets that did not before. O(n log n).
    """
    values = plan.program.values
    for space in range(len(plan.sizes)):
        inside = [value for value in persistent if values[value].space == space]
        plan = _settled(plan, space, inside)
    return plan


def _settled(plan: Plan, space: int, persistent: Sequence[int]) -> Plan:
    regions = {region.members[0]: region for region in plan.regions if region.space == space}
    if any(regions[value].lent for value in persistent):
        plan = _without_lending(plan, regions, persistent)
    rounded = [regions[value].size for value in persistent]
    bottom = dict(zip(persistent, accumulate(rounded, initial=0), strict=False))
    below = sorted((plan.offsets[value], regions[value].size) for value in persistent)
    starts = [offset for offset, _ in below]
    sums = [0, *accumulate(size for _, size in below)]
    offsets, top = list(plan.offsets), 0
    for first, region in regions.items():
        new = bottom.get(first)
        if new is None:
            old = plan.offsets[first]
            new = old - sums[bisect_left(starts, old)] + sums[-1]
        offsets[first] = new
        if len(region.members) > 1:
            for member, shift in zip(region.members, region.offsets, strict=True):
                offsets[member] = new + shift
        if region.size and new + region.size > top:
            top = new + region.size
    certificate = _certificate(plan.certificates[space], plan, space, top)
    return replace(
        plan,
        offsets=tuple(offsets),
        sizes=(*plan.sizes[:space], top, *plan.sizes[space + 1 :]),
        certificates=(*plan.certificates[:space], certificate, *plan.certificates[space + 1 :]),
    )


def _without_lending(plan: Plan, regions: Mapping[int, Region], persistent: Collection[int]) -> Plan:
    """The plan with another layout of a space of slower memory, where these values lend their bytes to no
    other, though copies restore them. The certificate is mended by the caller.
    """
    buffers = tuple(
        Buffer(
            plan.program.values[first].label,
            region.size,
            region.lifespan,
            plan.program.spaces[region.space].alignment,
            holes=() if first in persistent else tuple(map(Hole, region.lent)),
        )
        for first, region in regions.items()
    )
    outcome = solve(LayoutProblem(buffers), solver="portfolio")
    assert outcome.layout is not None  # without a capacity there always is one
    offsets = list(plan.offsets)
    for region, offset in zip(regions.values(), outcome.layout.offsets, strict=True):
        for member, shift in zip(region.members, region.offsets, strict=True):
            offsets[member] = offset + shift
    return replace(plan, offsets=tuple(offsets))


def _certificate(old: Certificate, plan: Plan, space: int, size: int) -> Certificate:
    """The certificate of a space with its new size."""
    if size == plan.sizes[space]:
        return old
    curve = loads(plan.program, placed=plan.regions)[space]
    if max(curve, default=0) == size:
        return Certificate(Status.OPTIMAL, Proof.MAX_LOAD, size, curve.index(size), old.solver)
    if old.lower_bound == size:
        return replace(old, status=Status.OPTIMAL, proof=Proof.SOLVER, witness_step=None)
    return replace(old, status=Status.FEASIBLE, proof=None)
