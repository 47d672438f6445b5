"""Pooling over sliding windows or over everything: MaxPool, AveragePool, GlobalAveragePool."""

from __future__ import annotations

import math

from solver.graph.ops._shared import same_floating
from solver.graph.ops._spatial import WINDOW_ATTRIBUTES, Window, channels, spatial, window, with_spatial
from solver.graph.ops.base import Attribute, BackwardNeeds, Node, OperationType, ScratchRequest, scratch
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "block_rows", "pool_window"]

#: Bytes of one block of output rows: with its input it stays in a second-level cache of 1 MiB.
BLOCK_BYTES = 256 * 1024

_POOL = {
    **WINDOW_ATTRIBUTES,
    "kernel_shape": Attribute("ints", minimum=1, required=True),
    "ceil_mode": Attribute("int", default=0, choices=(0, 1)),
}


def pool_window(node: Node) -> Window:
    """The pooling window. Raises as `solver.graph.ops._spatial.window` does."""
    data, kernel = spatial(node, node.input(0).shape), node.attributes["kernel_shape"]
    if len(kernel) != len(data) or not data:
        raise node.mismatch(f"expected data with {len(kernel)} spatial axes, as `kernel_shape` has")
    return window(node, data, kernel, ceil_mode=bool(node.attributes["ceil_mode"]))


def block_rows(node: Node) -> int:
    """Output rows (positions on the first spatial axis) that a kernel treats at a time."""
    shape = pool_window(node).output
    row = math.prod(shape[1:]) * channels(node, node.input(0).shape) * node.input(0).dtype.itemsize
    return max(1, min(shape[0], BLOCK_BYTES // row))


def _block(node: Node, name: str, dtype: DType) -> ScratchRequest:
    elements = math.prod(pool_window(node).output[1:]) * channels(node, node.input(0).shape)
    return scratch(name, (block_rows(node) * elements,), dtype)


class _Pool(OperationType):
    arity = (1, 1)

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        x = node.input(0)
        output = pool_window(node).output
        return (TensorType(with_spatial(node, x.shape[0], channels(node, x.shape), output), x.dtype),)


class MaxPool(_Pool):
    """The largest element of each window; the first one where several are.

    Forward saves which element won as its position inside the window: one byte an output element up
    to 255 taps, else four. Backward reads that and nothing else.
    """

    name = "MaxPool"
    attributes = _POOL

    def saved(self, node: Node) -> tuple[ScratchRequest, ...]:
        dtype = DType.UINT8 if pool_window(node).taps <= 255 else DType.INT32
        return (scratch("argmax", node.outputs[0].shape, dtype),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        return (_block(node, "mask", DType.BOOL),)

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        del wanted
        blocks = (_block(node, "mask", DType.BOOL), _block(node, "product", node.input(0).dtype))
        return BackwardNeeds(saved=frozenset({"argmax"}), scratch=blocks)


class AveragePool(_Pool):
    """Mean of each window; `count_include_pad` counts padding, but never what `ceil_mode` adds behind it."""

    name = "AveragePool"
    attributes = {**_POOL, "count_include_pad": Attribute("int", default=0, choices=(0, 1))}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, (0,))
        return super().infer(node)

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        del wanted
        return BackwardNeeds(scratch=(_block(node, "product", node.input(0).dtype),))


class GlobalAveragePool(OperationType):
    """Mean over all spatial axes, which stay with size 1. Backward reads dY only."""

    name = "GlobalAveragePool"
    arity = (1, 1)
    attributes = {"data_layout": WINDOW_ATTRIBUTES["data_layout"]}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype, x = same_floating(node, (0,)), node.input(0).shape
        sizes = spatial(node, x)
        if len(x) < 3:
            raise node.mismatch("expected data with a batch, channels and at least one spatial axis")
        return (TensorType(with_spatial(node, x[0], channels(node, x), (1,) * len(sizes)), dtype),)

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        del wanted
        return BackwardNeeds()


OPERATORS = (MaxPool(), AveragePool(), GlobalAveragePool())
