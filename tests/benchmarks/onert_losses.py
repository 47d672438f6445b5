"""Beside Samsung's onert 0.1.0: the same weights and batch, Adam, and the loss of every step.

mnist from a file that is written here, and the runtime's own model files where they stand beside the
check-out, read by our importer.

onert has no wheels for every Python, so the interpreter that has it may be another one (``--python``).
Without it there is a line that says what to install, and no table.

Training is chaotic: a rounding error makes another element the largest of a window, opens another unit, or
changes the sign of a derivative near 0, from which Adam's first step makes a whole step. So more columns
stand beside the differences of a step. *Last bits*: how far our own loss moves where the last bits of images
and parameters are changed before each step, the largest of five. *From its weights*: the difference of our
loss from onert's where the step starts from the weights that onert had before it, so that no earlier step
counts. Ours are those of NumPy's kernels and those of C's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from solver.documents import load_graph
from solver.executor import KernelSet, Trainer
from solver.executor.initial import initial_value
from solver.graph import Initializer, OptimizerSpec, Role, TrainableGraph
from solver.graph.types import Array
from solver.importers.circle import load_circle
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.benchmarks.measure import ROOT
from tests.support.buffers import DATA

__all__ = ["INSTALL", "run"]

INSTALL: Final = "pip install onert==0.1.0 circle-schema==0.10.1 flatbuffers numpy"

SEEDS: Final = (0, 1, 2)

#: Model files and their batches.
FILES: Final = {"mnist": 32, "mobilenet_v2": 10}
KERNELS: Final[tuple[KernelSet, ...]] = ("numpy", "c")
STEPS: Final = 4
NUDGES: Final = 5
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
    within = compared = 0
    for name, (graph, path) in subjects.items():
        table = Table("batch", "step", "onert", "NumPy", "C", "difference, NumPy", "C", "last bits",
                      "from its weights, NumPy", "C",
                      title=f"{name}, Adam, epsilon {EPSILON:g}, rate {LEARNING_RATE:g}: losses")  # fmt: skip
        for seed in SEEDS:
            batch = _batch(graph, seed)
            found = _theirs(graph, batch, python, path)
            if isinstance(found, str):
                console.print(f"{python} has no {found}, so nothing was compared with onert: {INSTALL}",
                              markup=False, soft_wrap=True)  # fmt: skip
                return
            ours = [_losses(graph, batch, kernels) for kernels in KERNELS]
            moved = [_losses(graph, batch, nudged=k) for k in range(NUDGES)]
            before = graph
            for step, (theirs, after) in enumerate(found):
                differences = [losses[step] - theirs for losses in ours]
                last_bits = max(abs(losses[step] - ours[0][step]) for losses in moved)
                within += all(abs(difference) <= last_bits for difference in differences)
                compared += 1
                from_weights = [_losses(before, batch, kernels, steps=1)[0] - theirs for kernels in KERNELS]
                table.add_row(
                    str(seed), str(step + 1), *(f"{loss:.6f}" for loss in (theirs, *(o[step] for o in ours))),
                    *(f"{difference:+.1e}" for difference in differences), f"{last_bits:.1e}",
                    *(f"{difference:+.1e}" for difference in from_weights),
                )  # fmt: skip
                before = _with_values(graph, after)
        console.print(table)
    console.print(f"{within} of {compared} losses differ from onert's by no more than last bits move ours.")


def _batch(graph: TrainableGraph, seed: int) -> dict[str, Array]:
    """Images uniform in [0, 1), and random classes."""
    random = np.random.default_rng(seed)
    (image,) = (o for o in graph.operands.values() if o.role is Role.INPUT)
    examples, classes = graph.operands["label"].shape
    return {
        image.id: random.random(image.shape, np.float32),
        "label": np.eye(classes, dtype=np.float32)[random.integers(classes, size=examples)],
    }


def _nudged(value: Array, random: np.random.Generator) -> Array:
    """The array with half of its numbers, drawn at random, one float up."""
    return np.where(random.random(value.shape) < 0.5, np.nextafter(value, np.float32(2)), value)


def _with_values(graph: TrainableGraph, values: Mapping[str, Array]) -> TrainableGraph:
    """The graph with other first values of parameters."""
    operands = dict(graph.operands)
    for name, value in values.items():
        operands[name] = replace(operands[name], initializer=Initializer("values", data=value.tobytes()))
    return graph.with_graph(operands=operands)


def _losses(
    graph: TrainableGraph,
    batch: Mapping[str, Array],
    kernels: KernelSet = "numpy",
    steps: int = STEPS,
    nudged: int | None = None,
) -> list[float]:
    """The loss of each step; `nudged` is the seed of changes to last bits before each."""
    rules = {"learning_rate": LEARNING_RATE, "epsilon": EPSILON, "epsilon_hat": True}
    subject = graph.with_spec(optimizer=OptimizerSpec("Adam", rules))
    planned = plan(subject, PlanOptions(target="c" if kernels == "c" else "reference"))
    parameters = [o.id for o in graph.operands.values() if o.role is Role.PARAMETER]
    (image,) = (o.id for o in graph.operands.values() if o.role is Role.INPUT)
    losses = []
    with Trainer(subject, planned, kernels=kernels) as trainer:
        for step in range(steps):
            fed = batch
            if nudged is not None:
                random = np.random.default_rng((nudged, step))
                fed = {**batch, image: _nudged(batch[image], random)}
                for value in map(trainer.runner.value, parameters):
                    value[...] = _nudged(value, random)
            losses.append(trainer.step(fed))
    return losses


def _theirs(
    graph: TrainableGraph, batch: Mapping[str, Array], python: str, model: Path | None
) -> list[tuple[float, dict[str, Array]]] | str:
    """onert's loss of each step from our initial values, and the parameters after it; or the package that its
    interpreter lacks.

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
        if "missing" in found:
            return str(found["missing"])
        return [
            (loss, _parameters(Path(directory, f"after-{step}.circle").read_bytes()))
            for step, loss in enumerate(found["losses"], 1)
        ]


def _parameters(file: bytes) -> dict[str, Array]:
    model = load_circle(file)
    return {name: initial_value(model.graph.operands[name]) for name in model.weights}
