"""Simple greedies beside the default solver, on many shapes: does any of them win in the same processor time?

First fit and best fit, each in every order of `ORDERS`, with the solver's own compiled index of free space,
so that they are as fast as they can be. The solver goes first, with a deadline in seconds of the
processor. A greedy counts if it alone takes no more of the processor than the solver has had: it is given up
there, or where it can no longer be below the best of them. The last columns name the best one.

The shapes are those of `tests.support.deep_shapes`, a line each. Buffers with gaps are left out: none of
these greedies knows gaps. The seed is the time, unless one is given. 52 shapes of 20,000 buffers take some
three minutes with a second each.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from solver.layout import LayoutProblem, Outcome, SolveOptions, load_compiled, solve
from solver.layout.greedy.index import Walk, kernel
from solver.layout.model.contention import peak_load_seen
from solver.layout.model.instance import Instance, Integers
from solver.layout.model.problem import MAX_BYTES
from solver.layout.model.sorting import in_order
from tests.benchmarks.generators import Allowance
from tests.support.deep_shapes import EVERY

__all__ = ["BUFFERS", "ORDERS", "SECONDS", "Greedy", "best_greedy", "ours_in", "run"]

BUFFERS: Final = (5_000, 20_000)
SECONDS: Final = 1.0

HEADINGS: Final = (
    "shape", "buffers", "bound", "ours / bound", "found by", "CPU s", "best greedy", "its CPU s",
    "theirs / bound", "theirs / ours",
)  # fmt: skip


def _area(instance: Instance) -> Integers:
    return instance.size * (instance.end - instance.start)


#: Positions in the order of placement.
ORDERS: Final[Mapping[str, Callable[[Instance], Integers]]] = MappingProxyType(
    {
        "listed": lambda x: np.arange(len(x)),
        "listed last": lambda x: np.arange(len(x))[::-1],
        "start": lambda x: in_order(x.start),
        "start down": lambda x: in_order(-x.start),
        "end": lambda x: in_order(x.end),
        "end down": lambda x: in_order(-x.end),
        "size down": lambda x: in_order(-x.size),
        "size": lambda x: in_order(x.size),
        "length down": lambda x: in_order(x.start - x.end),
        "length": lambda x: in_order(x.end - x.start),
        "area down": lambda x: in_order(-_area(x)),
        "area": lambda x: in_order(_area(x)),
        "size, length down": lambda x: in_order(-x.size, x.start - x.end),
        "size down, start": lambda x: in_order(-x.size, x.start),
        "length, size down": lambda x: in_order(x.start - x.end, -x.size),
        "length down, start": lambda x: in_order(x.start - x.end, x.start),
        "start, size down": lambda x: in_order(x.start, -x.size),
        "start, size": lambda x: in_order(x.start, x.size),
        "start, length down": lambda x: in_order(x.start, -x.end),
        "end down, size down": lambda x: in_order(-x.end, -x.size),
        "conflicts down": lambda x: in_order(-x.degree()),
        "conflicts": lambda x: in_order(x.degree()),
        "conflicts, size down": lambda x: in_order(-x.degree(), -x.size),
        "conflicts * size down": lambda x: in_order(-x.degree() * x.size),
        "contention down": lambda x: in_order(-peak_load_seen(x)),
        "contention, size down": lambda x: in_order(-peak_load_seen(x), -x.size),
        "alignment, size down": lambda x: in_order(-x.alignment, -x.size),
    }
)


@dataclass(frozen=True, slots=True)
class Greedy:
    """One greedy's layout: its peak in bytes and what it took of the processor, its order included."""

    name: str
    peak: int
    cpu: float


def best_greedy(instance: Instance, seconds: float) -> Greedy | None:
    """The lowest of those that end within so many seconds of the processor each, the first on a tie."""
    module, best = kernel(), None
    if module is None:
        return None
    for best_fit in (False, True):
        for name, order in ORDERS.items():
            limit, began = best.peak - 1 if best else MAX_BYTES, time.process_time()
            allowed = Allowance(until=began + seconds)
            walk = Walk(instance, module)
            placed = walk.place(order(instance), limit, best_fit=best_fit, late=partial(_expired, allowed))
            cpu = time.process_time() - began
            if placed == len(instance) and cpu <= seconds:
                peak = int((walk.offsets + instance.exact).max())
                best = Greedy(f"{'best' if best_fit else 'first'} fit, {name}", peak, cpu)
    return best


def _expired(allowed: Allowance) -> bool:
    return allowed.expired


def run(
    console: Console,
    *,
    sizes: Sequence[int] = (),
    seconds: float | None = None,
    seed: int | None = None,
    part: str | None = None,
) -> None:
    """Measure and print; a row each as soon as it is known. `part`: only shapes with this in their names."""
    load_compiled()
    seed, allowed = int(time.time()) if seed is None else seed, seconds or SECONDS
    table, lost, compared = Table(*HEADINGS, title=f"layout: simple greedies, seed {seed}"), 0, 0
    for buffers in sizes or BUFFERS:
        for shape, make in EVERY.items():
            problem = make(buffers, seed) if part is None or part in shape else None
            if problem is None or any(buffer.holes for buffer in problem.buffers):
                continue
            cells, ratio = _row(problem, allowed)
            lost, compared = lost + (ratio < 1), compared + 1
            table.add_row(shape, f"{buffers:,}", *cells)
            console.log(shape, buffers, *cells)
    console.print(table)
    console.print(f"above the best simple greedy: {lost} of {compared}")


def _row(problem: LayoutProblem, seconds: float) -> tuple[tuple[str, ...], float]:
    """The cells from the bound on, and the best greedy's peak over ours."""
    outcome, cpu = ours_in(problem, seconds)
    peak, bound = outcome.layout.peak if outcome.layout else MAX_BYTES, outcome.lower_bound
    # Where ours meets the bound, none can be below it.
    best = best_greedy(Instance.of(problem), max(cpu, seconds)) if peak > bound else None
    ratio = best.peak / peak if best else 1.0
    cells = (
        f"{bound:,}", f"{peak / bound:.5f}", outcome.solver.removeprefix("portfolio/"), f"{cpu:.2f}",
        best.name if best else "", f"{best.cpu:.2f}" if best else "",
        f"{best.peak / bound:.5f}" if best else "", f"{ratio:.5f}" if best else "",
    )  # fmt: skip
    return cells, ratio


def ours_in(problem: LayoutProblem, seconds: float) -> tuple[Outcome, float]:
    """Our answer within seconds of the processor, and those that it took."""
    gc.collect()
    began = time.process_time()
    outcome = solve(problem, deadline=Allowance(until=began + seconds), options=SolveOptions(work=None))
    return outcome, time.process_time() - began
