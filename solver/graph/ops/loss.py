"""Losses: ordinary operations whose output is what training minimises.

`reduction` is "mean", "sum" (a scalar of shape ()) or "none", which leaves a value for each element
(MeanSquaredError) or each example (CategoricalCrossEntropy) and so is no loss to train on by itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from solver.graph.ops._shared import BLOCK_ELEMENTS, bad_attribute, block, same_floating
from solver.graph.ops.base import Attribute, BackwardNeeds, Node, OperationType, ScratchRequest, scratch
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "PROBABILITY_EPSILON", "block_rows"]

#: Probabilities are raised to this before their logarithm is taken, so that a confident mistake costs
#: about 16.1 and not infinity. The derivative below it is the one at it: a saturated output still learns.
PROBABILITY_EPSILON = 1e-7

_REDUCTION = Attribute("string", default="mean", choices=("mean", "sum", "none"))


def _blocks(total: int, size: int) -> int:
    return -(-total // size)


class _MeanSquaredError(OperationType):
    """(prediction - target)^2, its mean or its sum over all elements."""

    name = "MeanSquaredError"
    arity = (2, 2)
    is_loss = True
    attributes: ClassVar[Mapping[str, Attribute]] = {"reduction": _REDUCTION}

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype = same_floating(node, (0, 1))
        shape = node.input(0).shape
        if shape != node.input(1).shape:
            raise node.mismatch("expected prediction and target of one shape")
        return (TensorType(shape if node.attributes["reduction"] == "none" else (), dtype),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        if node.attributes["reduction"] == "none":
            return ()
        elements, dtype = node.input(0).elements, node.input(0).dtype
        partials = scratch("partials", (_blocks(elements, BLOCK_ELEMENTS),), dtype)
        return (block("difference", elements, dtype), partials)

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        return BackwardNeeds(inputs=frozenset({0, 1}))


def block_rows(prediction: TensorType) -> tuple[int, int, int]:
    """(rows, classes, rows of a block) of a prediction seen as [rows, classes]."""
    classes = prediction.shape[-1]
    rows = math.prod(prediction.shape[:-1])
    return rows, classes, min(rows, max(1, BLOCK_ELEMENTS // classes))


class _CategoricalCrossEntropy(OperationType):
    """-sum t' log p over the last axis, of probabilities or (`from_logits`) of softmax(prediction).

    t' = (1 - label_smoothing) t + label_smoothing / classes. The target t has the shape of the
    prediction, or is the class of each example (`sparse`, integers). "mean" is over the examples.
    """

    name = "CategoricalCrossEntropy"
    arity = (2, 2)
    is_loss = True
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "from_logits": Attribute("int", default=0, choices=(0, 1)),
        "sparse": Attribute("int", default=0, choices=(0, 1)),
        "label_smoothing": Attribute("float", default=0.0, minimum=0.0),
        "reduction": _REDUCTION,
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        if not node.attributes["label_smoothing"] <= 1:
            raise bad_attribute(node, "label_smoothing", "must be at most 1")
        dtype = same_floating(node, (0,))
        shape, target = node.input(0).shape, node.input(1)
        if not shape:
            raise node.mismatch("expected a prediction with an axis of classes")
        if node.attributes["sparse"]:
            if target.shape != shape[:-1] or target.dtype not in (DType.INT32, DType.INT64):
                raise node.mismatch(f"expected int32 or int64 classes of shape {list(shape[:-1])} as target")
        elif target != node.input(0):
            raise node.mismatch("expected a target of the type and shape of the prediction")
        return (TensorType(shape[:-1] if node.attributes["reduction"] == "none" else (), dtype),)

    def _scratch(self, node: Node, *blocks: str, columns: tuple[str, ...]) -> tuple[ScratchRequest, ...]:
        """`blocks` of [rows, classes], `columns` of a value for each row, and room to index sparse labels."""
        _, classes, rows = block_rows(node.input(0))
        dtype = node.input(0).dtype
        requests = [scratch(name, (rows, classes), dtype) for name in blocks]
        requests += [scratch(name, (rows, 1), dtype) for name in columns]
        if node.attributes["sparse"]:
            requests.append(scratch("index", (rows,), DType.INT64))
        return tuple(requests)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        rows, _, step = block_rows(node.input(0))
        columns = ("statistic", "total") if node.attributes["from_logits"] else ("statistic",)
        requests = self._scratch(node, "logarithm", "smoothed", columns=columns)
        if node.attributes["reduction"] == "none":
            return requests
        return (*requests, scratch("partials", (_blocks(rows, step),), node.input(0).dtype))

    def backward(self, node: Node, wanted: frozenset[int]) -> BackwardNeeds:
        columns = ("statistic", "total") if node.attributes["from_logits"] else ()
        inputs = frozenset({0, 1}) if 0 in wanted else frozenset({0})
        return BackwardNeeds(inputs=inputs, scratch=self._scratch(node, "logarithm", columns=columns))


OPERATORS: tuple[OperationType, ...] = (_MeanSquaredError(), _CategoricalCrossEntropy())
