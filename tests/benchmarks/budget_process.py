"""What a forward and a backward pass hold and compute: eager, checkpointed, compiled within budgets.

    python -m tests.benchmarks.budget_process NETWORK

Runs with an interpreter that has PyTorch and what this project needs, on one thread, and prints JSON: a row
for each way, with the most bytes that PyTorch's allocator holds at once and the floating-point operations
that PyTorch counts. Each budget of ours is the peak that PyTorch's own budget of activations came to.

For `tower` these are whole training steps with AdamW, whose parameters and moments count: eager, and by
`arenaplan.torch.train_step`, as it is and within half of the eager step's bytes.
"""

from __future__ import annotations

import copy
import json
import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._functorch import config
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._inductor import config as inductor
from torch._inductor.custom_graph_pass import CustomPartitionerFn
from torch.fx.node import map_arg
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode, flop_registry

import arenaplan
from solver.importers.pytorch.calls import allocated_bytes
from tests.support.pytorch_models import Block

__all__ = ["NETWORKS", "rows"]

#: Shares of the activations that PyTorch would save anyway.
SHARES = (1.0, 0.6, 0.4, 0.2, 0.05)


class LanguageModel(nn.Module):  # type: ignore[misc]
    """Blocks of causal attention; the head is the embedding; returns the loss."""

    def __init__(self, blocks: int, words: int = 4096, width: int = 256, length: int = 128) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, 8) for _ in range(blocks)])
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, words, bias=False)
        self.head.weight = self.words.weight

    def forward(self, index: Any, target: Any, *, again: bool = False) -> Any:
        x = self.words(index) + self.places.weight
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), target.flatten())


