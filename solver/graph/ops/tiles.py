"""Operators that combine the results of operations on the tiles of one weight.

A weight that is not trained may be cut into tiles, which are ranges of its rows, so that only one tile has to
be in fast memory at a time. The product with a tile has some columns of the whole product; Concat joins them.
Lookups and heads need two more operators:

    TileGather    rows of one tile at the indices that lie in it, other rows as they were before
    LogAddExp     log-sum-exp, element by element, of the log-sum-exps of parts
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops.base import (
    MAX_INPUTS,
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
from solver.graph.ops.helpers.shared import bad_attribute, block, same_floating
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "taken_rows"]


def taken_rows(node: Node) -> int:
    """Rows that a TileGather takes at a time: as many as the scratch budget holds, at least 1."""
    row = math.prod(node.input(0).shape[1:]) * node.input(0).dtype.itemsize
    return min(node.input(1).elements, max(1, node.scratch_budget // max(1, row)))


class _TileGather(ForwardOnly):
    """Y = `before` (zeros without it), but the rows whose index lies in the tile are rows of the tile.

    The tile (input 0) has the rows from `first_row` on of a table of `rows` rows. Indices (input 1) are those
    of a Gather of the table along axis 0, negative ones count from its end. Chained over all tiles, Y is what
    that Gather gives, bit for bit. Nothing goes back through it: tables that are trained are not cut.
    """

    name = "TileGather"
    arity = (2, 3)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "first_row": Attribute("int", minimum=0, required=True),
        "rows": Attribute("int", minimum=1, required=True),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        tile, index = node.input(0), node.input(1)
        if not tile.shape or index.dtype not in (DType.INT32, DType.INT64):
            raise node.mismatch("expected rows of a table, and int32 or int64 indices")
        if node.attributes["first_row"] + tile.shape[0] > node.attributes["rows"]:
            raise bad_attribute(node, "rows", "must be at least the end of the tile")
        output = TensorType((*index.shape, *tile.shape[1:]), tile.dtype)
        if node.has_input(2) and node.input(2) != output:
            raise node.mismatch(f"expected rows from before of type {output}")
        return (output,)

    def index_ranges(self, node: Node) -> Mapping[int, IndexRange]:
        rows = node.attributes["rows"]
        return {1: IndexRange(node.operation.id, "index", -rows, rows - 1)}

    def stored_axis(self, node: Node, position: int) -> int | None:
        return 0 if position == 0 else None

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return (InPlace("x2", "y0"),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        tile, count = node.input(0), taken_rows(node)
        requests = [scratch("index", (count,), DType.INT64), scratch("inside", (count,), DType.BOOL)]
        requests.append(scratch("taken", (count, math.prod(tile.shape[1:])), tile.dtype))
        if tile.storage is not None:
            requests.append(scratch("packed", (count, tile.storage.row_bytes(tile.shape)), DType.UINT8))
        return tuple(requests)


class _LogAddExp(OperationType):
    """Y = log(exp X0 + exp X1 + ...), element by element, of finite operands of one shape.

    With the largest m of an element, Y = m + log(exp(X0 - m) + exp(X1 - m) + ...), added up in this order;
    dX = dY exp(X - Y).
    """

    name = "LogAddExp"
    arity = (1, MAX_INPUTS)

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, range(len(node.inputs)))
        if any(type_ != node.input(0) for type_ in node.inputs):
            raise node.mismatch("expected operands of one shape")
        return (node.input(0),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        type_ = node.input(0)
        return tuple(block(name, type_.elements, type_.dtype) for name in ("term", "sum"))

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds(inputs=derivatives, outputs=frozenset({0}))


OPERATORS: tuple[OperationType, ...] = (_TileGather(), _LogAddExp())
