"""BatchNormalization: each channel loses its mean and is divided by its deviation (Ioffe and Szegedy, 2015).

X is seen as [outer, channels, positions], of which positions is 1 where the channels come last.

    training_mode=1   statistics of the batch; forward also updates the running mean and variance, two states,
                      running = momentum * running + (1 - momentum) * batch, with the biased variance
    training_mode=0   frozen: the running mean and variance, read only, take the place of the batch's

The default is ONNX's, 0: a graph that trains its normalisation says so. ONNX's second and third output
are the running statistics themselves, updated in place. These have no derivative in either mode.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from solver.graph.ops._shared import block, same_floating
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
from solver.graph.types import TensorType

__all__ = ["INVERSE_DEVIATION", "MEAN", "OPERATORS", "Channels", "channels_of"]

MEAN, INVERSE_DEVIATION = "mean", "inverse_deviation"

_SCALE, _SHIFT, _RUNNING_MEAN, _RUNNING_VARIANCE = 1, 2, 3, 4


@dataclass(frozen=True, slots=True)
class Channels:
    """X as [outer, channels, positions] in its own memory order."""

    outer: int
    channels: int
    positions: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.outer, self.channels, self.positions

    @property
    def count(self) -> int:
        """Elements of a channel."""
        return self.outer * self.positions


def channels_of(node: Node) -> Channels:
    """X as channels. Raises ShapeMismatchError."""
    shape = node.input(0).shape
    if len(shape) < 2:
        raise node.mismatch("expected an input with a batch and channels")
    if node.attributes["data_layout"] == "NHWC":
        return Channels(math.prod(shape[:-1]), shape[-1], 1)
    return Channels(shape[0], shape[1], math.prod(shape[2:]))


class _BatchNormalization(OperationType):
    """X, scale, shift, running mean, running variance."""

    name = "BatchNormalization"
    arity: ClassVar[tuple[int, int]] = (5, 5)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "data_layout": Attribute("string", default="NCHW", choices=("NCHW", "NHWC")),
        "epsilon": Attribute("float", default=1e-5, minimum=0.0),
        "momentum": Attribute("float", default=0.9, minimum=0.0),
        "training_mode": Attribute("int", default=0, choices=(0, 1)),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, range(5))
        wanted = (channels_of(node).channels,)
        if any(node.input(position).shape != wanted for position in range(1, 5)):
            raise node.mismatch(
                f"expected scale, shift, running mean and running variance of shape {list(wanted)}"
            )
        return (node.input(0),)

    def differentiable(self, node: Node) -> frozenset[int]:
        return frozenset({0, _SCALE, _SHIFT})

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return ELEMENTWISE

    def updates(self, node: Node) -> frozenset[int]:
        return frozenset({_RUNNING_MEAN, _RUNNING_VARIANCE}) if _trains(node) else frozenset()

    def saved(self, node: Node) -> tuple[ScratchRequest, ...]:
        return tuple(_of_channels(node, name) for name in (MEAN, INVERSE_DEVIATION)) if _trains(node) else ()

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        factor = _of_channels(node, "factor")
        return (factor, _block(node, "square"), _of_channels(node, "partial")) if _trains(node) else (factor,)

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        """The derivative of X takes two sums over each channel in training, and is affine when frozen."""
        if wanted == {_SHIFT}:
            return BackwardNeeds(scratch=(_of_channels(node, "partial"),))
        if _trains(node):
            names = ("partial", "first", "second") if 0 in wanted else ("partial",)
            return BackwardNeeds(
                inputs=frozenset({0, _SCALE} if 0 in wanted else {0}),
                saved=frozenset({MEAN, INVERSE_DEVIATION}),
                scratch=(_block(node, "product"), *(_of_channels(node, name) for name in names)),
            )
        inputs, requests = {_RUNNING_VARIANCE}, [_of_channels(node, INVERSE_DEVIATION)]
        if wanted & {_SCALE, _SHIFT}:
            requests.append(_of_channels(node, "partial"))
        if _SCALE in wanted:
            inputs |= {0, _RUNNING_MEAN}
            requests.append(_block(node, "product"))
        if 0 in wanted:
            inputs |= {_SCALE}
            requests.append(_of_channels(node, "factor"))
        return BackwardNeeds(inputs=frozenset(inputs), scratch=tuple(requests))


def _trains(node: Node) -> bool:
    return bool(node.attributes["training_mode"])


def _of_channels(node: Node, name: str) -> ScratchRequest:
    return scratch(name, (channels_of(node).channels,), node.input(0).dtype)


def _block(node: Node, name: str) -> ScratchRequest:
    return block(name, node.input(0).elements, node.input(0).dtype)


OPERATORS: tuple[OperationType, ...] = (_BatchNormalization(),)