class Bottleneck(nn.Module):  # type: ignore[misc]
    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        sizes = ((channels, inner, 1, 1), (inner, inner, 3, stride), (inner, 4 * inner, 1, 1))
        self.layers = nn.ModuleList([self._layer(*size) for size in sizes])
        same = stride == 1 and channels == 4 * inner
        self.shortcut = nn.Identity() if same else self._layer(channels, 4 * inner, 1, stride)

    def _layer(self, channels: int, results: int, kernel: int, stride: int) -> Any:
        conv = nn.Conv2d(channels, results, kernel, stride, kernel // 2, bias=False)
        return nn.Sequential(conv, nn.BatchNorm2d(results))

    def forward(self, x: Any) -> Any:
        first, second, third = self.layers
        return F.relu(third(F.relu(second(F.relu(first(x))))) + self.shortcut(x))


class ImageModel(nn.Module):  # type: ignore[misc]
    """ResNet-50; returns the loss."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, channels = [], 64
        for k, count in enumerate((3, 4, 6, 3)):
            for i in range(count):
                blocks.append(Bottleneck(channels, 64 << k, 2 if k and not i else 1))
                channels = 256 << k
        self.blocks, self.last = nn.ModuleList(blocks), nn.Linear(channels, 1000)

    def forward(self, images: Any, labels: Any, *, again: bool = False) -> Any:
        x = F.max_pool2d(F.relu(self.norm(self.conv(images))), 3, 2, 1)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if again else block(x)
        return F.cross_entropy(self.last(x.mean((2, 3))), labels)


class Tower(nn.Module):  # type: ignore[misc]
    """The residual layers of the page on half the memory."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(8)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = x + F.gelu(layer(x))
        return x


def _language(blocks: int) -> tuple[Any, tuple[Any, ...]]:
    index = torch.randint(0, 4096, (4, 128))
    return LanguageModel(blocks), (index, index.roll(-1, 1))


def _images() -> tuple[Any, tuple[Any, ...]]:
    return ImageModel(), (torch.randn(4, 3, 224, 224), torch.randint(0, 1000, (4,)))


#: Each gives a module that returns its loss, and its arguments.
NETWORKS: Mapping[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "gpt, 2 layers": partial(_language, 2),
    "gpt, 12 layers": partial(_language, 12),
    "resnet50": _images,
}


class Counted:
    """A partitioner that counts the operations of the graphs which another one returns."""

    def __init__(self, partitioner: Any) -> None:
        self.partitioner, self.flops = partitioner, 0

    def __call__(self, module: Any, inputs: Any, **options: Any) -> Any:
        parts = self.partitioner(module, inputs, **options)
        self.flops = sum(_flops(node) for part in parts for node in part.graph.nodes)
        return parts

    def uuid(self) -> None:
        """None: nothing is cached."""

    def __deepcopy__(self, memo: dict[int, Any]) -> Counted:
        return self


def _flops(node: Any) -> int:
    count = flop_registry.get(getattr(node.target, "overloadpacket", None))
    if count is None:
        return 0
    arguments, named = map_arg((node.args, dict(node.kwargs)), lambda source: source.meta["val"])
    return int(count(*arguments, **named, out_val=node.meta["val"]))


def rows(name: str) -> list[dict[str, Any]]:
    """The measured rows of a network."""
    if name == "tower":
        return _training_steps()
    CustomPartitionerFn.register(Counted)
    torch.manual_seed(0)
    module, arguments = NETWORKS[name]()

    def step(call: Any) -> None:
        module.zero_grad(set_to_none=True)
        call(*arguments).backward()

    def peak(call: Any) -> int:
        module.zero_grad(set_to_none=True)
        return allocated_bytes([partial(step, call)])[0]

    def counted(call: Any) -> int:
        with FlopCounterMode(display=False) as counter:
            step(call)
        return int(counter.get_total_flops())

    def compiled(partitioner: Any, **options: Any) -> tuple[int, int]:
        torch._dynamo.reset()
        counter = Counted(partitioner)
        call = torch.compile(module, options={**options, "custom_partitioner_fn": counter})
        step(call)
        return peak(call), counter.flops

    again = partial(module, again=True)
    measured: list[dict[str, Any]] = [
        {"way": "eager", "budget": "", "peak": peak(module), "flops": counted(module)},
        {"way": "torch.utils.checkpoint", "budget": "", "peak": peak(again), "flops": counted(again)},
    ]
    theirs = []
    for share in SHARES:
        with config.patch(activation_memory_budget=share):
            most, flops = compiled(min_cut_rematerialization_partition)
        theirs.append(most)
        measured.append(
            {"way": "activation_memory_budget", "budget": str(share), "peak": most, "flops": flops}
        )
    for size in sorted(theirs, reverse=True):
        row: dict[str, Any] = {"way": "arenaplan.torch.budget", "budget": f"{size:,}", "peak": 0, "flops": 0}
        budget = arenaplan.torch.budget(size)
        try:
            row["peak"], row["flops"] = compiled(budget, **budget.options)
        except BackendCompilerFailed as error:
            if not isinstance(error.inner_exception, arenaplan.CapacityError):
                raise
            row["budget"] += f": least found {error.inner_exception.required:,}"
        measured.append(row)
    return measured


def _training_steps() -> list[dict[str, Any]]:
    """The measured rows of whole training steps; the batch is not counted, but the slab's copy of it is."""
    torch.manual_seed(0)
    x, y = torch.randn(2048, 64), torch.randn(2048, 64)
    measured: list[dict[str, Any]] = []

    def measure(way: str, budget: str, step: Callable[[], Any], kept: int) -> int:
        with FlopCounterMode(display=False) as counter:
            step()
        peak = kept + allocated_bytes([step])[0]
        measured.append({"way": way, "budget": budget, "peak": peak, "flops": counter.get_total_flops()})
        return peak

    module = Tower()
    start = copy.deepcopy(module.state_dict())
    optimizer = torch.optim.AdamW(module.parameters())

    def eager() -> None:
        optimizer.zero_grad(set_to_none=True)
        F.mse_loss(module(x), y).backward()
        optimizer.step()

    eager()  # the optimizer makes its moments
    optimizer.zero_grad(set_to_none=True)
    states = [tensor for state in optimizer.state.values() for tensor in state.values()]
    most = measure("eager", "", eager, sum(tensor.nbytes for tensor in (*module.parameters(), *states)))
    for capacity in (None, most // 2):
        module.load_state_dict(start)
        optimizer = torch.optim.AdamW(module.parameters())
        step = arenaplan.torch.train_step(module, F.mse_loss, optimizer, (x, y), capacity=capacity)
        budget = f"{capacity:,}" if capacity else ""
        measure("arenaplan.torch.train_step", budget, partial(step, x, y), step.slab.nbytes)
    return measured


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    with inductor.patch(fx_graph_cache=False), config.patch(enable_autograd_cache=False):
        print(json.dumps({"rows": rows(sys.argv[1])}))
