"""Steps of PyTorch as programs: what they read and write is right if they train in a poisoned arena."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

import arenaplan
from solver.errors import DocumentError
from solver.executor import BlockRunner
from solver.plan import PlanOptions

pytestmark = pytest.mark.parity

NAMES = ("mlp", "lenet", "resnet", "mobilenet", "transformer", "gpt", "gru", "rnn", "upsampling", "frozen")


def optimizer_of(module: Any, name: str, **settings: Any) -> Any:
    import torch

    weights = [parameter for parameter in module.parameters() if parameter.requires_grad]
    return getattr(torch.optim, name)(weights, **settings)


def loss_of(made: Any) -> Any:
    import torch.nn.functional as F

    by_name = {"mse": F.mse_loss, "cross-entropy": F.cross_entropy}
    return by_name[made.loss] if isinstance(made.loss, str) else made.loss


def run(runner: BlockRunner, traced: Any, made: Any) -> float:
    """One step on the model's batch; its loss."""
    for kind, tensors in (("input", made.inputs), ("target", made.targets)):
        for k, tensor in enumerate(tensors):
            runner.block(f"{kind}{k}")[...] = tensor.numpy()
    runner.run()
    (kept,) = (block.name for block in traced.program.blocks.values() if block.kept)
    return float(runner.block(kept).reshape(-1)[0])


def eager(made: Any, optimizer: Any) -> float:
    output, loss = made.module(*made.inputs), loss_of(made)
    value = output if loss is None else loss(output, *made.targets)
    optimizer.zero_grad()
    value.backward()
    optimizer.step()
    return float(value.item())


def state_of(module: Any) -> Mapping[str, Any]:
    return dict(module.named_parameters()) | dict(module.named_buffers())


@pytest.mark.parametrize("name", ["lenet", "gpt", "mobilenet"])
def test_permissions_take_less_and_change_nothing(name: str) -> None:
    """Element-wise results in the place of their operands, and another order."""
    import torch

    from tests.support.pytorch_models import example

    torch.manual_seed(0)
    made = example(name)
    optimizer = optimizer_of(made.module, "SGD", lr=0.01, momentum=0.9)
    traced = arenaplan.torch.program(
        made.module, made.inputs, targets=made.targets, loss=loss_of(made), optimizer=optimizer
    )
    assert traced.program.any_order
    plain, permitted = (
        arenaplan.torch.runner(traced, options) for options in (None, PlanOptions(in_place=True, order=True))
    )
    losses = [[run(runner, traced, made) for _ in range(3)] for runner in (plain, permitted)]
    assert losses[0] == losses[1]
    small, usual = arenaplan.plan(traced, in_place=True, order=True), arenaplan.plan(traced)
    assert small.arena_bytes <= usual.arena_bytes
    # The peak of this one has nothing that may be overwritten, and no order that was found lowers it.
    assert (small.arena_bytes == usual.arena_bytes) is (name == "gpt")


@pytest.mark.parametrize("name", NAMES)
def test_bit_for_bit(name: str) -> None:
    """With PyTorch's own kernels in our arena: losses, weights and buffers of three steps with momentum."""
    from tests.support.pytorch_models import example

    made = example(name)
    optimizer = optimizer_of(made.module, "SGD", lr=0.1, momentum=0.9)
    traced = arenaplan.torch.program(
        made.module, made.inputs, loss=loss_of(made), targets=made.targets, optimizer=optimizer
    )
    plan = arenaplan.plan(traced)
    assert plan.arena_bytes == plan.lower_bound
    runner = arenaplan.torch.runner(traced)
    for _ in range(3):
        assert run(runner, traced, made) == eager(made, optimizer)
    for key, tensor in state_of(made.module).items():
        if key in traced.program.blocks:
            np.testing.assert_array_equal(runner.block(key), tensor.detach().numpy(), err_msg=key)


@pytest.mark.parametrize("name", ["Adam", "AdamW", "RMSprop", "Adagrad", "SGD"])
def test_optimizers(name: str) -> None:
    """Counts of steps carry over as tensors; where PyTorch computes with them, that is in float32."""
    from tests.support.pytorch_models import example

    made = example("mlp", double=True)
    optimizer = optimizer_of(made.module, name, lr=0.01, weight_decay=0.01)
    traced = arenaplan.torch.program(
        made.module, made.inputs, loss=loss_of(made), targets=made.targets, optimizer=optimizer
    )
    runner = arenaplan.torch.runner(traced)
    assert [run(runner, traced, made) for _ in range(4)] == pytest.approx(
        [eager(made, optimizer) for _ in range(4)], rel=1e-5 if "Adam" in name else 1e-9
    )


def test_names() -> None:
    from tests.support.pytorch_models import example

    made = example("mlp")
    traced = arenaplan.torch.program(
        *(made.module, made.inputs),
        loss=loss_of(made),
        targets=made.targets,
        optimizer=optimizer_of(made.module, "Adam"),
        name="step",
    )
    assert traced.program.name == "step"
    blocks = traced.program.blocks
    assert {"0.weight", "0.weight.exp_avg", "0.weight.step", "input0", "target0"} <= set(blocks)
    assert {name for name, block in blocks.items() if block.fed} == {"input0", "target0"}
    assert blocks["0.weight.exp_avg"].type.shape == (16, 12)


def test_views_take_no_memory() -> None:
    """A transposed, sliced and reshaped tensor is the one that it looks into."""
    import torch

    def step(tensors: Mapping[str, Any]) -> Any:
        x = tensors["x"].t()[2:].reshape(3, -1)
        return (x @ tensors["w"].view(4, 5)).sum()

    traced = arenaplan.torch.trace(
        step, {"x": torch.randn(4, 5), "w": torch.randn(20)}, fed=["x"], name="views"
    )
    kernels = [operation.kernel for operation in traced.program.operations]
    assert kernels == ["aten.mm.default", "aten.sum.default"]
    assert set(traced.program.operations[0].reads) == {"x", "w"}


def test_in_place_operations_update() -> None:
    import torch

    def step(tensors: Mapping[str, Any]) -> Any:
        tensors["w"][1:].mul_(tensors["x"][1:])
        tensors["m"].copy_(tensors["w"])
        return tensors["m"].sum()

    given = {"w": torch.ones(4), "m": torch.zeros(4), "x": torch.arange(4.0)}
    traced = arenaplan.torch.trace(step, given, fed=["x"])
    multiply, copy, _ = traced.program.operations
    assert (set(multiply.reads), multiply.writes) == ({"w", "x"}, ("w",))
    assert (copy.reads, copy.writes) == (("w",), ("m",))


@pytest.mark.parametrize(
    "step",
    [
        lambda tensors: tensors["x"] * tensors["x"].sum().item(),
        lambda tensors: tensors["x"] if tensors["x"].sum() > 0 else -tensors["x"],
    ],
    ids=["number", "branch"],
)
def test_a_step_that_looks_at_elements(step: Any) -> None:
    import torch

    with pytest.raises(DocumentError, match="the step"):
        arenaplan.torch.trace(step, {"x": torch.ones(3)})
