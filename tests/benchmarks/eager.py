"""The same graph in PyTorch eager mode, where PyTorch is installed: the yardstick of a training step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from solver.executor.initial import initial_value
from solver.graph import Array, Role, TrainableGraph
from solver.training.optimizers import optimizer_rules
from tests.benchmarks.eager_operators import OPERATORS

__all__ = ["eager_step"]


def eager_step(graph: TrainableGraph, batch: Mapping[str, Array]) -> Callable[[], float] | None:
    """A function that runs one training step in PyTorch and returns the loss; None without PyTorch.

    Channels-last tensors are kept channels-last in memory, as PyTorch likes them.
    """
    try:
        import torch
    except ImportError:
        return None
    given = (Role.PARAMETER, Role.STATE, Role.CONSTANT)
    operands = [operand for operand in graph.operands.values() if operand.role in given]
    values: dict[str, Any] = {operand.id: torch.tensor(initial_value(operand).copy()) for operand in operands}
    values |= {name: torch.tensor(array.copy()) for name, array in batch.items()}
    weights = [values[name].requires_grad_() for name in graph.trainable]
    optimizer, norm = _optimizer(torch, graph, weights), graph.training.clip_global_norm
    loss_name = graph.loss
    assert loss_name is not None

    def step() -> float:
        run = dict(values)
        for operation in graph.operations:
            found = OPERATORS[operation.type](torch, operation, run)
            run |= zip(operation.outputs, found if isinstance(found, tuple) else (found,), strict=True)
        loss = run[loss_name]
        optimizer.zero_grad()
        loss.backward()
        if norm is not None:
            torch.nn.utils.clip_grad_norm_(weights, norm)
        optimizer.step()
        return float(loss.detach())

    return step


def _optimizer(torch: Any, graph: TrainableGraph, weights: list[Any]) -> Any:
    assert graph.optimizer is not None
    rules = optimizer_rules(graph.optimizer)
    match graph.optimizer.type:
        case "Adam":
            return torch.optim.Adam(weights, lr=rules["learning_rate"])
        case "SGD":
            return torch.optim.SGD(weights, lr=rules["learning_rate"], momentum=rules["momentum"])
    raise ValueError(f"no yardstick for {graph.optimizer.type}")
