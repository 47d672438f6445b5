"""Elements chosen by other elements: by a condition, by an index; and rows added where an index says."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from solver.errors import GraphError
from solver.graph.ops.base import (
    Attribute,
    BackwardNeeds,
    ForwardOnly,
    IndexRange,
    InPlace,
    Node,
    OperationType,
    ScratchRequest,
    scratch,
)
from solver.graph.ops.helpers.shared import (
    BLOCK_ELEMENTS,
    axis_in_range,
    block,
    broadcast_shape,
    same_floating,
)
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "Rows", "gathered_rows", "rows_range"]

#: Rows of this many elements take as long to add as the call that adds one; a few calls need no groups.
_WIDE, _FEW = 256, 32
#: Rows of a group: what is told apart in a group is a few arrays of as many integers, 8 KiB each.
_GROUP_ROWS = 1024


class _Where(OperationType):
    """X where the condition (input 0, of truth values) holds, Y elsewhere; all three broadcast.

    The condition is constant or computed, and has no derivative: dX is dZ where it holds, dY where it
    does not, and 0 elsewhere, summed where an operand was broadcast.
    """

    name = "Where"
    arity = (3, 3)

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        condition, left, right = (node.input(i) for i in range(3))
        if condition.dtype is not DType.BOOL:
            raise node.mismatch("expected a condition of truth values (bool)")
        if left.dtype is not right.dtype:
            raise node.mismatch("expected two operands of one element type")
        both = TensorType(broadcast_shape(node, left, right), left.dtype)
        return (TensorType(broadcast_shape(node, condition, both), left.dtype),)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        output = node.outputs[0]
        summed = [
            node.input(i).elements for i in sorted(derivatives) if node.input(i).elements < output.elements
        ]
        requests = [block("term", output.elements, output.dtype)] if summed else []
        if summed:
            requests.append(block("partial", max(summed), output.dtype))
        return BackwardNeeds(inputs=frozenset({0}), scratch=tuple(requests))


@dataclass(frozen=True, slots=True)
class Rows:
    """A Gather seen as matrices: data [outer, size, inner], Y [outer, picked, inner]."""

    outer: int
    size: int
    inner: int
    picked: int

    @property
    def group(self) -> int:
        """Number of rows of dY that a backward chunk takes; 0 where one addition a row costs no more.

        That is so where rows are wide or few, or have an outer axis, over which one addition goes.
        """
        if self.outer > 1 or self.inner > _WIDE or self.picked < _FEW:
            return 0
        return min(self.picked, _GROUP_ROWS, BLOCK_ELEMENTS // max(1, self.inner))


def gathered_rows(node: Node) -> Rows:
    """Sizes of a Gather."""
    shape = node.input(0).shape
    axis = node.attributes["axis"] % len(shape)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    return Rows(outer, shape[axis], inner, node.input(1).elements)


def rows_range(node: Node) -> IndexRange:
    """The indices of rows, counted from the front or the end."""
    size = gathered_rows(node).size
    return IndexRange(node.operation.id, "index", -size, size - 1)


def _check_indices(node: Node) -> None:
    if node.input(1).dtype not in (DType.INT32, DType.INT64):
        raise node.mismatch("expected int32 or int64 indices")
    if node.input(1).elements and not node.input(0).shape[node.attributes["axis"]]:
        raise node.mismatch("no index lies inside an axis of 0 positions")
    for place, index in enumerate(node.constants[1] or ()):
        _check_index(node, place, index)


def _check_index(node: Node, place: int, index: int) -> None:
    shape, axis = node.input(0).shape, node.attributes["axis"]
    size = shape[axis]
    if not -size <= index < size:
        table, indices = node.operation.inputs[:2]
        raise GraphError(
            f"Index {index} of operation {node.operation.id!r} ({node.operation.type}), at place {place} of"
            f" {indices!r}, lies outside axis {axis % len(shape)} of {table!r}.",
            remedy=f"The axis has {size:,} positions: indices must lie in [{-size:,}, {size - 1:,}].",
            path=("inputs", 1),
        )


def _added_rows(node: Node) -> tuple[ScratchRequest, ...]:
    """Scratch for rows that are added: sorted indices, where each stood, and twice the rows of a group."""
    rows, dtype = gathered_rows(node), node.input(0).dtype
    requests = [block("index", rows.picked, DType.INT64)]
    if rows.group:
        requests.append(block("order", rows.picked, DType.INT64))
        requests += [scratch(name, (rows.group, rows.inner), dtype) for name in ("rows", "sums")]
    return tuple(requests)


class _ByIndex(OperationType):
    """Operators whose input 1 holds indices of rows of input 0."""

    def check_filled(self, node: Node, filled: Mapping[int, int]) -> None:
        if 1 in filled:
            _check_index(node, 0, filled[1])

    def index_ranges(self, node: Node) -> Mapping[int, IndexRange]:
        return {1: rows_range(node)}


class _Gather(_ByIndex):
    """Rows of the data along `axis`, by index: an embedding, where the data is its table.

    Indices (input 1) are integers of any role, also computed ones; negative ones count from the end.
    A constant that lies outside is refused, another one is an error of the step that meets it. The
    derivative is dense: zeros, and each row of dY added where it came from, in an order that the indices
    alone decide, so that it repeats bit for bit.
    """

    name = "Gather"
    arity = (2, 2)
    attributes: ClassVar[Mapping[str, Attribute]] = {"axis": Attribute("int", default=0)}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data, index = node.input(0), node.input(1)
        axis = axis_in_range(node, "axis", node.attributes["axis"], len(data.shape))
        _check_indices(node)
        return (TensorType((*data.shape[:axis], *index.shape, *data.shape[axis + 1 :]), data.dtype),)

    def stored_axis(self, node: Node, position: int) -> int | None:
        return 0 if position == 0 and node.attributes["axis"] % len(node.input(0).shape) == 0 else None

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        index = block("index", node.input(1).elements, DType.INT64)
        stored = node.input(0).storage
        if stored is None:
            return (index,)
        # The packed rows of a block of indices, which are unpacked into Y.
        return (
            index,
            scratch("packed", (*index.type.shape, stored.row_bytes(node.input(0).shape)), DType.UINT8),
        )

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds(inputs=frozenset({1}), scratch=_added_rows(node))


class _ScatterAdd(_ByIndex):
    """X, with each row of the updates (input 2) added along `axis` where its index (input 1) says.

    The counterpart of Gather: the updates have the shape that a Gather of X at the indices has. Indices are
    as there; of several at one place all are added, in an order that the indices alone decide. dX is dY,
    and the derivative of the updates is what a Gather takes from it.
    """

    name = "ScatterAdd"
    arity = (3, 3)
    attributes: ClassVar[Mapping[str, Attribute]] = {"axis": Attribute("int", default=0)}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data, index = node.input(0), node.input(1)
        axis = axis_in_range(node, "axis", node.attributes["axis"], len(data.shape))
        same_floating(node, (0, 2))
        _check_indices(node)
        shape = (*data.shape[:axis], *index.shape, *data.shape[axis + 1 :])
        if node.input(2).shape != shape:
            raise node.mismatch(f"expected updates of shape {list(shape)}")
        return (data,)

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return (InPlace("x0", "y0"), InPlace("dy0", "dx0", view=True))

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        return _added_rows(node)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        if 2 not in derivatives:
            return BackwardNeeds()
        index = block("index", node.input(1).elements, DType.INT64)
        return BackwardNeeds(inputs=frozenset({1}), scratch=(index,))


class _ScatterUpdate(_ByIndex, ForwardOnly):
    """X, with each row of the updates (input 2) in the place of its row, or joined with it by `reduction`.

    Indices (input 1) are those of rows, as in Gather; of several updates of one row the last one stays, and
    reductions join them in their order. Elements may be of any type.
    """

    name = "ScatterUpdate"
    arity = (3, 3)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "axis": Attribute("int", default=0, choices=(0,)),
        "reduction": Attribute("string", default="none", choices=("none", "add", "mul", "min", "max")),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data, index, updates = node.input(0), node.input(1), node.input(2)
        axis_in_range(node, "axis", node.attributes["axis"], len(data.shape))
        _check_indices(node)
        if updates.dtype is not data.dtype:
            raise node.mismatch("expected updates of the type of the data")
        if node.attributes["reduction"] != "none" and data.dtype is DType.BOOL:
            raise node.mismatch("expected numbers")
        shape = (*index.shape, *data.shape[1:])
        if updates.shape != shape:
            raise node.mismatch(f"expected updates of shape {list(shape)}")
        return (data,)

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return (InPlace("x0", "y0"),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        return (block("index", node.input(1).elements, DType.INT64),)


OPERATORS: tuple[OperationType, ...] = (_Where(), _Gather(), _ScatterAdd(), _ScatterUpdate())
