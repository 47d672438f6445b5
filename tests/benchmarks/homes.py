"""Memories that kernels reach: modelled time of an iteration, how near accesses are to the least, and peers.

The greedy rules of other systems get the program of our plan, so only homes and places differ.
The column `paged` has plans whose kernels work in the small memories alone, with the large one behind them.
"""

from __future__ import annotations

import time
from typing import Final

from rich.console import Console
from rich.table import Table

from examples.gallery import GALLERY
from solver.accounting import as_one_memory, home_problem
from solver.documents import load_graph
from solver.errors import CapacityError
from solver.graph import TrainableGraph
from solver.pipeline import plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import Tier, regions
from solver.reports.records import homes, paging
from tests.support.home_peers import PEERS

__all__ = ["run"]

TCM: Final = Tier("tcm", 512 * 1024, 4 * 10**9, 4 * 10**9)
SRAM: Final = Tier("sram", 2 * 1024**2, 10**9, 10**9)
PSRAM: Final = Tier("psram", 64 * 1024**2, 80 * 10**6, 60 * 10**6)

#: Networks of the gallery by name, with a batch.
NETWORKS: Final = (
    ("lenet5", 32), ("autoencoder", 32), ("lstm_classifier", 32), ("transformer", 8),
    ("mobilenet_v2_bn", 1), ("mobilenet_v2_bn", 4), ("mobilenet_v2_bn", 16),
)  # fmt: skip


def run(console: Console) -> None:
    """Print the table. Takes some minutes."""
    headings = "network, bytes, time, accesses, above the bound, run again"
    table = Table(
        *headings.split(", "), *PEERS, "paged", "processor s", title="512 KiB TCM, 2 MiB SRAM, 64 MiB PSRAM"
    )
    for name, batch in NETWORKS:
        begin = time.process_time()
        graph = load_graph(GALLERY[name].model().document, batch=batch)
        made = plan_requested(graph, RequestedOptions(PlanOptions(memories=(TCM, SRAM, PSRAM))))
        took, placed = time.process_time() - begin, homes(made)
        assert placed is not None
        row = [
            f"{name} b{batch}",
            f"{made.arena_bytes:,}",
            f"{placed.time / 1e9:.4f} s",
            f"{placed.accesses / 1e9:.4f} s",
            f"{placed.accesses / max(1, placed.bound) - 1:.2%}",
            str(sum(run > 0 for run in made.program.runs)),
        ]
        table.add_row(*row, *_peers(made, placed.time - placed.accesses), _paged(graph), f"{took:.1f}")
    console.print(table)


def _peers(made: Plan, others: int) -> list[str]:
    """Seconds of an iteration with the homes of each peer; `others` are the nanoseconds besides accesses."""
    memories = made.options.memories
    program = as_one_memory(made.program, len(memories))
    problem = home_problem(program, regions(program), memories, {})
    cells = []
    for peer in PEERS.values():
        placed = peer(problem)
        if placed is None:
            cells.append("refused")
        else:
            accesses = problem.nanoseconds([memory for memory, _ in placed])
            cells.append(f"{(others + accesses) / 1e9:.4f} s")
    return cells


def _paged(graph: TrainableGraph) -> str:
    """Seconds of an iteration with transfers and accesses."""
    options = PlanOptions(memories=(TCM, SRAM), tiers=(PSRAM,))
    try:
        made = plan_requested(graph, RequestedOptions(options))
    except CapacityError:
        return "refused"
    moved = paging(made)
    assert moved is not None
    return f"{moved.time / 1e9:.4f} s"
