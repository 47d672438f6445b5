"""Steps of PyTorch in one slab: eager PyTorch's losses and weights, bit for bit, in the planned bytes."""

from __future__ import annotations

import copy
from collections import OrderedDict
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


def test_a_checkpoint_has_the_size_of_its_tensors_and_resumes() -> None:
    """A step, saved and loaded; then another step for a short batch, beside eager ones."""
    import io

    import torch
    from torch import nn

    def trained(step_of: Any) -> list[Any]:
        torch.manual_seed(0)
        x, y = torch.randn(64, 32), torch.randn(64, 4)
        file = io.BytesIO()
        for count in (1, 6):
            module = nn.Sequential(nn.Linear(32, 8), nn.Tanh(), nn.Linear(8, 4))
            optimizer = torch.optim.Adam(module.parameters(), 1e-2)
            if file.getbuffer().nbytes:
                file.seek(0)
                saved = torch.load(file)
                module.load_state_dict(saved["module"])
                optimizer.load_state_dict(saved["optimizer"])
            steps = [step_of(module, optimizer, x[:n], y[:n]) for n in (64, 5)]
            for _ in range(count):
                steps[-1](x[:5], y[:5])
            state = {"module": module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, file := io.BytesIO())
            assert file.getbuffer().nbytes < 12_000
        return list(module.parameters())

    def eager(module: Any, optimizer: Any, *_: Any) -> Any:
        def step(x: Any, y: Any) -> None:
            optimizer.zero_grad()
            nn.functional.mse_loss(module(x), y).backward()
            optimizer.step()

        return step

    def planned(module: Any, optimizer: Any, *example: Any) -> Any:
        return arenaplan.torch.train_step(module, nn.functional.mse_loss, optimizer, example)

    assert all(torch.equal(a, b) for a, b in zip(trained(eager), trained(planned), strict=True))


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
    with pytest.raises(PlanError, match=r"'0.weight.step' of the optimizer has left the memory"):
        step(*batch())
    module = network()
    step, _ = made(module)
    module[6].weight.data = torch.zeros(64, 8 * 36)
    with pytest.raises(PlanError, match=r"'6.weight' of the module has left the memory"):
        step(*batch())


@pytest.mark.parametrize("way", ["to", "data", "assign", "submodule", "untied", "state"])
def test_every_way_to_take_memory_away_is_noticed_and_another_step_goes_on(way: str) -> None:
    """The parameter is named; the remedy trains as eager PyTorch does from there."""
    import torch
    from torch import nn

    parts = [("first", nn.Linear(6, 6)), ("norm", nn.BatchNorm1d(6)), ("last", nn.Linear(6, 6))]
    module: Any = nn.Sequential(OrderedDict(parts))
    module.last.weight = module.first.weight
    loss = nn.functional.mse_loss
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    optimizer = torch.optim.Adam(module.parameters())
    step = arenaplan.torch.train_step(module, loss, optimizer, (x, y))
    step(x, y)
    name = "first.weight"
    if way == "to":
        module.to(torch.float64)
        x, y = x.double(), y.double()
    elif way == "data":
        module.first.weight.data = torch.ones(6, 6)
    elif way == "assign":
        module.load_state_dict({k: v.clone() for k, v in module.state_dict().items()}, assign=True)
    elif way == "submodule":
        name, module.last = "last.weight", nn.Linear(6, 6)
    elif way == "untied":
        name, module.last.weight = "last.weight", nn.Parameter(torch.ones(6, 6))
    else:
        optimizer.state.clear()
        name = "first.weight.step"
    with pytest.raises(PlanError, match=f"'{name}' of the (module|optimizer) has left the memory"):
        step(x.float(), y.float())
    optimizer = torch.optim.Adam(module.parameters())
    twin = copy.deepcopy(module)
    eager = torch.optim.Adam(twin.parameters())
    step = arenaplan.torch.train_step(module, loss, optimizer, (x, y))
    value = loss(twin(x), y)
    value.backward()
    eager.step()
    assert torch.equal(step(x, y), value.detach())
    assert torch.equal(module.last.weight, twin.last.weight)


def test_an_optimizer_of_other_tensors_is_refused() -> None:
    """As after ``load_state_dict(assign=True)``, where the optimizer has the parameters of before."""
    import torch
    import torch.nn.functional as F

    module = network()
    stale = torch.optim.SGD(network().parameters(), lr=0.1)
    with pytest.raises(DocumentError, match="updates no parameter of the module"):
        arenaplan.torch.train_step(module, F.cross_entropy, stale, batch())
    images, labels = batch()
    with pytest.raises(
        DocumentError, match=r"updates a tensor of shape \[8, 3, 3, 3\], which is no parameter"
    ):
        arenaplan.torch.program(module, images, targets=labels, loss=F.cross_entropy, optimizer=stale)


def test_an_operation_with_hidden_state_is_named() -> None:
    """By the step itself, and by `validate` for a runner; checking changes nothing of the training."""
    import itertools

    import torch
    from torch import nn

    drawn = itertools.count()

    def counting(x: Any) -> Any:
        return x + float(next(drawn))

    schema = "(Tensor x) -> Tensor"
    operator = torch.library.custom_op("arenaplan_tests::counting", counting, mutates_args=(), schema=schema)
    operator.register_fake(torch.empty_like)
    operator.register_autograd(lambda _context, gradient: gradient)

    module = nn.Sequential(nn.Linear(6, 6), nn.Tanh())
    module[1].register_forward_hook(lambda _module, _inputs, output: operator(output))
    loss = nn.functional.mse_loss
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    step = arenaplan.torch.train_step(module, loss, torch.optim.Adam(module.parameters()), (x, y))
    message = "Operation 'counting' says that it is pure, but its second run"
    with pytest.raises(PlanError, match=message):
        step.validate()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    traced = arenaplan.torch.program(module, x, targets=y, loss=loss, optimizer=optimizer)
    with pytest.raises(PlanError, match=message):
        arenaplan.validate(traced, arenaplan.plan(traced), steps=1)


def test_a_step_that_is_validated_trains_as_if_it_were_not() -> None:
    import torch

    torch.manual_seed(0)
    module = network()
    twin = copy.deepcopy(module)
    torch.manual_seed(3)
    step, _ = made(module)
    assert step.validate(steps=2).identical
    torch.manual_seed(3)
    other, _ = made(twin)
    for _ in range(2):
        assert torch.equal(step(*batch()), other(*batch()))
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), twin.parameters(), strict=True))


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
