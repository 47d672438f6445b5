"""Normalisation: each row loses its mean and is divided by its deviation, then scaled and shifted.

    X is seen as [outer, groups, channels, positions], a row being one (outer, group):

    LayerNormalization       [the axes before `axis`, 1, the axes from it, 1]
    RMSNormalization         the same; the mean stays, and the deviation is that from zero
    GroupNormalization       [batch, num_groups, channels of a group, spatial axes]
    InstanceNormalization    the same with a group for each channel

Mean and inverse deviation of each row are saved by the forward step, so that the backward step reads X and
not Y. The derivative of the shift reads neither.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from solver.graph.ops.base import (
    ELEMENTWISE,
    Attribute,
    BackwardNeeds,
    InPlace,
    Node,
    OperationType,
    ScratchRequest,
    scratch,
)
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS, axis_in_range, bad_attribute, same_floating
from solver.graph.types import TensorType

__all__ = ["INVERSE_DEVIATION", "MEAN", "OPERATORS", "Normalisation", "Rows"]

MEAN, INVERSE_DEVIATION = "mean", "inverse_deviation"

#: Statistics depend on X alone; the derivative of the shift on dY alone.
_IGNORED_FORWARD: Mapping[str, frozenset[str]] = dict.fromkeys(
    (MEAN, INVERSE_DEVIATION), frozenset({"x1", "x2"})
)
_IGNORED_BACKWARD: Mapping[str, frozenset[str]] = {
    "dx1": frozenset({"x1"}),
    "dx2": frozenset({"x0", "x1", MEAN, INVERSE_DEVIATION}),
}

_EPSILON = Attribute("float", default=1e-5, minimum=0.0)
#: ONNX's number of the type that statistics have; only the type of X, or float32 for it, is offered.
_STASH = Attribute("int", default=1, choices=(1,))
_LAYOUT = Attribute("string", default="NCHW", choices=("NCHW", "NHWC"))


@dataclass(frozen=True, slots=True)
class Rows:
    """X as rows, and how many are treated at a time: whole rows of at most `BLOCK_ELEMENTS`, at least one."""

    outer: int
    groups: int
    channels: int
    positions: int
    channels_last: bool = False

    @property
    def size(self) -> int:
        """Elements of a row."""
        return self.channels * self.positions

    @property
    def step(self) -> tuple[int, int]:
        """(outer, groups) of a block."""
        rows = max(1, BLOCK_ELEMENTS // max(1, self.size))
        if rows < self.groups:
            return 1, rows
        return min(self.outer, rows // max(1, self.groups)), self.groups


class Normalisation(OperationType):
    """X, scale and shift; the latter two are trained."""

    arity: ClassVar[tuple[int, int]] = (3, 3)
    unit_inputs = frozenset({1})
    #: Whether rows lose their mean.
    centred: ClassVar[bool] = True

    @property
    def statistics(self) -> tuple[str, ...]:
        """Names of the statistics that are saved for each row."""
        return (MEAN, INVERSE_DEVIATION) if self.centred else (INVERSE_DEVIATION,)

    @abstractmethod
    def rows(self, node: Node) -> Rows:
        """X as rows. Raises ShapeMismatchError and AttributeRuleError."""

    @abstractmethod
    def parameter_shape(self, node: Node) -> tuple[int, ...]:
        """Shape of scale and shift."""

    @abstractmethod
    def statistic_shape(self, node: Node) -> tuple[int, ...]:
        """Shape of mean and inverse deviation."""

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return ELEMENTWISE

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, range(3))
        self.rows(node)
        expected = self.parameter_shape(node)
        for position in (1, 2):
            if node.has_input(position) and node.input(position).shape != expected:
                names = "scale and shift" if self.arity[1] > 2 else "a scale"
                raise node.mismatch(f"expected {names} of shape {list(expected)}")
        return (node.input(0),)

    def saved(self, node: Node) -> tuple[ScratchRequest, ...]:
        shape, dtype = self.statistic_shape(node), node.input(0).dtype
        return tuple(scratch(name, shape, dtype) for name in self.statistics)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        return (self._block(node, "square"),)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        dtype = node.input(0).dtype
        requests = []
        if derivatives & {1, 2}:
            requests.append(scratch("partial", (node.input(1).elements,), dtype))
        if derivatives <= {2}:
            return BackwardNeeds(scratch=tuple(requests))
        requests += [self._block(node, "normal"), self._block(node, "product")]
        if 0 in derivatives:
            means = ("first", "second") if self.centred else ("second",)
            requests += [scratch(name, (math.prod(self.rows(node).step),), dtype) for name in means]
        return BackwardNeeds(
            inputs=frozenset({0, 1} if 0 in derivatives else {0}),
            saved=frozenset(self.statistics),
            scratch=tuple(requests),
        )

    def ignores(self, node: Node, forward: bool, slot: str) -> frozenset[str]:
        return (_IGNORED_FORWARD if forward else _IGNORED_BACKWARD).get(slot, frozenset())

    def _block(self, node: Node, name: str) -> ScratchRequest:
        rows = self.rows(node)
        return scratch(name, (math.prod(rows.step) * rows.size,), node.input(0).dtype)


class _ByPosition(Normalisation):
    """Over the axes from `axis` on, of whose shape scale and shift are."""

    attributes: ClassVar[Mapping[str, Attribute]] = {
        "axis": Attribute("int", default=-1),
        "epsilon": _EPSILON,
        "stash_type": _STASH,
    }

    def _axis(self, node: Node) -> int:
        return axis_in_range(node, "axis", node.attributes["axis"], len(node.input(0).shape))

    def rows(self, node: Node) -> Rows:
        shape, axis = node.input(0).shape, self._axis(node)
        return Rows(math.prod(shape[:axis]), 1, math.prod(shape[axis:]), 1)

    def parameter_shape(self, node: Node) -> tuple[int, ...]:
        return node.input(0).shape[self._axis(node) :]

    def statistic_shape(self, node: Node) -> tuple[int, ...]:
        shape, axis = node.input(0).shape, self._axis(node)
        return shape[:axis] + (1,) * (len(shape) - axis)


class _LayerNormalization(_ByPosition):
    """Ba, Kiros and Hinton, 2016. ONNX's further outputs, mean and inverse deviation, are what is saved."""

    name = "LayerNormalization"
    arity = (2, 3)


