"""Pieces of tensors: put together along an axis, taken apart, cut out. Their backward pass reads dY alone.

An output of Split that nothing differentiates has no dY; its piece of dX is zeros.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from solver.graph.ops.base import MAX_INPUTS, Attribute, BackwardNeeds, Node, OperationType, Part
from solver.graph.ops.helpers.shared import (
    attribute_or_input,
    axis_in_range,
    bad_attribute,
    constant_input,
    distinct_axes,
)
from solver.graph.types import TensorType

__all__ = ["OPERATORS", "Index", "cut", "pieces"]

#: An index of NumPy's: basic slicing only, so that what it selects is a view.
Index = tuple[slice, ...]


class _Slicing(OperationType):
    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds()


def pieces(axis: int, sizes: tuple[int, ...]) -> tuple[Index, ...]:
    """Ranges of neighbouring pieces of these sizes along an axis."""
    ranges, start = [], 0
    for size in sizes:
        ranges.append((*[slice(None)] * axis, slice(start, start + size)))
        start += size
    return tuple(ranges)


def _side_by_side(
    whole: str, parts: Sequence[str], types: Sequence[TensorType], axis: int, *, joined: bool
) -> tuple[Part, ...]:
    """The parts of one tensor along an axis, joined into it or taken out of it; none where they have gaps."""
    if math.prod(types[0].shape[:axis]) != 1:
        return ()
    ranges, start = [], 0
    for slot, type_ in zip(parts, types, strict=True):
        if joined:
            ranges.append(Part(slot, whole, 0, start, type_.nbytes))
        else:
            ranges.append(Part(whole, slot, start, 0, type_.nbytes))
        start += type_.nbytes
    return tuple(ranges)


class _Concat(_Slicing):
    """The inputs one after the other along `axis`; their other dimensions agree."""

    name = "Concat"
    arity = (1, MAX_INPUTS)
    attributes: ClassVar[Mapping[str, Attribute]] = {"axis": Attribute("int", required=True)}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        first = node.input(0)
        axis = axis_in_range(node, "axis", node.attributes["axis"], len(first.shape))
        types = [node.input(i) for i in range(len(node.inputs))]
        rests = {(t.dtype, t.shape[:axis], t.shape[axis + 1 :], len(t.shape)) for t in types}
        if len(rests) != 1:
            raise node.mismatch(f"expected operands that agree in all but axis {axis}")
        total = sum(type_.shape[axis] for type_ in types)
        return (TensorType((*first.shape[:axis], total, *first.shape[axis + 1 :]), first.dtype),)

    def parts(self, node: Node, forward: bool) -> tuple[Part, ...]:
        types = [node.input(i) for i in range(len(node.inputs))]
        axis = node.attributes["axis"] % len(types[0].shape)
        whole, part = ("y0", "x") if forward else ("dy0", "dx")
        return _side_by_side(whole, [f"{part}{i}" for i in range(len(types))], types, axis, joined=forward)


class _Split(_Slicing):
    """Splits X into the outputs that the operation names: of the sizes in `split` (input 1), else equal.

    With `num_outputs` the last one may be smaller. In older versions of ONNX `split` is an attribute.
    """

    name = "Split"
    arity = (1, 2)
    outputs = None
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "axis": Attribute("int", default=0),
        "num_outputs": Attribute("int", minimum=1),
        "split": Attribute("ints"),
    }
    constant_inputs = frozenset({1})

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        data = node.input(0)
        axis = axis_in_range(node, "axis", node.attributes["axis"], len(data.shape))
        sizes = self._sizes(node, data.shape[axis], len(node.operation.outputs))
        # Sizes that are given may be 0; equal ones end in a smaller one, which may not.
        least = 0 if attribute_or_input(node, "split", 1) is not None or not data.elements else 1
        if min(sizes) < least or sum(sizes) != data.shape[axis]:
            raise node.mismatch(
                f"the sizes {list(sizes)} do not make up the {data.shape[axis]} of axis {axis}"
            )
        return tuple(
            TensorType((*data.shape[:axis], size, *data.shape[axis + 1 :]), data.dtype) for size in sizes
        )

    def parts(self, node: Node, forward: bool) -> tuple[Part, ...]:
        axis = node.attributes["axis"] % len(node.input(0).shape)
        whole, part = ("x0", "y") if forward else ("dx0", "dy")
        slots = [f"{part}{k}" for k in range(len(node.outputs))]
        return _side_by_side(whole, slots, node.outputs, axis, joined=not forward)

    def _sizes(self, node: Node, total: int, count: int) -> tuple[int, ...]:
        asked, sizes = node.attributes["num_outputs"], attribute_or_input(node, "split", 1)
        if asked is not None and (sizes is not None or asked != count):
            raise bad_attribute(node, "num_outputs", f"must be the number of outputs, {count}, without sizes")
        if sizes is None:
            size = -(-total // count)
            last = total - size * (count - 1) if asked is not None else size
            return (*[size] * (count - 1), last)
        if len(sizes) != count:
            raise node.mismatch(f"expected a size for each of the {count} outputs, not {len(sizes)}")
        return sizes


def cut(node: Node) -> Index:
    """The index that a Slice selects. Raises ShapeMismatchError where its operands disagree."""
    shape = node.input(0).shape
    starts, ends = (constant_input(node, i, what) for i, what in ((1, "starts"), (2, "ends")))
    named = constant_input(node, 3, "axes") if node.has_input(3) else tuple(range(len(starts)))
    steps = constant_input(node, 4, "steps") if node.has_input(4) else (1,) * len(starts)
    axes = distinct_axes(node, named, len(shape))
    if not len(starts) == len(ends) == len(axes) == len(steps):
        raise node.mismatch("expected as many starts as ends, axes and steps")
    index = [slice(0, size, 1) for size in shape]
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0:
            raise node.mismatch("a step must not be 0")
        index[axis] = slice(*slice(start, end, step).indices(shape[axis]))
    return tuple(index)


class _Slice(_Slicing):
    """Elements from `starts` to before `ends` (inputs 1, 2) along `axes` (3) by `steps` (4), all constants.

    Negative positions count from the end, those outside are cut off; negative steps go backward.
    """

    name = "Slice"
    arity = (3, 5)
    constant_inputs = frozenset({1, 2, 3, 4})

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        shape = tuple(len(range(part.start, part.stop, part.step)) for part in cut(node))
        return (TensorType(shape, node.input(0).dtype),)

    def parts(self, node: Node, forward: bool) -> tuple[Part, ...]:
        """One part, where single positions of leading axes are followed by a range and then by whole axes."""
        data, kept = node.input(0), node.outputs[0]
        if not forward or not kept.elements:
            return ()
        axis = next((i for i, size in enumerate(kept.shape) if size > 1), len(kept.shape))
        index = cut(node)
        if data.shape[axis + 1 :] != kept.shape[axis + 1 :] or any(part.step != 1 for part in index[axis:]):
            return ()
        start = 0
        for size, part in zip(data.shape, index, strict=True):
            start = start * size + part.start
        return (Part("x0", "y0", start * (kept.nbytes // kept.elements), 0, kept.nbytes),)


OPERATORS: tuple[OperationType, ...] = (_Concat(), _Split(), _Slice())
