"""Beside Samsung's onert 0.1.0: the same weights and batch, Adam, and the loss of every step.

mnist from a file that is written here, and the runtime's own model files where they stand beside the
check-out, read by our importer.

onert has no wheels for every Python, so the interpreter that has it may be another one (``--python``).
Without it there is a line that says what to install, and no table.

From the same weights, losses agree to 2e-7 of their size. Differences grow where a rounding error makes
another element the largest of a window or the sign of a unit change: on batch 2, moving each weight of mnist
by one unit in the last place moves our own losses by up to 5e-4.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from solver.documents import load_graph
from solver.executor import Trainer
from solver.executor.initial import initial_value
from solver.graph import OptimizerSpec, Role, TrainableGraph
from solver.graph.types import Array
from solver.importers.circle import load_circle
from solver.pipeline import plan
from tests.benchmarks.measure import ROOT
from tests.support.buffers import DATA

__all__ = ["INSTALL", "run"]

INSTALL: Final = "pip install onert==0.1.0 circle-schema==0.10.1 flatbuffers numpy"

SEEDS: Final = (0, 1, 2)

#: Model files and their batches.
FILES: Final = {"mnist": 32, "mobilenet_v2": 10}
STEPS: Final = 4
LEARNING_RATE: Final = 1e-3

#: onert's own; its session does not hand on another one.
EPSILON: Final = 1e-7

_SCRIPT = Path(__file__).with_name("onert_process.py")


def run(console: Console, python: str = sys.executable) -> None:
    """Print the table; `python` is an interpreter that can import onert."""
    written = load_graph((ROOT / "examples/mnist.json").read_bytes())
    subjects: dict[str, tuple[TrainableGraph, Path | None]] = {"mnist": (written, None)}
    for name, batch_size in FILES.items():
        file = DATA / f"{name}.circle"
        if file.exists():
            subjects[file.name] = load_circle(file.read_bytes(), batch=batch_size).graph, file
    for name, (graph, path) in subjects.items():
        table = Table("batch", "step", "onert", "epsilon_hat", "difference", "without", "difference",
                      title=f"{name}, Adam, epsilon {EPSILON:g}, rate {LEARNING_RATE:g}: losses")  # fmt: skip
        for seed in SEEDS if path is None else SEEDS[:1]:
            batch = _batch(graph, seed)
            found = _theirs(graph, batch, python, path)
            if isinstance(found, str):
                console.print(f"{python} has no {found}, so nothing was compared with onert: {INSTALL}",
                              markup=False, soft_wrap=True)  # fmt: skip
                return
            hat, plain = (_ours(graph, batch, epsilon_hat) for epsilon_hat in (True, False))
            for step, (theirs, with_hat, without) in enumerate(zip(found, hat, plain, strict=True), 1):
                table.add_row(
                    str(seed), str(step), f"{theirs:.6f}", f"{with_hat:.6f}", f"{with_hat - theirs:+.1e}",
                    f"{without:.6f}", f"{without - theirs:+.1e}",
                )  # fmt: skip
        console.print(table)


def _batch(graph: TrainableGraph, seed: int) -> dict[str, Array]:
    """Images uniform in [0, 1), and random classes."""
    random = np.random.default_rng(seed)
    (image,) = (o for o in graph.operands.values() if o.role is Role.INPUT)
    examples, classes = graph.operands["label"].shape
    return {
        image.id: random.random(image.shape, np.float32),
        "label": np.eye(classes, dtype=np.float32)[random.integers(classes, size=examples)],
    }


def _ours(graph: TrainableGraph, batch: Mapping[str, Array], epsilon_hat: bool) -> list[float]:
    rules = {"learning_rate": LEARNING_RATE, "epsilon": EPSILON, "epsilon_hat": epsilon_hat}
    subject = graph.with_spec(optimizer=OptimizerSpec("Adam", rules))
    with Trainer(subject, plan(subject)) as trainer:
        return [trainer.step(batch) for _ in range(STEPS)]


def _theirs(
    graph: TrainableGraph, batch: Mapping[str, Array], python: str, model: Path | None
) -> list[float] | str:
    """onert's losses from our initial values, or the package that its interpreter lacks.

    `model` is its own file; without it one is written from the graph.
    """
    image = next(name for name in batch if name != "label")
    last = graph.operations[-1]
    given = {
        name: initial_value(operand)
        for name, operand in graph.operands.items()
        if operand.role in (Role.PARAMETER, Role.CONSTANT)
    }
    job = {
        "tensors": {
            name: list(operand.shape if name in given else (1, *operand.shape[1:]))
            for name, operand in graph.operands.items()
            if name not in ("label", graph.loss)
        },
        "operations": [
            {
                "type": operation.type,
                "inputs": operation.inputs,
                "outputs": operation.outputs,
                "attributes": dict(operation.attributes),
            }
            for operation in graph.operations[:-1]
        ],
        "input": image, "output": last.inputs[0], "batch": len(batch["label"]),
        "model": str(model.resolve()) if model else None,
        "learning_rate": LEARNING_RATE, "steps": STEPS,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        Path(directory, "job.json").write_text(json.dumps(job), encoding="utf-8")
        arrays: dict[str, Any] = {**({} if model else given), **batch}
        np.savez(Path(directory, "arrays.npz"), **arrays)
        command = [python, str(_SCRIPT), directory]
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True, cwd=directory, encoding="utf-8")
    found = json.loads(done.stdout.splitlines()[-1])
    losses: list[float] | str = found["losses"] if "losses" in found else found["missing"]
    return losses
