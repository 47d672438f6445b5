"""Steps of PyTorch in one slab: eager PyTorch's losses and weights, bit for bit, in the planned bytes."""

from __future__ import annotations

import copy
import sys
import timeit
from collections import OrderedDict
from collections.abc import Callable
from contextlib import nullcontext
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
        state = torch.get_rng_state()
        loss = F.cross_entropy(twin(images), labels)
        eager.zero_grad()
        loss.backward()
        eager.step()
        torch.set_rng_state(state)
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
    """A step, saved and loaded; then steps for a whole and a short batch in turn, beside eager ones."""
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
            for k in range(count):
                n = (64, 5)[k % 2]
                steps[k % 2](x[:n], y[:n])
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

    from solver.importers.pytorch.calls import allocated_bytes

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
    assert [usual(x, y).item() for _ in range(3)] == [smaller(x, y).item() for _ in range(3)]
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
        state = torch.get_rng_state()
        value = step(*batch())
        torch.set_rng_state(state)
        assert torch.equal(value, other(*batch()))
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


def dense(rate: float = 0.0) -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(12, 12), nn.Tanh(), nn.Dropout(rate), nn.Linear(12, 4))


def written(forward: Callable[[Any, Any], Any], **parts: Any) -> Any:
    """A module with these attributes and this forward pass."""
    from torch import nn

    class Written(nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return forward(self, x)

    module = Written()
    for name, part in parts.items():
        setattr(module, name, part)
    return module


def checkpointed(rate: float = 0.0, *, reentrant: bool = False) -> Any:
    import torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint

    def forward(self: Any, x: Any) -> Any:
        inner = lambda z: self.drop(torch.tanh(self.b(z)))  # noqa: E731
        return self.c(checkpoint(inner, torch.tanh(self.a(x)), use_reentrant=reentrant))

    parts = {"a": nn.Linear(12, 16), "b": nn.Linear(16, 16), "c": nn.Linear(16, 4), "drop": nn.Dropout(rate)}
    return written(forward, **parts)


def recurrent() -> Any:
    from torch import nn

    def forward(self: Any, x: Any) -> Any:
        return self.head(self.cell(x.view(-1, 3, 4))[0][:, -1])

    return written(
        forward, cell=nn.LSTM(4, 8, num_layers=2, dropout=0.2, batch_first=True), head=nn.Linear(8, 4)
    )


def spectral() -> Any:
    import torch
    from torch import nn

    def forward(self: Any, x: Any) -> Any:
        wave = torch.fft.rfft(x) * torch.view_as_complex(self.weight)
        return self.head(torch.fft.irfft(wave, n=12))

    return written(forward, weight=nn.Parameter(torch.randn(7, 2)), head=nn.Linear(12, 4))


def averaged(kind: str) -> Any:
    """A module that subtracts a moving average of its results, which it keeps in one of three ways."""
    import torch
    from torch import nn

    def forward(self: Any, x: Any) -> Any:
        y = self.fc(x)
        mean = y.detach().mean(0)
        if kind == "in place":
            self.mean.mul_(0.9).add_(mean * 0.1)
        else:
            self.mean = 0.9 * self.mean + 0.1 * mean
        return y - self.mean

    module = written(forward, fc=nn.Linear(12, 4))
    if kind == "buffer":
        module.register_buffer("mean", torch.zeros(4))
    else:
        module.mean = torch.zeros(4)
    return module


def hooked(register: str, hook: Callable[..., Any]) -> Any:
    module = dense()
    getattr(module[0].weight if register.startswith("register_post") else module[3], register)(hook)
    return module


def scaled(self: Any, x: Any) -> Any:
    return self.net(x) * self.scale


def schedule(k: int, _module: Any, optimizer: Any) -> None:
    optimizer.param_groups[0].update(lr=0.1 / (k + 1), momentum=0.9 - k / 100, weight_decay=0.001 * (k + 1))


def clipping(module: Any) -> Any:
    """An optimizer whose hook looks at all gradients by a list of parameters."""
    import torch

    optimizer, parameters = sgd(module), list(module.parameters())
    optimizer.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_norm_(parameters, 0.01) and None)
    return optimizer


def sgd(module: Any) -> Any:
    import torch

    return torch.optim.SGD(module.parameters(), 0.1, momentum=0.9, weight_decay=0.001)


