"""Training in C beside NumPy's executor, onert 0.1.0 and PyTorch: one step, on one thread, in turn.

Each runtime is a process that trains the same graph on the same batch when its turn comes. C is compiled for
this processor, for any of its kind, and without vector extensions. Figures are medians; a ratio is the median
over rounds. A second table compares each kernel's loops with its vector form (`c_kernel_times`).
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from shutil import which
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from examples.gallery import GALLERY
from examples.models import mnist, mobilenet_v2
from solver.documents import load_graph
from solver.pipeline import plan_requested
from solver.plan import PlanOptions, RequestedOptions
from tests.benchmarks import c_kernel_times
from tests.benchmarks.trainings import Training, in_c, in_python, in_turn, prepare
from tests.support.buffers import DATA

__all__ = ["run"]

NETWORKS: Final[Mapping[str, Callable[[], Mapping[str, Any]]]] = {
    "mnist b32": mnist,
    "mobilenet_v2 b10": mobilenet_v2,
    "lenet5 b32": lambda: GALLERY["lenet5"].model().document,
    "resnet18 b4": lambda: GALLERY["resnet18"].model().document,
    "lstm_classifier b32": lambda: GALLERY["lstm_classifier"].model().document,
    "transformer b16": lambda: GALLERY["transformer"].model().document,
}

#: What the same files are compiled with.
FLAGS: Final = {
    "C": ("-O3", "-march=native"),
    "C, any x86-64": ("-O3",),
    "C, -DAP_PLAIN": ("-O3", "-march=native", "-DAP_PLAIN"),
}

#: CPU seconds that all steps of one network may take, about.
PATIENCE: Final = 30.0
MOST: Final = 15


def run(
    console: Console,
    part: str | None = None,
    onert: str = sys.executable,
    torch: str = sys.executable,
) -> None:
    """Print the tables; `part`: only networks with this in their names. `onert` and `torch` are interpreters
    that can import these.
    """
    if which("gcc") is None:
        console.print("There is no gcc, so nothing was trained in C: apt-get install gcc libc6-dev")
        return
    missing: dict[str, str] = {}
    for name, document in NETWORKS.items():
        if part is None or part in name:
            with tempfile.TemporaryDirectory() as folder:
                console.print(_table(name, document(), Path(folder), onert, torch, missing))
                console.print(c_kernel_times.table(name, Path(folder), FLAGS["C"]))
    graph = load_graph(mnist(8))
    ordered = plan_requested(graph, RequestedOptions(PlanOptions(target="c", order=True)))
    console.print(f"Arena of mnist, batch 8, with --only order: {ordered.arena_bytes:,} B", highlight=False)
    for runtime, what in missing.items():
        console.print(f"Without {runtime}: there is no {what}.", markup=False, soft_wrap=True)


def _table(
    name: str,
    document: Mapping[str, Any],
    folder: Path,
    onert: str,
    torch: str,
    missing: dict[str, str],
) -> Table:
    model = DATA / f"{document['name']}.circle"
    plan = prepare(folder, document, model if model.exists() else None)
    usual = plan_requested(load_graph(document), RequestedOptions(PlanOptions()))
    arenas = {"C": plan.arena_bytes, "NumPy": usual.arena_bytes}
    with ExitStack() as stack:
        trainings = {
            title: stack.enter_context(in_c(folder, f"program{k}", flags))
            for k, (title, flags) in enumerate(FLAGS.items())
        }
        processes = {"NumPy": in_python(folder, "arenaplan", sys.executable)}
        if model.exists():
            processes["onert"] = in_python(folder, "onert", onert)
        processes["PyTorch"] = in_python(folder, "pytorch", torch)
        for title, process in processes.items():
            stack.enter_context(process)
            if process.missing is None:
                trainings[title] = process
            else:
                missing[title] = process.missing
        in_turn(list(trainings.values()), PATIENCE, MOST)
    rounds = len(trainings["C"].steps) - 1
    headings = (
        "runtime; CPU ms; wall ms; CPU / C's; CPU / NumPy's; peak resident MB; above the start MB; arena MB"
    )
    table = Table(*headings.split("; "), title=f"one step of {name}, one thread, {rounds} rounds")
    for title, training in trainings.items():
        last = training.steps[-1]
        arena = arenas.get(title)
        table.add_row(
            training.runs if title in processes else title,
            f"{1e3 * training.middle('cpu'):,.1f}",
            f"{1e3 * training.middle('wall'):,.1f}",
            *(f"{_ratio(training, trainings[other]):.2f}" for other in ("C", "NumPy")),
            *(f"{last[key] / 1e6:,.1f}" for key in ("peak", "above")),
            "" if arena is None else f"{arena / 1e6:,.1f}",
        )
    return table


def _ratio(a: Training, b: Training) -> float:
    """The median over rounds of the CPU time of `a` as a ratio to that of `b`."""
    return median(x["cpu"] / y["cpu"] for x, y in zip(a.steps[1:], b.steps[1:], strict=True))
