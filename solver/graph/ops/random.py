"""Random numbers, drawn anew in each iteration: a function of seed, operation, iteration and index.

A step that runs again draws the same ones (`solver.executor.kernels.random`). ONNX's
RandomUniformLike, Bernoulli and RandomNormal are made of it: a draw that is compared, or transformed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops.base import Attribute, Node, NoDerivative, OperationType, ScratchRequest, scratch
from solver.graph.ops.dropout import BLOCK
from solver.graph.ops.helpers.shared import bad_attribute, constant_input
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS"]

_TYPES: Mapping[int, DType] = {1: DType.FLOAT32, 11: DType.FLOAT64}


class _RandomUniform(NoDerivative):
    """Numbers from `low` to `high`, of the constant `shape` (input 0); `dtype` is ONNX's 1 or 11.

    A float32 has 24 random bits, a float64 53.
    """

    name = "RandomUniform"
    arity: ClassVar[tuple[int, int]] = (1, 1)
    constant_inputs: ClassVar[frozenset[int]] = frozenset({0})
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "low": Attribute("float", default=0.0),
        "high": Attribute("float", default=1.0),
        "seed": Attribute("int", default=0, minimum=0),
        "dtype": Attribute("int", default=1, choices=tuple(_TYPES)),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        shape = constant_input(node, 0, "the shape")
        if any(size < 0 for size in shape):
            raise node.mismatch(f"the shape {list(shape)} must be of dimensions from 0")
        if not node.attributes["low"] <= node.attributes["high"]:
            raise bad_attribute(node, "low", "must not be greater than high")
        return (TensorType(shape, _TYPES[node.attributes["dtype"]]),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        """A float64 takes an integer of 64 bits, a float32 half of one."""
        type_ = node.outputs[0]
        count = min(BLOCK, type_.elements)
        words = count if type_.dtype is DType.FLOAT64 else -(-count // 2)
        return tuple(scratch(name, (words,), DType.INT64) for name in ("counters", "bits", "work"))


OPERATORS: tuple[OperationType, ...] = (_RandomUniform(),)
