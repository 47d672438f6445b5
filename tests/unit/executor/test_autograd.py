"""The example models against PyTorch's autograd and optimizer, where PyTorch is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from solver.documents import load_graph
from solver.executor import Trainer, synthetic_batch
from solver.pipeline import plan
from tests.benchmarks.eager import eager_step

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parametrize(("name", "batch"), [("mnist", 4), ("mobilenet_v2", 2)])
def test_losses_follow_pytorch_step_by_step(name: str, batch: int) -> None:
    """In float64, so that rounding cannot hide a wrong gradient: Adam's first steps amplify both."""
    pytest.importorskip("torch", reason="PyTorch is large and optional: it is compared where it is installed")
    document = (EXAMPLES / f"{name}.json").read_bytes().replace(b"float32", b"float64")
    graph = load_graph(document, batch=batch)
    trainer = Trainer(graph, plan(graph))
    data = synthetic_batch(graph, 0, 1)
    eager = eager_step(graph, data)
    assert eager is not None
    for _ in range(3):
        assert trainer.step(data) == pytest.approx(eager(), rel=1e-9)
