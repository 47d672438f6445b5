"""Training-shaped problems of ten thousand to a million buffers: time, gap, and growth against n log n."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from solver.layout import Outcome, solve
from solver.layout.problem import Problem
from tests.support.training_shaped import training_columns

#: Buffers asked for, and how many seeds of each.
SIZES = ((10_000, 15), (30_000, 7), (100_000, 5), (300_000, 2), (1_000_000, 1))

#: Seconds that a size must stay under, and the gap that all must.
LIMITS = {10_000: 0.1, 100_000: 1.0, 1_000_000: 15.0}
GAP = 0.001


@dataclass(frozen=True, slots=True)
class Measured:
    """All seeds of one size: buffers made, seconds through the door (checks included), gaps."""

    asked: int
    made: int
    seconds: tuple[float, ...]
    gaps: tuple[float, ...]

    @property
    def per_unit(self) -> float:
        """Nanoseconds for each n log2 n."""
        return median(self.seconds) * 1e9 / (self.made * math.log2(self.made))


def run(console: Console, solver: str = "greedy") -> list[Measured]:
    """Measure warm and print both tables."""
    solve(training_columns(0, buffers=SIZES[0][0]).problem(), solver=solver)
    rows = [_measure(buffers, seeds, solver) for buffers, seeds in SIZES]
    console.print(_figures(rows, solver))
    console.print(_growth(rows))
    return rows


def _measure(buffers: int, seeds: int, solver: str) -> Measured:
    seconds, gaps, made = [], [], 0
    for seed in range(seeds):
        problem = training_columns(seed, buffers=buffers).problem()
        taken, outcome = _timed(problem, solver)
        seconds.append(taken)
        gaps.append(_gap(outcome))
        made = len(problem.buffers)
    return Measured(buffers, made, tuple(seconds), tuple(gaps))


def _timed(problem: Problem, solver: str) -> tuple[float, Outcome]:
    began = time.perf_counter()
    outcome = solve(problem, solver=solver)
    return time.perf_counter() - began, outcome


def _gap(outcome: Outcome) -> float:
    return math.inf if outcome.layout is None else outcome.layout.peak / outcome.lower_bound - 1


def _figures(rows: list[Measured], solver: str) -> Table:
    table = Table("buffers", "seeds", "median s", "max s", "limit", "median gap", "max gap", f"<= {GAP:.1%}",
                  title=f"Training-shaped problems, solver {solver}, warm, checks included")  # fmt: skip
    for row in rows:
        within = sum(gap <= GAP for gap in row.gaps)
        table.add_row(
            f"{row.made:,}", str(len(row.gaps)), f"{median(row.seconds):.3f}", f"{max(row.seconds):.3f}",
            str(LIMITS.get(row.asked, "")), f"{median(row.gaps):.4%}", f"{max(row.gaps):.4%}",
            f"{within} of {len(row.gaps)}",
        )  # fmt: skip
    return table


def _growth(rows: list[Measured]) -> Table:
    """A flat bar is growth like n log n; one twice as long a step further down is worse."""
    table = Table("buffers", "ns per n log n", "drawn", title="Growth")
    unit = max(row.per_unit for row in rows) / 40
    for row in rows:
        table.add_row(f"{row.made:,}", f"{row.per_unit:.0f}", "#" * max(1, round(row.per_unit / unit)))
    return table


if __name__ == "__main__":
    run(Console(width=140))
