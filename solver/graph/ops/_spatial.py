"""Windows that slide over spatial axes: what convolution and pooling share, in any number of axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

from solver.graph.ops._shared import bad_attribute
from solver.graph.ops.base import Attribute, Node

__all__ = ["DATA_LAYOUTS", "WINDOW_ATTRIBUTES", "Tap", "Window", "channels", "spatial", "window", "with_spatial"]

DATA_LAYOUTS = ("NCHW", "NHWC")

#: Attributes of every operator with a window, as in ONNX, and the layout of its data.
WINDOW_ATTRIBUTES = {
    "kernel_shape": Attribute("ints", minimum=1),
    "strides": Attribute("ints", minimum=1),
    "dilations": Attribute("ints", minimum=1),
    "pads": Attribute("ints", minimum=0),
    "auto_pad": Attribute(
        "string", default="NOTSET", choices=("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")
    ),
    "data_layout": Attribute("string", default="NCHW", choices=DATA_LAYOUTS),
}


@dataclass(frozen=True, slots=True)
class Tap:
    """One position inside the window, and where it meets data rather than padding.

    Along each axis, output positions ``out`` read input positions ``data`` (slices of equal length).
    """

    index: int
    out: tuple[slice, ...]
    data: tuple[slice, ...]

    @property
    def is_empty(self) -> bool:
        return any(part.start >= part.stop for part in self.out)


@dataclass(frozen=True, slots=True)
class Window:
    """Geometry of a sliding window, one entry an axis.

        pads[0]  data ................. pads[1]      input axis
        [k . k . k]                                  first window: kernel 3, dilation 2
            stride >[k . k . k]                      second window

    `output` is the number of windows along each axis.
    """

    data: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    output: tuple[int, ...]

    @property
    def taps(self) -> int:
        return math.prod(self.kernel)

    @property
    def positions(self) -> int:
        """Windows of one example and channel."""
        return math.prod(self.output)

    @property
    def is_padded(self) -> bool:
        """Whether some window reaches over the edge of the data."""
        return any(
            b > 0 or (o - 1) * s + (k - 1) * d + 1 > n + b
            for n, k, s, d, b, o in zip(
                self.data, self.kernel, self.strides, self.dilations, self.begin, self.output, strict=True
            )
        )

    @property
    def is_pointwise(self) -> bool:
        """Each window is one element, and each element one window."""
        return self.taps == 1 and self.output == self.data and not self.is_padded

    @property
    def is_disjoint(self) -> bool:
        """No element of the data lies in two windows."""
        return all(
            s >= (k - 1) * d + 1
            for k, s, d in zip(self.kernel, self.strides, self.dilations, strict=True)
        )

    def tap_slices(self) -> tuple[Tap, ...]:
        """All taps in C order of the kernel, those that meet padding only included."""
        return tuple(
            self._tap(index, offsets)
            for index, offsets in enumerate(product(*(range(k) for k in self.kernel)))
        )

    def _tap(self, index: int, offsets: Sequence[int]) -> Tap:
        out, data = [], []
        for axis, offset in enumerate(offsets):
            stride, shift = self.strides[axis], offset * self.dilations[axis] - self.begin[axis]
            first = max(0, -(shift // stride))
            last = max(first, min(self.output[axis], (self.data[axis] - 1 - shift) // stride + 1))
            out.append(slice(first, last))
            start = first * stride + shift
            data.append(slice(start, start + (last - first - 1) * stride + 1 if last > first else start, stride))
        return Tap(index, tuple(out), tuple(data))


def channels(node: Node, shape: Sequence[int]) -> int:
    """Channels of data in the node's layout."""
    return shape[1] if node.attributes["data_layout"] == "NCHW" else shape[-1]


def spatial(node: Node, shape: Sequence[int]) -> tuple[int, ...]:
    """Spatial dimensions of data (or of a weight, whose axes follow the data)."""
    return tuple(shape[2:] if node.attributes["data_layout"] == "NCHW" else shape[1:-1])


def with_spatial(node: Node, batch: int, channel: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """Shape of data in the node's layout."""
    if node.attributes["data_layout"] == "NCHW":
        return (batch, channel, *sizes)
    return (batch, *sizes, channel)


def window(node: Node, data: Sequence[int], kernel: Sequence[int], *, ceil_mode: bool = False) -> Window:
    """The window of a node over `data` spatial dimensions.

    Raises AttributeRuleError when a list has the wrong length, ShapeMismatchError when no window fits.
    """
    rank = len(data)
    strides = _per_axis(node, "strides", rank, 1)
    dilations = _per_axis(node, "dilations", rank, 1)
    pads = _per_axis(node, "pads", 2 * rank, 0)
    begin, end, output = [], [], []
    for axis in range(rank):
        extent = (kernel[axis] - 1) * dilations[axis] + 1
        given = (pads[axis], pads[rank + axis])
        left, right, count = _axis(node, data[axis], extent, strides[axis], given, ceil_mode=ceil_mode)
        begin.append(left)
        end.append(right)
        output.append(count)
    return Window(tuple(data), tuple(kernel), strides, dilations, tuple(begin), tuple(end), tuple(output))


def _per_axis(node: Node, key: str, length: int, default: int) -> tuple[int, ...]:
    values = node.attributes.get(key)
    if values is None:
        return (default,) * length
    if len(values) != length:
        raise bad_attribute(node, key, f"must have {length} entries for this input")
    if key == "pads" and node.attributes["auto_pad"] != "NOTSET" and any(values):
        raise bad_attribute(node, key, f"cannot stand beside auto_pad {node.attributes['auto_pad']!r}")
    return tuple(values)


def _axis(
    node: Node, size: int, extent: int, stride: int, pads: tuple[int, int], *, ceil_mode: bool
) -> tuple[int, int, int]:
    """Padding before, padding after and number of windows along one axis, as ONNX counts them."""
    auto = node.attributes["auto_pad"]
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        count = -(-size // stride)
        total = max((count - 1) * stride + extent - size, 0)
        small, large = total // 2, total - total // 2
        return (small, large, count) if auto == "SAME_UPPER" else (large, small, count)
    room = size + sum(pads) - extent
    if room < 0:
        raise node.mismatch(
            f"expected a window that fits: it spans {extent} elements, the padded data {size + sum(pads)}"
        )
    count = (-(-room // stride) if ceil_mode else room // stride) + 1
    if ceil_mode and (count - 1) * stride >= size + pads[0]:
        count -= 1  # a window may not begin in the padding behind the data
    return (*pads, count)
