"""Steps of PyTorch in one slab: eager PyTorch's losses and weights, bit for bit, in the planned bytes."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest

import arenaplan
from solver.errors import BatchError, CapacityError, DocumentError, PlanError

pytestmark = pytest.mark.parity

OPTIMIZERS = {
    "SGD": {"lr": 0.05, "momentum": 0.9, "dampening": 0.1, "weight_decay": 0.01},
    "Adam": {"lr": 1e-3},
    "AdamW": {"lr": 1e-3, "amsgrad": True},
    "RMSprop": {"lr": 1e-3, "momentum": 0.5},
    "NAdam": {"lr": 1e-3},
}


def network() -> Any:
    """A convolution with batch norm, dropout, and dense layers."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(0.3),
        nn.Linear(8 * 36, 64),
        nn.GELU(),
        nn.Linear(64, 10),
    )


def batch() -> tuple[Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(1)
    images = torch.randn(8, 3, 12, 12, generator=generator)
    return images, torch.randint(0, 10, (8,), generator=generator)


def made(module: Any, name: str = "AdamW", capacity: int | str | None = None) -> tuple[Any, Any]:
    """(step, optimizer)."""
    import torch
    import torch.nn.functional as F

    optimizer = getattr(torch.optim, name)(module.parameters(), **OPTIMIZERS[name])
    step = arenaplan.torch.train_step(module, F.cross_entropy, optimizer, batch(), capacity=capacity)
    return step, optimizer


@pytest.mark.parametrize("name", list(OPTIMIZERS))
def test_eager_pytorchs_bits(name: str) -> None:
    """Four steps, with another learning rate for the last two, then an evaluation of the module."""
    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    module = network()
    twin = copy.deepcopy(module)
    eager = getattr(torch.optim, name)(twin.parameters(), **OPTIMIZERS[name])
    torch.manual_seed(3)
    step, optimizer = made(module, name)
    torch.manual_seed(3)
    images, labels = batch()
    for k in range(4):
        if k == 2:
            for group in (*optimizer.param_groups, *eager.param_groups):
                group["lr"] *= 0.5
        loss = F.cross_entropy(twin(images), labels)
        eager.zero_grad()
        loss.backward()
        eager.step()
        assert torch.equal(step(images, labels), loss.detach())
    for key, tensor in twin.state_dict().items():
        assert torch.equal(module.state_dict()[key], tensor), key
    assert torch.equal(module.eval()(images), twin.eval()(images))
    theirs = eager.state_dict()["state"]
    for number, kept in optimizer.state_dict()["state"].items():
        assert all(torch.equal(tensor, theirs[number][word]) for word, tensor in kept.items())


def test_training_goes_on_from_what_an_optimizer_has_kept() -> None:
    """Two eager steps, then two of ours, beside four eager ones."""
    import torch
    import torch.nn.functional as F
    from torch import nn

    torch.manual_seed(0)
    modules = [nn.Linear(432, 10)]
    modules.append(copy.deepcopy(modules[0]))
    optimizers = [torch.optim.Adam(module.parameters()) for module in modules]
    images, labels = batch()

    def eager(k: int) -> None:
        optimizers[k].zero_grad()
        F.cross_entropy(modules[k](images.flatten(1)), labels).backward()
        optimizers[k].step()

    for k in (0, 0, 0, 0, 1, 1):
        eager(k)
    example = images.flatten(1), labels
    step = arenaplan.torch.train_step(modules[1], F.cross_entropy, optimizers[1], example)
    step(*example)
    step(*example)
    assert torch.equal(modules[0].weight, modules[1].weight)


def test_no_more_bytes_than_planned() -> None:
    """PyTorch's own count of what a step allocates beside the slab; within a capacity calls run again."""
    import torch
    from torch import nn

    from solver.importers.pytorch.allocations import allocated_bytes

    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8)]
    module = nn.Sequential(*layers, nn.Linear(64, 4))
    x, y = torch.randn(512, 64), torch.randn(512, 4)

    def step_of(capacity: int | None) -> Any:
        own = copy.deepcopy(module)
        optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
        return arenaplan.torch.train_step(own, nn.functional.mse_loss, optimizer, (x, y), capacity=capacity)

    usual = step_of(None)
    assert usual.slab.nbytes == usual.plan.arena_bytes
    smaller = step_of(usual.planned_bytes * 3 // 4)
    assert smaller.planned_bytes <= usual.planned_bytes * 3 // 4
    assert any(smaller.plan.program.runs)
    assert [float(usual(x, y)) for _ in range(3)] == [float(smaller(x, y)) for _ in range(3)]
    for step in (usual, smaller):
        assert allocated_bytes([partial(step, x, y)])[0] <= step.outside_bytes + 64
    with pytest.raises(CapacityError, match="kernels allocate up to"):
        step_of(usual.outside_bytes)


def test_memory_that_is_taken_away_is_noticed() -> None:
    import torch

    module = network()
    step, optimizer = made(module)
    step(*batch())
    module.load_state_dict({key: tensor.clone() for key, tensor in module.state_dict().items()})
    step(*batch())
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    with pytest.raises(PlanError, match=r"'0.weight.step' has been given other memory"):
        step(*batch())
    module = network()
    step, _ = made(module)
    module[6].weight.data = torch.zeros(64, 8 * 36)
    with pytest.raises(PlanError, match=r"'6.weight' has been given other memory"):
        step(*batch())


def test_batches_of_other_types_are_refused() -> None:
    step, _ = made(network())
    images, labels = batch()
    with pytest.raises(BatchError, match="takes 2 tensors, input0, target0; here are 1"):
        step(images)
    with pytest.raises(BatchError, match=r"'input0' is torch.float32\[4, 3, 12, 12\]"):
        step(images[:4], labels)
    with pytest.raises(BatchError, match=r"'target0' is torch.int32\[8\]"):
        step(images, labels.int())
    with pytest.raises(BatchError, match="'target0' is a list"):
        step(images, labels.tolist())


def test_an_optimizer_that_computes_losses_is_refused() -> None:
    import torch
    import torch.nn.functional as F

    module = network()
    with pytest.raises(DocumentError, match="LBFGS"):
        arenaplan.torch.train_step(module, F.cross_entropy, torch.optim.LBFGS(module.parameters()), batch())
