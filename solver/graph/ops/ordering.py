"""Where the largest or the smallest elements stand. Values are gathered there, which has the derivative."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from solver.graph.ops.base import Attribute, Node, NoDerivative, OperationType, ScratchRequest, scratch
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS, axis_in_range, bad_attribute
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "Ranked", "key_type", "ranked"]


@dataclass(frozen=True, slots=True)
class Ranked:
    """X seen as [outer, size, inner]; the kernel takes a chunk of the outer rows at a time."""

    outer: int
    size: int
    inner: int
    chunk: int


def ranked(node: Node) -> Ranked:
    """Sizes of an ArgTopK."""
    shape = node.input(0).shape
    axis = node.attributes["axis"] % len(shape)
    outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    chunk = min(outer, max(1, BLOCK_ELEMENTS // max(1, shape[axis] * inner)))
    return Ranked(outer, shape[axis], inner, chunk)


def key_type(dtype: DType) -> DType:
    """The type of integers in the same order as the elements: as wide as a float, else of 64 bits."""
    return DType.INT32 if dtype is DType.FLOAT32 else DType.INT64


class _ArgTopK(NoDerivative):
    """The places of the `k` largest (or, without `largest`, smallest) elements along `axis`, in their order.

    Of equal ones the first comes first. Y is int64. With `k` the size of the axis it sorts. Cost: k passes
    over X.
    """

    name = "ArgTopK"
    arity: ClassVar[tuple[int, int]] = (1, 1)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "k": Attribute("int", required=True, minimum=1),
        "axis": Attribute("int", default=-1),
        "largest": Attribute("int", default=1, choices=(0, 1)),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data, k = node.input(0), node.attributes["k"]
        axis = axis_in_range(node, "axis", node.attributes["axis"], len(data.shape))
        if data.dtype is DType.BOOL:
            raise node.mismatch("expected numbers")
        if k > data.shape[axis]:
            raise bad_attribute(node, "k", f"must be at most {data.shape[axis]}, the size of axis {axis}")
        return (TensorType((*data.shape[:axis], k, *data.shape[axis + 1 :]), DType.INT64),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        sizes, dtype = ranked(node), node.input(0).dtype
        rows, key = sizes.chunk * sizes.inner, key_type(dtype)
        requests = [scratch("keys", (rows, sizes.size), key)]
        if dtype.is_floating:
            requests.append(scratch("signs", (rows, sizes.size), key))
        requests += [scratch(name, (rows,), DType.INT64) for name in ("first", "best", "places")]
        return tuple(requests)


OPERATORS: tuple[OperationType, ...] = (_ArgTopK(),)
