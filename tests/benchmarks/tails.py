"""Hundreds of tight problems, one question each: how long the longest take, and how long others take.

Every problem is cut out of a layout that fits (`tests.support.tilings`, `tests.support.streams`), asks
whether everything fits under the capacity of that layout, and is solved once, on one thread, with a seed of
its own.
Times of search are heavy-tailed: a mean says little, so medians stand beside the 90th and 99th percentile and
the maximum. Work is limited, not time, so what is solved is the same on every machine; a problem that is
left open counts with the time until it was given up.

Beside it, over every `EACH`-th problem: CP-SAT, and MiniMalloc's own program where somebody has built it
(ARENAPLAN_MINIMALLOC names it), each with twice the seconds that ours may take. A last
table has whole processes, from start to exit: the command and MiniMalloc's, on the public instances where
they stand beside the project, and on problems of each kind.
"""

from __future__ import annotations

import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from solver.exporters import dump_minimalloc
from solver.layout import Deadline, LayoutProblem, SolveOptions, solve
from tests.benchmarks.measure import ROOT
from tests.benchmarks.peers import MINIMALLOC, minimalloc
from tests.support.buffers import DATA
from tests.support.streams import recut, stream
from tests.support.tilings import tiling

__all__ = ["FAMILIES", "Taken", "run", "summary"]

#: Problems of each family, and of how many the others get one.
PROBLEMS: Final = 100
EACH: Final = 10

#: Work of each of two seeds, about two seconds and a half, and seconds for the others.
WORK: Final = 200_000_000
PEER_SECONDS: Final = 5.0

#: Runs of a whole process.
RUNS: Final = 5

HEADINGS: Final = (
    "problems",
    "solver",
    "asked",
    "solved",
    "median, CPU ms",
    "p90",
    "p99",
    "max",
    "sum, CPU s",
)
FRESH_HEADINGS: Final = (
    "whole process",
    "buffers",
    "arenaplan, CPU s, least of runs",
    "MiniMalloc, CPU s",
    "theirs / ours",
)


@dataclass(frozen=True, slots=True)
class Taken:
    """CPU seconds for one problem, and whether it was solved."""

    seconds: float
    solved: bool


def _tilings(seed: int) -> LayoutProblem:
    draw = random.Random(seed)
    buffers, free = draw.randint(140, 260), draw.choice((0.03, 0.06, 0.1))
    return tiling(seed, buffers=buffers, steps=100, units=1024, unit=1024, free=free)


def _streams(seed: int) -> LayoutProblem:
    return stream(seed, **_drawn(seed), free=random.Random(seed).choice((0.07, 0.085, 0.1)))


def _recut(seed: int) -> LayoutProblem:
    return recut(seed, **_drawn(seed), free=random.Random(seed).choice((0.07, 0.085, 0.1)))


def _drawn(seed: int) -> dict[str, int]:
    draw = random.Random(-seed - 1)
    return {
        "buffers": draw.randint(100, 200),
        "steps": draw.randint(60, 140),
        "live": draw.choice((25, 30, 40)),
    }


FAMILIES: Final[Mapping[str, Callable[[int], LayoutProblem]]] = MappingProxyType(
    {"tilings": _tilings, "streams": _streams, "streams, cut anew": _recut}
)


def run(console: Console) -> None:
    """Measure and print."""
    _ours(_tilings(0), 0)  # loads what it needs
    table = Table(*HEADINGS, title="layout: tails")
    everything: list[Taken] = []
    for name, make in FAMILIES.items():
        taken = [_ours(make(seed), seed) for seed in range(PROBLEMS)]
        everything += taken
        table.add_row(name, "ours", *summary(taken))
        some = [make(seed) for seed in range(0, PROBLEMS, EACH)]
        table.add_row("", "ours", *summary(taken[::EACH]))
        table.add_row("", "CP-SAT", *summary([_cp_sat(problem) for problem in some]))
        if MINIMALLOC is not None:
            table.add_row("", "MiniMalloc", *summary([_minimalloc(problem) for problem in some]))
    table.add_row("all", "ours", *summary(everything))
    console.print(table)
    fresh = Table(*FRESH_HEADINGS, title="layout: whole processes")
    for row in _fresh_rows():
        fresh.add_row(*row)
    console.print(fresh)
    if MINIMALLOC is None:
        console.print(
            "MiniMalloc is not here: build github.com/google/minimalloc, and name it in ARENAPLAN_MINIMALLOC"
        )


def summary(taken: list[Taken]) -> tuple[str, ...]:
    """The cells of a row from `asked` on."""
    milliseconds = np.array([one.seconds for one in taken]) * 1e3
    quantiles = (f"{at:,.0f}" for at in np.quantile(milliseconds, (0.5, 0.9, 0.99, 1.0)))
    solved = sum(one.solved for one in taken)
    return (str(len(taken)), f"{solved / len(taken):.0%}", *quantiles, f"{milliseconds.sum() / 1e3:.2f}")


def _ours(problem: LayoutProblem, seed: int) -> Taken:
    began = time.process_time()
    outcome = solve(problem, options=SolveOptions(work=WORK, fit=True, threads=1, seed=seed))
    seconds = time.process_time() - began
    return Taken(seconds, outcome.layout is not None and outcome.layout.peak <= (problem.capacity or 0))


def _cp_sat(problem: LayoutProblem) -> Taken:
    began = time.process_time()
    options = SolveOptions(work=None, fit=True, threads=1)
    outcome = solve(problem, solver="cp-sat", deadline=Deadline.after(PEER_SECONDS), options=options)
    seconds = time.process_time() - began
    return Taken(seconds, outcome.layout is not None and outcome.layout.peak <= (problem.capacity or 0))


def _minimalloc(problem: LayoutProblem) -> Taken:
    found, seconds = minimalloc(problem, PEER_SECONDS)
    return Taken(seconds, found is not None)


def _fresh_rows() -> Iterator[tuple[str, ...]]:
    """Public instances, and the first two problems of each family."""
    for path in sorted((DATA / "minimalloc").glob("*.csv")) if DATA.exists() else ():
        capacity = int(path.stem.split(".")[1])
        yield _fresh_row(f"MiniMalloc {path.stem.split('.')[0]}", path.read_bytes(), capacity)
    for name, make in FAMILIES.items():
        for seed in range(2):
            problem = make(seed)
            yield _fresh_row(f"{name} {seed}", dump_minimalloc(problem), problem.capacity or 0)


def _fresh_row(name: str, text: bytes, capacity: int) -> tuple[str, ...]:
    with tempfile.TemporaryDirectory() as directory:
        problem, solution = Path(directory, "problem.csv"), Path(directory, "solution.csv")
        problem.write_bytes(text)
        program = "import sys\nfrom service.cli.main import main\nsys.exit(main())"  # as the installed script
        asked = ["solve", str(problem), "--capacity", str(capacity), "-o", str(solution)]
        ours = min(_process([sys.executable, "-c", program, *asked]) for _ in range(RUNS))
        if MINIMALLOC is None:
            return name, f"{len(text.splitlines()) - 1}", f"{ours:.3f}", "", ""
        flags = [f"--capacity={capacity}", f"--input={problem}", f"--output={solution}", "--timeout=60s"]
        theirs = min(_process([MINIMALLOC, *flags]) for _ in range(RUNS if ours < 1 else 1))
    return name, f"{len(text.splitlines()) - 1}", f"{ours:.3f}", f"{theirs:.3f}", f"{theirs / ours:.2f}"


def _process(command: list[str]) -> float:
    """CPU seconds of a process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=False, capture_output=True, cwd=ROOT)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
