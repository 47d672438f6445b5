"""Whole modules: what is captured trains as in PyTorch, loss by loss and weight by weight."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import arenaplan
from solver.executor import Trainer, validate
from solver.pipeline import plan

pytestmark = pytest.mark.parity

NAMES = (
    *("mlp", "lenet", "resnet", "mobilenet", "transformer", "gpt"),
    *("lstm", "gru", "rnn", "upsampling", "frozen"),
)

#: The head of a language model in chunks, as small as they may be.
CHUNKED: dict[str, Any] = {"chunked_head": True, "scratch_budget": 1}


def losses_of_pytorch(made: Any, optimizer: Any, steps: int) -> list[float]:
    """The losses of so many steps on one batch; the module is trained."""
    import torch.nn.functional as F

    by_name = {"mse": F.mse_loss, "cross-entropy": F.cross_entropy}
    found = []
    for _ in range(steps):
        output = made.module(*made.inputs)
        function = by_name.get(made.loss, made.loss) if isinstance(made.loss, str) else made.loss
        loss = output if function is None else function(output, *made.targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.mark.parametrize("name", NAMES)
def test_first_loss(name: str) -> None:
    """In float32, up to 1e-6."""
    from tests.support.pytorch_models import example

    made = example(name)
    captured = arenaplan.torch.graph(made.module, made.inputs, loss=made.loss, targets=made.targets)
    ours = next(captured.train([(*made.inputs, *made.targets)]))
    theirs = made.module(*made.inputs)
    if made.loss is not None:
        import torch.nn.functional as F

        by_name = {"mse": F.mse_loss, "cross-entropy": F.cross_entropy}
        theirs = by_name.get(made.loss, made.loss)(theirs, *made.targets)
    assert ours == pytest.approx(theirs.item(), rel=1e-6)


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in NAMES), ("gpt", CHUNKED)])
def test_five_steps(name: str, options: dict[str, Any]) -> None:
    """In float64: losses up to 1e-9, and every weight and running statistic as near."""
    import torch

    from tests.support.pytorch_models import example

    made = example(name, double=True)
    weights = [parameter for parameter in made.module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.SGD(weights, lr=0.1)
    captured = arenaplan.torch.graph(
        made.module, made.inputs, loss=made.loss, targets=made.targets, optimizer=optimizer
    )
    with captured.trainer(**options) as trainer:
        batch = captured.batch(*made.inputs, *made.targets)
        ours = [trainer.step(batch) for _ in range(5)]
        assert ours == pytest.approx(losses_of_pytorch(made, optimizer, 5), rel=1e-9)
        state = captured.state_dict(trainer)
    theirs = made.module.state_dict()
    assert set(state) == set(theirs)
    for key, tensor in theirs.items():
        if not key.endswith("num_batches_tracked"):
            np.testing.assert_allclose(state[key], tensor, rtol=1e-9, atol=1e-12, err_msg=key)


@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "RMSprop", "Adagrad"])
def test_optimizers_of_pytorch(optimizer: str) -> None:
    import torch

    from tests.support.pytorch_models import example

    made = example("mlp", double=True)
    settings: dict[str, Any] = {"lr": 0.01, "weight_decay": 0.01}
    if optimizer == "SGD":
        settings |= {"momentum": 0.9, "nesterov": True}
    theirs = getattr(torch.optim, optimizer)(made.module.parameters(), **settings)
    captured = arenaplan.torch.graph(made.module, made.inputs, loss="mse", optimizer=theirs)
    ours = list(captured.train([(*made.inputs, *made.targets)] * 4))
    assert ours == pytest.approx(losses_of_pytorch(made, theirs, 4), rel=1e-9)


@pytest.mark.parametrize("name", ["resnet", "gpt", "lstm"])
def test_in_the_arena_as_without(name: str) -> None:
    """Planned at the bound, and bit for bit as in memory of its own."""
    from tests.support.pytorch_models import example

    made = example(name)
    captured = arenaplan.torch.graph(made.module, made.inputs, loss=made.loss, targets=made.targets)
    found = captured.plan()
    assert found.arena_bytes == found.lower_bound
    assert validate(captured.graph, found, steps=2).identical


def test_dropout_trains_where_the_module_does() -> None:
    import torch
    from torch import nn

    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.25))
    for mode, expected in ((True, ["Gemm", "Dropout"]), (False, ["Gemm"])):
        captured = arenaplan.torch.graph(module.train(mode), (torch.ones(2, 4),), loss="mse")
        assert [operation.type for operation in captured.graph.operations[:-1]] == expected


def test_dropout_of_channels() -> None:
    """Whole channels are zero or doubled, by a mask that is drawn each step."""
    import torch
    from torch import nn

    module, x = nn.Sequential(nn.Linear(3, 3), nn.Dropout2d(0.5)), torch.randn(4, 8, 3, 3)
    captured = arenaplan.torch.graph(module, x, loss=lambda y, wanted: (y - wanted).pow(2).mean(), targets=x)
    (kept,) = (o for o in captured.graph.operations if o.type == "Dropout")
    assert captured.graph.operands[kept.outputs[0]].shape == (4, 8, 1, 1)
    whole = arenaplan.torch.graph(module, x, loss="mse", outputs=True)
    with whole.trainer() as trainer:
        trainer.step(whole.batch(x, x))
        first = trainer.read(whole.graph.outputs[0])
        trainer.step(whole.batch(x, x))
        second = trainer.read(whole.graph.outputs[0])
    zeros = (first == 0).all((2, 3))
    assert 0 < zeros.sum() < 32
    assert ((first == 0).any((2, 3)) == zeros).all()
    assert ((first == 0).all((2, 3)) != (second == 0).all((2, 3))).any()


def test_what_is_only_asserted_is_left_out() -> None:
    import torch
    import torch.nn.functional as F

    def loss(output: Any, target: Any) -> Any:
        return F.mse_loss(output, F.one_hot(target, 4).float())

    module, x, target = torch.nn.Linear(4, 4), torch.randn(3, 4), torch.randint(0, 4, (3,))
    captured = arenaplan.torch.graph(module, x, loss=loss, targets=target)
    assert next(captured.train([(x, target)])) == pytest.approx(loss(module(x), target).item(), rel=1e-6)


def test_trainer_takes_the_graph_alone() -> None:
    from tests.support.pytorch_models import example

    made = example("lenet")
    captured = arenaplan.torch.graph(made.module, made.inputs, loss=made.loss)
    with Trainer(captured.graph, plan(captured.graph)) as trainer:
        assert trainer.step(captured.batch(*made.inputs, *made.targets)) > 0
