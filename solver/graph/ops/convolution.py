"""Convolution, and the loops its kernels run: what they stage in scratch, chunk by chunk.

Three loops, each a function of the geometry alone; operator and kernels share them:

    correlate   Y from X and W; for stride 1 also dX, as the correlation of dZ with the flipped W
    scatter     dX for larger strides or weights: columns of dX, added back tap by tap
    weigh       dW and dB: dZ times the columns of X, summed over the chunks

dZ is the derivative before the fused activation. It exists as a chunk of scratch, never as a tensor.

W may be stored (`solver.graph.storage`), its rows being the filters. Kernels unpack a tile of them at a time,
all of them where they are depthwise, and run the loop for each tile in turn:

    Y[tile]     each element the same sum of products as without storage
    dX          if one tile holds W, as without storage; else scattered: columns of the first tile are added
                tap by tap to zeros, then those of the next tile to that
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

from solver.graph.ops.base import Attribute, BackwardNeeds, Node, OperationType, ScratchRequest
from solver.graph.ops.helpers.shared import IGNORED_IN_PRODUCTS, same_floating
from solver.graph.ops.helpers.spatial import (
    WINDOW_ATTRIBUTES,
    Spatial,
    Staging,
    image_of,
    requests,
    stage,
    window_of,
)
from solver.graph.ops.helpers.stored import is_stored, tile_request, tile_rows
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "Convolution", "convolution", "filters_a_tile", "tile_of_filters"]

X, W, B = 0, 1, 2

#: A depthwise kernel passes over a chunk twice for each tap, so a chunk of the output, of the products
#: and of the data has to stay in the second-level cache.
_DEPTHWISE_CHUNK_BYTES = 512 * 1024

#: Output positions that one product of a weight derivative sums over. BLAS is slow on longer, thin
#: factors, and partial sums round better.
_POSITIONS_A_PRODUCT = 2048

#: Elements that NumPy's inner loop should have at least; below, its own overhead prevails.
_INNER_ELEMENTS = 2048

#: Repeated weights, or sums, must fit this many times into the scratch budget.
_BUDGETS_PER_WEIGHTS = 8


@dataclass(frozen=True)
class Convolution:
    """Sizes of one convolution. `window` slides over X; `transposed` over dZ, for stride 1.

    `tile` is the number of filters that are unpacked at a time, 0 where W is not stored.
    """

    window: Spatial
    groups: int
    filters: int
    activation: str
    dtype: DType
    budget: int
    tile: int = 0

    @property
    def group_channels(self) -> int:
        return self.window.channels // self.groups

    @property
    def group_filters(self) -> int:
        return self.filters // self.groups

    @property
    def is_depthwise(self) -> bool:
        """One input channel a group: multiply and accumulate instead of a matrix product."""
        return self.group_channels == 1 and self.groups > 1

    @property
    def is_fused(self) -> bool:
        return self.activation != "None"

    @cached_property
    def weights(self) -> int:
        """Elements of W."""
        return self.filters * self.group_channels * self.window.taps

    @cached_property
    def transposed(self) -> Spatial:
        axes = tuple(axis.transposed for axis in self.window.axes)
        return replace(self.window, channels=self.filters, axes=axes)

    @property
    def scatters(self) -> bool:
        """Whether dX is added up from columns of it, and not a correlation of dZ with the flipped W.

        It must be with strides, and with several tiles of W; without, it is where the copy of W would take
        half the budget or more.
        """
        copied = self.weights * self.dtype.itemsize if self.window.taps > 1 and not self.is_depthwise else 0
        in_tiles = 0 < self.tile < self.filters
        return self.window.strides_over or in_tiles or 2 * copied > self.budget

    @property
    def filters_a_sum(self) -> int:
        """Filters of each group whose share of dW is added at a time: their sums stay in the cache."""
        row = self.groups * self.group_channels * self.window.taps * self.dtype.itemsize
        return min(self.group_filters, max(1, self.budget // max(1, _BUDGETS_PER_WEIGHTS * row)))

    # ------------------------------------------------------------------------------------ loops

    def correlate(self, *, backward: bool) -> Staging:
        """Chunks of Y (forward) or of dX (backward, stride 1)."""
        window = self.transposed if backward else self.window
        written = self.window.channels if backward else self.filters
        copies = window.is_copied or (backward and self.is_fused)
        if self.is_depthwise:
            return self._depthwise(window, written, copies=copies)
        flipped = self.weights if backward and self.window.taps > 1 else 0

        def sizes(examples: int, rows: int) -> dict[str, int]:
            spread = examples * rows * window.row * window.taps * window.channels
            return {
                "source": window.reached(examples, rows) if copies else 0,
                "columns": 0 if window.is_pointwise else spread,
                "weights": flipped,
            }

        return stage(window, written, self.dtype.itemsize, sizes, self.budget)

    def _depthwise(self, window: Spatial, written: int, *, copies: bool) -> Staging:
        def sizes(examples: int, rows: int) -> dict[str, int]:
            return {
                "source": window.reached(examples, rows) if copies else 0,
                "product": examples * rows * window.row * written,
                "weights": self.weights * self.spread(window),
            }

        return stage(window, written, self.dtype.itemsize, sizes, self._small_budget(window))

    def _small_budget(self, window: Spatial) -> int:
        fixed = self.weights * self.spread(window) * self.dtype.itemsize
        return min(self.budget, _DEPTHWISE_CHUNK_BYTES + fixed)

    def spread(self, window: Spatial) -> int:
        """Number of positions of the last axis over which a row of depthwise weights is repeated.

        Channels that are innermost and few make short inner loops; where neighbouring windows start at
        neighbouring positions, several of them can share one.
        """
        return self.sums_spread(window) if window.axes[-1].stride == 1 else 1

    def sums_spread(self, window: Spatial) -> int:
        """Number of positions of the last axis that keep their own sums until the last chunk is added.

        One where that axis is the first as well: chunks cut it anywhere.
        """
        if window.layout == "NCHW" or self.group_filters > 1 or len(window.axes) == 1:
            return 1
        out, enough = window.axes[-1].out, -(-_INNER_ELEMENTS // max(1, window.channels))
        affordable = self.budget // max(1, _BUDGETS_PER_WEIGHTS * self.weights * self.dtype.itemsize)
        return next(n for n in range(max(min(enough, affordable, out), 1), 0, -1) if out % n == 0)

    def scatter(self) -> Staging:
        """Chunks of dZ whose shares of dX are added up."""
        window = self.window
        each = window.channels * (1 if self.is_depthwise else window.taps)

        def sizes(examples: int, rows: int) -> dict[str, int]:
            positions = examples * rows * window.row
            return {
                "inner": positions * self.filters if self.is_fused else 0,
                "columns": positions * each,
                "weights": self.weights if self.is_depthwise else 0,
            }

        budget = self._small_budget(window) if self.is_depthwise else self.budget
        return stage(window, self.filters, self.dtype.itemsize, sizes, budget)

    def weigh(self, *, bias_only: bool = False) -> Staging:
        """Chunks over which dW and dB are summed."""
        window, itemsize = self.window, self.dtype.itemsize
        common = self._inner_sizes
        if bias_only:
            return stage(window, self.filters, itemsize, common, self.budget)
        if self.is_depthwise:
            return self._weigh_depthwise()
        columns = 0 if window.is_pointwise else window.taps * window.channels
        partial = self.filters_a_sum * window.channels * window.taps

        def sizes(examples: int, rows: int) -> dict[str, int]:
            return {
                **common(examples, rows),
                "source": window.reached(examples, rows) if window.is_copied else 0,
                "columns": examples * rows * window.row * columns,
                "partial": 0 if self._is_one_product(examples, rows) else partial,
            }

        return stage(window, self.filters, itemsize, sizes, self.budget, _POSITIONS_A_PRODUCT)

    def _inner_sizes(self, examples: int, rows: int) -> dict[str, int]:
        """dZ of a chunk, and a chunk's share of dB."""
        inner = examples * rows * self.window.row * self.filters if self.is_fused else 0
        return {"inner": inner, "partial_bias": self.filters}

    def _is_one_product(self, examples: int, rows: int) -> bool:
        """Whether dW is a single product and not a sum of several."""
        whole = examples == self.window.batch and rows == self.window.axes[0].out
        return whole and (self.window.layout == "NHWC" or examples == 1)

    def _weigh_depthwise(self) -> Staging:
        window = self.window
        sums = self.weights * self.sums_spread(window)

        def sizes(examples: int, rows: int) -> dict[str, int]:
            return {
                **self._inner_sizes(examples, rows),
                "source": window.reached(examples, rows) if window.is_copied else 0,
                "product": examples * rows * window.row * self.filters,
                "sums": sums,
                "partial": 0 if self._is_one_product(examples, rows) else sums,
            }

        budget = min(self.budget, _DEPTHWISE_CHUNK_BYTES + 2 * sums * self.dtype.itemsize)
        return stage(window, self.filters, self.dtype.itemsize, sizes, budget)


