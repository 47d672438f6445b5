"""A line of steps in which one large value waits in flash."""

from __future__ import annotations

from solver.accounting import paging_problem
from solver.program import Program, Tier
from solver.schedules.paging import in_tiers, with_transfers
from tests.support.programs import sequential

__all__ = ["FLASH", "LONG", "SRAM", "paged_line"]

SRAM, FLASH = Tier("sram", 1000), Tier("flash", 10_000, 10**9, 5 * 10**8, 100)

LONG = sequential(
    ("x", "a"), *((f"t{k}", f"t{k + 1}") for k in range(8)), ("t8 a", "e"), fed="x t0", a=10_000
)


def paged_line(ahead: int) -> Program:
    """`LONG` with the value `a` in flash between its two uses; a transfer has `ahead` levels."""
    problem = paging_problem(LONG, ahead)
    (number,) = (j for j, g in enumerate(problem.gaps) if LONG.values[g.value].label == "a")
    homes = {problem.gaps[number].value: 1}
    return with_transfers(in_tiers(LONG, [SRAM, FLASH]), problem, [number], homes, [SRAM, FLASH])