class _RMSNormalization(_ByPosition):
    """Division by the root of the mean of squares, without a shift (Zhang and Sennrich, 2019; opset 23)."""

    name = "RMSNormalization"
    arity = (2, 2)
    centred = False


class _ByChannel(Normalisation):
    """Over spatial axes and groups of channels; a scale and a shift for each channel."""

    def groups(self, node: Node, channels: int) -> int:
        """Number of groups that the channels are divided into."""
        return channels

    def rows(self, node: Node) -> Rows:
        shape = node.input(0).shape
        if len(shape) < 2:
            raise node.mismatch("expected an input with a batch and channels")
        last = node.attributes["data_layout"] == "NHWC"
        (channels,) = self.parameter_shape(node)
        groups = self.groups(node, channels)
        positions = math.prod(shape[1:-1] if last else shape[2:])
        return Rows(shape[0], groups, channels // max(1, groups), positions, channels_last=last)

    def parameter_shape(self, node: Node) -> tuple[int, ...]:
        return (node.input(0).shape[-1 if node.attributes["data_layout"] == "NHWC" else 1],)

    def statistic_shape(self, node: Node) -> tuple[int, ...]:
        rows = self.rows(node)
        return (rows.outer, rows.groups)


class _InstanceNormalization(_ByChannel):
    """Normalisation of each channel of each example by itself (Ulyanov, Vedaldi and Lempitsky, 2016)."""

    name = "InstanceNormalization"
    attributes: ClassVar[Mapping[str, Attribute]] = {"data_layout": _LAYOUT, "epsilon": _EPSILON}


class _GroupNormalization(_ByChannel):
    """`num_groups` groups of channels of each example (Wu and He, 2018), as since opset 21."""

    name = "GroupNormalization"
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "data_layout": _LAYOUT,
        "epsilon": _EPSILON,
        "num_groups": Attribute("int", required=True, minimum=1),
        "stash_type": _STASH,
    }

    def groups(self, node: Node, channels: int) -> int:
        groups: int = node.attributes["num_groups"]
        if channels % groups:
            raise bad_attribute(node, "num_groups", f"must divide the {channels} channels")
        return groups


OPERATORS: tuple[OperationType, ...] = (
    *(_LayerNormalization(), _RMSNormalization(), _InstanceNormalization(), _GroupNormalization()),
)