def convolution(node: Node) -> Convolution:
    """Sizes of a Conv. Raises AttributeRuleError and ShapeMismatchError."""
    _, channels, sizes = image_of(node)
    shape, group = node.input(W).shape, node.attributes["group"]
    if len(shape) != len(sizes) + 2:
        raise node.mismatch("expected inputs 0 and 1 of one rank")
    is_nchw = node.attributes["data_layout"] == "NCHW"
    kernel, depth = (shape[2:], shape[1]) if is_nchw else (shape[1:-1], shape[-1])
    if not channels:
        raise node.mismatch("expected an input of at least one channel")
    if depth * group != channels:
        raise node.mismatch(
            f"{group} groups of {depth} channels in W do not make the {channels} of the input"
        )
    if shape[0] % group:
        raise node.mismatch(f"{shape[0]} filters do not divide into {group} groups")
    if node.attributes["kernel_shape"] not in (None, (), kernel):
        raise node.mismatch(f"kernel_shape is {list(node.attributes['kernel_shape'])}, W has {list(kernel)}")
    if node.has_input(B) and node.input(B).shape != (shape[0],):
        raise node.mismatch(f"expected a bias of shape [{shape[0]}]")
    return Convolution(
        window_of(node, kernel),
        group,
        shape[0],
        node.attributes["activation"],
        node.input(X).dtype,
        node.scratch_budget,
        filters_a_tile(node, group, is_depthwise=depth == 1),
    )


