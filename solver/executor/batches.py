"""Synthetic batches for validation: values a loss accepts, repeatable from a seed."""

from __future__ import annotations

import zlib

import numpy as np

from solver.arguments import checks_arguments
from solver.graph.ops import lookup
from solver.graph.types import Array, Operand, Operation, Role, TrainableGraph

__all__ = ["synthetic_batch"]


@checks_arguments
def synthetic_batch(graph: TrainableGraph, seed: int, step: int) -> dict[str, Array]:
    """One array for each input and label of the graph.

    Floats are standard normal. What a loss reads as dense class targets is one-hot, or 0 or 1
    where there are two; what it reads as sparse labels is a class number; what a Gather reads as
    indices, or a ProductLogSumExp as classes, is in range. Other integers are 0 or 1.
    """
    return {
        operand.id: _values(
            graph, operand, np.random.default_rng([seed, step, zlib.crc32(operand.id.encode())])
        )
        for operand in graph.operands.values()
        if operand.role in (Role.INPUT, Role.LABEL)
    }


def _values(graph: TrainableGraph, operand: Operand, rng: np.random.Generator) -> Array:
    dtype = operand.dtype.numpy
    loss = _loss_reading(graph, operand.id)
    if loss is not None and loss.type in ("CategoricalCrossEntropy", "KLDivergence"):
        classes = graph.operands[loss.inputs[0]].shape[-1]
        if not operand.dtype.is_floating:
            return rng.integers(0, max(1, classes), operand.shape).astype(dtype)
        return np.eye(classes, dtype=dtype)[rng.integers(0, classes, operand.shape[:-1])]
    if loss is not None and loss.type == "BinaryCrossEntropy":
        return rng.integers(0, 2, operand.shape).astype(dtype)
    if operand.dtype.is_floating:
        return rng.standard_normal(operand.shape).astype(dtype)
    return rng.integers(0, max(1, _index_end(graph, operand.id)), operand.shape).astype(dtype)


def _index_end(graph: TrainableGraph, name: str) -> int:
    """The end of the range of integers that every reader of `name` takes."""
    ends = []
    for operation in graph.operations:
        shapes = [graph.operands[operand].shape if operand else () for operand in operation.inputs]
        if operation.type == "Gather" and operation.inputs[1] == name:
            ends.append(shapes[0][lookup("Gather").normalise(operation)["axis"]])
        if operation.type == "ProductLogSumExp" and operation.inputs[2] == name:
            attributes = lookup("ProductLogSumExp").normalise(operation)
            columns = shapes[1][1 - attributes["transB"]]
            ends.append(attributes.get("classes", attributes["first_class"] + columns))
    return min(ends, default=2)


def _loss_reading(graph: TrainableGraph, name: str) -> Operation | None:
    """The loss operation that takes `name` as its target, if any."""
    for operation in graph.operations:
        if lookup(operation.type).is_loss and name in operation.inputs[1:]:
            return operation
    return None
