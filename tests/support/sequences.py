"""A sequence by itself: the operations that it is unrolled into, run one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from solver.graph.nodes import resolve
from solver.graph.ops import SEQUENCES
from solver.graph.types import Array, DType, Initializer, Operand, Operation, Role, TensorType
from tests.support.one_operation import OneOperation

__all__ = ["run_sequence", "unrolled_operations"]

#: More cells than any test has.
_LIMIT = 1000


def unrolled_operations(
    type_: str, values: Sequence[Array | None], outputs: Sequence[str], **attributes: Any
) -> tuple[Operation, ...]:
    """The operations of a sequence called ``s`` over inputs ``x0``, ``x1``, ..."""
    names = tuple("" if value is None else f"x{i}" for i, value in enumerate(values))
    operands = {
        name: _operand(name, value) for name, value in zip(names, values, strict=True) if value is not None
    }
    node = resolve(Operation("s", type_, names, tuple(outputs), attributes), operands)
    SEQUENCES[type_].infer(node)
    return SEQUENCES[type_].unroll(node, _LIMIT)


def run_sequence(
    type_: str, values: Sequence[Array | None], outputs: Sequence[str], **attributes: Any
) -> list[Array]:
    """Values of the outputs that have names."""
    known = {f"x{i}": value for i, value in enumerate(values) if value is not None}
    for operation in unrolled_operations(type_, values, outputs, **attributes):
        given = [known[name] if name else None for name in operation.inputs]
        own: dict[str, Any] = dict(operation.attributes)
        one = OneOperation(operation.type, given, outputs=len(operation.outputs), **own)
        known.update(zip(operation.outputs, one.forward_all(), strict=True))
    return [known[name] for name in outputs if name]


def _operand(name: str, value: Array) -> Operand:
    type_ = TensorType(value.shape, DType(value.dtype.name))
    if type_.dtype.is_floating:
        return Operand(name, type_, Role.INPUT)
    return Operand(name, type_, Role.CONSTANT, Initializer("values", np.ascontiguousarray(value).tobytes()))
