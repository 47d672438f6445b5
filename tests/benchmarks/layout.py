"""Every figure of the layout solver in one table: what is asked, must be reached, was reached; and a rival.

Public instances are read from beside the project where they are; training-shaped problems are made here.
Medians over seeds, warm, unless a row says otherwise. The table also goes to `RESULTS`, with machine and
commit, and from there into the page of figures (`./run bench layout --publish`).

Limits hold for a machine of two cores that has nothing else to do.
"""

from __future__ import annotations

import gc
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Final

from rich.console import Console
from rich.table import Table

from solver.layout import Deadline, LayoutProblem, Outcome, SolveOptions, solve
from tests.benchmarks.measure import ROOT, commit, machine
from tests.benchmarks.peers import Rival, best_rival, installed
from tests.support.buffers import DATA, read_csv
from tests.support.training_shaped import training_columns

__all__ = ["CASES", "RESULTS", "Case", "figures", "measure", "put_into_page", "run"]

RESULTS: Final = Path(__file__).parent / "results" / "layout.md"
PAGE: Final = ROOT / "docs/explanation/more-figures.md"
BEGIN, END = "<!-- figures of ./run bench layout -->", "<!-- end of figures -->"

#: Runs of each instance, each with other seeds.
SEEDS: Final = 15

#: A budget by the clock, so that slow machines give up as well.
SECONDS: Final = 5.0

#: Seconds that a rival gets at least: it starts in a process of its own.
RIVAL_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Case:
    """A problem, what is asked of it, for how long at most, and what must be reached.

    `must` are seconds: median and maximum. `most` is the largest peak (bytes) that will do, `gap` the largest
    share above the bound. A problem is made anew for each seed where `many` is set.
    """

    name: str
    make: Callable[[int], LayoutProblem]
    capacity: int | None = None
    seconds: float = SECONDS
    runs: int = SEEDS
    must: tuple[float, float] = (math.inf, math.inf)
    most: float = math.inf
    gap: float = math.inf
    many: bool = False

    @property
    def asked(self) -> str:
        if self.capacity is not None:
            return f"fit {self.capacity:,}"
        if self.many:
            return f"minimise to {self.gap:.1%}"
        return f"minimise, {self.seconds:g} s"


def _file(name: str, alignment: int = 1) -> Callable[[int], LayoutProblem]:
    return lambda _: read_csv(DATA / f"{name}.csv", alignment)


def _tight(name: str) -> Callable[[int], LayoutProblem]:
    return _file(f"minimalloc/{name}.1048576")


def _training(buffers: int) -> Callable[[int], LayoutProblem]:
    return lambda seed: training_columns(seed, buffers=buffers).problem()


def _executorch(name: str, seconds: float) -> Case:
    gap = 0.0 if seconds < 1 else 0.0005
    make = _file(f"executorch/step_{name}", 16)
    return Case(f"ExecuTorch {name}", make, must=(seconds, seconds), gap=gap)


def _large(buffers: int, runs: int, seconds: float) -> Case:
    name, must = f"training-shaped {buffers:,}", (seconds, math.inf)
    make = _training(buffers)
    return Case(name, make, None, math.inf, runs, must, gap=0.001, many=True)


CASES: Final = (
    *(Case(f"MiniMalloc {n}", _tight(n), 2**20, must=(0.03, 0.1), most=2**20) for n in "ABCDE"),
    Case("MiniMalloc J", _tight("J"), 2**20, most=2**20),
    Case("MiniMalloc C", _tight("C"), must=(0.05, 0.05), gap=0.0),
    Case("MiniMalloc D", _tight("D"), seconds=10, must=(3, 3), gap=0.0),
    Case("MiniMalloc J", _tight("J"), seconds=1, most=1_018_880),
    Case("MiniMalloc J", _tight("J"), seconds=30, most=997_376),
    _executorch("mlp_b32", 0.1),
    _executorch("lenet_b32", 0.1),
    _executorch("mbv2_96_b8", 5),
    _executorch("resnet50_224_b8", 5),
    Case("SOMAS ResNet-50", _file("idealloc/somas_resnet50"), must=(0.05, 0.05), gap=0.0),
    Case("IOPDDL G_1", _file("idealloc/iopddl_G_1"), must=(0.05, 0.05), gap=0.0),
    _large(10_000, SEEDS, 0.1),
    _large(100_000, 5, 1),
    _large(1_000_000, 1, 15),
)

