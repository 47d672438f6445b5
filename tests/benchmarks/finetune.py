"""Fine-tuning Qwen2.5-0.5B with LoRA: our plans beside PyTorch's ways of saving memory, on one thread.

Bytes are everything that a step needs: ours as planned and proved, PyTorch's weights, optimizer state and the
most that its allocator gives out at a time beside them. PyTorch keeps the weights as floats. By default the
model is an eighth as wide and has four layers.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from solver.documents import load_graph
from solver.errors import CapacityError
from solver.executor import Trainer, synthetic_batch
from solver.graph import TrainableGraph
from solver.pipeline import plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import Tier
from solver.reports.records import paging
from tests.benchmarks.measure import ROOT, asked

__all__ = ["FLASH", "Size", "run"]

DOCUMENT = ROOT / "out" / "finetune" / "qwen.json"

#: The slow memory: it is read at 1 GB/s and written at 20 MB/s.
FLASH = Tier("flash", 10**9, read=10**9, write=20 * 10**6)


@dataclass(frozen=True, slots=True)
class Size:
    """A model, the group of its int4 weights, and the fast memory that plans have, in bytes."""

    divisor: int
    layers: int
    sequence: int
    group: int
    fast: int


SMALL = Size(divisor=8, layers=4, sequence=256, group=16, fast=26 * 10**6)
FULL = Size(divisor=1, layers=24, sequence=256, group=32, fast=136 * 10**6)


def run(console: Console, torch: str = sys.executable, *, full: bool = False) -> None:
    """Print the table; `torch` is an interpreter with PyTorch and what this project needs."""
    size = FULL if full else SMALL
    numbers = map(str, (size.divisor, size.layers, size.sequence))
    theirs, reason = asked(torch, "tests.benchmarks.finetune_process", *numbers, str(DOCUMENT))
    if reason:
        console.print(f"Without PyTorch: {reason}.", markup=False, soft_wrap=True)
        return
    title = f"Qwen2.5-0.5B / {size.divisor}, {size.layers} layers, LoRA, {size.sequence} tokens, one thread"
    headings = (
        "way, fast memory, slow memory, read a step, written a step, modelled, step CPU s, planning CPU s"
    )
    table = Table(*headings.split(", "), title=title)
    for name, row in theirs["rows"].items():
        whole = int(row["stay"] + row["beside"])
        table.add_row(name, f"{whole:,}", "", "", "", "", f"{row['seconds']:.2f}", "")
    for cells in _ours(Path(DOCUMENT), size):
        table.add_row(*cells)
    console.print(table)
    console.print(f"Capture: {theirs['capture_seconds']:.1f} CPU s, {DOCUMENT.stat().st_size:,} bytes.")


def _ours(document: Path, size: Size) -> Iterator[tuple[str, ...]]:
    graph = load_graph(document.read_bytes())
    int4 = f"int4:{size.group}"
    tiers = (Tier("ram", size.fast), FLASH)
    for name, options in (
        ("ours, float32", PlanOptions()),
        ("ours, float32, chunked head", PlanOptions(chunked_head=True)),
        ("ours, int4, chunked head", PlanOptions(chunked_head=True, frozen_storage=int4)),
        ("ours, int4, chunked head, flash", PlanOptions(chunked_head=True, frozen_storage=int4, tiers=tiers)),
    ):
        began = time.process_time()
        try:
            plan = plan_requested(graph, RequestedOptions(options))
        except CapacityError as error:
            yield name, error.message
            continue
        planning = time.process_time() - began
        yield name, *_figures(graph, plan), f"{planning:.1f}"


def _figures(graph: TrainableGraph, plan: Plan) -> tuple[str, ...]:
    moved = paging(plan)
    with Trainer(graph, plan) as trainer:
        batch = synthetic_batch(graph, seed=0, step=0)
        trainer.step(batch)
        began = time.process_time()
        trainer.step(batch)
        seconds = time.process_time() - began
    sizes = [f"{size:,}" for size in plan.sizes]
    if moved is None:
        return sizes[0], "", "", "", "", f"{seconds:.2f}"
    into, out = f"{moved.moved_in:,}", f"{moved.moved_out:,}"
    return *sizes, into, out, f"{moved.time / 1e9:.1f} s", f"{seconds:.2f}"
