"""Measures the cost of planning: processor time by stage as graphs grow, and commands from a cold start."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from statistics import median
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.table import Table

from examples.resnet50 import resnet50
from solver.documents import dump_graph, dump_plan, load_graph
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.benchmarks.measure import ROOT, figure_table
from tests.support.deep_graphs import DEEP

__all__ = ["STAGES", "Cost", "cost", "run"]

SIZES = (1_000, 10_000)

#: What deep graphs are planned with.
VARIANTS: Mapping[str, PlanOptions] = {
    "": PlanOptions(),
    " --only in-place": PlanOptions(in_place=True),
    " --rewrite": PlanOptions(rewrite=True),
}

#: Stages in their order; "write" is the document of the plan, of which "digest" has had the tables.
STAGES = ("parse", "prepare", "derive", "passes", "layout", "prove", "digest", "write")

#: At least so many seconds for a row, and so many plans.
SECONDS, FEWEST, MOST = 3.0, 3, 60

#: Plans of a size that are compared: so many of the large graph, as many times as many of the small one.
ROUNDS, SMALL_ONES = 7, 5

COLD_RUNS = 11


@dataclass(frozen=True, slots=True)
class Cost:
    """Processor seconds of one plan by stage."""

    operations: int
    steps: int
    stages: Mapping[str, float]

    @property
    def proved(self) -> float:
        """From the bytes of a graph document to the proven plan with its digest."""
        return sum(seconds for stage, seconds in self.stages.items() if stage != "write")


def run(console: Console) -> None:
    """Print the tables. Takes six minutes."""
    console.print(_models())
    for given, options in VARIANTS.items():
        console.print(_growth(given, options))
    console.print(_commands())


def cost(
    document: bytes,
    options: PlanOptions | None = None,
    *,
    seconds: float = SECONDS,
    fewest: int = FEWEST,
) -> Cost:
    """Plan a graph document again and again, for `seconds` or `fewest` times; the cheapest counts."""
    load_graph(document)  # what is loaded once a process does not count
    found: list[Cost] = []
    until = time.process_time() + seconds
    while len(found) < fewest or (time.process_time() < until and len(found) < MOST):
        gc.collect()
        found.append(_once(document, options))
    return min(found, key=attrgetter("proved"))


def _once(document: bytes, options: PlanOptions | None) -> Cost:
    found: dict[str, float] = {}
    last = time.process_time()

    def mark(stage: str, _seconds: float = 0.0) -> None:
        """The resources used since the mark before: a stage includes those of the code before it."""
        nonlocal last
        now = time.process_time()
        found[stage], last = now - last, now

    graph = load_graph(document)
    mark("parse")
    made = plan(graph, options, observe=mark)
    mark("end")
    dump_plan(made, indent=2)
    mark("write")
    found["digest"] += found.pop("end")
    return Cost(len(graph.operations), len(made.steps), found)


def _growth(given: str, options: PlanOptions) -> Table:
    small, large = SIZES
    title = f"arenaplan plan{given}, processor seconds; {large:,} operations beside {small:,}"
    table = figure_table(title, "graph", f"operations, steps, in all, ratio, {', '.join(STAGES)}")
    for name, shape in DEEP.items():
        one, other = _in_turn(_bytes(shape, small), _bytes(shape, large), options)
        ratio = median(b.proved / a.proved for a, b in zip(one, other, strict=True))
        for found, shown in ((_middle(one), ""), (_middle(other), f"{ratio:.1f}")):
            stages = (f"{found.stages[stage]:.3f}" for stage in STAGES)
            table.add_row(
                name, f"{found.operations:,}", f"{found.steps:,}", f"{found.proved:.3f}", shown, *stages
            )
    return table


def _in_turn(small: bytes, large: bytes, options: PlanOptions) -> tuple[list[Cost], list[Cost]]:
    """The middle one of several plans of the small graph, then one plan of the large graph, and again: what
    else the machine does slows both.
    """
    _once(small, options)  # what is loaded once a process does not count
    found: tuple[list[Cost], list[Cost]] = ([], [])
    for _ in range(ROUNDS):
        several = []
        for document in (*[small] * SMALL_ONES, large):
            gc.collect()
            several.append(_once(document, options))
        found[0].append(_middle(several[:-1]))
        found[1].append(several[-1])
    return found


def _middle(costs: Sequence[Cost]) -> Cost:
    return sorted(costs, key=attrgetter("proved"))[len(costs) // 2]


def _bytes(shape: Callable[[int], Mapping[str, object]], size: int) -> bytes:
    return dump_graph(load_graph(shape(size)))


def _models() -> Table:
    title = "Graph document to proven plan, processor milliseconds"
    table = figure_table(title, "graph", f"operations, steps, in all, {', '.join(STAGES)}")
    models = {
        "mnist": (ROOT / "examples/mnist.json").read_bytes(),
        "MobileNet v2": (ROOT / "examples/mobilenet_v2.json").read_bytes(),
        "ResNet-50": dump_graph(resnet50(16).graph),
    }
    for name, document in models.items():
        found = cost(document)
        stages = (f"{found.stages[stage] * 1e3:.1f}" for stage in STAGES)
        table.add_row(name, f"{found.operations:,}", f"{found.steps:,}", f"{found.proved * 1e3:.1f}", *stages)
    return table


def _commands() -> Table:
    title = f"Commands, each a new process (medians of {COLD_RUNS})"
    table = figure_table(title, "command", "processor s, seconds")
    with TemporaryDirectory() as folder:
        made = str(Path(folder) / "plan.json")
        mnist, mobilenet = "examples/mnist.json", "examples/mobilenet_v2.json"
        commands: Sequence[tuple[str, ...]] = (
            ("--help",),
            ("plan", "--help"),
            ("plan", mnist, "-o", made),
            ("show", made),
            ("plan", mobilenet, "-o", made),
        )
        table.add_row("an empty Python program", *_cold("-c", "pass"))
        table.add_row("import numpy", *_cold("-c", "import numpy"))
        for command in commands:
            shown = " ".join(Path(word).name if "/" in word else word for word in command)
            table.add_row(f"arenaplan {shown}", *_cold("-m", "service.cli", *command))
    return table


def _cold(*arguments: str) -> tuple[str, str]:
    """Processor seconds and seconds of a fresh interpreter with bytecode at hand."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    used, passed = [], []
    for _ in range(COLD_RUNS + 1):
        before, started = getrusage(RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(
            [sys.executable, *arguments], cwd=ROOT, env=environment, capture_output=True, check=True
        )
        passed.append(time.perf_counter() - started)
        after = getrusage(RUSAGE_CHILDREN)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return f"{median(used[1:]):.3f}", f"{median(passed[1:]):.3f}"
