"""OmniMalloc's own generators: its allocators and ours, the same processor time, fresh seeds.

Of its thirteen sources, eight make problems of this kind. Three have a clock for each thread, so that which
lifespans conflict is mostly not a matter of intervals: what intervals can say is asked. Two download models
or data, and are left out.

Its allocators look at the clock of the wall, which says little on a busy machine. So each row gives ours as
much of the processor as any of them has had, and the seconds of the row where none of them searches.

In the environment, ``ARENAPLAN_OMNIMALLOC`` names an interpreter that has it, where that is another one, and
``ARENAPLAN_SEED`` the seed, which is the time otherwise.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.console import Console
from rich.table import Table

from solver.compile import load as load_compiled
from solver.layout import Deadline, LayoutProblem, Outcome, SolveOptions, solve
from tests.benchmarks.peers import SEARCHES, Rival, generated, installed, rivals

__all__ = ["SOURCES", "Allowance", "run"]

SOURCES: Final = (
    "Random", "Uniform", "PowerOf2", "HighContention", "Sequential", "Skewed", "Tiling", "Pinwheel",
    "SyncPattern", "ConcurrentTiling", "TwoPlusTwo",
)  # fmt: skip
BUFFERS: Final = (200, 2_000, 20_000)
SECONDS: Final = (1.0, 5.0)

HEADINGS: Final = (
    "source", "buffers", "seed", "CPU s", "peak / bound", "found by", "OmniMalloc's best", "theirs / ours",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Allowance(Deadline):
    """Seconds of the processor instead of the wall."""

    until: float = 0.0

    @property
    def remaining(self) -> float:
        return self.until - time.process_time()

    def sooner(self, seconds: float) -> Allowance:
        return replace(self, until=self.until - seconds)


def run(console: Console, sizes: Sequence[int] = (), *, only_open: bool = False) -> None:
    """Measure and print; a row each as soon as it is known. With `sizes` only problems of so many buffers.

    With `only_open` its allocators are not asked where ours meets the bound, which none can be below.
    """
    if not installed():
        console.print("OmniMalloc is not installed here: pip install omnimalloc==1.0.0")
        return
    load_compiled()
    seed = int(os.environ.get("ARENAPLAN_SEED") or time.time())
    table, worse, compared = Table(*HEADINGS, title=f"layout: OmniMalloc's generators, seed {seed}"), 0, 0
    for seconds in SECONDS:
        for buffers in sizes or BUFFERS:
            for source in SOURCES:
                problem = generated(source, buffers, seed)
                if problem is None:
                    table.add_row(source, f"{buffers:,}", "", "", "", "", "no intervals", "")
                    continue
                row, ratio = _row(problem, seconds, only_open=only_open)
                worse, compared = worse + (ratio < 1), compared + 1
                table.add_row(source, f"{len(problem.buffers):,}", str(seed), *row)
                console.log(source, len(problem.buffers), *row)
    console.print(table)
    console.print(f"worse than one of its allocators: {worse} of {compared}")


def _row(problem: LayoutProblem, seconds: float, *, only_open: bool) -> tuple[tuple[str, ...], float]:
    """The cells from the processor time on, and the smallest peak of theirs over ours."""
    allowed, theirs = seconds, list[Rival]()
    outcome, cpu = _ours(problem, seconds) if only_open else (None, 0.0)
    if outcome is None or outcome.layout is None or outcome.layout.peak > outcome.lower_bound:
        theirs = rivals(problem, seconds)
        allowed = max((rival.cpu for rival in theirs if rival.allocator in SEARCHES), default=seconds)
        outcome, cpu = _ours(problem, allowed)
    best = min(theirs, key=lambda rival: rival.peak, default=Rival("", 0, seconds))
    peak = outcome.layout.peak if outcome.layout else 0
    ratio = best.peak / peak if best.peak else 1.0
    return (
        f"{cpu:.2f} of {allowed:.2f}",
        f"{peak / outcome.lower_bound:.5f}",
        outcome.solver.removeprefix("portfolio/"),
        f"{best.peak / outcome.lower_bound:.5f} ({best.allocator}, {best.cpu:.2f} s)" if best.peak else "",
        f"{ratio:.4f}",
    ), ratio


def _ours(problem: LayoutProblem, seconds: float) -> tuple[Outcome, float]:
    """Our answer within seconds of the processor, and those that it took."""
    gc.collect()
    began = time.process_time()
    outcome = solve(problem, deadline=Allowance(until=began + seconds), options=SolveOptions(work=None))
    return outcome, time.process_time() - began