HEADINGS: Final = (
    "work", "buffers", "asked", "must reach", "seconds, median (max)", "worst peak", "gap to bound", "proof",
    "reached", "OmniMalloc's best", "theirs / ours",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """All runs of one case; `worst` is the one with the largest gap.

    `beside` is our peak (bytes) on that one's problem in the rival's seconds.
    """

    buffers: int
    seconds: tuple[float, ...]
    worst: Outcome
    rival: Rival | None
    beside: int

    @property
    def peak(self) -> int:
        return self.worst.layout.peak if self.worst.layout else 0

    @property
    def gap(self) -> float:
        return self.peak / self.worst.lower_bound - 1

    @property
    def per_unit(self) -> float:
        """Nanoseconds for each n log2 n."""
        return median(self.seconds) * 1e9 / (self.buffers * math.log2(self.buffers))


def run(console: Console, *, publish: bool = False) -> None:
    """Measure everything, print it and keep it in `RESULTS`; `publish`: and in the page of figures."""
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(measure(console, CASES), encoding="utf-8")
    if publish:
        put_into_page()


def put_into_page() -> None:
    """Put what `RESULTS` holds into the page of figures, between its two marks."""
    text = PAGE.read_text(encoding="utf-8")
    before, begins, rest = text.partition(BEGIN)
    _, ends, after = rest.partition(END)
    if not (begins and ends):
        raise ValueError(f"{PAGE} has no place for the figures: {BEGIN} {END}")
    PAGE.write_text(f"{before}{BEGIN}{figures()}{END}{after}", encoding="utf-8")


def figures() -> str:
    """As they stand on the page."""
    return f"\n{RESULTS.read_text(encoding='utf-8')}"


def measure(console: Console, cases: tuple[Case, ...]) -> str:
    """Measure and print; the table as Markdown."""
    busy = os.getloadavg()[0]
    there = [case for case in cases if case.many or DATA.exists()]
    if len(there) < len(cases):
        console.print("layout: the public instances are not there")
    measured = [(case, _measured(case)) for case in there]
    rows = [_row(case, result) for case, result in measured]
    if any(not case.many for case in there):
        rows.insert(5, _fresh_row())
    table = Table(*HEADINGS, title="layout")
    for row in rows:
        table.add_row(*row)
    console.print(table)
    notes = list(_growth(measured))
    if not installed():
        notes.append("OmniMalloc is not installed here: pip install omnimalloc==1.0.0")
    for note in notes:
        console.print(note, markup=False, highlight=False)
    return _markdown(rows, notes, busy)


def _measured(case: Case) -> Measured:
    problem = case.make(0)
    _answer(case, problem, 1000)
    seconds: list[float] = []
    worst, hardest = None, problem
    for k in range(case.runs):
        problem = case.make(k) if case.many else problem
        gc.collect()
        began = time.perf_counter()
        outcome = _answer(case, problem, 2 * k)
        seconds.append(time.perf_counter() - began)
        if worst is None or _ratio(outcome) > _ratio(worst):
            worst, hardest = outcome, problem
    if worst is None:
        raise ValueError(f"{case.name} has no runs")
    limit = case.seconds if case.seconds < math.inf else max(RIVAL_SECONDS, case.must[0])
    rival, beside = best_rival(hardest, limit), worst.layout.peak if worst.layout else 0
    if case.many and rival is not None:  # the runs above end at a gap, where the rival goes on
        more = solve(hardest, deadline=Deadline.after(limit), options=SolveOptions(work=None))
        beside = more.layout.peak if more.layout else beside
    return Measured(len(problem.buffers), tuple(seconds), worst, rival, beside)


def _ratio(outcome: Outcome) -> float:
    return outcome.layout.peak / outcome.lower_bound if outcome.layout else math.inf


def _answer(case: Case, problem: LayoutProblem, seed: int) -> Outcome:
    if case.many:
        return solve(problem, options=SolveOptions(target_gap=case.gap, seed=seed))
    problem = replace(problem, capacity=case.capacity)
    options = SolveOptions(work=None, fit=case.capacity is not None, seed=seed)
    return solve(problem, deadline=Deadline.after(case.seconds), options=options)


def _row(case: Case, got: Measured) -> tuple[str, ...]:
    middle, slowest = median(got.seconds), max(got.seconds)
    inside = middle <= case.must[0] and slowest <= case.must[1]
    reached = inside and got.peak <= case.most and got.gap <= case.gap
    rival, ratio = "", ""
    if got.rival is not None:
        rival = f"{got.rival.peak:,} ({got.rival.allocator})"
        # Where a capacity was asked for, a layout that fits is all there is to win.
        ours = min(got.peak, got.rival.peak) if case.capacity and got.peak <= case.capacity else got.beside
        ratio = f"{got.rival.peak / ours:.4f}"
    return (
        case.name, f"{got.buffers:,}", case.asked, _required(case),
        f"{middle:.3f} ({slowest:.3f}), {case.runs}", f"{got.peak:,}", f"{got.gap:.3%}",
        got.worst.proof.value if got.worst.proof else "-",
        "yes" if reached else "no", rival, ratio,
    )  # fmt: skip


def _required(case: Case) -> str:
    """The time, peak and gap that the case must reach, in words."""
    said = []
    if case.must[0] < math.inf:
        said.append(
            f"{case.must[0]:g} s" + (f" ({case.must[1]:g})" if case.must[0] < case.must[1] < math.inf else "")
        )
    if case.most < math.inf and case.capacity is None:
        said.append(f"peak {case.most:,}")
    if case.gap < math.inf:
        said.append(f"gap {case.gap:.2%}" if case.gap else "the bound")
    return ", ".join(said) or "solved"


def _fresh_row() -> tuple[str, ...]:
    """The whole command in a new process; compiled code is on disk."""
    runs = sorted(_fresh() for _ in range(SEEDS))
    wall, work = median(run[0] for run in runs), median(run[1] for run in runs)
    return (
        "MiniMalloc A, whole command", "154", "fit 1,048,576, new process", "0.5 s",
        f"{wall:.3f} ({runs[-1][0]:.3f}), {SEEDS}; CPU {work:.3f}", "", "", "",
        "yes" if wall <= 0.5 else "no", "", "",
    )  # fmt: skip


def _fresh() -> tuple[float, float]:
    """Seconds by the clock and of the processor."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        program = "import sys\nfrom service.cli.main import main\nsys.exit(main())"  # as the installed script
        command = [sys.executable, "-c", program, "solve", str(DATA / "minimalloc" / "A.1048576.csv")]
        command += ["--capacity", str(2**20), "-o", str(Path(directory) / "solution.csv")]
        subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
        wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _growth(measured: list[tuple[Case, Measured]]) -> Iterator[str]:
    """A flat bar is growth like n log n; one twice as long a step further down is worse."""
    large = [got for case, got in measured if case.many]
    if large:
        unit = max(got.per_unit for got in large) / 40
        yield "growth, nanoseconds for each n log2 n:"
    for got in large:
        yield f"  {got.buffers:>9,} buffers {got.per_unit:6.1f} {'#' * max(1, round(got.per_unit / unit))}"


def _markdown(rows: list[tuple[str, ...]], notes: list[str], busy: float) -> str:
    """The table, its machine and its commit."""
    lines = [" | ".join(HEADINGS), " | ".join(["---"] * len(HEADINGS)), *(" | ".join(row) for row in rows)]
    table = "\n".join(f"| {line} |" for line in lines)
    where = f"Measured on {machine()}; commit {commit()}; load average before: {busy:.1f}."
    return f"{where}\n\n{table}\n\n```\n" + "\n".join(notes) + "\n```\n"
