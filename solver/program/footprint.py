"""What a program takes: bytes live on each level of each space."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from solver.layout import Lifespan
from solver.program.ir import Program
from solver.program.lives import Region, regions

__all__ = ["loads"]


def loads(
    program: Program, holds: Mapping[int, Lifespan] | None = None, found: tuple[Region, ...] | None = None
) -> tuple[tuple[int, ...], ...]:
    """For each space the bytes live on each level, alignment included. Linear.

    `found` are the regions of the program, where they are known already.
    """
    change = [[0] * (program.duration + 1) for _ in program.spaces]
    for region in regions(program, holds) if found is None else found:
        change[region.space][region.lifespan.start] += region.size
        change[region.space][region.lifespan.end] -= region.size
    return tuple(tuple(accumulate(row))[:-1] for row in change)
