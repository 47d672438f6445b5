"""Real models from ONNX: which import, whether plans reach their bound, and first losses beside PyTorch's.

The networks are exported by `zoo_export`, with an interpreter that has PyTorch (``--torch``), into
``out/zoo``; what is there already is taken as it is. Trained are those whose arena is small.

Where the first loss is not within 1e-6 of PyTorch's, the network is asked how much it amplifies rounding: the
loss of the same batch whose numbers have their last bit changed at random.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from solver.errors import ArenaplanError
from solver.executor import Trainer, validate
from solver.graph import OptimizerSpec, TrainableGraph
from solver.importers.onnx import load_onnx
from solver.importers.options import ImportOptions
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from tests.benchmarks.measure import ROOT

__all__ = ["INSTALL", "Row", "measured", "run"]

INSTALL: Final = "pip install torch torchvision timm transformers onnx onnxscript"
FOLDER: Final = ROOT / "out" / "zoo"
#: Bytes of an arena in which training three steps takes a second or so.
_SMALL: Final = 48 * 2**20
_STEPS: Final = 3
#: How near first losses are to be, and how many batches with other last bits are tried where they are not.
_NEAR: Final = 1e-6
_NUDGES: Final = 8


@dataclass(frozen=True, slots=True)
class Row:
    """One export: why it failed, or operations, seconds of import (CPU), bytes, bound, and the two losses.

    `moved` is how far last bits of the batch move the loss, relative to it, where that was asked.
    """

    name: str
    variant: str
    family: str
    failed: str = ""
    exported: bool = True
    operations: int = 0
    seconds: float = 0.0
    arena: int = 0
    bound: int = 0
    identical: bool | None = None
    loss: float = float("nan")
    expected: float = float("nan")
    moved: float | None = None

    @property
    def difference(self) -> float:
        """Of the losses, relative to PyTorch's."""
        return abs(self.loss - self.expected) / max(abs(self.expected), 1e-30)


def measured(path: Path, *, train: bool = True) -> Row:
    """The row of one export; `path` is its .npz."""
    row, graph, made, facts = _planned(path)
    if graph is None or made is None or not train or made.arena_bytes >= _SMALL:
        return row
    batch, expected = _batch(graph, facts), float(facts["loss"])
    row = replace(
        row,
        identical=validate(graph, made, steps=_STEPS).identical,
        loss=_first_loss(graph, made, batch),
        expected=expected,
    )
    if row.difference <= _NEAR:
        return row
    nudged = [_first_loss(graph, made, _nudged(batch, seed)) for seed in range(_NUDGES)]
    return replace(row, moved=max(abs(loss / row.loss - 1) for loss in nudged))


def _first_loss(graph: TrainableGraph, made: Plan, batch: dict[str, Any]) -> float:
    with Trainer(graph, made) as trainer:
        return trainer.step(batch)


def _nudged(batch: dict[str, Any], seed: int) -> dict[str, Any]:
    """The floating numbers with the next one above or below in their place."""
    rng = np.random.default_rng(seed)
    return {
        name: np.nextafter(value, np.where(rng.random(value.shape) < 0.5, -np.inf, np.inf), dtype=value.dtype)
        if value.dtype.kind == "f"
        else value
        for name, value in batch.items()
    }


def _planned(path: Path) -> tuple[Row, TrainableGraph | None, Plan | None, Any]:
    name, variant, _ = path.name.split(".")
    facts = np.load(path, allow_pickle=False)
    family = str(facts["family"])
    if "failed" in facts:
        return Row(name, variant, family, failed=str(facts["failed"]), exported=False), None, None, facts
    model = path.with_suffix(".onnx")
    options = ImportOptions(
        loss=str(facts["word"]),
        optimizer=OptimizerSpec("SGD", {"learning_rate": 0.01}),
        batch_norm="train" if "train" in variant else None,
    )
    start = time.process_time()
    try:
        graph = load_onnx(memoryview(model.read_bytes()), options=options, path=model, name=name).graph
        seconds = time.process_time() - start
        made = plan(graph, PlanOptions(deadline_seconds=None))
    except ArenaplanError as error:
        failed = f"{type(error).__name__}: {error.message}"
        return Row(name, variant, family, failed=failed), None, None, facts
    row = Row(
        name,
        variant,
        family,
        operations=len(graph.operations),
        seconds=seconds,
        arena=made.arena_bytes,
        bound=made.lower_bound,
    )
    return row, graph, made, facts


