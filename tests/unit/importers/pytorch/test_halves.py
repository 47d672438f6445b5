"""Modules with weights of 16 bits: captured with the numbers of eager PyTorch, or refused by name."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import arenaplan
from solver.errors import ArenaplanError, LossError

pytestmark = pytest.mark.parity

_HALVES = ("bfloat16", "float16")


@pytest.fixture(autouse=True)
def _seeded() -> Iterator[None]:
    import torch

    torch.manual_seed(5)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The module rounds results|.* planned in")
        yield


def adapted(dtype: Any, *, widened: bool = False) -> Any:
    """A tied language model with frozen weights of 16 bits, LoRA and a norm in float32."""
    import torch
    from torch import nn

    class Adapted(nn.Module):  # type: ignore[misc]  # PyTorch is not installed where this is checked
        def __init__(self, inputs: int, outputs: int) -> None:
            super().__init__()
            self.base = nn.Linear(inputs, outputs).to(dtype).requires_grad_(requires_grad=False)
            self.down, self.up = nn.Linear(inputs, 4, bias=False), nn.Linear(4, outputs, bias=False)

        def forward(self, x: Any) -> Any:
            if widened:
                frozen = nn.functional.linear(x, self.base.weight.to(x.dtype), self.base.bias.to(x.dtype))
            else:
                frozen = self.base(x.to(dtype)).to(x.dtype)
            return frozen + self.up(self.down(x))

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(40, 24).to(dtype).requires_grad_(requires_grad=False)
            self.scale = nn.Parameter(torch.rand(24).to(dtype) + 1, requires_grad=False)
            self.norm, self.first, self.last = nn.LayerNorm(24), Adapted(24, 32), Adapted(32, 24)
            self.head = nn.Linear(24, 40, bias=False)
            self.head.weight = self.table.weight

        def forward(self, tokens: Any) -> Any:
            x = self.norm((self.table(tokens) * self.scale).float())
            y = self.last(nn.functional.silu(self.first(x)))
            return self.head(y.to(dtype)).float().flatten(0, 1)

    return Model()


def tokens() -> tuple[Any, Any]:
    import torch

    return torch.randint(0, 40, (3, 7)), torch.randint(0, 40, (21,))


@pytest.mark.parametrize("dtype", _HALVES)
@pytest.mark.parametrize("widened", [False, True])
def test_lora_on_frozen_halves(dtype: str, widened: bool) -> None:
    """Loss and gradients within the rounding of the type; weights are stored and given back in 16 bits."""
    import torch

    half = getattr(torch, dtype)
    module, (x, y) = adapted(half, widened=widened), tokens()
    loss = torch.nn.functional.cross_entropy
    sgd = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=1.0)
    captured = arenaplan.torch.graph(module, x, loss=loss, targets=y, optimizer=sgd)
    stored = {o.id: o.type.storage.kind for o in captured.graph.operands.values() if o.type.storage}
    assert stored == dict.fromkeys(("table.weight", "first.base.weight", "last.base.weight"), dtype)
    with captured.trainer() as trainer:
        ours = trainer.step(captured.batch(x, y))
        state = captured.state_dict(trainer)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    expected = loss(module(x), y)
    expected.backward()
    assert ours == pytest.approx(expected.item(), rel=2e-3)
    for name, parameter in module.named_parameters():
        if parameter.requires_grad:
            torch.testing.assert_close(before[name] - state[name], parameter.grad, rtol=0.05, atol=5e-3)
        else:
            assert torch.equal(state[name], before[name])
            assert state[name].dtype == half
    module.load_state_dict(state, strict=True)


def test_other_weights_are_rounded_as_load_state_dict_rounds_them() -> None:
    import torch

    module, other, (x, y) = adapted(torch.bfloat16), adapted(torch.float32), tokens()
    loss = torch.nn.functional.cross_entropy
    captured = arenaplan.torch.graph(module, x, loss=loss, targets=y, weights=False)
    loaded = captured.load_weights(other.state_dict())
    module.load_state_dict(other.state_dict())
    state = loaded.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in module.state_dict().items())
    assert next(loaded.train([(x, y)])) == pytest.approx(loss(module(x), y).item(), rel=2e-3)


def test_without_values_the_plan_is_the_same() -> None:
    import torch

    sizes = set()
    for device in ("meta", "cpu"):
        with torch.device(device):
            module = adapted(torch.bfloat16)
            x, y = torch.zeros(3, 7, dtype=torch.int64), torch.zeros(21, dtype=torch.int64)
        loss = torch.nn.functional.cross_entropy
        captured = arenaplan.torch.graph(module, x, loss=loss, targets=y, weights=False)
        sizes.add(captured.plan().arena_bytes)
    assert len(sizes) == 1


def test_autocast_around_the_capture_and_inside() -> None:
    import torch

    module, x, y = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Tanh()), torch.randn(6, 16), None
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected = module(x).float().square().mean()
        with pytest.warns(UserWarning, match="rounds results to bfloat16, first in 0; here .* in float32"):
            captured = arenaplan.torch.graph(
                module, x, loss=lambda y, t: (y.float() - t).square().mean(), targets=torch.zeros(6, 8)
            )
    y = torch.zeros(6, 8)
    assert next(captured.train([(x.bfloat16(), y)])) == pytest.approx(expected.item(), rel=1e-2)


def linear(dtype: str, **buffers: Any) -> Callable[[], Any]:
    """Makes a trained layer whose output is multiplied by buffers."""

    def make() -> Any:
        import torch

        class Scaled(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.layer = torch.nn.Linear(4, 4).to(getattr(torch, dtype))
                for name, kind in buffers.items():
                    self.register_buffer(name, torch.ones(4).to(getattr(torch, kind)))

            def forward(self, x: Any) -> Any:
                y = self.layer(x.to(self.layer.weight.dtype))
                for name in buffers:
                    y = y * getattr(self, name)
                return y.abs().float()

        return Scaled()

    return make


@pytest.mark.parametrize(
    ("make", "choices", "message"),
    [
        (linear("bfloat16"), {}, "'layer.bias' is of bfloat16 and is trained"),
        (linear("float16"), {"trainable": ["layer.weight"]}, "'layer.weight' is of float16 and is trained"),
        (linear("float32", table="complex64"), {}, "'table' is a tensor of torch.complex64"),
        (linear("float32", table="uint16"), {}, "'table' is a tensor of torch.uint16"),
    ],
)
def test_refused_by_name(make: Callable[[], Any], choices: dict[str, Any], message: str) -> None:
    import torch

    with pytest.raises(ArenaplanError, match=message) as caught:
        arenaplan.torch.graph(make(), torch.randn(2, 4), loss="mse", **choices)
    assert caught.value.remedy


def test_the_remedies_of_trained_halves() -> None:
    import torch

    module, x = linear("bfloat16")(), torch.randn(2, 4)
    with pytest.raises(LossError, match=r"or train in float32, by module.float\(\)"):
        arenaplan.torch.graph(module, x, loss="mse")
    inference = arenaplan.torch.graph(module.eval(), x)
    assert not inference.graph.trained
    assert arenaplan.torch.graph(module.float(), x, loss="mse").graph.trained


@pytest.mark.parametrize("change", ["to_sparse", "meta", "cfloat"])
def test_batches_that_are_no_arrays(change: str) -> None:
    import torch

    captured = arenaplan.torch.graph(torch.nn.Linear(4, 2), torch.randn(3, 4), loss="mse")
    x = torch.randn(3, 4)
    wrong = x.to("meta") if change == "meta" else getattr(x, change)()
    with pytest.raises(LossError, match=r"'input' is a tensor of .* whose elements graphs cannot hold"):
        captured.batch(wrong, torch.randn(3, 2))
