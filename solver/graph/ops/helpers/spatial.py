"""Geometry of operators that slide a window over images, and how their work is cut into chunks.

One axis, seven positions padded by one on each side, window of 3 taps, stride 2:

    .  0 1 2 3 4 5 6  .        size 7, before 1, stride 2, extent 3
   [-----]                     output 0 reads positions -1 .. 1
       [-----]                 output 1
           [-----]
               [-----]         output 3, the last: `out` is 4

A chunk is a block of whole examples, or some output rows (first spatial axis) of one example where
a single example would exceed the scratch budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from solver.graph.ops.base import Attribute, Node, ScratchRequest, scratch
from solver.graph.ops.helpers.shared import bad_attribute
from solver.graph.types import DType

__all__ = [
    "WINDOW_ATTRIBUTES",
    "Axis",
    "Part",
    "Spatial",
    "Staging",
    "image_of",
    "in_order",
    "requests",
    "stage",
    "window_of",
]

_PADDINGS = ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")

#: Attributes of every operator with a window: ONNX's, and the memory order of images.
WINDOW_ATTRIBUTES: Mapping[str, Attribute] = {
    "data_layout": Attribute("string", default="NCHW", choices=("NCHW", "NHWC")),
    "auto_pad": Attribute("string", default="NOTSET", choices=_PADDINGS),
    "kernel_shape": Attribute("ints", minimum=1),
    "strides": Attribute("ints", minimum=1),
    "dilations": Attribute("ints", minimum=1),
    "pads": Attribute("ints", minimum=0),
}

#: Bytes of output a chunk writes where it needs little scratch: they stay in the second-level cache
#: while a bias and an activation pass over them again.
_CHUNK_OUTPUT_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Axis:
    """One spatial axis: input size, window, and number of outputs; `before` may be negative (a crop)."""

    size: int
    kernel: int
    stride: int
    dilation: int
    before: int
    after: int
    out: int

    @property
    def extent(self) -> int:
        """Input positions from the first tap to the last, both included."""
        return (self.kernel - 1) * self.dilation + 1

    def reach(self, outputs: int) -> int:
        """Input positions that `outputs` neighbouring outputs look at."""
        return (outputs - 1) * self.stride + self.extent

    @property
    def is_padded(self) -> bool:
        """Whether some window leaves the input, or the first one does not start where the input does."""
        return self.before != 0 or self.reach(self.out) > self.size

    @property
    def is_pointwise(self) -> bool:
        return self.kernel == self.stride == 1

    @property
    def transposed(self) -> Axis:
        """The axis of the correlation that takes dY back to dX; for stride 1 only."""
        before = self.extent - 1 - self.before
        return Axis(self.out, self.kernel, 1, self.dilation, before, 0, self.size)

    def tap(self, tap: int, start: int, stop: int) -> tuple[slice, slice]:
        """(outputs, inputs): those in [start, stop) whose `tap` lies inside the input, and what it reads.

        Outputs are counted from `start`. Both slices have the same length, maybe 0.
        """
        shift = tap * self.dilation - self.before
        first = max(start, -(shift // self.stride))
        last = min(stop, (self.size - 1 - shift) // self.stride + 1)
        if last <= first:
            return slice(0, 0), slice(0, 0)
        begin = first * self.stride + shift
        end = (last - 1) * self.stride + shift + 1
        return slice(first - start, last - start), slice(begin, end, self.stride)


@dataclass(frozen=True)
class Spatial:
    """Images of one operation: memory order, batch, channels, spatial axes."""

    layout: str
    batch: int
    channels: int
    axes: tuple[Axis, ...]

    @cached_property
    def taps(self) -> int:
        return math.prod(axis.kernel for axis in self.axes)

    @cached_property
    def outputs(self) -> tuple[int, ...]:
        return tuple(axis.out for axis in self.axes)

    @cached_property
    def row(self) -> int:
        """Output positions in one row, that is for one index of the first spatial axis."""
        return math.prod(self.outputs[1:])

    @cached_property
    def is_padded(self) -> bool:
        return any(axis.is_padded for axis in self.axes)

    @cached_property
    def is_copied(self) -> bool:
        """Whether windows look at a copy of the images: padded ones, and pointwise ones that leave positions
        out at the end of an axis, because a product takes positions without gaps.
        """
        return self.is_padded or (self.is_pointwise and any(axis.out < axis.size for axis in self.axes))

    @cached_property
    def is_pointwise(self) -> bool:
        return all(axis.is_pointwise for axis in self.axes)

    @property
    def strides_over(self) -> bool:
        """Whether any stride is larger than 1."""
        return any(axis.stride > 1 for axis in self.axes)

    @property
    def overlaps(self) -> bool:
        """Whether two windows may read the same position."""
        return any(axis.stride < axis.extent and axis.out > 1 for axis in self.axes)

    def reached(self, examples: int, rows: int) -> int:
        """Elements that `rows` output rows of `examples` examples look at, padding included."""
        return examples * self.axes[0].reach(rows) * self._plane * self.channels

    @cached_property
    def _plane(self) -> int:
        """Positions of one index of the first axis that all outputs look at, padding included."""
        return math.prod(axis.reach(axis.out) for axis in self.axes[1:])

    def shaped(self, channels: int, sizes: Sequence[int]) -> tuple[int, ...]:
        """Shape of a batch of images in this memory order."""
        return in_order(self.layout, self.batch, channels, sizes)

    def taps_of(self, part: Part) -> Iterator[tuple[int, tuple[slice, ...], tuple[slice, ...]]]:
        """(number, outputs of the part, inputs) of each tap that meets the input at all.

        Slices go over (examples, *spatial): outputs within the part, inputs within the whole batch.
        """
        bounds = [(part.start, part.stop)] + [(0, axis.out) for axis in self.axes[1:]]
        for number, taps in enumerate(product(*(range(axis.kernel) for axis in self.axes))):
            pairs = [axis.tap(tap, *bound) for axis, tap, bound in zip(self.axes, taps, bounds, strict=True)]
            if all(outputs.stop for outputs, _ in pairs):
                outputs, inputs = zip(*pairs, strict=True)
                yield number, (slice(None), *outputs), (slice(part.first, part.last), *inputs)


def in_order(layout: str, batch: int, channels: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """(batch, channels, sizes) in the memory order `layout`."""
    return (batch, channels, *sizes) if layout == "NCHW" else (batch, *sizes, channels)


# --------------------------------------------------------------------------------- from node to geometry


def image_of(node: Node) -> tuple[int, int, tuple[int, ...]]:
    """(batch, channels, spatial sizes) of input 0. Raises ShapeMismatchError below rank 3."""
    shape = node.input(0).shape
    if len(shape) < 3:
        raise node.mismatch("expected input 0 with a batch, channels and at least one spatial axis")
    if node.attributes["data_layout"] == "NCHW":
        return shape[0], shape[1], shape[2:]
    return shape[0], shape[-1], shape[1:-1]


def window_of(node: Node, kernel: Sequence[int]) -> Spatial:
    """Geometry of a window of `kernel` taps over input 0.

    Raises AttributeRuleError for lists of the wrong length and for pads beside an auto_pad, and
    ShapeMismatchError where no window fits.
    """
    batch, channels, sizes = image_of(node)
    rank = len(sizes)
    strides = _per_axis(node, "strides", rank)
    dilations = _per_axis(node, "dilations", rank)
    pads = _per_axis(node, "pads", 2 * rank, default=0)
    if node.attributes["auto_pad"] != "NOTSET" and any(pads):
        raise bad_attribute(node, "pads", "must be left out where auto_pad computes the padding")
    axes = tuple(
        _axis(node, sizes[i], kernel[i], strides[i], dilations[i], (pads[i], pads[i + rank]))
        for i in range(rank)
    )
    return Spatial(node.attributes["data_layout"], batch, channels, axes)


def _per_axis(node: Node, key: str, count: int, default: int = 1) -> tuple[int, ...]:
    numbers: tuple[int, ...] | None = node.attributes[key]
    if not numbers:
        return (default,) * count
    if len(numbers) != count:
        raise bad_attribute(node, key, f"must have {count} elements, for input {node.input(0)}")
    return numbers


def _axis(node: Node, size: int, kernel: int, stride: int, dilation: int, pads: tuple[int, int]) -> Axis:
    extent = (kernel - 1) * dilation + 1
    how = node.attributes["auto_pad"]
    if how.startswith("SAME"):
        out = -(-size // stride)
        total = max((out - 1) * stride + extent - size, 0)
        smaller, larger = total // 2, total - total // 2
        pads = (smaller, larger) if how == "SAME_UPPER" else (larger, smaller)
    else:
        out = _windows(node, size + sum(pads) - extent, stride)
        if node.attributes.get("ceil_mode") and (out - 1) * stride >= size + pads[0]:
            # A window that exists by rounding up must not start behind the input.
            out -= 1
    if out < 1 or min(size, kernel) < 1:
        raise node.mismatch(
            f"a window of {kernel} taps, dilation {dilation}, does not fit {size} positions padded by"
            f" {pads[0]} and {pads[1]}"
        )
    return Axis(size, kernel, stride, dilation, *pads, out)


def _windows(node: Node, room: int, stride: int) -> int:
    if room < 0:
        return 0
    return (-(-room // stride) if node.attributes.get("ceil_mode") else room // stride) + 1


# --------------------------------------------------------------------------------------------- chunks


@dataclass(frozen=True, slots=True)
class Part:
    """Examples [first, last) and output rows [start, stop) of a chunk."""

    first: int
    last: int
    start: int
    stop: int

    @property
    def examples(self) -> int:
        return self.last - self.first

    @property
    def rows(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Staging:
    """A loop over chunks of at most `examples` and `rows`, and the elements of scratch it needs."""

    batch: int
    height: int
    examples: int
    rows: int
    sizes: Mapping[str, int]

    @property
    def count(self) -> int:
        return -(-self.batch // max(1, self.examples)) * -(-self.height // self.rows)

    def parts(self) -> Iterator[Part]:
        for first in range(0, self.batch, max(1, self.examples)):
            for start in range(0, self.height, self.rows):
                yield Part(
                    first,
                    min(first + self.examples, self.batch),
                    start,
                    min(start + self.rows, self.height),
                )


#: Elements of scratch by name for a chunk of (examples, rows).
Sizes = Callable[[int, int], dict[str, int]]


def stage(
    spatial: Spatial, output: int, itemsize: int, sizes: Sizes, budget: int, positions: int | None = None
) -> Staging:
    """The largest chunks whose scratch stays within `budget` bytes; at least one row of one example.

    `output` is the elements of Y at one position: what a chunk touches of Y is bounded as well, and so are
    its `positions`.
    """
    height = spatial.axes[0].out

    def fits(examples: int, rows: int) -> bool:
        touched = examples * rows * spatial.row
        if touched * output * itemsize > _CHUNK_OUTPUT_BYTES or (
            positions is not None and touched > positions
        ):
            return False
        return sum(sizes(examples, rows).values()) * itemsize <= budget

    if fits(spatial.batch, height):  # asked first: a sum of one product takes no scratch for another
        examples, rows = spatial.batch, height
    elif fits(1, height):
        examples, rows = _largest(spatial.batch, lambda n: fits(n, height)), height
    else:
        examples, rows = 1, _largest(height, lambda n: fits(1, n))
    return Staging(spatial.batch, height, examples, rows, sizes(examples, rows))


def _largest(limit: int, fits: Callable[[int], bool]) -> int:
    """Largest n in [1, limit] that fits, 1 when none does; then evened out over the loop."""
    low, high = 1, limit
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(middle) else (low, middle - 1)
    return -(-limit // -(-limit // low))


def requests(dtype: DType, *stagings: Mapping[str, int]) -> tuple[ScratchRequest, ...]:
    """Scratch that serves several loops one after the other: by name, the largest size."""
    names: dict[str, Any] = {}
    for sizes in stagings:
        for name, size in sizes.items():
            names[name] = max(size, names.get(name, 0))
    return tuple(scratch(name, (size,), dtype) for name, size in names.items() if size)
