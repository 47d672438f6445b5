"""OmniMalloc beside us, where it is installed: the extra `bench`.

Each of OmniMalloc's allocators gets a process, a problem in CSV and the same seconds; those that take no
time limit are ended when they have had three times as many of the processor. Limits are by the clock of the
wall, so on a busy machine they are longer by its load. It knows no alignment, so sizes are padded. What a
rival hands out is swept like our own.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from solver.exporters import dump_minimalloc
from solver.layout import Buffer, Layout, LayoutProblem, Lifespan, find_violations
from tests.benchmarks.measure import ROOT

__all__ = [
    "SEARCHES",
    "Rival",
    "best_rival",
    "generated",
    "installed",
    "rival",
    "rivals",
]

#: Its allocators: those that search until a time limit, by class; those that place once, by name.
SEARCHES = ("Supermalloc", "SimulatedAnnealing", "TabuSearch", "Telamalloc")
PLACERS = ("omni", "greedy_by_all")

#: Buffers beyond which only the placers stand a chance within the seconds of a row.
MOST_SEARCHED = 20_000

#: The interpreter that has it, where that is another one.
PYTHON = os.environ.get("ARENAPLAN_OMNIMALLOC", sys.executable)

#: Seconds of the processor for a process to start in, and how late it may be, as a factor.
START = 5
LATE = 3.0

_CODE = """
import json, resource, sys, time
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
cpu, most = time.process_time(), int(sys.argv[4])
resource.setrlimit(resource.RLIMIT_CPU, (most, most))
placed = omnimalloc.allocate(pool.allocations, chosen)
cpu = time.process_time() - cpu
print(json.dumps([cpu, {str(a.id): a.offset for a in placed}]))
"""

_GENERATE = """
import inspect, json, sys
from omnimalloc.analysis import try_linearize
from omnimalloc.benchmark import sources
source = getattr(sources, sys.argv[1] + "Source")
count, seed = int(sys.argv[2]), int(sys.argv[3])
for more in range(8):  # a source of pinwheels makes some numbers only
    try:
        made = source(num_allocations=count + more, seed=seed).get_allocations()
        break
    except ValueError:
        if more == 7:
            raise
lives = try_linearize(made)
print(json.dumps(lives and [(a.size, a.start, a.end) for a in lives]))
"""


@dataclass(frozen=True, slots=True)
class Rival:
    """One of its allocators on one problem: the peak it reached (bytes), and its seconds of the processor."""

    allocator: str
    peak: int
    cpu: float


def installed() -> bool:
    return sys.executable != PYTHON or importlib.util.find_spec("omnimalloc") is not None


def best_rival(problem: LayoutProblem, seconds: float) -> Rival | None:
    """The smallest peak of all its allocators, each with these seconds; None where it is not installed."""
    return min(rivals(problem, seconds), key=lambda rival: rival.peak, default=None)


def rivals(problem: LayoutProblem, seconds: float) -> list[Rival]:
    """Each of its allocators that has an answer, with these seconds; none where it is not installed."""
    if not installed():
        return []
    names = (*PLACERS, *(SEARCHES if len(problem.buffers) <= MOST_SEARCHED else ()))
    return [found for name in names if (found := rival(problem, name, seconds)) is not None]


def generated(source: str, buffers: int, seed: int) -> LayoutProblem | None:
    """The problem of one of its sources, named without ``Source``; None if no intervals have these conflicts.

    Some sources have a clock for each thread; two lifespans then conflict where neither is over before the
    other by all clocks. A source that makes some numbers of buffers only may make up to seven more.
    """
    command = [PYTHON, "-c", _GENERATE, source, str(buffers), str(seed)]
    ran = subprocess.run(command, capture_output=True, check=True, text=True, cwd=ROOT)
    rows = json.loads(ran.stdout)
    if rows is None:
        return None
    return LayoutProblem(
        tuple(Buffer(f"b{i}", size, Lifespan(start, end)) for i, (size, start, end) in enumerate(rows))
    )


def padded(problem: LayoutProblem) -> LayoutProblem:
    """Sizes rounded up to the alignment, which is then of no account: what it can be asked."""
    return LayoutProblem(
        tuple(
            replace(b, id=str(i), size=-(-b.size // b.alignment) * b.alignment, alignment=1)
            for i, b in enumerate(problem.buffers)
        )
    )


def rival(problem: LayoutProblem, name: str, seconds: float) -> Rival | None:
    """One of its allocators, by class without ``Allocator``, or by name.

    None where it fails, is far too late, or hands out a wrong layout.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "problem.csv"
        path.write_bytes(dump_minimalloc(padded(problem)))
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        most = START + math.ceil(LATE * seconds)
        command = [PYTHON, "-c", _CODE, str(path), name, str(busy * seconds), str(most)]
        try:
            ran = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, timeout=2 * busy * most)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired):
            return None
    cpu, offsets = json.loads(ran.stdout)
    peak = _swept(problem, offsets)
    return None if peak is None else Rival(name, peak, cpu)


def _swept(problem: LayoutProblem, offsets: dict[str, int]) -> int | None:
    found = tuple(offsets[str(i)] for i in range(len(problem.buffers)))
    layout = Layout(found, max(o + b.size for o, b in zip(found, problem.buffers, strict=True)))
    return None if find_violations(replace(problem, capacity=None), layout, limit=1) else layout.peak
