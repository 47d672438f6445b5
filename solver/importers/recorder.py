"""A forward graph in the making: operands that are declared, and operations that are typed as they come."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import reduce
from typing import TypeVar

import numpy as np

from solver.graph import (
    DeclaredOperand,
    DType,
    Initializer,
    Operand,
    Operation,
    Role,
    TensorType,
    output_types,
)
from solver.graph.nodes import resolve
from solver.graph.ops import signature

__all__ = ["GraphRecorder", "product_of_slices"]

_Value = TypeVar("_Value")

#: Bytes from which a constant whose elements are all alike is not written out.
_MIN_FILL_BYTES = 4096


class GraphRecorder:
    """The graph that an importer writes. The caller gives the names, each of them once."""

    def __init__(self) -> None:
        self.operands: dict[str, DeclaredOperand] = {}
        self.operations: list[Operation] = []
        self.types: dict[str, Operand] = {}

    def put(
        self,
        name: str,
        role: Role,
        type_: TensorType,
        initializer: Initializer | None = None,
        *,
        trainable: bool = True,
    ) -> None:
        """An operand that no operation defines."""
        self.operands[name] = DeclaredOperand(
            name, role, type_.shape, type_.dtype, initializer, trainable=trainable
        )
        self.types[name] = Operand(name, type_, role, initializer)

    def record(self, operation: Operation) -> tuple[TensorType, ...]:
        """Add an operation; the types of its outputs. An output that nothing reads has no name.

        Raises GraphError for operands that do not fit.
        """
        types = output_types(operation, self.types)
        self.operations.append(operation)
        for name, type_ in zip(operation.outputs, types, strict=True):
            if name:
                self.types[name] = Operand(name, type_, Role.INTERMEDIATE)
        return types

    def keep(self, outputs: Collection[str]) -> None:
        """Drop operations and operands that the operands `outputs` do not depend on. Linear."""
        needed, kept = set(outputs), []
        for operation in reversed(self.operations):
            if needed.intersection(filter(None, operation.outputs)):
                kept.append(operation)
                needed.update(operation.inputs)
        self.operations[:] = reversed(kept)
        for name in [name for name in self.operands if name not in needed]:
            del self.operands[name]

    def settle_constants(self, apart: Collection[str] = ()) -> dict[str, str]:
        """Make constants of the same type and bytes one, and write large ones of one number as that number.

        Those `apart` stay as they are, and so do lists of sizes, axes and bounds: which of them are equal may
        depend on the batch. Returns the names that are gone, with those in their place. Linear.
        """
        first: dict[tuple[TensorType, bytes], str] = {}
        gone: dict[str, str] = {}
        for name, operand in list(self.operands.items()):
            initializer, type_ = operand.initializer, self.types[name].type
            if operand.role is not Role.CONSTANT or initializer is None or initializer.data is None:
                continue
            if name in apart or (
                type_.dtype is DType.INT64 and len(type_.shape) == 1 and type_.elements < 32
            ):
                continue
            kept = first.setdefault((type_, initializer.data), name)
            if kept != name:
                gone[name] = kept
                del self.operands[name], self.types[name]
            elif (fill := _fill(type_, initializer.data)) is not None:
                self.operands[name] = replace(operand, initializer=fill)
                self.types[name] = replace(self.types[name], initializer=fill)
        if gone:
            self.operations[:] = [
                replace(operation, inputs=tuple(gone.get(n, n) for n in operation.inputs))
                if gone.keys() & set(operation.inputs)
                else operation
                for operation in self.operations
            ]
        return gone

    def freeze(self, loss: str, besides: Collection[str] = ()) -> list[str]:
        """Parameters that reach the loss only where nothing has a derivative, which are not trained then.

        Those named in `besides` stay as they are.
        """
        reached = {loss}
        for operation in reversed(self.operations):
            if reached.intersection(operation.outputs):
                positions = signature(operation.type).differentiable(resolve(operation, self.types))
                reached.update(operation.inputs[i] for i in positions)
        frozen = [
            operand
            for operand in self.operands.values()
            if operand.role is Role.PARAMETER and operand.trainable and operand.id not in reached
            if operand.id not in besides
        ]
        for operand in frozen:
            self.operands[operand.id] = replace(operand, trainable=False)
        return [operand.id for operand in frozen]


def _fill(type_: TensorType, data: bytes) -> Initializer | None:
    """The one number of all elements, where it gives the very bytes back."""
    if len(data) < _MIN_FILL_BYTES or data != data[: type_.dtype.itemsize] * type_.elements:
        return None
    element = np.frombuffer(data, type_.dtype.numpy, 1)
    number = float(element[0])
    with np.errstate(all="ignore"):
        exact = np.float64(number).astype(type_.dtype.numpy).tobytes() == element.tobytes()
    return Initializer("constant", value=number) if exact else None


def product_of_slices(
    x: _Value,
    axis: int,
    size: int,
    cut: Callable[[_Value, int, int, int], _Value],
    multiply: Callable[[_Value, _Value], _Value],
) -> _Value:
    """The product of x along an axis of `size`: its halves are multiplied until one slice is left.

    `cut(x, axis, begin, end)` records a slice, `multiply(a, b)` a product. They are called 5 log2(size) times
    at most, where one slice after the other would take `size` of each.
    """
    odd: list[_Value] = []
    while size > 1:
        half = size // 2
        if size % 2:
            odd.append(cut(x, axis, size - 1, size))
        x = multiply(cut(x, axis, 0, half), cut(x, axis, half, 2 * half))
        size = half
    return reduce(multiply, odd, x)
