"""What a target plan costs at the least, and where."""

from __future__ import annotations

from itertools import accumulate

from solver.layout import max_load
from solver.preparations.rewriting import Footprint
from solver.targets import Pool, TargetPlan

__all__ = ["footprint"]


def footprint(target: TargetPlan) -> Footprint:
    """Bounds and sizes of all pools, and the operations whose steps run while most bytes are live."""
    bound = sum(max_load(pool.problem()).bytes for pool in target.pools)
    total = sum(buffer.size for pool in target.pools for buffer in pool.buffers)
    times = [t if step.wave is None else step.wave for t, step in enumerate(target.steps)]
    fullest = [_fullest(pool, max(times, default=0) + 1) for pool in target.pools]
    busy = frozenset(
        step.id.rpartition(":")[0]
        for t, step in zip(times, target.steps, strict=True)
        if any(t in full for full in fullest)
    )
    return Footprint(bound, total, busy)


def _fullest(pool: Pool, duration: int) -> frozenset[int]:
    """Times at which the pool's load is largest."""
    change = [0] * (duration + 1)
    for buffer in pool.buffers:
        change[buffer.lifespan.start] += buffer.size
        change[min(buffer.lifespan.end, duration)] -= buffer.size
    loads = tuple(accumulate(change))[:duration]
    return frozenset(t for t, load in enumerate(loads) if load == max(loads))