def filters_a_tile(node: Node, groups: int, *, is_depthwise: bool) -> int:
    """Filters of a stored W that are unpacked at a time: of whole groups, or equal shares of one; else 0."""
    if not is_stored(node, W):
        return 0
    filters, fitting = node.input(W).shape[0], tile_rows(node, W)
    if groups == 1 or fitting == filters:
        return fitting
    each = filters // groups
    if is_depthwise:
        return filters
    if fitting >= each:
        return fitting - fitting % each
    return next(n for n in range(fitting, 0, -1) if each % n == 0)


def tile_of_filters(node: Node, conv: Convolution) -> tuple[ScratchRequest, ...]:
    """Scratch to unpack W, where it is stored."""
    return (tile_request(node, W, conv.tile),) if conv.tile else ()


class Conv(OperationType):
    """Y = X * W + B. W is [filters, channels/group, *kernel] under NCHW, [filters, *kernel, channels/group]
    under NHWC.

    dW reads X, dX reads W, dB neither; all read dY, and Y where an activation is fused.
    """

    name = "Conv"
    arity = (2, 3)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        **WINDOW_ATTRIBUTES,
        "group": Attribute("int", default=1, minimum=1),
    }
    fuses_activation = True

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        conv = convolution(node)
        dtype = same_floating(node, (X, W, B))
        return (TensorType(conv.window.shaped(conv.filters, conv.window.outputs), dtype),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        conv = convolution(node)
        return requests(conv.dtype, conv.correlate(backward=False).sizes) + tile_of_filters(node, conv)

    def stored_axis(self, node: Node, position: int) -> int | None:
        return 0 if position == W else None

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        conv = convolution(node)
        loops = []
        if derivatives & {W, B}:
            loops.append(_without(conv.weigh(bias_only=W not in derivatives), bias=B in derivatives))
        if X in derivatives:
            loops.append((conv.scatter() if conv.scatters else conv.correlate(backward=True)).sizes)
        reads = {W: X, X: W}
        return BackwardNeeds(
            inputs=frozenset(reads[position] for position in derivatives if position in reads),
            outputs=frozenset({0} if conv.is_fused else ()),
            scratch=requests(conv.dtype, *loops) + (tile_of_filters(node, conv) if X in derivatives else ()),
        )

    def ignores(self, node: Node, forward: bool, slot: str) -> frozenset[str]:
        return frozenset() if forward else IGNORED_IN_PRODUCTS.get(slot, frozenset())


def _without(loop: Staging, *, bias: bool) -> Mapping[str, int]:
    """Sizes of the loop, less the share of dB where there is no dB or only one chunk."""
    return loop.sizes if bias and loop.count > 1 else {**loop.sizes, "partial_bias": 0}


OPERATORS: tuple[OperationType, ...] = (Conv(),)
