"""BatchNormalization: each channel loses its mean and is divided by its deviation (Ioffe and Szegedy, 2015).

X is seen as [outer, columns, positions]: the channels, or where these come last several rows of them.

    training_mode=1   statistics of the batch; forward also updates the running mean and variance, two states,
                      running = momentum * running + (1 - momentum) * batch, with the biased variance; with
                      `unbiased` that of PyTorch, n / (n - 1) times as large for n > 1 elements of a channel
    training_mode=0   frozen: the running mean and variance, read only, take the place of the batch's

The default is ONNX's, 0: a graph that trains its normalisation says so. ONNX's second and third output
are the running statistics themselves, updated in place. These have no derivative in either mode. A training
mode without them normalises by the batch for ever: its inference does, too.
"""

from __future__ import annotations

import math
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
from solver.graph.ops.helpers.shared import block, same_floating
from solver.graph.types import TensorType

__all__ = ["INVERSE_DEVIATION", "MEAN", "OPERATORS", "Channels", "channels_of"]

MEAN, INVERSE_DEVIATION = "mean", "inverse_deviation"

_SCALE, _SHIFT, _RUNNING_MEAN, _RUNNING_VARIANCE = 1, 2, 3, 4


#: Inputs that each derivative does not depend on; `_IGNORED_FROZEN` holds where statistics are given.
_IGNORED_BACKWARD: Mapping[str, frozenset[str]] = {
    "dx1": frozenset({"x1"}),
    "dx2": frozenset({"x0", "x1", "x3", "x4", MEAN, INVERSE_DEVIATION}),
}
_IGNORED_FROZEN = frozenset({"x0", "x3"})

#: Columns of a block that are worth several rows side by side: enough for a long inner loop.
_LONG_ROW_COLUMNS = 1024


@dataclass(frozen=True, slots=True)
class Channels:
    """X as [outer, columns, positions] in its own memory order, each column being of one channel.

    `lanes` rows of channels lie side by side; 1 where a channel has positions of its own.
    """

    outer: int
    channels: int
    positions: int
    lanes: int = 1

    @property
    def columns(self) -> int:
        return self.lanes * self.channels

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.outer, self.columns, self.positions

    @property
    def count(self) -> int:
        """Elements of a channel."""
        return self.outer * self.lanes * self.positions


def channels_of(node: Node) -> Channels:
    """X as columns. Raises ShapeMismatchError."""
    shape = node.input(0).shape
    if len(shape) < 2:
        raise node.mismatch("expected an input with a batch and channels")
    if node.attributes["data_layout"] == "NHWC":
        return _rows(math.prod(shape[:-1]), shape[-1])
    positions = math.prod(shape[2:])
    return Channels(shape[0], shape[1], positions) if positions > 1 else _rows(*shape[:2])