def _batch(graph: TrainableGraph, facts: Any) -> dict[str, Any]:
    """What was fed to PyTorch; names lose what no name may hold."""
    found = {"label": facts["label"]}
    for key in facts.files:
        if key.startswith("input."):
            found[key.removeprefix("input.")] = facts[key]
    return {name: value for name, value in found.items() if name in graph.operands}


def run(console: Console, python: str = sys.executable) -> None:
    """Export what is not there yet, and print the table and its sums."""
    process = subprocess.run(
        [python, "-m", "tests.benchmarks.zoo_export", str(FOLDER), "--missing"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    exports = sorted(FOLDER.glob("*.npz"))
    if process.returncode or not exports:
        reason = process.stderr.strip().splitlines()[-1:] or ["nothing was written"]
        console.print(f"{python} cannot export models ({reason[0]}): {INSTALL}", markup=False, soft_wrap=True)
        if not exports:
            return
    rows = []
    table = Table(
        "network", "variant", "import", "operations", "arena bytes", "above bound", "3 steps", "first loss",
        "PyTorch", "difference", "last bits move it by", title="models from ONNX",
    )  # fmt: skip
    for path in exports:
        row = measured(path)
        rows.append(row)
        table.add_row(*_cells(row))
        print(*_cells(row), sep="  ", file=sys.stderr, flush=True)  # half an hour is long without a word
    console.print(table)
    for line in summary(rows):
        console.print(line, highlight=False)


def _cells(row: Row) -> tuple[str, ...]:
    if row.failed:
        return (row.name, row.variant, row.failed[:100], *[""] * 8)
    bits = {None: "not run", True: "identical", False: "DIFFER"}[row.identical]
    losses = ("", "", "") if row.identical is None else (
        f"{row.loss:.7g}", f"{row.expected:.7g}", f"{row.difference:.1e}")  # fmt: skip
    return (
        row.name, row.variant, f"{row.seconds:.2f} s", f"{row.operations:,}", f"{row.arena:,}",
        f"{row.arena / row.bound - 1:.2%}", bits, *losses, "" if row.moved is None else f"{row.moved:.1e}",
    )  # fmt: skip


def summary(rows: list[Row]) -> list[str]:
    """Sums over the exports: what failed, and where."""
    exported = [row for row in rows if row.exported]
    imported = [row for row in exported if not row.failed]
    tight = [row for row in imported if row.arena == row.bound]
    trained = [row for row in imported if row.identical is not None]
    close = [row for row in trained if row.difference <= _NEAR]
    moved = [row for row in trained if row.moved is not None and row.difference <= row.moved]
    lost = Counter(row.variant for row in rows if not row.exported)
    networks, refused = len({row.name for row in rows}), sum(lost.values())
    share = len(imported) / max(1, len(exported))
    same = sum(row.identical is True for row in trained)
    first = f"{networks} networks, {len(exported)} exports ({refused} more that the exporter refused)"
    second = f"imported: {len(imported)} of {len(exported)} ({share:.1%}); at the bound: {len(tight)}"
    third = f"trained {_STEPS} steps: {len(trained)}, bit for bit {same}"
    fourth = (
        f"first loss within {_NEAR:g} of PyTorch's: {len(close)}; of the other"
        f" {len(trained) - len(close)}, within what last bits of the batch move it by: {len(moved)}"
    )
    return [first, second, third, fourth]
