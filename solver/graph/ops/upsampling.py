"""Operators that make images larger.

A transposed convolution is a convolution run backward: each position of X spreads a window of weights over
Y. So its geometry is that of a window which slides over Y and whose outputs are the positions of X.

    stride 2, 3 taps         X   0     1     2
                                /|\\   /|\\   /|\\
                             Y 0 1 2 3 4 5 6          size 7 = 2 (3 - 1) + 3, less the pads
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from solver.graph.ops._shared import bad_attribute, same_floating
from solver.graph.ops._spatial import WINDOW_ATTRIBUTES, Axis, Spatial, image_of, in_order
from solver.graph.ops.base import Attribute, BackwardNeeds, Node, OperationType, ScratchRequest, scratch
from solver.graph.types import TensorType

__all__ = ["OPERATORS", "Transposed", "transposed"]


@dataclass(frozen=True, slots=True)
class Transposed:
    """Sizes of a ConvTranspose: the window over Y, whose outputs are the positions of X, and its groups."""

    window: Spatial
    groups: int
    channels: int
    filters: int

    @property
    def sizes(self) -> tuple[int, ...]:
        """Spatial sizes of X."""
        return self.window.outputs

    @property
    def positions(self) -> int:
        return math.prod(self.sizes)

    @property
    def matrices(self) -> tuple[int, int, int, int]:
        """Weights as [taps, groups, channels of a group, filters of a group]."""
        groups = self.groups
        return self.window.taps, groups, self.channels // groups, self.filters // groups


def transposed(node: Node) -> Transposed:
    """Sizes of a ConvTranspose. Raises ShapeMismatchError and AttributeRuleError."""
    batch, channels, sizes = image_of(node)
    groups: int = node.attributes["group"]
    weight, rank = node.input(1).shape, len(sizes)
    if len(weight) != rank + 2 or weight[0] != channels or channels % groups:
        raise node.mismatch(f"expected weights of {channels} channels in {groups} groups and {rank} axes")
    last = node.attributes["data_layout"] == "NHWC"
    kernel, filters = (weight[1:-1], weight[-1]) if last else (weight[2:], weight[1])
    if node.attributes["kernel_shape"] not in (None, kernel):
        raise bad_attribute(node, "kernel_shape", f"must be that of the weights, {list(kernel)}")
    axes = tuple(_axes(node, sizes, kernel))
    layout = node.attributes["data_layout"]
    return Transposed(Spatial(layout, batch, filters * groups, axes), groups, channels, filters * groups)


def _listed(node: Node, key: str, count: int, default: int) -> tuple[int, ...]:
    given: tuple[int, ...] | None = node.attributes[key]
    if not given:
        return (default,) * count
    if len(given) != count:
        raise bad_attribute(node, key, f"must have {count} elements, for input {node.input(0)}")
    return given


def _axes(node: Node, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> list[Axis]:
    rank, how = len(sizes), node.attributes["auto_pad"]
    strides, dilations = (_listed(node, key, rank, 1) for key in ("strides", "dilations"))
    extra, pads = _listed(node, "output_padding", rank, 0), _listed(node, "pads", 2 * rank, 0)
    wanted = _listed(node, "output_shape", rank, 0)
    if any(pads) and (how != "NOTSET" or any(wanted)):
        raise bad_attribute(node, "pads", "must be left out where they follow from auto_pad or output_shape")
    found = []
    for i, size in enumerate(sizes):
        full = strides[i] * (size - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1
        before, after = pads[i], pads[i + rank]
        if wanted[i] or how.startswith("SAME"):
            total = full - (wanted[i] or size * strides[i])
            smaller = total // 2
            before, after = (smaller, total - smaller) if how == "SAME_UPPER" else (total - smaller, smaller)
        out = full - before - after
        if out < 1:
            raise node.mismatch(f"the pads leave nothing of {full} positions")
        found.append(Axis(out, kernel[i], strides[i], dilations[i], before, after, size))
    return found


class _ConvTranspose(OperationType):
    """Transposed convolution of any spatial rank, with groups, dilation and output padding.

    Weights are [channels, filters / group, *kernel], and [channels, *kernel, filters / group] where
    `data_layout` is NHWC. Pads may follow from `output_shape` or `auto_pad`.
    """

    name = "ConvTranspose"
    arity = (2, 3)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        **WINDOW_ATTRIBUTES,
        "group": Attribute("int", default=1, minimum=1),
        "output_padding": Attribute("ints", minimum=0),
        "output_shape": Attribute("ints", minimum=1),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype, sizes = same_floating(node, range(3)), transposed(node)
        if node.has_input(2) and node.input(2).shape != (sizes.filters,):
            raise node.mismatch(f"expected a bias of shape [{sizes.filters}]")
        window = sizes.window
        shape = in_order(window.layout, window.batch, sizes.filters, [axis.size for axis in window.axes])
        return (TensorType(shape, dtype),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        sizes, dtype = transposed(node), node.input(0).dtype
        product = scratch("product", (sizes.filters, sizes.positions), dtype)
        return (scratch("weights", sizes.matrices, dtype), product)

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        """`gathered` holds what one tap sees of dY, `gradient` the derivative of the weights, tap by tap."""
        sizes, dtype = transposed(node), node.input(0).dtype
        requests = []
        if wanted & {0, 1}:
            requests.append(scratch("gathered", (sizes.filters, sizes.positions), dtype))
        if 0 in wanted:
            requests.append(scratch("weights", sizes.matrices, dtype))
            requests.append(scratch("product", (sizes.channels, sizes.positions), dtype))
        if 1 in wanted:
            requests.append(scratch("gradient", sizes.matrices, dtype))
            requests.append(scratch("partial", sizes.matrices[1:], dtype))
        return BackwardNeeds(inputs=frozenset(1 - i for i in wanted if i < 2), scratch=tuple(requests))


OPERATORS: tuple[OperationType, ...] = (_ConvTranspose(),)
