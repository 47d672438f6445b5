"""The example models against PyTorch's autograd and optimizer, where PyTorch is installed."""

from __future__ import annotations

from pathlib import Path

import pytest

from solver.documents import load_graph
from solver.executor import Trainer, synthetic_batch
from solver.graph import DType
from solver.pipeline import plan
from tests.benchmarks.eager import eager_step
from tests.support.graphs import batch_normalised

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.mark.parity
@pytest.mark.parametrize(("name", "batch"), [("mnist", 4), ("mobilenet_v2", 2)])
def test_losses_follow_pytorch_step_by_step(name: str, batch: int) -> None:
    """In float64, so that rounding cannot hide a wrong gradient: Adam's first steps amplify both."""
    document = (EXAMPLES / f"{name}.json").read_bytes().replace(b"float32", b"float64")
    graph = load_graph(document, batch=batch)
    trainer = Trainer(graph, plan(graph))
    data = synthetic_batch(graph, 0, 1)
    eager = eager_step(graph, data)
    assert eager is not None
    for _ in range(3):
        assert trainer.step(data) == pytest.approx(eager(), rel=1e-9)


@pytest.mark.parity
@pytest.mark.parametrize("mode", [0, 1])
def test_batch_normalisation_follows_pytorch_step_by_step(mode: int) -> None:
    """Losses, and the running statistics that three steps leave; theirs have the unbiased variance."""
    import torch

    graph = batch_normalised(mode=mode, dtype=DType.FLOAT64, learning_rate=0.01)
    trainer, f = Trainer(graph, plan(graph)), torch.nn.functional
    weights = {name: torch.tensor(trainer.read(name), requires_grad=True) for name in graph.trainable}
    k, scale, shift, w = weights.values()
    mean, variance = (torch.tensor(trainer.read(name)) for name in ("mean", "variance"))
    optimizer = torch.optim.Adam(weights.values(), lr=0.01)
    for step in range(1, 4):
        data = synthetic_batch(graph, 0, step)
        h = f.conv2d(torch.tensor(data["x"]), k)
        h = f.batch_norm(h, mean, variance, scale, shift, training=bool(mode), momentum=0.2)
        loss = f.mse_loss(torch.relu(h).mean(dim=(2, 3)) @ w.T, torch.tensor(data["t"]))
        assert trainer.step(data) == pytest.approx(loss.item(), rel=1e-9)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert trainer.read("mean") == pytest.approx(mean.numpy(), rel=1e-9)
    count = 4 * 4 * 4
    unbiased = (
        0.8**3 + (trainer.read("variance") - 0.8**3) * count / (count - 1) if mode else variance.numpy()
    )
    assert variance.numpy() == pytest.approx(unbiased, rel=1e-9)