def own_optimizer(module: Any) -> Any:
    """An optimizer that scales by the norm of all gradients, counts in Python and replaces what it keeps."""
    import torch

    class Own(torch.optim.Optimizer):  # type: ignore[misc]
        @torch.no_grad()  # type: ignore[untyped-decorator]
        def step(self, closure: Any = None) -> None:
            del closure
            parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
            norm = torch.sqrt(sum((p.grad**2).sum() for p in parameters))
            for p in parameters:
                state = self.state[p]
                state["count"] = state.get("count", 0) + 1
                state["mean"] = state.get("mean", torch.zeros_like(p)) * 0.9 + p.grad / norm
                p.sub_(state["mean"] * self.param_groups[0]["lr"] / state["count"])

    return Own(module.parameters(), {"lr": 0.1})


def later(k: int, change: Callable[[Any], object]) -> Callable[[int, Any, Any], object]:
    """A change of the module before call `k`."""
    return lambda at, module, _optimizer: change(module) if at == k else None


#: (module, optimizer, what is done before each call, options), by name.
LIKE_EAGER: dict[str, tuple[Any, Any, Any, dict[str, Any]]] = {
    "checkpoint": (checkpointed, sgd, None, {}),
    "checkpoint with dropout": (lambda: checkpointed(0.3), sgd, None, {}),
    "reentrant checkpoint": (lambda: checkpointed(0.3, reentrant=True), sgd, None, {}),
    "LSTM": (recurrent, sgd, None, {}),
    "complex": (spectral, sgd, None, {}),
    "average in a buffer": (lambda: averaged("buffer"), sgd, None, {}),
    "average in an attribute": (lambda: averaged("attribute"), sgd, None, {}),
    "average in place": (lambda: averaged("in place"), sgd, None, {}),
    "forward hook": (lambda: hooked("register_forward_hook", lambda *a: a[2] * 2), sgd, None, {}),
    "backward hook": (
        lambda: hooked("register_full_backward_hook", lambda _m, g, _o: tuple(x * 0.5 for x in g)),
        sgd,
        None,
        {},
    ),
    "post-accumulate hook": (
        lambda: hooked("register_post_accumulate_grad_hook", lambda p: p.grad.mul_(0.3) is None or None),
        sgd,
        None,
        {},
    ),
    "optimizer hook": (dense, clipping, None, {}),
    "own optimizer": (dense, own_optimizer, None, {}),
    "schedule": (dense, sgd, schedule, {}),
    "train and eval": (lambda: dense(0.5), sgd, lambda k, m, _o: m.train(k % 3 != 1), {}),
    "frozen later": (dense, sgd, later(3, lambda m: m[0].requires_grad_(False)), {}),
    "tensor hook later": (dense, sgd, later(3, lambda m: m[0].weight.register_hook(lambda g: g * 0.5)), {}),
    "submodule later": (dense, sgd, later(3, lambda m: m.append(m[1])), {}),
    "forward replaced": (dense, sgd, later(3, lambda m: setattr(m[1], "forward", lambda x: x * 0.5)), {}),
    "attribute": (
        lambda: written(scaled, net=dense(), scale=1.0),
        sgd,
        later(2, lambda m: setattr(m, "scale", 0.5)),
        {},
    ),
    "random numbers between": (lambda: dense(0.5), sgd, lambda k, _m, _o: __import__("torch").randn(k), {}),
    "clip": (dense, sgd, None, {"clip_grad_norm": 0.05}),
    "accumulate": (lambda: dense(0.2), sgd, None, {"accumulate": 3}),
    "accumulate and clip": (dense, own_optimizer, None, {"accumulate": 2, "clip_grad_norm": 0.05}),
}


