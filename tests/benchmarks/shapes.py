"""Layouts of one shape each, from 200 to a million buffers: peak, time, lateness and memory, and a rival
beside them.

The shapes are those of `tests.support.shapes`, a line each. Every row is a process of its own, so that what
it adds to memory is its own: the kernel's peak of resident memory while it solves, less what was resident
before, with the problem made, all code loaded and a small problem of the shape solved. The offsets of the
answer, some 40 bytes a buffer, are in it; so are pages of files, of libraries above all, that were not
touched before, which have a column of their own. Seconds are of the processor, lateness is by the clock. The
rival gets the same seconds for each of its allocators, where it can be asked: it knows no pins and no gaps.
"""

from __future__ import annotations

import ctypes
import gc
import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from solver.compile import load as load_compiled
from solver.layout import Deadline, LayoutProblem, Progress, SolveOptions, solve
from tests.benchmarks.measure import ROOT
from tests.benchmarks.peers import MOST_SEARCHED, best_rival
from tests.support.deep_shapes import EVERY
from tests.support.shapes import SHAPES

__all__ = ["SEED", "Row", "measured", "resident", "run", "warmed"]

BUFFERS: Final = (200, 5_000, 20_000, 100_000, 1_000_000)

#: Seconds for each problem by its number of buffers.
SECONDS: Final = {200: 1.0, 5_000: 5.0, 20_000: 10.0, 100_000: 10.0, 1_000_000: 10.0}

#: Seed of all problems.
SEED: Final = 1

HEADINGS: Final = (
    "shape", "buffers", "deadline", "peak / bound", "found by", "CPU s", "first layout, CPU s", "late by, ms",
    "bytes a buffer", "files, kB", "OmniMalloc's best", "theirs / ours",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One solve: bytes, seconds, and what it added to the memory of the process.

    `late` is by the clock. `files` are the bytes of `memory` that the kernel keeps for files: code and tables
    of libraries, however many buffers there are.
    """

    peak: int
    bound: int
    solver: str
    cpu: float
    first: float
    late: float
    memory: int
    files: int


def measured(problem: LayoutProblem, seconds: float, deadline: Deadline | None = None) -> Row:
    """In this process, once; `deadline`: in place of one by the clock."""
    firsts: list[float] = []
    gc.collect()
    gc.freeze()
    before, files = resident(anew=True), _status("RssFile")
    cpu, wall = time.process_time(), time.perf_counter()

    def heard(_: Progress) -> None:
        firsts.append(time.process_time() - cpu)

    outcome = solve(
        problem,
        deadline=deadline or Deadline.after(seconds),
        options=SolveOptions(work=None, progress=heard),
    )
    late, used = time.perf_counter() - wall - seconds, time.process_time() - cpu
    peak = outcome.layout.peak if outcome.layout else 0
    first = firsts[0] if firsts else used
    memory = resident() - before
    files = max(0, _status("RssFile") - files)
    return Row(peak, outcome.lower_bound, outcome.solver, used, first, late, memory, files)


def resident(*, anew: bool = False) -> int:
    """The peak of resident bytes; `anew`: it begins at what is resident now, where the kernel can do that."""
    clear = Path("/proc/self/clear_refs")
    if not clear.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if anew:
        ctypes.CDLL(None).malloc_trim(0)
        clear.write_text("5", encoding="ascii")
    return _status("VmHWM")


def _status(name: str) -> int:
    """A line of the kernel's account of this process, in bytes; 0 where there is none."""
    status = Path("/proc/self/status")
    lines = status.read_text(encoding="ascii").splitlines() if status.exists() else []
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0) * 1024


def run(console: Console) -> None:
    """Measure and print."""
    table = Table(*HEADINGS, title="layout: shapes")
    for shape in SHAPES:
        for buffers in BUFFERS:
            table.add_row(*_row(shape, buffers))
    console.print(table)


def _row(shape: str, buffers: int) -> tuple[str, ...]:
    seconds = SECONDS[buffers]
    # In a process of its own.
    command = [sys.executable, "-m", "tests.benchmarks.shapes", shape, str(buffers), str(seconds)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    row = Row(**json.loads(ran.stdout))
    asked = buffers <= MOST_SEARCHED and shape != "pins" and not shape.startswith("gaps")
    rival = best_rival(SHAPES[shape](buffers, SEED), seconds) if asked else None
    return (
        shape, f"{buffers:,}", f"{seconds:g} s", f"{row.peak / row.bound:.5f}",
        row.solver.removeprefix("portfolio/"), f"{row.cpu:.2f}", f"{row.first:.2f}",
        f"{max(0.0, row.late) * 1e3:.0f}", f"{row.memory / buffers:.0f}", f"{row.files / 1000:.0f}",
        "" if rival is None else f"{rival.peak / row.bound:.5f} ({rival.allocator})",
        "" if rival is None else f"{rival.peak / row.peak:.4f}",
    )  # fmt: skip


def warmed(shape: str) -> None:
    """Solves a small one of the shape: what is loaded late, CP-SAT above all, is not a problem's."""
    load_compiled()
    for solver in ("portfolio", "cp-sat"):
        solve(EVERY[shape](60, SEED), solver=solver, deadline=Deadline.after(5.0))


def main(arguments: list[str]) -> None:
    """One row, as JSON: shape, buffers, seconds."""
    shape, buffers, seconds = arguments[0], int(arguments[1]), float(arguments[2])
    warmed(shape)
    sys.stdout.write(json.dumps(asdict(measured(SHAPES[shape](buffers, SEED), seconds))))


if __name__ == "__main__":
    main(sys.argv[1:])
