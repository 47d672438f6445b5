"""Recomputation in real time: what repetitions add to a training step, beside what they add in the model.

Both plans of a network train in one process, in turn, on one thread, BLAS included: a step of the one, a step
of the other. Time is processor time of that process, so neighbours on the machine count for little; what they
do to caches still shows. The model's figure is by costs that were measured in the same process
(`--costs measured`), and by the roofline. Two figures compare them: extra time by extra time, and their
difference in points of a step, which says more where little is repeated.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from statistics import median

from rich.console import Console
from rich.table import Table

from examples.gallery import GALLERY
from examples.resnet50 import resnet50
from solver.documents import load_graph
from solver.executor import measured_costs
from solver.graph import TrainableGraph
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from solver.program import Costs
from solver.reports.records import recomputation
from tests.benchmarks.measure import ROOT, blas_threads, in_new_process, in_pairs
from tests.benchmarks.steps import arena_step

#: Networks, shares of the peak, and pairs of steps: some ten seconds of processor time for each share.
NETWORKS: dict[str, tuple[Callable[[], TrainableGraph], tuple[float, ...], int]] = {
    "mnist b32": (lambda: _example("mnist", 32), (0.9, 0.8), 40),
    "mobilenet_v2 b10": (lambda: _example("mobilenet_v2", 10), (0.7, 0.5), 12),
    "transformer b16": (lambda: GALLERY["transformer"].model().graph, (0.8, 0.65), 60),
    "resnet50 b2": (lambda: resnet50(2).graph, (0.8, 0.7), 6),
}


def _example(name: str, batch: int) -> TrainableGraph:
    return load_graph((ROOT / "examples" / f"{name}.json").read_bytes(), batch=batch)


_CHILD = "import sys; from tests.benchmarks.real_time import child; child(sys.argv[1])"


def run(console: Console) -> None:
    """Print a table for each network. Takes some minutes.

    Two threads of BLAS wait for each other where cores are shared, which is processor time as well: a step of
    the transformer then takes once or twice as long, from one to the next.
    """
    headings = "of peak, costs, run again, modelled, measured, from, to, measured / modelled, points off"
    for name in NETWORKS:
        table = Table(*headings.split(", "), title=f"{name}: extra time of a step, processor time")
        for row in in_new_process(_CHILD, name, environment=blas_threads(1))["rows"]:
            table.add_row(*row)
        console.print(table)


def child(name: str) -> None:
    """Measure a network in this process, and print one JSON object."""
    build, shares, pairs = NETWORKS[name]
    graph = build()
    given = plan(graph)
    measured = measured_costs(graph, given, clock=time.process_time_ns)
    rows = [
        (f"{share:.0%}", *_row(graph, given, share, costs, pairs))
        for share in shares
        for costs in (measured, None)
    ]
    json.dump({"rows": rows}, sys.stdout)


def _row(
    graph: TrainableGraph, given: Plan, share: float, costs: Costs | None, pairs: int
) -> tuple[str, ...]:
    capacity = int(given.sizes[0] * share)
    made = plan(graph, PlanOptions(capacity=capacity, recompute=True, costs=costs))
    found = recomputation(made)
    assert found is not None
    modelled = found.extra / found.step
    steps = in_pairs(arena_step(graph, made), arena_step(graph, given), pairs, time.process_time)
    ratios = [ours / plain for ours, plain in steps]
    extra, (low, high) = median(ratios) - 1, _middle_half(ratios)
    return (
        "measured" if costs else "roofline",
        str(len(found.repetitions)),
        f"{modelled:+.2%}",
        f"{extra:+.2%}",
        f"{low - 1:+.2%}",
        f"{high - 1:+.2%}",
        f"{extra / modelled:.2f}",
        f"{100 * (extra - modelled):+.2f}",
    )


def _middle_half(ratios: list[float]) -> tuple[float, float]:
    """The first and the third quartile."""
    ordered = sorted(ratios)
    return ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
