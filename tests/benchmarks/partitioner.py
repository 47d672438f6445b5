"""PyTorch's partitioner beside the search, priced alike: products that run again at the peaks it reaches.

`step_partitions` says which calls PyTorch runs, forward and backward, for budgets of its activations. Peaks
are those of the calls in that order, of all tensors but weights, inputs and constants. The search keeps the
order of first runs and may use as many bytes. Shares are of the forward pass's products, as PyTorch counts
them. (Of the backward pass it counts depthwise convolutions as if they were dense.)
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from solver.accounting import ScheduleProblem
from solver.schedules.recompute.search import cheapest
from solver.schedules.recompute.sequences import Sequences
from tests.benchmarks.measure import asked

__all__ = ["BUDGETS", "beside", "run"]

#: Shares of the activations that PyTorch would save anyway, by network; with 1 nothing dear runs again.
BUDGETS = {
    "mobilenet_v2": (0.6, 0.5, 0.4, 0.3, 0.2, 0.1),
    "resnet50": (0.6, 0.4, 0.3, 0.2, 0.1),
    "gpt": (0.6, 0.5, 0.4, 0.3, 0.2, 0.1),
}

#: Products are counted by the thousand, so that sums over bytes and products stay in 64 bits.
_UNIT = 1000


def run(console: Console, torch: str = sys.executable) -> None:
    """Print the table; `torch` is an interpreter with PyTorch and what this project needs."""
    headings = "network, budget, its peak, its products again, ours, proved at least, our peak, CPU s"
    table = Table(*headings.split(", "), title="PyTorch's partitioner, and ours within its peaks")
    for name, budgets in BUDGETS.items():
        captured, reason = asked(torch, "tests.benchmarks.step_partitions", name, *map(str, budgets))
        if reason:
            console.print(f"Without PyTorch: {reason}.", markup=False, soft_wrap=True)
            return
        forward = zip(captured["products"], captured["again"], strict=True)
        total = sum(products for products, again in forward if again)
        for schedule in captured["schedules"]:
            problem, sequence = beside(captured, schedule["sequence"])
            peak, extra = Sequences(problem).measure(sequence)
            began = time.process_time()
            ours = cheapest(problem, peak)
            seconds = time.process_time() - began
            shares = [f"{share * _UNIT / total:.3%}" for share in (extra, ours.extra, ours.bound)]
            peaks = [f"{bytes_ - problem.fixed:,}" for bytes_ in (peak, ours.peak)]
            budget = str(schedule["budget"])
            table.add_row(name, budget, peaks[0], *shares, peaks[1], f"{seconds:.1f}")
    console.print(table)


def beside(captured: Mapping[str, Any], sequence: Sequence[int]) -> tuple[ScheduleProblem, tuple[int, ...]]:
    """The problem whose order is that of the first runs in `sequence`, and the sequence in its numbers."""
    order = list(dict.fromkeys(sequence))
    place = {t: k for k, t in enumerate(order)}
    size, count = captured["size"], len(order)
    maker = [-1] * len(size)
    for t in order:
        for v in captured["writes"][t]:
            maker[v] = place[t] if captured["again"][t] else -1
    problem = ScheduleProblem(
        steps=tuple(captured["steps"][t] for t in order),
        reads=tuple(tuple(captured["reads"][t]) for t in order),
        writes=tuple(tuple(captured["writes"][t]) for t in order),
        updates=((),) * count,
        scratch=(0,) * count,
        scratch_again=(0,) * count,
        cost=tuple(-(-captured["products"][t] // _UNIT) for t in order),
        until=tuple(count if captured["again"][t] else -1 for t in order),
        values=tuple(f"v{v}" for v in range(len(size))),
        size=tuple(size),
        fed=(False,) * len(size),
        kept=(False,) * len(size),
        maker=tuple(maker),
        together=tuple(range(len(size))),
        fixed=captured["fixed"],
    )
    return problem, tuple(place[t] for t in sequence)
