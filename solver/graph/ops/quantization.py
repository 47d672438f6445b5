"""Floats as integers with a scale, and back: forward only, as quantised weights are not trained.

    DequantizeLinear    y = (x - zero_point) * scale
    QuantizeLinear      y = saturate(round(x / scale) + zero_point)

The scale has one element, one for each position of an axis, or one for each block of `block_size` positions
of it; the zero point has one element, or as many as the scale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from solver.graph.ops.base import Attribute, ForwardOnly, Node, ScratchRequest
from solver.graph.ops.helpers.shared import axis_in_range, bad_attribute, block
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "Scaled", "scaled"]

#: ONNX's numbers of the types of quantised elements, and of floats.
_QUANTISED: Mapping[int, DType] = {2: DType.UINT8, 3: DType.INT8}
_FLOATS: Mapping[int, DType] = {1: DType.FLOAT32, 11: DType.FLOAT64}


@dataclass(frozen=True, slots=True)
class Scaled:
    """Shapes in which data, scale and zero point broadcast against each other: all of the same rank."""

    data: tuple[int, ...]
    scale: tuple[int, ...]

    def zero(self, point: TensorType) -> tuple[int, ...]:
        """The shape of a zero point."""
        return (1,) * len(self.scale) if point.elements == 1 else self.scale


def scaled(node: Node) -> Scaled:
    """Shapes of a quantisation. Raises ShapeMismatchError where scale and data do not fit."""
    data, scale = node.input(0), node.input(1)
    size = node.attributes["block_size"]
    if scale.elements == 1 and not size:
        return Scaled((data.elements,), (1,))
    axis = axis_in_range(node, "axis", node.attributes["axis"], len(data.shape))
    before, length, after = data.shape[:axis], data.shape[axis], data.shape[axis + 1 :]
    outer, inner = math.prod(before), math.prod(after)
    if not size:
        if scale.shape != (length,):
            raise node.mismatch(
                f"expected a scale of one element or of {length}, one for each of axis {axis}"
            )
        return Scaled((outer, length, inner), (1, length, 1))
    if length % size or scale.shape != (*before, length // size, *after):
        raise node.mismatch(f"expected a scale for each block of {size} positions of axis {axis}")
    return Scaled((outer, length // size, size, inner), (outer, length // size, 1, inner))


class _Quantisation(ForwardOnly):
    arity: ClassVar[tuple[int, int]] = (2, 3)

    def _check_zero_point(self, node: Node, dtype: DType) -> None:
        """Checks a zero point: the type of the elements; one element, or the shape of the scale."""
        if not node.has_input(2):
            return
        zero = node.input(2)
        if zero.dtype is not dtype or (zero.shape != node.input(1).shape and zero.elements != 1):
            raise node.mismatch(f"expected zero points of {dtype.value}: one, or of the shape of the scale")


class _DequantizeLinear(_Quantisation):
    """(X - zero point) * scale in the type of the scale; X is int8, uint8 or int32."""

    name = "DequantizeLinear"
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "axis": Attribute("int", default=1),
        "block_size": Attribute("int", default=0, minimum=0),
        "output_dtype": Attribute("int", default=0, choices=(0, *_FLOATS)),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data, scale = node.input(0), node.input(1)
        if data.dtype not in (DType.INT8, DType.UINT8, DType.INT32) or not scale.dtype.is_floating:
            raise node.mismatch("expected int8, uint8 or int32 elements and a floating scale")
        self._check_zero_point(node, data.dtype)
        scaled(node)
        asked = node.attributes["output_dtype"]
        if asked and _FLOATS[asked] is not scale.dtype:
            raise bad_attribute(node, "output_dtype", "must be the type of the scale")
        return (TensorType(data.shape, scale.dtype),)


class _QuantizeLinear(_Quantisation):
    """X / scale, rounded, plus the zero point, within the range of int8 or uint8; NaN becomes the least.

    Y has the type of the zero point, else `output_dtype`, else uint8. `rounding` takes halves to the even
    neighbour, as ONNX does, or away from zero, as TensorFlow Lite does.
    """

    name = "QuantizeLinear"
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "axis": Attribute("int", default=1),
        "block_size": Attribute("int", default=0, minimum=0),
        "output_dtype": Attribute("int", default=0, choices=(0, *_QUANTISED)),
        "saturate": Attribute("int", default=1, choices=(0, 1)),
        "precision": Attribute("int", default=0, choices=(0, *_FLOATS)),
        "rounding": Attribute("string", default="even", choices=("even", "away")),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data, scale = node.input(0), node.input(1)
        if not data.dtype.is_floating or scale.dtype is not data.dtype:
            raise node.mismatch("expected floating elements and a scale of their type")
        asked = node.attributes["output_dtype"]
        dtype = _QUANTISED[asked] if asked else node.input(2).dtype if node.has_input(2) else DType.UINT8
        if dtype not in _QUANTISED.values():
            raise node.mismatch("expected zero points of int8 or uint8")
        self._check_zero_point(node, dtype)
        scaled(node)
        precision = node.attributes["precision"]
        if precision and _FLOATS[precision] is not data.dtype:
            raise bad_attribute(node, "precision", "must be the type of the input")
        return (TensorType(data.shape, dtype),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        data = node.input(0)
        if node.attributes["rounding"] == "even":
            return (block("quotient", data.elements, data.dtype),)
        return tuple(block(name, data.elements, DType.FLOAT64) for name in ("quotient", "magnitude"))


OPERATORS = (_DequantizeLinear(), _QuantizeLinear())
