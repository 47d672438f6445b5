"""Modules without a loss, and the inference of modules that are trained, beside PyTorch's `eval()`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenaplan
from solver.documents import load_graph
from solver.errors import LossError, PlanError

pytestmark = pytest.mark.parity


def network() -> Any:
    """Two convolutions with batch norm and dropout, of which one drops whole channels, before two classes."""
    import torch

    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1),
        torch.nn.BatchNorm2d(4),
        torch.nn.ReLU(),
        torch.nn.Dropout2d(0.5),
        torch.nn.Conv2d(4, 4, 3),
        torch.nn.BatchNorm2d(4, momentum=0.3, eps=1e-3),
        torch.nn.Flatten(),
        torch.nn.Dropout(0.3),
        torch.nn.Linear(64, 2),
    )


def images(count: int = 4) -> Any:
    import torch

    return torch.randn(count, 3, 6, 6, generator=torch.Generator().manual_seed(2))


def test_a_module_that_returns_no_number_is_an_inference() -> None:
    module = network().eval()
    captured = arenaplan.torch.graph(module, images())
    graph = captured.graph
    assert (graph.loss, graph.optimizer, graph.trainable) == (None, None, ())
    with captured.trainer() as trainer:
        (y,) = trainer.infer(captured.batch(images())).values()
    np.testing.assert_allclose(y, module(images()).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_the_inference_of_a_trained_module_is_that_of_pytorch() -> None:
    """Weights and running statistics go from the training arena to the module and to the inference."""
    import torch

    module = network().train()
    captured = arenaplan.torch.graph(module, images(), loss="cross-entropy", optimizer="adam")
    with captured.trainer() as trainer:
        for seed in range(3):
            labels = torch.tensor([0, 1, 1, 0])
            trainer.step(captured.batch(images() * (seed + 1), labels))
        state = captured.state_dict(trainer)
    module.load_state_dict(state)
    graph = arenaplan.inference(captured.load_weights(state).graph)
    (name,) = captured.imported.inputs
    with arenaplan.Trainer(graph, arenaplan.plan(graph)) as trainer:
        (y,) = trainer.infer({name: images().numpy()}).values()
    np.testing.assert_allclose(y, module.eval()(images()).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_loss_of_none_for_a_module_that_returns_a_number() -> None:
    import torch

    class Mean(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return x.mean()

    captured = arenaplan.torch.graph(Mean(), images(), loss="none")
    with captured.trainer() as trainer:
        (y,) = trainer.infer(captured.batch(images())).values()
        assert y.shape == ()
        with pytest.raises(PlanError, match="has no program to train"):
            trainer.step(captured.batch(images()))
    np.testing.assert_allclose(y, images().mean().numpy(), rtol=1e-5)
    with pytest.raises(LossError, match="The loss is none, and 'optimizer' is for training"):
        arenaplan.torch.graph(Mean(), images(), loss="none", optimizer="adam")


def test_batch_norm_without_running_statistics_normalises_by_the_batch_as_pytorch_does() -> None:
    import torch

    torch.manual_seed(1)
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4, track_running_stats=False))
    captured = arenaplan.torch.graph(
        module, images(), loss=lambda y, t: ((y - t) ** 2).mean(), targets=module(images()).detach()
    )
    graph = arenaplan.inference(captured.graph.with_graph(outputs=()))
    (name,) = captured.imported.inputs
    with arenaplan.Trainer(graph, arenaplan.plan(graph)) as trainer:
        (y,) = trainer.infer({name: images().numpy()}).values()
    np.testing.assert_allclose(y, module.eval()(images()).detach().numpy(), rtol=1e-4, atol=1e-5)


def test_a_document_of_an_inference_has_a_symbolic_batch() -> None:
    module = network().eval()
    document = arenaplan.torch.document(module, images())
    assert "loss" not in document
    graph = load_graph(document, batch=2)
    (name,) = [operand.id for operand in graph.operands.values() if operand.role.value == "input"]
    with arenaplan.Trainer(graph, arenaplan.plan(graph)) as trainer:
        (y,) = trainer.infer({name: images(2).numpy()}).values()
    np.testing.assert_allclose(y, module(images(2)).detach().numpy(), rtol=1e-4, atol=1e-5)
