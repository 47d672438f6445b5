"""A bias added by an operation of its own."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from solver.graph.types import AttributeValue, DType, Initializer, Operand, Operation, Role, TensorType
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import Surroundings

__all__ = ["FuseBias"]

_IMAGES = frozenset({"Conv", "ConvTranspose"})
_MATRICES = frozenset({"Gemm", "MatMul"})


class FuseBias(Rule):
    """Add(A B, b) = Gemm(A, B, b) and Add(Conv(X, W), b) = Conv(X, W, b), b a value for each channel.

    dA, dB, dX and dW read the derivative of the sum, which is that of the product; db is its sum over
    everything but the channels in both forms, added up in another order. b stays the operand that it
    is: where its shape is [C, 1, 1], a Reshape makes the vector that the convolution takes, and a tied
    bias goes on collecting its derivatives. Not for a product that has a bias or an activation
    already, or another reader, and not along an axis that is not the channels'.
    """

    name: ClassVar[str] = "fuse-bias"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.ROUNDING

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.type != "Add":
            return None
        for product, bias in (operation.inputs, operation.inputs[::-1]):
            inner = around.feeding(product)
            if inner is not None and _takes_bias(around, inner, operation, bias):
                return _fused(around, inner, operation, bias)
        return None


def _takes_bias(around: Surroundings, inner: Operation, add: Operation, bias: str) -> bool:
    node, sum_ = around.nodes[inner.id], around.nodes[add.id]
    if inner.type not in _IMAGES | _MATRICES or node.has_input(2):
        return False
    if node.attributes.get("activation", "None") != "None" or node.outputs != sum_.outputs:
        return False
    shape = node.outputs[0].shape
    if inner.type in _MATRICES and (len(shape) != 2 or len(node.input(0).shape) != 2):
        return False
    axis = 1 if node.attributes.get("data_layout") == "NCHW" else len(shape) - 1
    return _is_along(around.graph.operands[bias].shape, axis, shape)


def _is_along(bias: tuple[int, ...], axis: int, shape: tuple[int, ...]) -> bool:
    """Whether `bias` has an element for each position of `axis` of `shape`, and is broadcast elsewhere."""
    whole = (1,) * (len(shape) - len(bias)) + bias
    return whole == tuple(size if i == axis else 1 for i, size in enumerate(shape))


def _fused(around: Surroundings, inner: Operation, add: Operation, bias: str) -> Edit:
    attributes: dict[str, AttributeValue] = {**inner.attributes, **add.attributes}
    if inner.type in _MATRICES:
        attributes.pop("beta", None)
        inputs = (*inner.inputs[:2], bias)
        return Edit((inner.id, add.id), (Operation(inner.id, "Gemm", inputs, add.outputs, attributes),))
    reshapes, constants = _as_vector(around, add, bias)
    vector = reshapes[0].outputs[0] if reshapes else constants[0].id if constants else bias
    fused = Operation(inner.id, inner.type, (*inner.inputs[:2], vector), add.outputs, attributes)
    return Edit((inner.id, add.id), (*reshapes, fused), constants)


def _as_vector(
    around: Surroundings, add: Operation, bias: str
) -> tuple[tuple[Operation, ...], tuple[Operand, ...]]:
    """The operands that make the bias a vector: none, a constant, or a Reshape and its shape."""
    type_, value = around.graph.operands[bias].type, around.constant(bias)
    if len(type_.shape) == 1:
        return (), ()
    name, flat = around.new_operand(f"{add.id}.bias"), TensorType((type_.elements,), type_.dtype)
    if value is not None:
        return (), (Operand(name, flat, Role.CONSTANT, Initializer("values", value.tobytes())),)
    size = np.array(flat.shape, np.int64)
    shape = Operand(
        around.new_operand(f"{add.id}.bias.shape"),
        TensorType(size.shape, DType.INT64),
        Role.CONSTANT,
        Initializer("values", size.tobytes()),
    )
    reshape = Operation(around.new_operation(f"{add.id}.bias"), "Reshape", (bias, shape.id), (name,))
    return (reshape,), (shape,)
