"""The networks of `same_step` in PyTorch: written as ONNX, and planned by ExecuTorch.

    python -m tests.benchmarks.step_networks FOLDER

Runs with an interpreter that has torch, torchvision, onnx and onnxscript, and writes ``FOLDER/NAME.onnx``.
Where it has executorch as well, the whole step (forward, backward, SGD with momentum) goes through its
exporter, and its greedy planner's bytes stand in the JSON object that is printed last, or why there are none.
"""

from __future__ import annotations

import contextlib
import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Wheels of torchvision for another build of PyTorch lack compiled operators; the networks need none of them.
_MISSING: Any = torch.library.Library("torchvision", "DEF")
for _name in ("nms", "qnms"):
    with contextlib.suppress(RuntimeError):
        _MISSING.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


class Attention(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(x).split(width, -1)
        )
        weights = torch.softmax(q @ k.transpose(-1, -2) / (width // self.heads) ** 0.5, -1)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):  # type: ignore[misc]
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.attention, self.norm2 = (
            nn.LayerNorm(width),
            Attention(width, heads),
            nn.LayerNorm(width),
        )
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Transformer(nn.Module):  # type: ignore[misc]
    """Two layers over 64 words of 512."""

    def __init__(self, words: int = 512, length: int = 64, width: int = 128, heads: int = 4) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.Sequential(Layer(width, heads), Layer(width, heads))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words)

    def forward(self, index: Tensor) -> Tensor:
        return self.head(self.norm(self.layers(self.words(index) + self.places.weight)))


def _mlp() -> tuple[nn.Module, Tensor, Tensor]:
    layers = nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
    return nn.Sequential(*layers), torch.randn(32, 784), torch.randint(0, 10, (32,))


def _lenet() -> tuple[nn.Module, Tensor, Tensor]:
    first = nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)
    second = nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()
    last = nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)
    return nn.Sequential(*first, *second, *last), torch.randn(32, 1, 28, 28), torch.randint(0, 10, (32,))


def _transformer() -> tuple[nn.Module, Tensor, Tensor]:
    return Transformer(), torch.randint(0, 512, (4, 64)), torch.randint(0, 512, (4, 64))


def _vision(name: str, size: int, **options: Any) -> tuple[nn.Module, Tensor, Tensor]:
    import torchvision.models as models

    return getattr(models, name)(**options), torch.randn(8, 3, size, size), torch.randint(0, 1000, (8,))


#: Each gives a module in training mode, its input and the labels.
NETWORKS: dict[str, Callable[[], tuple[nn.Module, Tensor, Tensor]]] = {
    "mlp_b32": _mlp,
    "lenet_b32": _lenet,
    "tf2_d128_b4": _transformer,
    "resnet18_224_b8": lambda: _vision("resnet18", 224),
    "mbv2_96_b8": lambda: _vision("mobilenet_v2", 96, dropout=0.0),
}


class Step(nn.Module):  # type: ignore[misc]
    """One call of a traced step."""

    def __init__(self, traced: Any) -> None:
        super().__init__()
        self.traced = traced

    def forward(self, *tensors: Tensor) -> Any:
        return self.traced(*tensors)


def _greedy(module: nn.Module, x: Tensor, label: Tensor) -> int:
    """Bytes that ExecuTorch's greedy planner needs for a whole step: what is given, between, and returned."""
    from executorch.exir import EdgeCompileConfig, ExecutorchBackendConfig, to_edge
    from executorch.exir.passes import ToOutVarPass
    from torch.fx.experimental.proxy_tensor import make_fx

    parameters, buffers = dict(module.named_parameters()), dict(module.named_buffers())

    def step(*tensors: Tensor) -> tuple[Tensor, ...]:
        weights = dict(zip(parameters, tensors, strict=False))
        moments = tensors[len(parameters) : 2 * len(parameters)]
        states = dict(zip(buffers, tensors[2 * len(parameters) :], strict=False))
        logits = torch.func.functional_call(module, {**weights, **states}, (tensors[-2],))
        loss = F.cross_entropy(logits.flatten(0, -2), tensors[-1].flatten())
        gradients = torch.autograd.grad(loss, list(weights.values()))
        moved = [0.9 * m + g for m, g in zip(moments, gradients, strict=True)]
        updated = [w - 0.01 * m for w, m in zip(weights.values(), moved, strict=True)]
        return loss, *updated, *moved

    given = [p.detach().clone().requires_grad_() for p in parameters.values()]
    zeros = [torch.zeros_like(p) for p in parameters.values()]
    tensors = (*given, *zeros, *(b.clone() for b in buffers.values()), x, label)
    traced = make_fx(step, tracing_mode="fake", _allow_non_fake_inputs=True)(*tensors)
    plain = tuple(t.detach() for t in tensors)
    edge = to_edge(
        torch.export.export(Step(traced), plain), compile_config=EdgeCompileConfig(_check_ir_validity=False)
    )
    config = ExecutorchBackendConfig(to_out_var_pass=ToOutVarPass(ignore_to_out_var_failure=True))
    plan = edge.to_executorch(config).executorch_program.execution_plan[0]
    return sum(plan.non_const_buffer_sizes)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    found: dict[str, int | str] = {}
    for name, make in NETWORKS.items():
        torch.manual_seed(0)
        module, x, label = make()
        module.train()
        with contextlib.redirect_stdout(sys.stderr):
            if not (folder / f"{name}.onnx").exists():
                torch.onnx.export(
                    module, (x,), folder / f"{name}.onnx", dynamo=True, optimize=False, opset_version=20
                )
            try:
                found[name] = _greedy(module, x, label)
            except ImportError:
                found[name] = "not installed"
            except Exception as error:  # noqa: BLE001 - whatever its exporter cannot do
                found[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[0][:80]}"
    print(json.dumps(found))


if __name__ == "__main__":
    main()
