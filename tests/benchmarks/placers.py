"""OmniMalloc's placers beside us, on many shapes: each places once, and ours gets the processor time it took.

Its placers in one order are run to their end, or to `SECONDS`. Those that are not beaten both in time and in
peak by another have a row each, in which ours has a deadline of as many seconds of the processor, but of no
fewer than `LEAST`: checking a problem and an answer takes milliseconds. Its seconds are those of placing
alone. It knows no alignment, so sizes are padded; no gaps, which are left out; and no pins, so that where
there are some, it places what we have to place around them.

The shapes are those of `tests.support.deep_shapes`. The last line counts the rows in which ours is higher.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

from solver.layout import LayoutProblem, load_compiled
from tests.benchmarks.greedies import ours_in
from tests.benchmarks.peers import ORDERS, Rival, installed, rival
from tests.support.deep_shapes import EVERY

__all__ = ["run"]

BUFFERS: Final = (200, 1_000, 5_000, 20_000)
SECONDS: Final = 10.0

#: Seconds of the processor that ours is given at least.
LEAST: Final = 0.02

HEADINGS: Final = (
    "shape", "buffers", "OmniMalloc's placer", "its CPU s", "its peak / bound", "ours / bound", "found by",
    "CPU s", "theirs / ours",
)  # fmt: skip


def run(
    console: Console,
    *,
    sizes: Sequence[int] = (),
    seconds: float | None = None,
    seed: int | None = None,
    part: str | None = None,
) -> None:
    """Measure and print; a row each as soon as it is known. `part`: only shapes with this in their names."""
    if not installed():
        console.print("OmniMalloc is not installed here: pip install omnimalloc==1.0.0")
        return
    load_compiled()
    seed = int(time.time()) if seed is None else seed
    table, higher = Table(*HEADINGS, title=f"layout: OmniMalloc's placers, seed {seed}"), list[float]()
    for buffers in sizes or BUFFERS:
        for shape, make in EVERY.items():
            problem = make(buffers, seed) if part is None or part in shape else None
            if problem is None or any(buffer.holes for buffer in problem.buffers):
                continue
            for cells, ratio in _rows(problem, seconds or SECONDS):
                higher += [ratio] if ratio < 1 else []
                table.add_row(shape, f"{buffers:,}", *cells)
                console.log(shape, buffers, *cells)
    console.print(table)
    worst = f", at worst {max(1 / ratio for ratio in higher):.4f} times theirs" if higher else ""
    console.print(f"higher than a placer in its time: {len(higher)} of {table.row_count}{worst}")


def _rows(problem: LayoutProblem, seconds: float) -> Iterator[tuple[tuple[str, ...], float]]:
    """The cells from the placer on, and its peak over ours."""
    asked = (rival(problem, name, seconds) for name in ORDERS)
    for one in _unbeaten(found for found in asked if found is not None and found.cpu <= seconds):
        outcome, cpu = ours_in(problem, max(LEAST, one.cpu))
        bound, peak = outcome.lower_bound, outcome.layout.peak if outcome.layout else 2**63
        cells = (
            one.allocator, f"{one.cpu:.3f}", f"{one.peak / bound:.5f}", f"{peak / bound:.5f}",
            outcome.solver.removeprefix("portfolio/"), f"{cpu:.3f}", f"{one.peak / peak:.5f}",
        )  # fmt: skip
        yield cells, one.peak / peak


def _unbeaten(found: Iterable[Rival]) -> list[Rival]:
    """The quickest first; of the others those that are lower than all quicker ones."""
    kept = list[Rival]()
    for one in sorted(found, key=lambda one: (one.cpu, one.peak)):
        if not kept or one.peak < kept[-1].peak:
            kept.append(one)
    return kept
