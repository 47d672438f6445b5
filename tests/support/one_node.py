"""The node of one operation, from shapes alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from solver.graph.nodes import resolve
from solver.graph.ops import lookup, signature
from solver.graph.ops.base import BackwardNeeds, Node
from solver.graph.types import DType, Initializer, Operand, Operation, Role, TensorType

__all__ = ["needs_of", "node_of", "output_of"]

#: A shape of float32, a type, constant integers as a list, or nothing for an input left out.
Input = tuple[int, ...] | TensorType | list[int] | None


def node_of(type_: str, inputs: Sequence[Input], *, outputs: int = 1, **attributes: Any) -> Node:
    """The node, its outputs inferred. Raises what the operator raises."""
    names = tuple("" if each is None else f"x{i}" for i, each in enumerate(inputs))
    defined = ("y", *(f"y{k}" for k in range(1, outputs)))
    operation = Operation("dense1", type_, names, defined, attributes)
    operands = {n: _operand(n, each) for n, each in zip(names, inputs, strict=True) if each is not None}
    for output, inferred in zip(defined, signature(type_).infer(resolve(operation, operands)), strict=True):
        operands[output] = Operand(output, inferred, Role.INTERMEDIATE)
    return resolve(operation, operands)


def output_of(type_: str, inputs: Sequence[Input], **attributes: Any) -> tuple[int, ...]:
    """Shape of the output."""
    return node_of(type_, inputs, **attributes).outputs[0].shape


def needs_of(
    type_: str, inputs: Sequence[Input], wanted: Iterable[int], **attributes: Any
) -> tuple[set[int], set[int], BackwardNeeds]:
    """(inputs read, outputs read, all needs) of the backward step for `wanted`."""
    needs = lookup(type_).backward(node_of(type_, inputs, **attributes), frozenset(wanted))
    return set(needs.inputs), set(needs.outputs), needs


def _operand(name: str, given: tuple[int, ...] | TensorType | list[int]) -> Operand:
    if isinstance(given, list):
        values = np.array(given, np.int64)
        return Operand(
            name,
            TensorType(values.shape, DType.INT64),
            Role.CONSTANT,
            Initializer("values", values.tobytes()),
        )
    type_ = given if isinstance(given, TensorType) else TensorType(given, DType.FLOAT32)
    return Operand(name, type_, Role.INPUT)
