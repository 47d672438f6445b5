"""Resize: images of another size, interpolated along each axis by itself.

Along an axis each output is a weighted sum of a few inputs, so both passes are the same computation:

    Y[j] = sum of weights[j, k] * X[index[j, k]]        1 (nearest), 2 (linear) or 4 (cubic) taps k
    dX[i] = the same sum with the table transposed      a tap for each j that looked at i
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from solver.graph.ops.base import Attribute, BackwardNeeds, Node, OperationType, ScratchRequest, scratch
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS, bad_attribute, constant_input, distinct_axes
from solver.graph.types import TensorType

__all__ = ["OPERATORS", "Passes", "ResizedAxis", "passes", "resized_axes"]

_SCALES, _SIZES = 2, 3


@dataclass(frozen=True, slots=True)
class ResizedAxis:
    """An axis of `size` positions that becomes one of `out`; `scale` times `size` need not be whole."""

    axis: int
    size: int
    out: int
    scale: float


def resized_axes(node: Node) -> tuple[ResizedAxis, ...]:
    """The axes that are interpolated, in order; an axis that keeps its size is not among them.

    Raises ShapeMismatchError and AttributeRuleError.
    """
    shape, numbers = node.input(0).shape, node.attributes["axes"]
    axes = distinct_axes(node, range(len(shape)) if numbers is None else numbers, len(shape))
    if node.has_input(_SCALES) == node.has_input(_SIZES):
        raise node.mismatch("expected scales (input 2) or sizes (input 3)")
    sizes = _by_scales(node, axes) if node.has_input(_SCALES) else _by_sizes(node, axes)
    return tuple(sorted((a for a in sizes if a.scale != 1 or a.out != a.size), key=lambda a: a.axis))


def _by_scales(node: Node, axes: Sequence[int]) -> list[ResizedAxis]:
    shape, scales = node.input(0).shape, node.floats.get(_SCALES, ())
    if len(scales) != len(axes) or not all(0 < scale < math.inf for scale in scales):
        raise node.mismatch(f"expected {len(axes)} positive scales, of floating type")
    outs = [math.floor(shape[axis] * scale) for axis, scale in zip(axes, scales, strict=True)]
    if any(out < 1 and shape[axis] for axis, out in zip(axes, outs, strict=True)):
        raise node.mismatch(f"the scales {list(scales)} leave an axis empty")
    return [
        ResizedAxis(a, shape[a], out, scale if shape[a] else 1.0)
        for a, out, scale in zip(axes, outs, scales, strict=True)
    ]


def _by_sizes(node: Node, axes: Sequence[int]) -> list[ResizedAxis]:
    shape, sizes = node.input(0).shape, constant_input(node, _SIZES, "the sizes")
    if len(sizes) != len(axes) or any(
        size != shape[axis] and min(size, shape[axis]) < 1 for axis, size in zip(axes, sizes, strict=True)
    ):
        raise node.mismatch(f"expected {len(axes)} positive sizes of axes that are not empty")
    scales = [size / shape[axis] if shape[axis] else 1.0 for axis, size in zip(axes, sizes, strict=True)]
    policy = node.attributes["keep_aspect_ratio_policy"]
    if policy == "stretch":
        return [ResizedAxis(a, shape[a], n, s) for a, n, s in zip(axes, sizes, scales, strict=True)]
    scale = min(scales) if policy == "not_larger" else max(scales)
    return [ResizedAxis(a, shape[a], max(1, math.floor(shape[a] * scale + 0.5)), scale) for a in axes]


@dataclass(frozen=True, slots=True)
class Passes:
    """The order of the axes, each pass a step from one shape to the next, over blocks of examples.

    Axes that shrink come first and those that grow last, so that what stands between is small. Where that
    exceeds the scratch budget for a single example, the outermost axis comes first, and some `rows` of its
    result go through the other passes at a time.
    """

    axes: tuple[ResizedAxis, ...]
    #: Shape of a single example before each pass, and behind the last one.
    shapes: tuple[tuple[int, ...], ...]
    #: What lies in front of the first axis: examples, in number.
    examples: int
    #: Examples at a time.
    step: int
    #: Rows at a time; 0 where examples are treated whole.
    rows: int

    def behind(self, number: int, examples: int, rows: int) -> tuple[int, ...]:
        """Shape of the result of pass `number`, counted from 1, for these numbers of examples and rows."""
        shape = self.shapes[number]
        return (examples, rows, *shape[1:]) if self.rows else (examples, *shape)

    @property
    def between(self) -> int:
        """Elements of the largest block that stands between two passes; none for one axis."""
        inner = range(1, len(self.axes))
        return max((math.prod(self.behind(n, self.step, self.rows)) for n in inner), default=0)

    @property
    def tap(self) -> int:
        """Elements of what one tap contributes at a time: a row at least."""
        rows = [math.prod(shape[a.axis + 1 :]) for a, shape in zip(self.axes, self.shapes[1:], strict=True)]
        return max([BLOCK_ELEMENTS, *rows])


def passes(node: Node, *, backward: bool) -> Passes:
    """Passes over X, or, transposed, over dY; axes are counted within an example."""
    axes, shape = resized_axes(node), node.input(0).shape
    first = min((a.axis for a in axes), default=len(shape))
    inner = [ResizedAxis(a.axis - first, a.size, a.out, a.scale) for a in axes]
    inner.sort(key=lambda a: a.out / a.size, reverse=backward)
    start = (node.outputs[0] if backward else node.input(0)).shape[first:]
    shapes, rows = _shapes(inner, start, backward=backward), 0
    room = node.scratch_budget // node.input(0).dtype.itemsize // max(1, min(2, len(axes) - 1))
    if max(map(math.prod, shapes[1:-1]), default=0) > room:
        inner.sort(key=lambda a: a.axis != 0)
        shapes = _shapes(inner, start, backward=backward)
        rows = max(1, room // max(math.prod(each[1:]) for each in shapes[1:-1]))
        rows = rows if rows < shapes[1][0] else 0
    examples = math.prod(shape[:first])
    step = 1 if rows else max(1, BLOCK_ELEMENTS // max(1, *map(math.prod, shapes)))
    return Passes(tuple(inner), shapes, examples, min(examples, step), rows)


def _shapes(
    axes: Sequence[ResizedAxis], start: tuple[int, ...], *, backward: bool
) -> tuple[tuple[int, ...], ...]:
    shapes, current = [start], list(start)
    for axis in axes:
        current[axis.axis] = axis.size if backward else axis.out
        shapes.append(tuple(current))
    return tuple(shapes)


class _Resize(OperationType):
    """X at other sizes: inputs X, roi, scales, sizes, of which the last two are constants, one of them given.

    The region of interest (roi) belongs to a mode that is not offered, and is left aside. Axes follow
    the order that X has, whatever it means.
    """

    name = "Resize"
    arity = (1, 4)
    constant_inputs = frozenset({1, _SCALES, _SIZES})
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "mode": Attribute("string", default="nearest", choices=("nearest", "linear", "cubic")),
        "coordinate_transformation_mode": Attribute(
            "string",
            default="half_pixel",
            choices=(
                *("half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"),
                *("align_corners", "asymmetric"),
            ),
        ),
        "nearest_mode": Attribute(
            "string",
            default="round_prefer_floor",
            choices=("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
        ),
        "axes": Attribute("ints"),
        "antialias": Attribute("int", default=0, choices=(0, 1)),
        "cubic_coeff_a": Attribute("float", default=-0.75),
        "exclude_outside": Attribute("int", default=0, choices=(0, 1)),
        "keep_aspect_ratio_policy": Attribute(
            "string", default="stretch", choices=("stretch", "not_larger", "not_smaller")
        ),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data = node.input(0)
        if not data.dtype.is_floating:
            raise node.mismatch("expected a floating element type")
        for key in ("antialias", "exclude_outside"):
            if node.attributes[key] and node.attributes["mode"] == "nearest":
                raise bad_attribute(node, key, "has no meaning for the nearest element")
        shape = list(data.shape)
        for axis in resized_axes(node):
            shape[axis.axis] = axis.out
        return (TensorType(tuple(shape), data.dtype),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        return self._requests(node, backward=False)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds(scratch=self._requests(node, backward=True))

    def _requests(self, node: Node, *, backward: bool) -> tuple[ScratchRequest, ...]:
        """`tap` holds what a tap contributes, `between` and `beside` what stands between two passes."""
        plan, dtype = passes(node, backward=backward), node.input(0).dtype
        count = len(plan.axes)
        names = ("between", "beside")[: max(0, count - 1)]
        requests = tuple(scratch(name, (plan.between,), dtype) for name in names)
        return (*requests, scratch("tap", (plan.tap,), dtype)) if count else ()


OPERATORS: tuple[OperationType, ...] = (_Resize(),)
