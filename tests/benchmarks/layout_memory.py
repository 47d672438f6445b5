"""Memory of layouts: what a process pays once, and what each buffer takes.

Every row is a process of its own that solves one problem twice, measured as in `shapes`: all code is loaded,
a small problem of the shape is solved, and the peak counts less what is resident before. The first time,
pages are touched that no solve before has touched: of libraries, and of what they keep for themselves. So
there are three figures: *first* is everything; *again* is the same solve once these pages are there; *stays*
is what the first has left resident when its answer is gone and the allocator has given back what is free,
which a process pays once, however many problems it solves. What grows with the buffers is in *again*. Seconds
are of the processor, so that other processes do not decide which stages are reached. The kernel counts
pages processor by processor and adds up when some dozens have come together, so a peak is a hundred kilobytes
or two off, either way: of `RUNS` processes the one with the middle figure *again* is told.

The last table has a line for each shape through its figures *again*, and what exceeds the bytes a buffer
that are allowed: the exact search and CP-SAT take theirs for some thousands of buffers at the most, however
many there are.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from tests.benchmarks.generators import Allowance
from tests.benchmarks.measure import ROOT
from tests.benchmarks.shapes import SEED, Row, measured, resident, warmed
from tests.support.deep_shapes import EVERY
from tests.support.shapes import SHAPES

__all__ = ["Twice", "run"]

BUFFERS: Final = (500, 1_000, 5_000, 20_000, 100_000)
SECONDS: Final = 1.0

#: Processes a row, of which the middle one is told.
RUNS: Final = 3

#: Bytes a buffer that a layout may take beyond its problem, but for what does not grow with it.
ALLOWED: Final = 300

HEADINGS: Final = (
    "shape", "buffers", "peak / bound", "CPU s", "first, bytes a buffer", "again, bytes a buffer",
    "stays, kB",
)  # fmt: skip
LINES: Final = (
    "shape",
    "again: kB + bytes a buffer",
    f"most beyond {ALLOWED} a buffer, kB",
    "most that stays, kB",
)


@dataclass(frozen=True, slots=True)
class Twice:
    """One problem solved twice in a process; `stays` are bytes resident in between and not before."""

    first: Row
    again: Row
    stays: int


def run(console: Console, *, seconds: float = SECONDS) -> None:
    """Measure and print; a row each as soon as it is known."""
    table = Table(*HEADINGS, title=f"layout: memory, {seconds:g} CPU s each")
    lines = Table(*LINES, title="layout: memory that grows, and that does not")
    for shape in SHAPES:
        found = {buffers: _middle(shape, buffers, seconds) for buffers in BUFFERS}
        for buffers, row in found.items():
            cells = (
                shape, f"{buffers:,}", f"{row.again.peak / row.again.bound:.5f}", f"{row.again.cpu:.2f}",
                f"{row.first.memory / buffers:.0f}", f"{row.again.memory / buffers:.0f}",
                f"{row.stays / 1000:.0f}",
            )  # fmt: skip
            table.add_row(*cells)
            console.log(*cells)
        again = [row.again.memory for row in found.values()]
        slope, fixed = np.polyfit(BUFFERS, again, 1)
        beyond = max(max(0, bytes_ - ALLOWED * n) for n, bytes_ in zip(BUFFERS, again, strict=True))
        stays = max(row.stays for row in found.values())
        lines.add_row(
            shape, f"{fixed / 1000:,.0f} + {slope:.0f}", f"{beyond / 1000:,.0f}", f"{stays / 1000:,.0f}"
        )
    console.print(table)
    console.print(lines)


def _middle(shape: str, buffers: int, seconds: float) -> Twice:
    """Of `RUNS` processes, by what the second solve takes."""
    rows = [_measured(shape, buffers, seconds) for _ in range(RUNS)]
    return sorted(rows, key=lambda row: row.again.memory)[RUNS // 2]


def _measured(shape: str, buffers: int, seconds: float) -> Twice:
    """In a process of its own."""
    command = [sys.executable, "-m", "tests.benchmarks.layout_memory", shape, str(buffers), str(seconds)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    told = json.loads(ran.stdout)
    return Twice(Row(**told["first"]), Row(**told["again"]), told["stays"])


def main(arguments: list[str]) -> None:
    """One row, as JSON: shape, buffers, seconds."""
    shape, buffers, seconds = arguments[0], int(arguments[1]), float(arguments[2])
    warmed(shape)
    problem = EVERY[shape](buffers, SEED)
    gc.collect()
    before = resident(anew=True)
    first = measured(problem, seconds, _allowed(seconds))
    gc.collect()
    stays = resident(anew=True) - before
    again = measured(problem, seconds, _allowed(seconds))
    sys.stdout.write(json.dumps(asdict(Twice(first, again, stays))))


def _allowed(seconds: float) -> Allowance:
    """So many seconds of the processor from now on."""
    return Allowance(until=time.process_time() + seconds)


if __name__ == "__main__":
    main(sys.argv[1:])
