"""A captured training step and a captured inference of PyTorch in one arena, beside PyTorch itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenaplan

pytestmark = pytest.mark.parity


def test_captured_steps_share_the_weights_of_a_module() -> None:
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 4))
    optimizer = torch.optim.Adam(module.parameters(), lr=0.01)
    inputs, targets = torch.randn(3, 6), torch.randn(3, 4)
    weights = dict(module.named_parameters())

    def loss_of(outputs: Any, labels: Any) -> Any:
        return ((outputs - labels) ** 2).mean()

    def forward(tensors: Any) -> Any:
        known = {name: tensors[name] for name in weights}
        return {"y": torch.func.functional_call(module, known, (tensors["x"],))}

    runs = {
        "train": arenaplan.torch.program(
            module, (inputs,), loss=loss_of, targets=(targets,), optimizer=optimizer
        ),
        "infer": arenaplan.torch.trace(forward, {**weights, "x": torch.randn(1, 6)}, fed=("x",)),
    }
    plan = arenaplan.deploy(runs, ties=["train.*=infer.*"])
    assert all(row.name.startswith("train.") for row in plan.persistent)
    assert arenaplan.validate(runs, plan, steps=5).identical
    with arenaplan.Trainer(runs, plan) as trainer:
        for _ in range(5):
            optimizer.zero_grad()
            loss = loss_of(module(inputs), targets)
            loss.backward()
            optimizer.step()
            trained = trainer.run("train", {"input0": inputs.numpy(), "target0": targets.numpy()})
            np.testing.assert_allclose(trained[""], loss.detach().numpy(), rtol=1e-4)
            image = torch.randn(1, 6)
            outputs = trainer.run("infer", {"x": image.numpy()})
            np.testing.assert_allclose(outputs["['y']"], module(image).detach().numpy(), rtol=1e-3, atol=1e-5)
