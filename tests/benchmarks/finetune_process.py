"""Steps of fine-tuning Qwen2.5 with LoRA in PyTorch: the bytes that they allocate, and their time.

    python -m tests.benchmarks.finetune_process DIVISOR LAYERS SEQUENCE DOCUMENT

Runs with an interpreter that has PyTorch and what this project needs, from the root of the tree, on one
thread. It writes the graph document and prints JSON: by way of training the bytes of weights and optimizer
state, the most bytes that are allocated beside them at a time in a step, and seconds of processor time.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from examples.qwen import Qwen, Shapes, causal_loss, example_batch, main
from solver.importers.pytorch.calls import allocated_bytes

__all__ = ["BUDGETS", "measured", "ways"]

#: Budgets of torch.compile, as parts of the activations that it would save.
BUDGETS = (0.5, 0.1)


def ways() -> Iterator[tuple[str, Callable[[Qwen], Any]]]:
    """Each way of training by its name: from the module to what is called in its place."""
    yield "PyTorch, eager", lambda module: module
    yield "PyTorch, checkpoint of each layer", _checkpointed
    for budget in BUDGETS:
        yield f"torch.compile, activation_memory_budget {budget}", partial(_compiled, budget=budget)


def _checkpointed(module: Qwen) -> Qwen:
    for layer in module.layers:
        layer.forward = _again(layer.forward)
    return module


def _again(forward: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *tensors: checkpoint(forward, *tensors, use_reentrant=False)


def _compiled(module: Qwen, budget: float) -> Any:
    torch._dynamo.reset()
    torch._functorch.config.activation_memory_budget = budget
    return torch.compile(module)


def measured(shapes: Shapes, sequence: int, way: Callable[[Qwen], Any]) -> dict[str, float]:
    """Bytes that stay, bytes beside them, and seconds of a step; the first step is not measured."""
    torch.manual_seed(0)
    module = Qwen(shapes)
    trained = [parameter for parameter in module.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=2e-4)
    tokens, targets = example_batch(shapes, sequence)
    called = way(module)

    def step() -> None:
        causal_loss(called(tokens), targets).backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    (beside,) = allocated_bytes([step])
    began = time.process_time()
    step()
    seconds = time.process_time() - began
    kept = [*module.parameters(), *(x for state in optimizer.state.values() for x in state.values())]
    stay = sum(x.numel() * x.element_size() for x in kept)
    return {"stay": stay, "beside": beside, "seconds": seconds}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    divisor, layers, sequence = map(int, sys.argv[1:4])
    document = Path(sys.argv[4])
    document.parent.mkdir(parents=True, exist_ok=True)
    began = time.process_time()
    size = ["--divide-width", str(divisor), "--layers", str(layers), "--sequence", str(sequence)]
    main(["-o", str(document), *size])
    capture = time.process_time() - began
    shapes = Shapes().divided(divisor, layers)
    rows = {name: measured(shapes, sequence, way) for name, way in ways()}
    print(json.dumps({"capture_seconds": capture, "rows": rows}))
