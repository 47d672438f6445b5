"""Operators that make images larger.

A transposed convolution is a convolution run backward: each position of X spreads a window of weights over
Y. So its geometry is that of a window which slides over Y and whose outputs are the positions of X, its
weights lie in memory as those of that convolution do, and its loops are that convolution's.

    stride 2, 3 taps         X   0     1     2
                                /|\\   /|\\   /|\\
                             Y 0 1 2 3 4 5 6          size 7 = 2 (3 - 1) + 3, less the pads
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops.base import Attribute, BackwardNeeds, Node, OperationType, ScratchRequest
from solver.graph.ops.convolution import Convolution, filters_a_tile, tile_of_filters
from solver.graph.ops.helpers.shared import IGNORED_IN_PRODUCTS, bad_attribute, same_floating
from solver.graph.ops.helpers.spatial import WINDOW_ATTRIBUTES, Axis, Spatial, image_of, requests
from solver.graph.types import TensorType

__all__ = ["OPERATORS", "transposed"]

X, W, B = 0, 1, 2


def transposed(node: Node) -> Convolution:
    """The convolution from Y to X, whose filters are the channels of X.

    Raises ShapeMismatchError and AttributeRuleError.
    """
    batch, channels, sizes = image_of(node)
    groups: int = node.attributes["group"]
    weight, rank = node.input(W).shape, len(sizes)
    if len(weight) != rank + 2 or weight[0] != channels or channels % groups:
        raise node.mismatch(f"expected weights of {channels} channels in {groups} groups and {rank} axes")
    if not channels:
        raise node.mismatch("expected an input of at least one channel")
    last = node.attributes["data_layout"] == "NHWC"
    kernel, filters = (weight[1:-1], weight[-1]) if last else (weight[2:], weight[1])
    if node.attributes["kernel_shape"] not in (None, kernel):
        raise bad_attribute(node, "kernel_shape", f"must be that of the weights, {list(kernel)}")
    axes = tuple(_axes(node, sizes, kernel))
    window = Spatial(node.attributes["data_layout"], batch, filters * groups, axes)
    tile = filters_a_tile(node, groups, is_depthwise=filters == 1)
    return Convolution(window, groups, channels, "None", node.input(X).dtype, node.scratch_budget, tile)


def _listed(node: Node, key: str, count: int, default: int) -> tuple[int, ...]:
    numbers: tuple[int, ...] | None = node.attributes[key]
    if not numbers:
        return (default,) * count
    if len(numbers) != count:
        raise bad_attribute(node, key, f"must have {count} elements, for input {node.input(0)}")
    return numbers


def _axes(node: Node, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> list[Axis]:
    rank, how = len(sizes), node.attributes["auto_pad"]
    strides, dilations = (_listed(node, key, rank, 1) for key in ("strides", "dilations"))
    extra, pads = _listed(node, "output_padding", rank, 0), _listed(node, "pads", 2 * rank, 0)
    output_shape = _listed(node, "output_shape", rank, 0)
    if any(pads) and (how != "NOTSET" or any(output_shape)):
        raise bad_attribute(node, "pads", "must be left out where they follow from auto_pad or output_shape")
    axes = []
    for i, size in enumerate(sizes):
        full = strides[i] * (size - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1
        before, after = pads[i], pads[i + rank]
        if output_shape[i] or how.startswith("SAME"):
            total = full - (output_shape[i] or size * strides[i])
            smaller = total // 2
            before, after = (smaller, total - smaller) if how == "SAME_UPPER" else (total - smaller, smaller)
        out = full - before - after
        if min(size, kernel[i]) < 1:
            raise node.mismatch(f"a window of {kernel[i]} taps over {size} positions gives nothing")
        if out < 1:
            raise node.mismatch(f"the pads leave nothing of {full} positions")
        axes.append(Axis(out, kernel[i], strides[i], dilations[i], before, after, size))
    return axes


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
        dtype, window = same_floating(node, (X, W, B)), transposed(node).window
        if node.has_input(B) and node.input(B).shape != (window.channels,):
            raise node.mismatch(f"expected a bias of shape [{window.channels}]")
        return (TensorType(window.shaped(window.channels, [axis.size for axis in window.axes]), dtype),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        conv = transposed(node)
        loop = conv.scatter() if conv.scatters else conv.correlate(backward=True)
        return requests(conv.dtype, loop.sizes) + tile_of_filters(node, conv)

    def stored_axis(self, node: Node, position: int) -> int | None:
        return 0 if position == W else None

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        conv = transposed(node)
        loops = [conv.correlate(backward=False).sizes] if X in derivatives else []
        if W in derivatives:
            loops.append({**conv.weigh().sizes, "partial_bias": 0})
        reads = {W: X, X: W}
        return BackwardNeeds(
            inputs=frozenset(reads[position] for position in derivatives if position in reads),
            scratch=requests(conv.dtype, *loops) + (tile_of_filters(node, conv) if X in derivatives else ()),
        )

    def ignores(self, node: Node, forward: bool, slot: str) -> frozenset[str]:
        return frozenset() if forward else IGNORED_IN_PRODUCTS.get(slot, frozenset())


OPERATORS: tuple[OperationType, ...] = (_ConvTranspose(),)
