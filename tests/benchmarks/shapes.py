"""Layouts of one shape each, from 200 to a million buffers: peak, time, lateness and memory, and a rival
beside them.

The shapes are those of `tests.support.shapes`, a line each. Every row is a process of its own, so that what
it adds to memory is its own; seconds are of the processor, lateness is by the clock. The rival gets the same
seconds for each of its allocators, where it can be asked: it knows no pins and no gaps.
"""

from __future__ import annotations

import gc
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

from rich.console import Console
from rich.table import Table

from solver.layout import Deadline, LayoutProblem, Progress, SolveOptions, load_compiled, max_load, solve
from tests.benchmarks.measure import ROOT
from tests.benchmarks.peers import MOST_SEARCHED, best_rival
from tests.support.shapes import SHAPES

__all__ = ["Row", "measured", "run"]

BUFFERS: Final = (200, 5_000, 20_000, 100_000, 1_000_000)

#: Seconds for each problem by its number of buffers; and what an answer may be late by: a fixed part, and a
#: part a buffer.
SECONDS: Final = {200: 1.0, 5_000: 5.0, 20_000: 10.0, 100_000: 10.0, 1_000_000: 10.0}
LATE: Final = 0.05
LATE_PER_BUFFER: Final = 1e-6

#: Beyond it buffers with gaps are not asked for: checking one by one takes as long as placing.
MOST_GAPPED: Final = 20_000

#: Seed of all problems.
SEED: Final = 1

HEADINGS: Final = (
    "shape", "buffers", "deadline", "peak / bound", "found by", "CPU s", "first layout, CPU s", "late by, ms",
    "bytes a buffer", "OmniMalloc's best", "theirs / ours",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One solve: bytes, seconds, and what it added to the memory of the process."""

    peak: int
    bound: int
    solver: str
    cpu: float
    first: float
    late: float
    memory: int


def measured(problem: LayoutProblem, seconds: float) -> Row:
    """In this process, once."""
    firsts: list[float] = []
    gc.collect()
    gc.freeze()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    cpu, wall = time.process_time(), time.perf_counter()

    def heard(_: Progress) -> None:
        firsts.append(time.process_time() - cpu)

    outcome = solve(
        problem, deadline=Deadline.after(seconds), options=SolveOptions(work=None, progress=heard)
    )
    late = time.perf_counter() - wall - seconds
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak = outcome.layout.peak if outcome.layout else 0
    cpu = time.process_time() - cpu
    first = firsts[0] if firsts else cpu
    return Row(peak, outcome.lower_bound, outcome.solver, cpu, first, late, (after - before) * 1024)


def run(console: Console) -> None:
    """Measure and print."""
    table = Table(*HEADINGS, title="layout: shapes")
    for shape in SHAPES:
        for buffers in BUFFERS:
            if not shape.startswith("gaps") or buffers <= MOST_GAPPED:
                table.add_row(*_row(shape, buffers))
    console.print(table)
    console.print(f"late by at most {LATE * 1e3:.0f} ms and {LATE_PER_BUFFER * 1e6:.0f} µs a buffer")


def _row(shape: str, buffers: int) -> tuple[str, ...]:
    command = [sys.executable, "-m", "tests.benchmarks.shapes", shape, str(buffers)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    row, seconds = Row(**json.loads(ran.stdout)), SECONDS[buffers]
    asked = buffers <= MOST_SEARCHED and shape != "pins" and not shape.startswith("gaps")
    rival = best_rival(SHAPES[shape](buffers, SEED), seconds) if asked else None
    return (
        shape, f"{buffers:,}", f"{seconds:g} s", f"{row.peak / row.bound:.5f}",
        row.solver.removeprefix("portfolio/"), f"{row.cpu:.2f}", f"{row.first:.2f}",
        f"{max(0.0, row.late) * 1e3:.0f}", f"{row.memory / buffers:.0f}",
        "" if rival is None else f"{rival.peak / row.bound:.5f} ({rival.allocator})",
        "" if rival is None else f"{rival.peak / row.peak:.4f}",
    )  # fmt: skip


def main(arguments: list[str]) -> None:
    """One row, as JSON: shape, buffers."""
    shape, buffers = arguments[0], int(arguments[1])
    load_compiled()
    problem = SHAPES[shape](buffers, SEED)
    max_load(problem)
    sys.stdout.write(json.dumps(asdict(measured(problem, SECONDS[buffers]))))


if __name__ == "__main__":
    main(sys.argv[1:])
