"""Matrix products. dA reads B, dB reads A, the bias reads neither; a fused activation adds Y.

The right operand may be stored (`solver.graph.storage`), its rows being the columns of Y. Kernels then unpack
a tile of these at a time:

    Y[:, tile]  = A tile^T                            each element one product, as without storage
    dA          = sum over tiles of dZ[:, tile] tile  the first product, then the others added to it in order

so Y rounds as it does from the unpacked rows by Gemm with transB, where BLAS sums a column alike in any
width, and dA rounds once more for each tile behind the first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from solver.graph.ops.base import (
    Attribute,
    BackwardNeeds,
    Node,
    OperationType,
    ScratchRequest,
    scratch,
)
from solver.graph.ops.helpers.shared import IGNORED_IN_PRODUCTS, block, same_floating
from solver.graph.ops.helpers.stored import is_stored, tile_request, tile_rows
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "Product", "gemm_product", "inner_rows", "matmul_product"]


@dataclass(frozen=True, slots=True)
class Product:
    """Sizes of Y = A B: matrices [rows, inner] and [inner, columns] in batches that broadcast."""

    rows: int
    inner: int
    columns: int
    batch: tuple[int, ...] = ()
    left_batch: tuple[int, ...] = ()
    right_batch: tuple[int, ...] = ()

    @property
    def sums_left(self) -> bool:
        """Whether several matrices of the batch share a left operand."""
        return math.prod(self.left_batch) < math.prod(self.batch)

    @property
    def sums_right(self) -> bool:
        return math.prod(self.right_batch) < math.prod(self.batch)


def gemm_product(node: Node) -> Product:
    """Sizes of a Gemm. Raises ShapeMismatchError."""
    left, right = node.input(0).shape, node.input(1).shape
    if len(left) != 2 or len(right) != 2:
        raise node.mismatch("expected two matrices")
    rows, inner = left[::-1] if node.attributes["transA"] else left
    inner_right, columns = right[::-1] if node.attributes["transB"] else right
    if inner != inner_right:
        raise node.mismatch(
            f"the inner dimensions {inner} and {inner_right} differ"
            f" (transA={node.attributes['transA']}, transB={node.attributes['transB']})"
        )
    return Product(rows, inner, columns)


def _batches(node: Node) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Batches of the output, the left and the right operand, all of one rank."""
    left, right = node.input(0).shape[:-2], node.input(1).shape[:-2]
    rank = max(len(left), len(right))
    left, right = (1,) * (rank - len(left)) + left, (1,) * (rank - len(right)) + right
    if any(a != b and 1 not in (a, b) for a, b in zip(left, right, strict=True)):
        raise node.mismatch("the batches do not broadcast against each other")
    return tuple(b if a == 1 else a for a, b in zip(left, right, strict=True)), left, right


def matmul_product(node: Node) -> Product:
    """Sizes of a MatMul, a vector counted as a matrix of one row (left) or one column (right).

    When the right operand is one matrix for the whole batch, the batch joins the rows: one large
    product instead of many. Raises ShapeMismatchError.
    """
    left, right = node.input(0).shape, node.input(1).shape
    if not left or not right:
        raise node.mismatch("a scalar cannot be multiplied as a matrix")
    rows, inner = ((1, *left) if len(left) == 1 else left)[-2:]
    inner_right, columns = ((*right, 1) if len(right) == 1 else right)[-2:]
    if inner != inner_right:
        raise node.mismatch(f"the inner dimensions {inner} and {inner_right} differ")
    batch, left_batch, right_batch = _batches(node)
    if math.prod(right_batch) == 1:
        return Product(math.prod(left_batch) * rows, inner, columns)
    return Product(rows, inner, columns, batch, left_batch, right_batch)


