"""Activations: element-wise functions and softmax. Their backward pass reads Y wherever Y tells the slope.

    Relu Clip Sigmoid Tanh HardSigmoid Softmax LogSoftmax    read Y
    LeakyRelu Elu                                            read Y for alpha > 0, else X
    Clip, inclusive                                          reads X
    Gelu Swish HardSwish PRelu                               read X: one Y may have two slopes

Every kernel treats an element (softmax: a row) in one go, so dY and dX may share memory, and X and Y as well
where X is not read backward. At a kink the derivative is that of the outer piece: 0 at the bounds of Clip and
HardSigmoid, alpha at 0 of LeakyRelu, 1 at 3 of HardSwish.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops.base import (
    ELEMENTWISE,
    Attribute,
    BackwardNeeds,
    InPlace,
    Node,
    OperationType,
    ScratchRequest,
    named,
    scratch,
)
from solver.graph.ops.helpers.elementwise import MASK, Elementwise, blocks
from solver.graph.ops.helpers.shared import (
    BLOCK_ELEMENTS,
    axis_in_range,
    bad_attribute,
    block,
    broadcast_shape,
    same_floating,
)
from solver.graph.types import TensorType

__all__ = ["OPERATORS", "softmax_block"]


class _Clip(Elementwise):
    """Bounds are the attributes `min` and `max` (opset 6) or the scalar inputs 1 and 2 (opset 11).

    Bounds given as inputs are read, never differentiated. X is strictly inside the bounds exactly
    where Y is, hence dX = dY where min < Y < max and 0 elsewhere. With `inclusive`, dX = dY where
    min <= X <= max, as in PyTorch's clamp: that reads X.
    """

    name = "Clip"
    arity = (1, 3)
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "min": Attribute("float"),
        "max": Attribute("float"),
        "inclusive": Attribute("int", default=0, choices=(0, 1), omit_default=True),
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, range(3))
        for position, key in ((1, "min"), (2, "max")):
            if not node.has_input(position):
                continue
            if node.input(position).elements != 1:
                raise node.mismatch(f"expected a scalar for the bound {key!r}")
            if node.attributes[key] is not None:
                raise bad_attribute(node, key, f"is also given as input {position}; give it once")
        return (node.input(0),)

    def differentiable(self, node: Node) -> frozenset[int]:
        return frozenset({0})

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        type_ = node.input(0)
        bounds = frozenset(i for i in (1, 2) if node.has_input(i))
        masks = tuple(block(name, type_.elements, type_.dtype) for name in ("above", "below"))
        if node.attributes.get("inclusive"):
            return BackwardNeeds(inputs=bounds | {0}, scratch=masks)
        return BackwardNeeds(inputs=bounds, outputs=frozenset({0}), scratch=masks)


class _OneSided(Elementwise):
    """X itself where X > 0, something of `alpha` elsewhere: for alpha > 0, Y has the sign of X."""

    def reads_input(self, node: Node) -> bool:
        return not node.attributes["alpha"] > 0

    def forward_blocks(self, node: Node) -> tuple[str, ...]:
        return ("lower",)

    def backward_blocks(self, node: Node) -> tuple[str, ...]:
        return ("factor", MASK)


class _LeakyRelu(_OneSided):
    """X where X > 0, alpha X elsewhere."""

    name = "LeakyRelu"
    attributes: ClassVar[Mapping[str, Attribute]] = {"alpha": Attribute("float", default=0.01)}


class _Elu(_OneSided):
    """X where X > 0, alpha (exp(X) - 1) elsewhere."""

    name = "Elu"
    attributes: ClassVar[Mapping[str, Attribute]] = {"alpha": Attribute("float", default=1.0)}


class _HardSigmoid(Elementwise):
    """alpha X + beta, cut to [0, 1]."""

    name = "HardSigmoid"
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "alpha": Attribute("float", default=0.2),
        "beta": Attribute("float", default=0.5),
    }


class _Gated(Elementwise):
    """X times a gate that opens from 0 to 1. It falls before it rises: the backward step reads X."""

    def reads_input(self, node: Node) -> bool:
        return True

    def forward_blocks(self, node: Node) -> tuple[str, ...]:
        return ("gate",)

    def backward_blocks(self, node: Node) -> tuple[str, ...]:
        return ("factor", "gate")


class _HardSwish(_Gated):
    """X times X / 6 + 1 / 2 cut to [0, 1]."""

    name = "HardSwish"

    def backward_blocks(self, node: Node) -> tuple[str, ...]:
        return ("factor", MASK)


class _Swish(_Gated):
    """X sigmoid(alpha X); with alpha 1, SiLU."""

    name = "Swish"
    attributes: ClassVar[Mapping[str, Attribute]] = {"alpha": Attribute("float", default=1.0)}


class _Gelu(_Gated):
    """X times the normal distribution function of X, `approximate` "tanh" does without erf."""

    name = "Gelu"
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "approximate": Attribute("string", default="none", choices=("none", "tanh"))
    }

    def forward_blocks(self, node: Node) -> tuple[str, ...]:
        if node.attributes["approximate"] == "tanh":
            return ("gate",)
        return ("gate", "argument", "square", "inner", "work", MASK)

    def backward_blocks(self, node: Node) -> tuple[str, ...]:
        if node.attributes["approximate"] == "tanh":
            return ("factor", "slope", "square")
        return ("factor", "argument", "square", "inner", "work", MASK)


class _PRelu(OperationType):
    """X where X > 0, slope X elsewhere; the slope (input 1) is broadcast to X and trained with it."""

    name = "PRelu"
    arity = (2, 2)

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return ELEMENTWISE

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, (0, 1))
        if broadcast_shape(node, node.input(0), node.input(1)) != node.input(0).shape:
            raise node.mismatch("expected a slope that broadcasts to the shape of the input")
        return (node.input(0),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        return blocks(("lower",), node.input(0))

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        requests = blocks(("term", MASK), node.input(0))
        if 1 in derivatives and node.input(1).elements < node.input(0).elements:
            requests += (block("partial", node.input(1).elements, node.input(1).dtype),)
        return BackwardNeeds(inputs=frozenset({0, 1} if 0 in derivatives else {0}), scratch=requests)

    def ignores(self, node: Node, forward: bool, slot: str) -> frozenset[str]:
        return frozenset({"x1"} if slot == "dx1" else ())


def softmax_block(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """(outer, classes, inner) of the block that softmax treats at a time.

    The input is seen as [outer, classes, inner]. A block always spans all classes, so a row with
    more than `BLOCK_ELEMENTS` classes is a block of its own.
    """
    outer, classes, inner = math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])
    columns = min(inner, max(1, BLOCK_ELEMENTS // max(1, classes)))
    return min(outer, max(1, BLOCK_ELEMENTS // max(1, classes * columns))), classes, columns


class _Softmax(OperationType):
    """Softmax along one axis, as since opset 13."""

    name = "Softmax"
    #: Names of what each step needs for a whole block, beside a statistic of each row.
    wide: ClassVar[tuple[str, ...]] = ()
    arity = (1, 1)
    attributes: ClassVar[Mapping[str, Attribute]] = {"axis": Attribute("int", default=-1)}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        same_floating(node, (0,))
        axis_in_range(node, "axis", node.attributes["axis"], len(node.input(0).shape))
        return (node.input(0),)

    def in_place(self, node: Node) -> tuple[InPlace, ...]:
        return ELEMENTWISE

    def _block(self, node: Node) -> tuple[int, int, int]:
        shape = node.input(0).shape
        return softmax_block(shape, node.attributes["axis"] % len(shape))

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        return self._scratch(node, self.wide)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds(outputs=frozenset({0}), scratch=self._scratch(node, ("product",)))

    def _scratch(self, node: Node, wide: tuple[str, ...]) -> tuple[ScratchRequest, ...]:
        outer, classes, inner = self._block(node)
        dtype = node.input(0).dtype
        requests = [scratch(name, (outer * classes * inner,), dtype) for name in wide]
        return (*requests, scratch("statistic", (outer * inner,), dtype))


class _LogSoftmax(_Softmax):
    """The logarithm of softmax, computed as such."""

    name = "LogSoftmax"
    wide: ClassVar[tuple[str, ...]] = ("exponential",)


OPERATORS: tuple[OperationType, ...] = (
    *(*named(Elementwise, "Relu"), _Clip(), *named(Elementwise, "Sigmoid", "Tanh")),
    *(_Softmax(), _LogSoftmax()),
    *(_LeakyRelu(), _Elu(), _HardSigmoid(), _HardSwish(), _Swish(), _Gelu(), _PRelu()),
)
