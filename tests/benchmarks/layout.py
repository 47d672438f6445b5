"""The exact layout search on public instances: seconds, peak and bound; medians over seeds, warm.

The instances are read from beside the project where they are; without them, nothing is measured.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace
from statistics import median

from rich.console import Console
from rich.table import Table

from solver.layout import Deadline, Outcome, Problem, SolveOptions, solve
from tests.benchmarks.measure import in_new_process
from tests.support.buffers import DATA, read_csv

#: Runs of each instance, each with other seeds.
SEEDS = 15

#: A budget by the clock, so that slow machines give up as well.
SECONDS = 5.0

_FRESH = """
import json, sys, time
began = time.perf_counter()
from tests.support.buffers import DATA, read_csv
from solver.layout import SolveOptions, solve
from dataclasses import replace
problem = replace(read_csv(DATA / "minimalloc" / "A.1048576.csv"), capacity=2**20)
outcome = solve(problem, options=SolveOptions(fit=True))
print(json.dumps({"peak": outcome.layout.peak}))
"""


@dataclass(frozen=True, slots=True)
class Case:
    """An instance, what is asked of it, and for how long at most."""

    file: str
    alignment: int = 1
    capacity: int | None = None
    seconds: float = SECONDS
    runs: int = SEEDS

    @property
    def title(self) -> str:
        asked = "minimise" if self.capacity is None else f"fit {self.capacity:,}"
        return f"{self.file.removesuffix('.csv')}, {asked}, {self.seconds:g} s"


CASES = (
    *(Case(f"minimalloc/{name}.1048576.csv", capacity=2**20) for name in "ABCDEJ"),
    Case("minimalloc/C.1048576.csv"),
    Case("minimalloc/D.1048576.csv", seconds=10, runs=5),
    Case("minimalloc/J.1048576.csv", seconds=1, runs=5),
    Case("minimalloc/J.1048576.csv", seconds=30, runs=1),
    *(
        Case(f"executorch/step_{name}.csv", alignment=16, runs=5)
        for name in ("mlp_b32", "lenet_b32", "mbv2_96_b8", "resnet50_224_b8")
    ),
    Case("idealloc/somas_resnet50.csv"),
    Case("idealloc/iopddl_G_1.csv"),
)


def run(console: Console) -> None:
    """Print the tables."""
    if not DATA.exists():
        console.print("layout: the public instances are not there")
        return
    table = Table("instance", "median s", "max s", "worst peak", "bound", "gap %", "proof", title="layout")
    for case in CASES:
        table.add_row(*_measured(case))
    console.print(table)
    fresh = [in_new_process(_FRESH)["process_seconds"] for _ in range(5)]
    console.print(f"a new process on A, compiled code on disk: {median(fresh):.2f} s")
    console.print(f"from cancelling to the answer on J: {_cancelled(_problem(CASES[8])) * 1e3:.0f} ms")


def _problem(case: Case) -> Problem:
    return replace(read_csv(DATA / case.file, case.alignment), capacity=case.capacity)


def _measured(case: Case) -> tuple[str, ...]:
    problem = _problem(case)
    _answer(problem, case, 1000)
    seconds, outcomes = [], []
    for k in range(case.runs):
        began = time.perf_counter()
        outcomes.append(_answer(problem, case, 2 * k))
        seconds.append(time.perf_counter() - began)
    worst = max(outcomes, key=lambda outcome: outcome.layout.peak if outcome.layout else 0)
    peak = worst.layout.peak if worst.layout else 0
    gap = 100 * (peak - worst.lower_bound) / worst.lower_bound
    proof = worst.proof.value if worst.proof else "-"
    times = f"{median(seconds):.3f}", f"{max(seconds):.3f}"
    return (case.title, *times, f"{peak:,}", f"{worst.lower_bound:,}", f"{gap:.3f}", proof)


def _answer(problem: Problem, case: Case, seed: int) -> Outcome:
    options = SolveOptions(work=None, fit=case.capacity is not None, seed=seed)
    return solve(problem, deadline=Deadline.after(case.seconds), options=options)


def _cancelled(problem: Problem) -> float:
    """Seconds from setting the event to the answer."""
    cancel, at = threading.Event(), 0.0

    def fire() -> None:
        nonlocal at
        at = time.perf_counter()
        cancel.set()

    threading.Timer(0.5, fire).start()
    solve(problem, options=SolveOptions(work=None, cancel=cancel))
    return time.perf_counter() - at
