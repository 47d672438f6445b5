"""Convolution: Conv in any number of spatial axes, grouped and depthwise, in both data layouts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops._shared import same_floating
from solver.graph.ops._spatial import WINDOW_ATTRIBUTES, Window, channels, spatial, window, with_spatial
from solver.graph.ops.base import Attribute, BackwardNeeds, Node, OperationType, ScratchRequest, scratch
from solver.graph.types import TensorType

__all__ = ["OPERATORS", "Geometry", "geometry"]

X, W, B = 0, 1, 2


class Geometry:
    """Sizes of one convolution; what kernels and scratch requests must agree on.

    `chunk` is the number of examples treated at a time: as many as fit the scratch budget, at
    least one.
    """

    def __init__(self, node: Node) -> None:
        x, w = node.input(X), node.input(W)
        self.window: Window = window(node, spatial(node, x.shape), spatial(node, w.shape))
        self.groups: int = node.attributes["group"]
        self.batch = x.shape[0]
        self.channels = channels(node, x.shape)
        self.outputs = w.shape[0]
        self.is_nchw = node.attributes["data_layout"] == "NCHW"
        self.activation: str = node.attributes["activation"]
        self.dtype = x.dtype
        #: One input and one output channel a group: no GEMM, but multiply-accumulate over the taps.
        self.is_depthwise = self.groups == self.channels == self.outputs and self.groups > 1
        self.needs_columns = not self.window.is_pointwise and not self.is_depthwise
        self.budget = node.scratch_budget

    @property
    def columns_bytes(self) -> int:
        """Columns of one example: every window of every channel written out."""
        w = self.window
        return w.positions * w.taps * self.channels * self.dtype.itemsize if self.needs_columns else 0

    @property
    def inner_bytes(self) -> int:
        """Derivative of one example before its activation."""
        return self.window.positions * self.outputs * self.dtype.itemsize

    def chunk(self, *, inner: bool) -> int:
        """Examples treated at a time; `inner`: with the derivative before the activation beside them."""
        each = self.columns_bytes + (self.inner_bytes if inner else 0)
        return max(1, min(self.batch, self.budget // each)) if each else self.batch

    def columns(self, examples: int) -> list[ScratchRequest]:
        if not self.needs_columns:
            return []
        per_group = self.window.taps * self.channels // self.groups
        shape = (self.groups, examples, self.window.positions, per_group)
        return [scratch("columns", shape, self.dtype)]

    def inner(self, examples: int) -> list[ScratchRequest]:
        if self.activation == "None":
            return []
        if self.is_depthwise:
            return [scratch("inner", (self.block_elements,), self.dtype)]
        return [scratch("inner", (examples, self.window.positions * self.outputs), self.dtype)]

    def has_several_products(self, chunk: int) -> bool:
        """Whether a weight derivative is a sum of more than one matrix product."""
        if self.is_nchw:
            return self.batch > 1
        return chunk < self.batch or chunk * self.window.positions > WINDOWS_PER_PRODUCT

    # ------------------------------------------------------------------------- depthwise

    @property
    def rows(self) -> int:
        """Output rows a depthwise kernel treats at a time, so that its product stays in the cache."""
        row = math.prod(self.window.output[1:]) * self.channels * self.dtype.itemsize
        return max(1, min(self.window.output[0], DEPTHWISE_BLOCK_BYTES // row))

    def depthwise(self) -> list[ScratchRequest]:
        """A weight for each tap, spread along the last spatial axis where channels come last, and one
        block of products."""
        return [
            scratch("spread", (self.window.taps, self.width * self.channels), self.dtype),
            scratch("product", (self.block_elements,), self.dtype),
        ]

    def depthwise_sums(self) -> list[ScratchRequest]:
        """Sums of the weight derivative, spread as the weights are, and one block's share of one tap."""
        return [
            scratch("sums", (self.window.taps, self.width * self.channels), self.dtype),
            scratch("sums_part", (self.width * self.channels,), self.dtype),
        ]

    @property
    def width(self) -> int:
        return 1 if self.is_nchw else self.window.output[-1]

    @property
    def block_elements(self) -> int:
        return self.rows * math.prod(self.window.output[1:]) * self.channels


#: Windows that one product of a weight derivative sums over. Longer sums are split: BLAS libraries are
#: slow on tall and thin factors (a 16 x 32 result from 125,440 rows: 1.7 ms split, 8 to 760 ms whole), and
#: partial sums round better.
WINDOWS_PER_PRODUCT = 1024

#: A block of products, its input and its output stay in a second-level cache of 1 MiB together.
DEPTHWISE_BLOCK_BYTES = 256 * 1024


def geometry(node: Node) -> Geometry:
    return Geometry(node)


class Conv(OperationType):
    """Y = X * W + B. W is ``[O, I/group, *k]`` under NCHW and ``[O, *k, I/group]`` under NHWC.

    dW and dB read X (dB alone does not) and dY, dX reads W and dY; all read Y where an activation is fused.
    """

    name = "Conv"
    arity = (2, 3)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        **WINDOW_ATTRIBUTES,
        "group": Attribute("int", default=1, minimum=1),
    }
    fuses_activation = True

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype = same_floating(node, (X, W, B))
        x, w, group = node.input(X).shape, node.input(W).shape, node.attributes["group"]
        if len(x) < 3 or len(w) != len(x):
            raise node.mismatch("expected X and W of one rank, at least 3")
        if w[0] % group or channels(node, w) * group != channels(node, x):
            raise node.mismatch(
                f"expected W with {channels(node, x)} / {group} input channels and outputs in {group} groups"
            )
        kernel = node.attributes["kernel_shape"]
        if kernel is not None and kernel != spatial(node, w):
            raise node.mismatch(f"expected W with the kernel {list(kernel)} of `kernel_shape`")
        if node.has_input(B) and node.input(B).shape != (w[0],):
            raise node.mismatch(f"expected a bias of shape [{w[0]}]")
        output = window(node, spatial(node, x), spatial(node, w)).output
        return (TensorType(with_spatial(node, x[0], w[0], output), dtype),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        g = geometry(node)
        return tuple(g.depthwise() if g.is_depthwise else g.columns(g.chunk(inner=False)))

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        g = geometry(node)
        inputs = ({X} if W in wanted else set()) | ({W} if X in wanted else set())
        return BackwardNeeds(
            inputs=frozenset(inputs),
            outputs=frozenset() if g.activation == "None" else frozenset({0}),
            scratch=tuple(self._scratch(g, wanted)),
        )

    def _scratch(self, g: Geometry, wanted: frozenset[int]) -> list[ScratchRequest]:
        chunk = self.backward_chunk(g, wanted)
        found = g.inner(chunk)
        if g.is_depthwise:
            found += g.depthwise() if wanted & {X, W} else []
            found += g.depthwise_sums() if W in wanted else []
        elif wanted & {X, W}:
            found += g.columns(chunk)
            if W in wanted and g.has_several_products(chunk):
                per_group = g.window.taps * g.channels // g.groups
                found.append(scratch("weight_part", (g.outputs // g.groups, per_group), g.dtype))
        if B in wanted:
            found.append(scratch("bias_part", (g.outputs,), g.dtype))
        return found

    def backward_chunk(self, g: Geometry, wanted: frozenset[int]) -> int:
        """Examples treated at a time by a backward step."""
        if g.is_depthwise:
            return 1
        inner = g.activation != "None"
        if not (wanted & {X, W}) or not g.needs_columns:
            return max(1, min(g.batch, g.budget // g.inner_bytes)) if inner else g.batch
        return g.chunk(inner=inner)


OPERATORS = (Conv(),)
