"""Programs of several methods that share states, in PyTorch."""

from __future__ import annotations

from typing import Any

__all__ = ["attention", "stateful", "training_methods"]


def stateful() -> tuple[dict[str, Any], Any]:
    """Three methods over two states, and the module that holds these: exact in float32 for small numbers."""
    import torch

    class Counters(torch.nn.Module):  # type: ignore[misc]  # not installed where types are checked
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(4, 8))
            self.register_buffer("last", torch.zeros(2, 8))

    class Method(torch.nn.Module):  # type: ignore[misc]
        def __init__(self, counters: Any, call: Any) -> None:
            super().__init__()
            self.counters, self.call = counters, call

        def forward(self, x: Any) -> Any:
            return self.call(self.counters, x)

    def add(counters: Any, x: Any) -> Any:
        y = (x * 3).relu()
        counters.total.add_(y)
        return y.sum()

    def read(counters: Any, x: Any) -> Any:
        a = (x * 2).tanh()
        return counters.total * 1 + ((a + 1).exp() * a) * 0

    def remember(counters: Any, x: Any) -> Any:
        y = x[:2] + counters.last + counters.total[2:]
        counters.last.copy_(x[2:])
        return y

    counters = Counters()
    calls = {"add": add, "read": read, "remember": remember}
    return {name: Method(counters, call) for name, call in calls.items()}, counters


def training_methods() -> tuple[dict[str, Any], Any, tuple[Any, Any]]:
    """Gradients, an update and inference of one network, exported; the network, an input and its target."""
    import copy

    import torch
    from torch.export.experimental import _export_forward_backward

    from tests.support.pytorch_models import example

    made = example("mlp")
    net, inputs = made.module, (*made.inputs, *made.targets)

    class Loss(torch.nn.Module):  # type: ignore[misc]  # not installed where types are checked
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any, y: Any) -> Any:
            return torch.nn.functional.mse_loss(self.net(x), y)

    class Update(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = copy.deepcopy(net)
            for module in self.net.modules():
                for name, weight in list(module.named_parameters(recurse=False)):
                    delattr(module, name)
                    module.register_buffer(name, weight.detach())

        def forward(self, *gradients: Any) -> Any:
            for weight, gradient in zip(self.net.buffers(), gradients, strict=True):
                weight.sub_(0.1 * gradient)
            return gradients[0].sum()

    class Infer(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, x: Any) -> Any:
            return self.net(x)

    gradients = tuple(torch.zeros_like(weight) for weight in net.parameters())
    methods = {
        "update": torch.export.export(Update(), gradients, strict=True),
        "train": _export_forward_backward(torch.export.export(Loss(), inputs, strict=True)),
        "infer": torch.export.export(Infer(), inputs[:1], strict=True),
    }
    return methods, net, inputs


def attention(words: int = 64, width: int = 32, *, prompt: int = 16) -> tuple[dict[str, Any], Any]:
    """Two methods over a cache of `words` keys and values, exported, and the module.

    `prefill` takes `prompt` words and their positions, `decode` one.
    """
    import torch
    from torch import nn

    class Layer(nn.Module):  # type: ignore[misc]  # not installed where types are checked
        def __init__(self) -> None:
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
            self.register_buffer("keys", torch.zeros(words, width))
            self.register_buffer("values", torch.zeros(words, width))

        def forward(self, x: Any, positions: Any) -> Any:
            self.keys.index_copy_(0, positions, self.key(x))
            self.values.index_copy_(0, positions, self.value(x))
            scores = self.query(x) @ self.keys.T / width**0.5
            later = torch.arange(words)[None, :] > positions[:, None]
            x = x + torch.softmax(scores.masked_fill(later, -1e9), -1) @ self.values
            return x + self.down(torch.relu(self.up(x)))

    class Method(nn.Module):  # type: ignore[misc]
        def __init__(self, layer: Any) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: Any, positions: Any) -> Any:
            return self.layer(x, positions)

    layer = Layer()
    lengths = {"prefill": prompt, "decode": 1}
    methods = {
        name: torch.export.export(
            Method(layer), (torch.zeros(length, width), torch.arange(length)), strict=True
        )
        for name, length in lengths.items()
    }
    return methods, layer
