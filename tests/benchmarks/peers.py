"""OmniMalloc beside us, where it is installed: the extra `bench`; and MiniMalloc, where it was built.

Each of OmniMalloc's allocators gets a process, a problem in CSV and the same seconds; those that take no
time limit are ended a little later. It knows no alignment, so sizes are padded. What a rival hands out is
swept like our own.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from solver.exporters import dump_minimalloc
from solver.layout import Layout, LayoutProblem, find_violations
from tests.benchmarks.measure import ROOT

__all__ = ["MINIMALLOC", "Rival", "best_rival", "installed", "minimalloc"]

#: The program of github.com/google/minimalloc, where somebody has built it.
MINIMALLOC = shutil.which(os.environ.get("ARENAPLAN_MINIMALLOC", "minimalloc"))

#: Its allocators: those that search until a time limit, by class; those that place once, by name.
SEARCHES = ("Supermalloc", "SimulatedAnnealing", "TabuSearch", "Telamalloc")
PLACERS = ("omni", "greedy_by_all")

#: Buffers beyond which only the placers stand a chance within the seconds of a row.
MOST_SEARCHED = 20_000

#: The interpreter that has it, where that is another one.
PYTHON = os.environ.get("ARENAPLAN_OMNIMALLOC", sys.executable)

#: Seconds for a process to start in, and how late it may be, as a factor.
START = 5.0
LATE = 3.0

_CODE = """
import json, sys
import omnimalloc
from omnimalloc import allocators
path, name, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
from omnimalloc.io import load_allocation
pool = load_allocation(path)
chosen = name if name.islower() else getattr(allocators, f"{name}Allocator")
if not isinstance(chosen, str):
    limits = {"timeout": seconds}
    if name in ("SimulatedAnnealing", "TabuSearch"):
        limits["max_iterations"] = 10**9
    if name == "Telamalloc":
        limits["max_backtracks"] = 10**9
    chosen = chosen(**limits)
placed = omnimalloc.allocate(pool.allocations, chosen)
print(json.dumps({str(a.id): a.offset for a in placed}))
"""


@dataclass(frozen=True, slots=True)
class Rival:
    """Its best allocator on one problem, and the peak it reached (bytes)."""

    allocator: str
    peak: int


def installed() -> bool:
    return sys.executable != PYTHON or importlib.util.find_spec("omnimalloc") is not None


def best_rival(problem: LayoutProblem, seconds: float) -> Rival | None:
    """The smallest peak of all its allocators, each with these seconds; None where it is not installed."""
    if not installed():
        return None
    names = (*PLACERS, *(SEARCHES if len(problem.buffers) <= MOST_SEARCHED else ()))
    found = [Rival(name, peak) for name in names if (peak := _peak(problem, name, seconds)) is not None]
    return min(found, key=lambda rival: rival.peak, default=None)


def padded(problem: LayoutProblem) -> LayoutProblem:
    """Sizes rounded up to the alignment, which is then of no account: what it can be asked."""
    return LayoutProblem(
        tuple(
            replace(b, id=str(i), size=-(-b.size // b.alignment) * b.alignment, alignment=1)
            for i, b in enumerate(problem.buffers)
        )
    )


def minimalloc(problem: LayoutProblem, seconds: float) -> tuple[int | None, float]:
    """The peak of the layout that it finds under the capacity, if any, and CPU seconds: `seconds` at most."""
    if MINIMALLOC is None:
        raise FileNotFoundError("MiniMalloc is not built: name its program in ARENAPLAN_MINIMALLOC")
    with tempfile.TemporaryDirectory() as directory:
        path, found = Path(directory, "problem.csv"), Path(directory, "solution.csv")
        path.write_bytes(dump_minimalloc(padded(problem)))
        asked = [f"--capacity={problem.capacity}", f"--input={path}", f"--output={found}"]
        # Its own limit is by the clock, which goes on while other processes run.
        limited = ["sh", "-c", 'ulimit -t "$0"; exec "$@"', f"{math.ceil(seconds)}", MINIMALLOC]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        ran = subprocess.run([*limited, *asked], capture_output=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        rows = csv.DictReader(found.read_text(encoding="utf-8").splitlines()) if ran.returncode == 0 else ()
        offsets = {row["id"]: int(row["offset"]) for row in rows}
    taken = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return _swept(problem, offsets) if offsets else None, taken


def _peak(problem: LayoutProblem, name: str, seconds: float) -> int | None:
    """None where the allocator fails, is far too late, or hands out a wrong layout."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "problem.csv"
        path.write_bytes(dump_minimalloc(padded(problem)))
        command = [PYTHON, "-c", _CODE, str(path), name, str(seconds)]
        try:
            ran = subprocess.run(
                command, capture_output=True, check=True, cwd=ROOT, timeout=START + LATE * seconds
            )
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return None
    return _swept(problem, json.loads(ran.stdout))


def _swept(problem: LayoutProblem, offsets: dict[str, int]) -> int | None:
    found = tuple(offsets[str(i)] for i in range(len(problem.buffers)))
    layout = Layout(found, max(o + b.size for o, b in zip(found, problem.buffers, strict=True)))
    return None if find_violations(replace(problem, capacity=None), layout, limit=1) else layout.peak
