"""Paging: bytes moved in one iteration, how near that is to the least, and what the search costs.

The first table is about the integer program alone: for a first tier of so many bytes and a lookahead, what
greedy choice moves, what the search moves, and what is moved at least. The second one has whole plans: time
by the roofline with a slower memory of DRAM's speed, of an eMMC's, and of flash's (POET's figures for a
Raspberry Pi).
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

from solver.accounting import paging_problem
from solver.documents import load_graph
from solver.errors import CapacityError
from solver.graph import TrainableGraph
from solver.layout import Deadline
from solver.passes import Order
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import Tier, loads
from solver.reports.records import paging, recomputation
from solver.schedules.paging.cover import greedy, least_moved
from solver.training import derive
from tests.benchmarks.measure import ROOT

MODELS: dict[str, tuple[Callable[[], TrainableGraph], tuple[int, ...]]] = {
    "mnist b32": (lambda: _example("mnist", 32), (0, 14_000_000)),
    "mobilenet_v2 b10": (
        lambda: _example("mobilenet_v2", 10),
        (0, 153_430_144, 200_000_000, 250_000_000, 300_000_000, 350_000_000),
    ),
}

#: Bytes a second and nanoseconds.
DRAM = Tier("dram", 2**30, 4 * 10**9, 4 * 10**9, 1_000)
EMMC = Tier("emmc", 2**30, 300_000_000, 150_000_000, 50_000)
FLASH = Tier("flash", 2**30, 45_500_000, 24_500_000, 100_000)

AHEAD = (0, 1, 4)

#: A first tier and what is behind it, with recomputation or without.
PLANS = [
    (200_000_000, DRAM, False),
    (200_000_000, FLASH, False),
    (200_000_000, FLASH, True),
    (153_430_144, DRAM, False),
    (153_430_144, DRAM, True),
    (153_430_144, EMMC, False),
    (153_430_144, EMMC, True),
    (153_430_144, FLASH, False),
    (153_430_144, FLASH, True),
]


def _example(name: str, batch: int) -> TrainableGraph:
    return load_graph((ROOT / "examples" / f"{name}.json").read_bytes(), batch=batch)


def run(console: Console) -> None:
    """Print both tables. Takes some minutes."""
    console.print(_covers())
    console.print(_plans())


def _covers() -> Table:
    headings = "model, ahead, first tier, greedy, moved, at least, gap, all gaps, gaps paged, processor s"
    table = Table(*headings.split(", "), title="Bytes moved in an iteration")
    for name, (build, sizes) in MODELS.items():
        program = Order().run(derive(build()))
        for ahead in AHEAD:
            problem = paging_problem(program, ahead)
            baseline = sum(problem.cost(frozenset(range(len(problem.gaps)))))
            for size in sizes:
                capacity = size or problem.smallest
                if not problem.smallest <= capacity < max(loads(program)[0]):
                    continue
                fast = sum(problem.cost(greedy(problem, capacity)))
                begin = time.process_time()
                found = least_moved(problem, capacity, Deadline())
                took = time.process_time() - begin
                figures = (capacity, fast, found.moved, found.bound)
                table.add_row(
                    name, str(ahead), *(f"{x:,}" for x in figures),
                    f"{found.moved / max(found.bound, 1) - 1:.3%}", f"{baseline:,}",
                    str(len(found.taken)), f"{took:.1f}",
                )  # fmt: skip
    return table


def _plans() -> Table:
    headings = "first tier, behind it, recompute, moved, at least, lookahead, steps alone, with transfers"
    more = ("at least", "written", "run again", "processor s")
    table = Table(*headings.split(", "), *more, title="mobilenet_v2 b10")
    graph = _example("mobilenet_v2", 10)
    for size, slow, again in PLANS:
        begin = time.process_time()
        tiers = (Tier("sram", size), slow)
        row = [f"{size:,}", slow.name, "yes" if again else "no"]
        try:
            made = plan(graph, PlanOptions(batch=10, tiers=tiers, recompute=again))
        except CapacityError as error:
            table.add_row(*row, str(error))
            continue
        found, repeated = paging(made), recomputation(made)
        assert found is not None
        seconds = (f"{time_ / 1e9:.3f} s" for time_ in (found.compute, found.time, found.least_time))
        runs = str(len(repeated.repetitions) if repeated else 0)
        row += [f"{found.moved:,}", f"{found.bound:,}", str(found.lookahead), *seconds]
        row += [f"{found.tiers[1].written:,}", runs, f"{time.process_time() - begin:.1f}"]
        table.add_row(*row)
    return table