@pytest.mark.parametrize(
    ("name", "autocast"),
    [*((name, False) for name in LIKE_EAGER), *((n, True) for n in ("schedule", "accumulate", "checkpoint"))],
)
def test_a_step_follows_what_eager_pytorch_follows(name: str, autocast: bool) -> None:
    """Losses, parameters, buffers and averages of six calls; with autocast from the fourth call on."""
    import torch
    from torch import nn

    make, optimizer_of, before, options = LIKE_EAGER[name]
    numbers = torch.Generator().manual_seed(4)
    batches = [
        (torch.randn(8, 12, generator=numbers), torch.randint(0, 4, (8,), generator=numbers))
        for _ in range(6)
    ]
    k = options.get("accumulate", 1)
    results = []
    for planned in (False, True):
        torch.manual_seed(0)
        module = make()
        optimizer = optimizer_of(module)
        torch.manual_seed(1)
        if planned:
            step = arenaplan.torch.train_step(
                module, nn.functional.cross_entropy, optimizer, batches[0], **options
            )
        losses = []
        for at, (x, y) in enumerate(batches):
            if before is not None:
                before(at, module, optimizer)
            within: Any = torch.autocast("cpu", torch.bfloat16) if autocast and at > 2 else nullcontext()
            if planned:
                with within:
                    losses.append(step(x, y))
                continue
            if at % k == 0:
                optimizer.zero_grad()
            with within:
                loss = nn.functional.cross_entropy(module(x), y)
            (loss / k if k > 1 else loss).backward()
            if (at + 1) % k == 0:
                if "clip_grad_norm" in options:
                    nn.utils.clip_grad_norm_(module.parameters(), options["clip_grad_norm"])
                optimizer.step()
            losses.append(loss.detach())
        kept = [module.mean] if hasattr(module, "mean") else []
        results.append([*losses, *module.parameters(), *module.buffers(), *kept])
    assert len(results[0]) == len(results[1])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize(
    "name",
    ["ASGD", "Adadelta", "Adafactor", "Adagrad", "Adamax", "Muon", "RAdam", "Rprop", "SparseAdam"],
)
def test_pytorchs_optimizers_by_default_options(name: str) -> None:
    """The referee is eager PyTorch; an optimizer that cannot take the gradients is refused by name."""
    import torch
    from torch import nn

    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(12, 8, bias=False), nn.Tanh(), nn.Linear(8, 4, bias=False))
    optimizer = getattr(torch.optim, name)(module.parameters())
    example = torch.randn(8, 12), torch.randint(0, 4, (8,))
    if name == "SparseAdam":
        with pytest.raises(DocumentError, match="SparseAdam cannot take a planned step"):
            arenaplan.torch.train_step(module, nn.functional.cross_entropy, optimizer, example)
        return
    step = arenaplan.torch.train_step(module, nn.functional.cross_entropy, optimizer, example)
    before = [p.detach().clone() for p in module.parameters()]
    report = step.validate(steps=3, batch=example)
    assert (report.identical, report.largest_difference, len(report.steps)) == (True, 0.0, 3)
    assert all(torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))
    assert not optimizer.state or all(not kept for kept in optimizer.state.values()) or name == "Adagrad"


def test_the_referee_sees_what_no_watch_sees() -> None:
    """A number of a library is read when the step is recorded; eager PyTorch reads it again."""
    import torch
    from torch import nn

    scale = torch.nn.functional
    module = written(
        lambda self, x: self.fc(x) * getattr(scale, "arenaplan_tests_scale", 1.0), fc=nn.Linear(12, 4)
    )
    example = torch.randn(8, 12), torch.randint(0, 4, (8,))
    step = arenaplan.torch.train_step(module, scale.cross_entropy, sgd(module), example)
    assert step.validate().identical
    scale.arenaplan_tests_scale = 2.0
    try:
        report = step.validate()
    finally:
        del scale.arenaplan_tests_scale
    assert not report.identical
    assert report.largest_difference > 0
    assert "fc.weight" in report.steps[-1].differing


def counts(self: Any, x: Any) -> Any:
    self.calls += 1
    return self.net(x)


def draws(self: Any, x: Any) -> Any:
    import random

    return self.net(x) * random.random()


@pytest.mark.parametrize(
    ("forward", "words"),
    [
        (counts, r"the module.calls changed from 0 to 1"),
        (draws, "Python's generator of random numbers"),
        (lambda self, x: self.net(x) * x.mean().item(), "takes an element of a tensor as a number"),
        (lambda self, x: self.net(x) * x[x > 0].mean(), "depends on elements"),
        (lambda self, x: self.net(x) * self.loose, "requires a gradient, and that no module or optimizer"),
    ],
)
def test_what_a_record_would_not_repeat_is_refused(forward: Any, words: str) -> None:
    import torch
    from torch import nn

    module = written(forward, net=dense(), calls=0)
    vars(module)["loose"] = torch.ones(4, requires_grad=True)
    with pytest.raises(DocumentError, match=words):
        arenaplan.torch.train_step(
            module, nn.functional.cross_entropy, sgd(module), (torch.randn(8, 12), torch.zeros(8).long())
        )
    assert module.calls == 0


