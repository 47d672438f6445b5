"""The head of a classifier in chunks: its product and the log-sum-exp of the rows, without whole logits.

A softmax cross-entropy of class c is log sum exp(z) - z[c], z = X W + bias, so it takes two numbers a row:

             chunk of columns
            +----+----+----+--+
     chunk  |    |    |    |  |   for each chunk of columns (outer loop)
     of     +----+----+----+--+     for each chunk of rows (inner loop)
     rows   |    |    |    |  |       logits of the chunk -> maximum and sum of each row so far
            +----+----+----+--+

Columns are the outer loop, because W may be stored (`solver.graph.storage`; a row of its storage is a column
of the logits): the columns of a chunk are then unpacked into scratch once for all rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from solver.graph.ops.base import (
    Attribute,
    BackwardNeeds,
    IndexRange,
    Node,
    OperationType,
    ScratchRequest,
    scratch,
)
from solver.graph.ops.helpers.shared import bad_attribute, same_floating
from solver.graph.ops.helpers.stored import is_stored, tile_request
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "Head", "head"]

#: The fewest rows and columns of a chunk, however small the scratch budget: with fewer, calls of kernels
#: would take most of the time.
_LEAST_SIDE = 64


@dataclass(frozen=True, slots=True)
class Head:
    """Sizes of logits [rows, columns] = X [rows, inner] W, and those of a chunk of them."""

    rows: int
    inner: int
    columns: int
    chunk_rows: int
    chunk_columns: int

    @property
    def splits_rows(self) -> bool:
        """Whether there are several chunks of rows, whose parts of dW are added up."""
        return self.chunk_rows < self.rows

    @property
    def splits_columns(self) -> bool:
        return self.chunk_columns < self.columns


def head(node: Node) -> Head:
    """Sizes of a ProductLogSumExp. Raises ShapeMismatchError.

    Without the attributes `chunk_rows` and `chunk_columns`, a chunk is as near to a square as the sizes
    allow, and

        rows * columns + (rows + columns) * inner

    elements are within the scratch budget: the logits of a chunk, a part of dX, and a part of dW or an
    unpacked chunk of W. Both sides are at least 64.
    """
    x, w = node.input(0).shape, node.input(1).shape
    if len(x) != 2 or len(w) != 2:
        raise node.mismatch("expected two matrices")
    (rows, inner), (inner_of_w, columns) = x, w[::-1] if node.attributes["transB"] else w
    if inner != inner_of_w:
        raise node.mismatch(
            f"the inner dimensions {inner} and {inner_of_w} differ (transB={node.attributes['transB']})"
        )
    elements = node.scratch_budget // node.input(0).dtype.itemsize
    side = math.isqrt(inner * inner + elements) - inner
    chunk_columns = columns if columns <= side else _other_side(min(rows, side), inner, elements)
    chunk_columns = min(columns, node.attributes.get("chunk_columns") or max(_LEAST_SIDE, chunk_columns))
    chunk_rows = node.attributes.get("chunk_rows") or max(
        _LEAST_SIDE, _other_side(chunk_columns, inner, elements)
    )
    return Head(rows, inner, columns, min(rows, chunk_rows), chunk_columns)


def _other_side(side: int, inner: int, elements: int) -> int:
    """The largest length of a chunk's other side with which its scratch has at most `elements` elements."""
    return (elements - side * inner) // max(1, side + inner)


