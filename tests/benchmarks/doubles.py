"""Networks from ONNX in float64: their losses over five steps beside PyTorch's, which exported them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table

from solver.executor import Trainer
from solver.graph import OptimizerSpec, Role
from solver.importers.onnx import load_onnx
from solver.importers.options import ImportOptions
from solver.pipeline import plan
from tests.benchmarks.measure import ROOT

__all__ = ["difference", "run"]

FOLDER: Final = ROOT / "out" / "doubles"


def difference(path: Path) -> float:
    """The largest relative difference of a loss; `path` is a .npz of `doubles_export`."""
    facts, model = np.load(path, allow_pickle=False), path.with_suffix(".onnx")
    options = ImportOptions(
        loss="cross-entropy",
        class_axis=-1,
        optimizer=OptimizerSpec("SGD", {"learning_rate": 0.05, "momentum": 0.9}),
        batch_norm="train",
    )
    graph = load_onnx(memoryview(model.read_bytes()), options=options, path=model, name=path.stem).graph
    by_role = {operand.role: operand for operand in graph.operands.values()}
    x, label = by_role[Role.INPUT], by_role[Role.LABEL]
    batch = {x.id: facts["x"], label.id: facts["label"].astype(label.dtype.numpy)}
    with Trainer(graph, plan(graph)) as trainer:
        losses = [trainer.step(batch) for _ in facts["losses"]]
    return float(np.max(np.abs(losses - facts["losses"]) / np.abs(facts["losses"])))


def run(console: Console, torch: str = sys.executable) -> None:
    """Print the table; `torch` is an interpreter with PyTorch and onnxscript."""
    done = subprocess.run(
        [torch, "-m", "tests.benchmarks.doubles_export", str(FOLDER)],
        cwd=ROOT, capture_output=True, text=True, check=False, encoding="utf-8",
    )  # fmt: skip
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["it ended"])[-1]
        console.print(f"{torch} cannot export models: {reason}", markup=False, soft_wrap=True)
        return
    table = Table("network", "largest difference", title="losses of five steps in float64")
    for path in sorted(FOLDER.glob("*.npz")):
        table.add_row(path.stem, f"{difference(path):.1e}")
    console.print(table)