def test_a_value_that_changes_in_each_call_is_named_in_the_end() -> None:
    import torch
    from torch import nn

    module = written(scaled, net=dense(), scale=1.0)
    example = torch.randn(8, 12), torch.randint(0, 4, (8,))
    step = arenaplan.torch.train_step(module, nn.functional.cross_entropy, sgd(module), example)
    for k in range(8):
        module.scale = 1.0 + k
        step(*example)
    module.scale = 20.0
    with pytest.raises(
        PlanError, match=r"recorded 8 times, and again the module.scale changed from .* to 20.0"
    ):
        step(*example)
    module.scale = 3.0
    step(*example)


def test_gradients_are_gone_and_say_so() -> None:
    import pickle

    import torch
    from torch import nn

    module, example = dense(), (torch.randn(8, 12), torch.randint(0, 4, (8,)))
    optimizer = sgd(module)
    step = arenaplan.torch.train_step(module, nn.functional.cross_entropy, optimizer, example)
    loss = step(*example)
    scaler = torch.amp.GradScaler("cpu")
    for backward in (loss.backward, scaler.scale(loss).backward):
        with pytest.raises(PlanError, match="backward pass of a planned step has run"):
            backward()
    for misuse in (partial(nn.utils.clip_grad_norm_, module.parameters(), 1.0), optimizer.step):
        with pytest.raises(PlanError, match="gradients of a planned step are gone"):
            misuse()
    optimizer.zero_grad()
    nn.functional.cross_entropy(module(example[0]), example[1]).backward()
    with pytest.raises(PlanError, match="has a gradient from elsewhere"):
        step(*example)
    optimizer.zero_grad()
    with torch.no_grad(), pytest.raises(PlanError, match="without gradients"):
        step(*example)
    for copying in (copy.deepcopy, pickle.dumps):
        with pytest.raises(PlanError, match="cannot be copied or pickled"):
            copying(step)
    with pytest.raises(DocumentError, match="GradScaler"):
        arenaplan.torch.train_step(
            module, lambda a, b: scaler.scale(nn.functional.cross_entropy(a, b)), optimizer, example
        )


def test_an_optimizer_in_a_hook_is_refused_by_that_name() -> None:
    import torch
    from torch import nn

    module, example = dense(), (torch.randn(8, 12), torch.randint(0, 4, (8,)))
    for parameter in module.parameters():
        parameter.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
    with pytest.raises(DocumentError, match="Hooks of parameters take their gradients"):
        arenaplan.torch.train_step(module, nn.functional.cross_entropy, sgd(module), example)


def test_a_call_from_another_thread() -> None:
    import threading

    import torch
    from torch import nn

    torch.manual_seed(0)
    modules = [dense(0.2)]
    modules.append(copy.deepcopy(modules[0]))
    example = torch.randn(8, 12), torch.randint(0, 4, (8,))
    losses = []
    for k, module in enumerate(modules):
        torch.manual_seed(1)
        step = arenaplan.torch.train_step(module, nn.functional.cross_entropy, sgd(module), example)
        if k:
            losses.append(step(*example))
            continue
        thread = threading.Thread(target=lambda step: losses.append(step(*example)), args=(step,))
        thread.start()
        thread.join()
    assert torch.equal(*losses)
    assert all(torch.equal(a, b) for a, b in zip(*(m.parameters() for m in modules), strict=True))


def test_the_cost_of_a_check(capsys: pytest.CaptureFixture[str]) -> None:
    """Prints microseconds of one check of what a record depends on; nothing is asserted of them."""
    import torch
    from torch import nn

    from solver.pytorch_steps.guards import Watch

    module = nn.Sequential(*(dense() for _ in range(30)))
    watch = Watch(module, nn.functional.cross_entropy, torch.optim.SGD(module.parameters(), 0.1), {})
    assert watch.holds()
    with capsys.disabled():
        sys.stdout.write(f"{timeit.timeit(watch.holds, number=100) * 1e4:.0f} microseconds, 151 modules\n")
    module[3][0].weight.requires_grad_(False)
    assert not watch.holds()
    assert "requires_grad changed from True to False" in str(next(watch.changes()))