def _rows(rows: int, channels: int) -> Channels:
    """The number of lanes: the largest power of two that divides the rows, up to a long row."""
    minimum = max(1, _LONG_ROW_COLUMNS // max(1, channels))
    lanes = max(1, min(rows & -rows, 1 << (minimum.bit_length() - 1)))
    return Channels(rows // lanes, channels, 1, lanes)


class _BatchNormalization(OperationType):
    """X, scale, shift, running mean, running variance; the last two may be left out in training."""

    name = "BatchNormalization"
    arity: ClassVar[tuple[int, int]] = (3, 5)
    unit_inputs = frozenset({_SCALE, _RUNNING_VARIANCE})
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "data_layout": Attribute("string", default="NCHW", choices=("NCHW", "NHWC")),
        "epsilon": Attribute("float", default=1e-5, minimum=0.0),
        "momentum": Attribute("float", default=0.9, minimum=0.0),
        "training_mode": Attribute("int", default=0, choices=(0, 1)),
        "unbiased": Attribute("int", default=0, choices=(0, 1), omit_default=True),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        count = 3 if _trains(node) and len(node.inputs) == 3 else 5
        same_floating(node, range(count))
        shape = (channels_of(node).channels,)
        if any(node.input(position).shape != shape for position in range(1, count)):
            raise node.mismatch(
                f"expected scale, shift, running mean and running variance of shape {list(shape)}"
            )
        return (node.input(0),)

    def differentiable(self, node: Node) -> frozenset[int]:
        return frozenset({0, _SCALE, _SHIFT})

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return ELEMENTWISE

    def updates(self, node: Node) -> frozenset[int]:
        running = frozenset({_RUNNING_MEAN, _RUNNING_VARIANCE})
        return running if _trains(node) and node.has_input(_RUNNING_MEAN) else frozenset()

    def saved(self, node: Node) -> tuple[ScratchRequest, ...]:
        return tuple(_of_channels(node, name) for name in (MEAN, INVERSE_DEVIATION)) if _trains(node) else ()

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        own = (_of_channels(node, "factor"), *_by_column(node, "mean", "factor", "shift"))
        return (*own, _block(node, "square"), *_sums(node)) if _trains(node) else own

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        """The derivative of X takes two sums over each channel in training, and is affine when frozen."""
        if derivatives == {_SHIFT}:
            return BackwardNeeds(scratch=_sums(node))
        return self._of_batch(node, derivatives) if _trains(node) else self._frozen(node, derivatives)

    def ignores(self, node: Node, forward: bool, slot: str) -> frozenset[str]:
        """Inputs that do not reach a result. In training, running statistics reach only their new values."""
        if not forward:
            frozen = slot == "dx0" and not _trains(node)
            return _IGNORED_FROZEN if frozen else _IGNORED_BACKWARD.get(slot, frozenset())
        if not _trains(node):
            return frozenset()
        running = frozenset({"x3", "x4"})
        return running if slot == "y0" else frozenset({"x1", "x2"}) | (running - {slot})

    def _of_batch(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        names = ("first", "second", "factor") if 0 in derivatives else ()
        return BackwardNeeds(
            inputs=frozenset({0, _SCALE} if 0 in derivatives else {0}),
            saved=frozenset({MEAN, INVERSE_DEVIATION}),
            scratch=(
                _block(node, "product"),
                *_sums(node),
                *(_of_channels(node, name) for name in names),
                *_by_column(node, "mean", *names),
            ),
        )

    def _frozen(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        inputs, requests = {_RUNNING_VARIANCE}, [_of_channels(node, INVERSE_DEVIATION)]
        if derivatives & {_SCALE, _SHIFT}:
            requests += _sums(node)
        if _SCALE in derivatives:
            inputs |= {0, _RUNNING_MEAN}
            requests += [_block(node, "product"), *_by_column(node, "mean")]
        if 0 in derivatives:
            inputs |= {_SCALE}
            requests += [_of_channels(node, "factor"), *_by_column(node, "factor")]
        return BackwardNeeds(inputs=frozenset(inputs), scratch=tuple(requests))


def _trains(node: Node) -> bool:
    return bool(node.attributes["training_mode"])


def _of_channels(node: Node, name: str) -> ScratchRequest:
    return scratch(name, (channels_of(node).channels,), node.input(0).dtype)


def _by_column(node: Node, *names: str) -> tuple[ScratchRequest, ...]:
    """Values of each channel, written once for each lane."""
    channels, dtype = channels_of(node), node.input(0).dtype
    wide = names if channels.lanes > 1 else ()
    return tuple(scratch(f"{name}_by_column", (channels.columns,), dtype) for name in wide)


def _sums(node: Node) -> tuple[ScratchRequest, ...]:
    """Scratch for sums in several parts and of several lanes."""
    channels, dtype = channels_of(node), node.input(0).dtype
    names = ("partial", "sums") if channels.lanes > 1 else ("partial",)
    return tuple(scratch(name, (channels.columns,), dtype) for name in names)


def _block(node: Node, name: str) -> ScratchRequest:
    return block(name, node.input(0).elements, node.input(0).dtype)


OPERATORS: tuple[OperationType, ...] = (_BatchNormalization(),)