class _ProductLogSumExp(OperationType):
    """(L, P) of logits Z = X W' + bias: L[r] = log sum exp(Z[r]), P[r] = Z[r, class of the row].

    X is [rows, inner], W' is W [inner, columns] or, with `transB`, the transposed W [columns, inner], `bias`
    is [columns]. Classes are integers from 0 to before `classes`; column 0 stands for class `first_class`. P
    is 0 for a class that is no column of this W: of a head cut into several weights, L is the log-sum-exp
    of their L and P the sum of their P. Of a row of class `ignore_index` they are 0 for each W, and so are
    their derivatives.

    Order of sums. Chunks of `chunk_columns` columns in order, in each of them chunks of `chunk_rows` rows in
    order; left out, the scratch budget decides (`head`). The maximum m and the sum s of a row begin with the
    least finite number and 0; its logits z in a chunk make of them m' = max(m, max z) and
    s' = s exp(m - m') + sum exp(z - m'). At the end L = m + log s. Backward, the same products give z again,
    and g = dL exp(z - L), plus dP at the class. dX is the sum of g W'^T over the chunks of columns in
    order; dW and dbias are the sums of X^T g and of g over the chunks of rows in order.
    """

    name = "ProductLogSumExp"
    arity = (3, 4)
    outputs = 2
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "transB": Attribute("int", default=0, choices=(0, 1)),
        "first_class": Attribute("int", default=0, minimum=0),
        "classes": Attribute("int", minimum=1, omit_default=True),
        "ignore_index": Attribute("int", omit_default=True),
        "chunk_rows": Attribute("int", minimum=1, omit_default=True),
        "chunk_columns": Attribute("int", minimum=1, omit_default=True),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype, sizes, attributes = same_floating(node, (0, 1, 3)), head(node), node.attributes
        if not sizes.columns:
            raise node.mismatch("expected at least one column")
        labels = node.input(2)
        if labels.shape != (sizes.rows,) or labels.dtype not in (DType.INT32, DType.INT64):
            raise node.mismatch(f"expected int32 or int64 classes of shape [{sizes.rows}]")
        if node.has_input(3) and node.input(3).shape != (sizes.columns,):
            raise node.mismatch(f"expected a bias of shape [{sizes.columns}]")
        end = attributes["first_class"] + sizes.columns
        if attributes.get("classes", end) < end:
            raise bad_attribute(node, "classes", f"must be at least {end}, the end of the columns")
        return (TensorType((sizes.rows,), dtype),) * 2

    def index_ranges(self, node: Node) -> Mapping[int, IndexRange]:
        attributes = node.attributes
        classes = attributes.get("classes", attributes["first_class"] + head(node).columns)
        ignored = attributes.get("ignore_index")
        return {2: IndexRange(node.operation.id, "class label", 0, classes - 1, ignored)}

    def stored_axis(self, node: Node, position: int) -> int | None:
        return 1 - int(node.attributes["transB"]) if position == 1 else None

    def _scratch(self, node: Node, *vectors: str) -> tuple[ScratchRequest, ...]:
        """Room for the logits of a chunk, for its columns of a stored W, and for its rows: the positions of
        classes, and `vectors` of an element for each.
        """
        sizes, dtype = head(node), node.input(0).dtype
        rows = (sizes.chunk_rows,)
        requests = [scratch("logits", (*rows, sizes.chunk_columns), dtype)]
        requests += [scratch(name, rows, dtype) for name in ("picked", *vectors)]
        requests += [scratch(name, rows, DType.INT64) for name in ("index", "offsets")]
        requests.append(scratch("inside", rows, DType.BOOL))
        if node.attributes.get("ignore_index") is not None:
            requests.append(scratch("ignored", (sizes.rows,), DType.BOOL))
        if is_stored(node, 1):
            requests.append(tile_request(node, 1, sizes.chunk_columns))
        return tuple(requests)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        total = scratch("total", node.outputs[0].shape, node.input(0).dtype)
        return (*self._scratch(node, "highest"), total)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        sizes, dtype, requests = head(node), node.input(0).dtype, self._scratch(node)
        if 0 in derivatives and sizes.splits_columns:
            requests += (scratch("part_of_dx", (sizes.chunk_rows * sizes.inner,), dtype),)
        if 1 in derivatives and sizes.splits_rows:
            requests += (scratch("part_of_dw", (sizes.inner * sizes.chunk_columns,), dtype),)
        if 3 in derivatives and sizes.splits_rows:
            requests += (scratch("part_of_dbias", (sizes.chunk_columns,), dtype),)
        inputs = frozenset(i for i in range(4) if node.has_input(i))
        return BackwardNeeds(inputs=inputs, outputs=frozenset({0}), scratch=requests)


OPERATORS: tuple[OperationType, ...] = (_ProductLogSumExp(),)
