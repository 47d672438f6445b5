"""Pooling. Backward reads neither X nor Y: max reads the saved tap of each window, average nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops.base import (
    Attribute,
    BackwardNeeds,
    Node,
    OperationType,
    ScratchRequest,
    scratch,
)
from solver.graph.ops.helpers.shared import bad_attribute, same_floating
from solver.graph.ops.helpers.spatial import (
    WINDOW_ATTRIBUTES,
    Spatial,
    Staging,
    image_of,
    in_order,
    requests,
    stage,
    window_of,
)
from solver.graph.types import DType, TensorType

__all__ = ["ARG_MAX", "BACKWARD_SCRATCH", "OPERATORS", "pool_chunks", "pool_window", "position_dtype"]

ARG_MAX = "arg_max"

#: Scratch of the backward step of MaxPool; the product only where windows overlap.
BACKWARD_SCRATCH = ("mask", "product")

#: Largest number of taps whose index fits one byte; one value of the byte means "none".
_MAX_TAPS_IN_A_BYTE = 255

_POOL_ATTRIBUTES: Mapping[str, Attribute] = {
    **WINDOW_ATTRIBUTES,
    "kernel_shape": Attribute("ints", required=True, minimum=1),
    "ceil_mode": Attribute("int", default=0, choices=(0, 1)),
}


def pool_window(node: Node) -> Spatial:
    """Geometry of a pooling window. Raises AttributeRuleError and ShapeMismatchError."""
    rank = len(image_of(node)[2])
    kernel = node.attributes["kernel_shape"]
    if len(kernel) != rank:
        raise bad_attribute(node, "kernel_shape", f"must have {rank} elements, for input {node.input(0)}")
    return window_of(node, kernel)


def pool_chunks(node: Node, *names: str) -> Staging:
    """The loop of a pooling kernel; each of `names` is scratch the size of a chunk of Y."""
    window = pool_window(node)

    def sizes(examples: int, rows: int) -> dict[str, int]:
        return dict.fromkeys(names, examples * rows * window.row * window.channels)

    return stage(window, window.channels, node.input(0).dtype.itemsize, sizes, node.scratch_budget)


def position_dtype(window: Spatial) -> DType:
    """Element type of the saved taps."""
    return DType.UINT8 if window.taps <= _MAX_TAPS_IN_A_BYTE else DType.INT32


class _Pool(OperationType):
    arity = (1, 1)
    attributes: ClassVar[Mapping[str, Attribute]] = _POOL_ATTRIBUTES

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        window = pool_window(node)
        return (TensorType(window.shaped(window.channels, window.outputs), self._dtype(node)),)

    def _dtype(self, node: Node) -> DType:
        return same_floating(node, (0,))


class MaxPool(_Pool):
    """Largest element under each window; padding never wins, and of equals the first tap does."""

    name = "MaxPool"
    attributes: ClassVar[Mapping[str, Attribute]] = {
        **_POOL_ATTRIBUTES,
        "storage_order": Attribute("int", default=0, choices=(0, 1)),
    }
    optional_saved = frozenset({ARG_MAX})

    def _dtype(self, node: Node) -> DType:
        dtype = node.input(0).dtype
        if dtype is DType.BOOL:
            raise node.mismatch("expected numbers")
        return dtype

    def saved(self, node: Node) -> tuple[ScratchRequest, ...]:
        """The tap that won, for each element of Y: one byte where the window has at most 255 taps."""
        window = pool_window(node)
        shape = window.shaped(window.channels, window.outputs)
        return (scratch(ARG_MAX, shape, position_dtype(window)),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        return requests(position_dtype(pool_window(node)), pool_chunks(node, "wins").sizes)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        window = pool_window(node)
        size = pool_chunks(node, *BACKWARD_SCRATCH).sizes["mask"]
        products = (scratch("product", (size,), node.input(0).dtype),) if window.overlaps else ()
        return BackwardNeeds(
            saved=frozenset({ARG_MAX}), scratch=(scratch("mask", (size,), DType.BOOL), *products)
        )


class AveragePool(_Pool):
    """Mean under each window; padding counts with `count_include_pad` only."""

    name = "AveragePool"
    attributes: ClassVar[Mapping[str, Attribute]] = {
        **_POOL_ATTRIBUTES,
        "count_include_pad": Attribute("int", default=0, choices=(0, 1)),
    }

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds(scratch=requests(node.input(0).dtype, pool_chunks(node, "scaled").sizes))


class GlobalAveragePool(OperationType):
    """Mean over all spatial axes, which stay with size 1."""

    name = "GlobalAveragePool"
    arity = (1, 1)
    attributes: ClassVar[Mapping[str, Attribute]] = {"data_layout": WINDOW_ATTRIBUTES["data_layout"]}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        batch, channels, sizes = image_of(node)
        shape = in_order(node.attributes["data_layout"], batch, channels, (1,) * len(sizes))
        return (TensorType(shape, same_floating(node, (0,))),)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds()


OPERATORS: tuple[OperationType, ...] = (MaxPool(), AveragePool(), GlobalAveragePool())
