"""Graphs with a symbolic batch, plans for ranges, and states of trainers."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any, Final

from solver.documents import dump_graph, load_graph
from solver.executor import Trainer
from solver.graph import TrainableGraph
from solver.importers.weights import read_arrays
from solver.pipeline import plan_requested
from solver.plan import Plan, RequestedOptions, SizeRange

__all__ = ["SEQUENCES", "hand_over", "planned_over", "state_of", "with_symbolic_batch"]


#: A document with a batch and a length that are open.
SEQUENCES: Final[dict[str, Any]] = {
    "format": "arenaplan.graph",
    "version": 1,
    "name": "sequences",
    "batch": 2,
    "dims": {"seq": 6},
    "operands": [
        {"name": "x", "role": "input", "shape": ["batch", "seq", 4], "dtype": "float32"},
        {"name": "t", "role": "label", "shape": ["batch", "seq", 3], "dtype": "float32"},
        {"name": "w", "role": "parameter", "shape": [4, 3], "dtype": "float32"},
    ],
    "operations": [
        {"name": "m", "type": "MatMul", "inputs": ["x", "w"], "outputs": ["y"]},
        {"name": "l", "type": "MeanSquaredError", "inputs": ["y", "t"], "outputs": ["loss"]},
    ],
    "loss": "loss",
    "optimizer": {"type": "SGD", "learning_rate": 0.1},
}


def with_symbolic_batch(graph: TrainableGraph, batch: int) -> TrainableGraph:
    """The graph at another batch: the first dimension of inputs and labels counts examples."""
    document: dict[str, Any] = json.loads(dump_graph(graph))
    for operand in document["operands"]:
        if operand["role"] in ("input", "label"):
            operand["shape"][0] = "batch"
    return load_graph(document, batch=batch)


def planned_over(graph: TrainableGraph, least: int, most: int, **options: Any) -> Plan:
    """The plan for batches from `least` to `most`."""
    requested = RequestedOptions(ranges=(SizeRange("batch", least, most),))
    return plan_requested(graph, requested.having(**options))


def state_of(trainer: Trainer, folder: Path) -> dict[str, bytes]:
    """What one iteration leaves to the next, by name."""
    trainer.save(folder / "state.safetensors")
    return {name: array.tobytes() for name, array in read_arrays(folder / "state.safetensors").items()}


def hand_over(trainer: Trainer, plan: Plan, other: Trainer, of: Plan, folder: Path) -> None:
    """Let `other`, a trainer of the plan `of`, stand where a trainer of `plan` stands."""
    path = folder / "handed.safetensors"
    trainer.save(path)
    data = path.read_bytes().replace(plan.digest.encode(), of.digest.encode())
    digest = re.search(rb'(?<="sha256":")[0-9a-f]{64}', data)
    assert digest is not None
    data = data.replace(digest[0], b"0" * 64)
    path.write_bytes(data.replace(b"0" * 64, hashlib.sha256(data).hexdigest().encode(), 1))
    other.restore(path)