def inner_rows(node: Node, product: Product, derivatives: frozenset[int]) -> int:
    """Rows of dZ, the derivative behind the fused activation, staged at a time.

    In a batch that is one matrix. The derivative of the right operand sums over all rows, so staging
    fewer than all of them would take a second array of its size; without it the scratch budget decides.
    """
    if 1 in derivatives or product.batch:
        return product.rows
    row = product.columns * node.input(0).dtype.itemsize
    return min(product.rows, max(1, node.scratch_budget // row))


def _staged(node: Node, product: Product, derivatives: frozenset[int]) -> tuple[ScratchRequest, ...]:
    if node.attributes["activation"] == "None":
        return ()
    shape = (inner_rows(node, product, derivatives), product.columns)
    return (scratch("inner", shape, node.outputs[0].dtype),)


def _tile(node: Node) -> tuple[ScratchRequest, ...]:
    """Scratch to unpack the right operand, where it is stored."""
    return (tile_request(node, 1),) if is_stored(node, 1) else ()


def _tiles_of_derivative(
    node: Node, product: Product, derivatives: frozenset[int]
) -> tuple[ScratchRequest, ...]:
    """Scratch to unpack the right operand, and for the part of dA that each further tile adds."""
    if not is_stored(node, 1) or 0 not in derivatives:
        return ()
    tile = tile_request(node, 1)
    if tile_rows(node, 1) == product.columns:
        return (tile,)
    rows = min(product.rows, tile.type.shape[0])
    return (tile, scratch("partial_left", (rows, product.inner), DType.FLOAT32))


def _reads(node: Node, derivatives: frozenset[int]) -> tuple[frozenset[int], frozenset[int]]:
    inputs = frozenset(1 - i for i in derivatives if i < 2)
    fused = node.attributes["activation"] != "None"
    return inputs, frozenset({0}) if fused else frozenset()


class _Gemm(OperationType):
    """Y = act(alpha A' B' + beta C) with A' and B' transposed on request and C broadcast to Y."""

    name = "Gemm"
    arity = (2, 3)
    fuses_activation = True
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "alpha": Attribute("float", default=1.0),
        "beta": Attribute("float", default=1.0),
        "transA": Attribute("int", default=0, choices=(0, 1)),
        "transB": Attribute("int", default=0, choices=(0, 1)),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype = same_floating(node, range(3))
        product = gemm_product(node)
        output = (product.rows, product.columns)
        if node.has_input(2):
            bias = node.input(2).shape
            padded = (1,) * (2 - len(bias)) + bias
            if len(padded) != 2 or any(b not in (1, y) for b, y in zip(padded, output, strict=True)):
                raise node.mismatch(f"the bias does not broadcast to {list(output)}")
        return (TensorType(output, dtype),)

    def stored_axis(self, node: Node, position: int) -> int | None:
        return 1 - int(node.attributes["transB"]) if position == 1 else None

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        requests = _tile(node)
        if not node.has_input(2) or node.attributes["beta"] in (0, 1):
            return requests
        return (*requests, block("bias", node.outputs[0].elements, node.outputs[0].dtype))

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        inputs, outputs = _reads(node, derivatives)
        product = gemm_product(node)
        requests = _staged(node, product, derivatives) + _tiles_of_derivative(node, product, derivatives)
        if 2 in derivatives and node.input(2).elements < node.outputs[0].elements:
            requests += (block("partial", node.input(2).elements, node.outputs[0].dtype),)
        return BackwardNeeds(inputs=inputs, outputs=outputs, scratch=requests)

    def ignores(self, node: Node, forward: bool, slot: str) -> frozenset[str]:
        return frozenset() if forward else IGNORED_IN_PRODUCTS.get(slot, frozenset())


class _MatMul(OperationType):
    """Y = act(A B) with NumPy's rules for vectors and for batches that broadcast."""

    name = "MatMul"
    arity = (2, 2)
    fuses_activation = True

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype = same_floating(node, (0, 1))
        matmul_product(node)
        left, right = node.input(0).shape, node.input(1).shape
        columns = right[-1:] if len(right) > 1 else ()
        return (TensorType(_batches(node)[0] + left[-2:-1] + columns, dtype),)

    def stored_axis(self, node: Node, position: int) -> int | None:
        return 1 if position == 1 and len(node.input(1).shape) == 2 else None

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        return _tile(node)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        product, dtype = matmul_product(node), node.outputs[0].dtype
        inputs, outputs = _reads(node, derivatives)
        requests = _staged(node, product, derivatives) + _tiles_of_derivative(node, product, derivatives)
        if 0 in derivatives and product.sums_left:
            requests += (scratch("partial_left", (product.rows, product.inner), dtype),)
        if 1 in derivatives and product.sums_right:
            requests += (scratch("partial_right", (product.inner, product.columns), dtype),)
        return BackwardNeeds(inputs=inputs, outputs=outputs, scratch=requests)

    def ignores(self, node: Node, forward: bool, slot: str) -> frozenset[str]:
        return frozenset() if forward else IGNORED_IN_PRODUCTS.get(slot, frozenset())


OPERATORS: tuple[OperationType, ...] = (_Gemm(), _MatMul())
