"""Movement: operators that copy elements elsewhere. Their backward pass reads dY alone."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops.base import Attribute, BackwardNeeds, InPlace, Node, NoDerivative, OperationType
from solver.graph.ops.helpers.shared import (
    attribute_or_input,
    bad_attribute,
    block,
    broadcast_shape,
    constant_input,
    distinct_axes,
)
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "padding", "permuted_axes"]


class _Movement(OperationType):
    def differentiable(self, node: Node) -> frozenset[int]:
        return frozenset({0}) if node.input(0).dtype.is_floating else frozenset()

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds()


class _Unmoved(_Movement):
    """Only the shape changes: the elements stay where they are."""

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return (InPlace("x0", "y0", view=True), InPlace("dy0", "dx0", view=True))


class _Reshape(_Unmoved):
    """`shape` is a constant input: -1 takes what is left, 0 keeps the input's dimension.

    With `allowzero` a 0 is a dimension without elements, beside which nothing can be left open.
    """

    name = "Reshape"
    arity = (2, 2)
    attributes: ClassVar[Mapping[str, Attribute]] = {"allowzero": Attribute("int", default=0, choices=(0, 1))}
    constant_inputs = frozenset({1})

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data = node.input(0)
        asked = constant_input(node, 1, "the shape")
        shape = tuple(self._dimension(node, i, size) for i, size in enumerate(asked))
        if shape.count(-1) > 1:
            raise node.mismatch(f"the shape {list(asked)} leaves more than one dimension open")
        known = math.prod(size for size in shape if size != -1)
        if not known and -1 in shape:
            raise node.mismatch(f"the shape {list(asked)} leaves a dimension open beside one of 0")
        left = data.elements // max(1, known)
        shape = tuple(left if size == -1 else size for size in shape)
        if math.prod(shape) != data.elements:
            raise node.mismatch(f"the shape {list(asked)} does not hold {data.elements:,} elements")
        return (TensorType(shape, data.dtype),)

    def _dimension(self, node: Node, position: int, size: int) -> int:
        data = node.input(0)
        if size == 0 and not node.attributes["allowzero"]:
            if position >= len(data.shape):
                raise node.mismatch(f"dimension {position} of the shape is 0, but the input has no such axis")
            return data.shape[position]
        if size < -1:
            raise node.mismatch(f"dimension {position} of the shape must be -1 or more, not {size}")
        return size


class _Flatten(_Unmoved):
    """Two dimensions: the axes before `axis`, and the rest."""

    name = "Flatten"
    arity = (1, 1)
    attributes: ClassVar[Mapping[str, Attribute]] = {"axis": Attribute("int", default=1)}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data, axis = node.input(0), node.attributes["axis"]
        rank = len(data.shape)
        if not -rank <= axis <= rank:
            raise bad_attribute(node, "axis", f"must lie in [{-rank}, {rank}] for an input of rank {rank}")
        split = axis + rank if axis < 0 else axis
        shape = (math.prod(data.shape[:split]), math.prod(data.shape[split:]))
        return (TensorType(shape, data.dtype),)


class _Transpose(_Movement):
    """Axis i of Y is axis perm[i] of X; without `perm` the axes are reversed."""

    name = "Transpose"
    arity = (1, 1)
    attributes: ClassVar[Mapping[str, Attribute]] = {"perm": Attribute("ints")}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data, perm = node.input(0), node.attributes["perm"]
        if perm is None:
            return (TensorType(data.shape[::-1], data.dtype),)
        if sorted(perm) != list(range(len(data.shape))):
            raise bad_attribute(node, "perm", f"must be a permutation of the {len(data.shape)} axes")
        return (TensorType(tuple(data.shape[i] for i in perm), data.dtype),)


def permuted_axes(node: Node) -> tuple[int, ...]:
    """The permutation of a Transpose: axis i of Y is that axis of X."""
    perm: tuple[int, ...] | None = node.attributes["perm"]
    return tuple(range(len(node.input(0).shape)))[::-1] if perm is None else perm


def padding(node: Node) -> tuple[tuple[int, int], ...]:
    """(before, after) of every axis of the input of a Pad.

    Raises ShapeMismatchError for negative pads, for a wrong number of them and for repeated axes.
    """
    rank = len(node.input(0).shape)
    pads = constant_input(node, 1, "pads")
    named = constant_input(node, 3, "axes") if node.has_input(3) else tuple(range(rank))
    axes = distinct_axes(node, named, rank)
    if len(pads) != 2 * len(axes):
        raise node.mismatch(f"expected {2 * len(axes)} pads, two for each padded axis, not {len(pads)}")
    if min(pads, default=0) < 0:
        raise node.mismatch(f"the pads {list(pads)} must not be negative; this operator never crops")
    pad_by_axis = {axis: (pads[i], pads[i + len(axes)]) for i, axis in enumerate(axes)}
    return tuple(pad_by_axis.get(axis, (0, 0)) for axis in range(rank))


class _Pad(_Movement):
    """X inside a border; `pads` (input 1) and `axes` (input 3) are constants.

        constant   v v | a b c | v v        reflect   c b | a b c | b a
        edge       a a | a b c | c c        wrap      b c | a b c | a b

    The value v is input 2, read by the kernel and never differentiated, or the attribute `constant_value`; 0
    without either. A mirrored border is at most one element shorter than its axis, a wrapped one as long.
    """

    name = "Pad"
    arity = (2, 4)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "mode": Attribute("string", default="constant", choices=("constant", "reflect", "edge", "wrap")),
        "constant_value": Attribute("float"),
    }
    constant_inputs = frozenset({1, 3})

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data, mode = node.input(0), node.attributes["mode"]
        if node.attributes["constant_value"] is not None and mode != "constant":
            raise bad_attribute(node, "constant_value", f"has no meaning in mode {mode!r}")
        if node.has_input(2):
            if node.attributes["constant_value"] is not None:
                raise bad_attribute(node, "constant_value", "is also given as input 2; give it once")
            if node.input(2).elements != 1 or node.input(2).dtype is not data.dtype:
                raise node.mismatch("expected the value (input 2) to be a scalar of the input's element type")
        pads = padding(node)
        for axis, (size, pair) in enumerate(zip(data.shape, pads, strict=True)):
            longest = {"reflect": max(size - 1, 0), "wrap": size}.get(mode)
            if mode == "edge" and not size:
                longest = 0
            if longest is not None and max(pair) > longest:
                raise node.mismatch(
                    f"in mode {mode!r} the pads of axis {axis} must be at most {longest}, not {max(pair)}"
                )
        shape = (size + sum(pair) for size, pair in zip(data.shape, pads, strict=True))
        return (TensorType(tuple(shape), data.dtype),)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        """An element of an edge collects the sum of what it was copied to."""
        data = node.input(0)
        if node.attributes["mode"] != "edge" or data == node.outputs[0]:
            return BackwardNeeds()
        return BackwardNeeds(scratch=(block("partial", data.elements, data.dtype),))

    def ignores(self, node: Node, forward: bool, slot: str) -> frozenset[str]:
        return frozenset({"x2"} if forward and node.attributes["mode"] != "constant" else ())


class _Squeeze(_Unmoved):
    """Removes the stated axes, which have size 1; without axes, all of size 1."""

    name = "Squeeze"
    arity = (1, 2)
    attributes: ClassVar[Mapping[str, Attribute]] = {"axes": Attribute("ints")}
    constant_inputs = frozenset({1})

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        shape, numbers = node.input(0).shape, attribute_or_input(node, "axes", 1)
        if numbers is None:
            return (TensorType(tuple(size for size in shape if size != 1), node.input(0).dtype),)
        axes = distinct_axes(node, numbers, len(shape))
        if any(shape[axis] != 1 for axis in axes):
            raise node.mismatch(f"expected axes of size 1, which of {list(numbers)} not all are")
        kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
        return (TensorType(kept, node.input(0).dtype),)


class _Unsqueeze(_Unmoved):
    """Inserts axes of size 1 at the stated places, counted in Y."""

    name = "Unsqueeze"
    arity = (1, 2)
    attributes: ClassVar[Mapping[str, Attribute]] = {"axes": Attribute("ints")}
    constant_inputs = frozenset({1})

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        numbers = attribute_or_input(node, "axes", 1)
        if numbers is None:
            raise node.mismatch("expected the axes as input 1")
        shape = list(node.input(0).shape)
        for axis in sorted(distinct_axes(node, numbers, len(shape) + len(numbers))):
            shape.insert(axis, 1)
        return (TensorType(tuple(shape), node.input(0).dtype),)


class _Expand(_Movement):
    """X broadcast against the constant `shape`; its derivative is summed over the axes that grew."""

    name = "Expand"
    arity = (2, 2)
    constant_inputs = frozenset({1})

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data, asked = node.input(0), constant_input(node, 1, "the shape")
        if any(size < 0 for size in asked):
            raise node.mismatch(f"the shape {list(asked)} must be of dimensions from 0")
        return (TensorType(broadcast_shape(node, data, TensorType(asked, data.dtype)), data.dtype),)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        data = node.input(0)
        if data.elements == node.outputs[0].elements:
            return BackwardNeeds()
        return BackwardNeeds(scratch=(block("partial", data.elements, data.dtype),))


#: ONNX's numbers of our element types.
_ELEMENT_TYPES: Mapping[int, DType] = {
    1: DType.FLOAT32,
    2: DType.UINT8,
    3: DType.INT8,
    6: DType.INT32,
    7: DType.INT64,
    9: DType.BOOL,
    11: DType.FLOAT64,
}


class _Cast(_Movement):
    """The same elements in the type `to`: 1 float32, 2 uint8, 3 int8, 6 int32, 7 int64, 9 bool, 11 float64.

    Only from one floating type to the other has it a derivative, cast back.
    """

    name = "Cast"
    arity = (1, 1)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "to": Attribute("int", required=True, choices=tuple(_ELEMENT_TYPES)),
        "saturate": Attribute("int", default=1, choices=(0, 1)),
        "round_mode": Attribute("string", default="up"),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        return (TensorType(node.input(0).shape, _ELEMENT_TYPES[node.attributes["to"]]),)

    def differentiable(self, node: Node) -> frozenset[int]:
        target = _ELEMENT_TYPES[node.attributes["to"]]
        return super().differentiable(node) if target.is_floating else frozenset()


class _StopGradient(NoDerivative):
    """X itself, through which no derivative goes: what PyTorch calls detach."""

    name = "StopGradient"
    arity = (1, 1)

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        return (node.input(0),)

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return (InPlace("x0", "y0", view=True),)


OPERATORS: tuple[OperationType, ...] = (
    *(_Reshape(), _Flatten(), _Transpose(), _Pad()),
    *(_Squeeze(), _Unsqueeze(), _Expand(), _Cast(), _StopGradient()),
)
