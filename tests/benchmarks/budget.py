"""`arenaplan.torch.budget` beside PyTorch's own ways to hold less: measured bytes, counted operations.

A row of ours has for its budget the peak to which PyTorch's budget of activations came in the same run.
`tower` is a training step, with `arenaplan.torch.train_step`; the others are a forward and a backward pass.
"""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

from tests.benchmarks.measure import asked

__all__ = ["run"]

_NETWORKS = ("tower", "gpt, 12 layers", "resnet50")


def run(console: Console, torch: str = sys.executable, part: str | None = None) -> None:
    """Print a table for each network; `torch` is an interpreter with PyTorch and what this project needs."""
    for name in [part] if part else _NETWORKS:
        measured, reason = asked(torch, "tests.benchmarks.budget_process", name)
        if reason:
            console.print(f"Without PyTorch: {reason}.", markup=False, soft_wrap=True)
            return
        table = Table("way", "budget", "peak, bytes", "GFLOP", title=name)
        for row in measured["rows"]:
            figures = (f"{row['peak']:,}", f"{row['flops'] / 1e9:.3f}") if row["peak"] else ("refused", "")
            table.add_row(row["way"], row["budget"], *figures)
        console.print(table)
