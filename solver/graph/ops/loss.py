"""Losses: ordinary operations whose output is what training minimises.

`reduction` is "mean", "sum" (a scalar of shape ()) or "none", which leaves a value for each element,
or each example (CategoricalCrossEntropy, KLDivergence), and so is not a loss to train on by itself. The mean
squared error has "sum_of_means" as well, as onert sums it: of each example the mean, and their sum.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

from solver.graph.ops.base import (
    Attribute,
    BackwardNeeds,
    IndexRange,
    Node,
    OperationType,
    ScratchRequest,
    scratch,
)
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS, bad_attribute, block, same_floating
from solver.graph.types import DType, TensorType

__all__ = ["OPERATORS", "PROBABILITY_EPSILON", "ElementwiseLoss", "block_rows"]

#: Probabilities are raised to this before their logarithm is taken, so that a confident mistake costs
#: about 16.1 and not infinity (and lowered to 1 minus this, where the logarithm of 1 - p is taken). The
#: derivative below it is the one at it: a saturated output still learns. It is Keras's; a graph may give
#: another one where it follows another runtime.
PROBABILITY_EPSILON = 1e-7

_REDUCTION = Attribute("string", default="mean", choices=("mean", "sum", "none"))


def _blocks(total: int, size: int) -> int:
    return -(-total // size)


class ElementwiseLoss(OperationType):
    """A loss for each element of prediction and target, which have one type; "mean" is over all of them."""

    arity: ClassVar[tuple[int, int]] = (2, 2)
    is_loss = True
    attributes: ClassVar[Mapping[str, Attribute]] = {"reduction": _REDUCTION}
    #: Blocks of scratch that kernels take beside the one for the losses, which come first forward.
    forward_blocks: ClassVar[tuple[str, ...]] = ()
    backward_blocks: ClassVar[tuple[str, ...]] = ()

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype = same_floating(node, (0, 1))
        shape = node.input(0).shape
        if shape != node.input(1).shape:
            raise node.mismatch("expected prediction and target of one shape")
        return (TensorType(shape if node.attributes["reduction"] == "none" else (), dtype),)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        elements, dtype = node.input(0).elements, node.input(0).dtype
        requests = [block(name, elements, dtype) for name in self.forward_blocks]
        if node.attributes["reduction"] == "none":
            return tuple(requests)
        requests.append(block("difference", elements, dtype))
        requests.append(scratch("partials", (_blocks(elements, BLOCK_ELEMENTS),), dtype))
        return tuple(requests)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        type_ = node.input(0)
        requests = tuple(block(name, type_.elements, type_.dtype) for name in self.backward_blocks)
        return BackwardNeeds(inputs=frozenset({0, 1}), scratch=requests)


class _MeanSquaredError(ElementwiseLoss):
    """(prediction - target)^2. The first axis are the examples of "sum_of_means"."""

    name = "MeanSquaredError"
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "reduction": replace(_REDUCTION, choices=("mean", "sum", "sum_of_means", "none"))
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        if node.attributes["reduction"] == "sum_of_means" and not node.input(0).shape:
            raise node.mismatch("expected a first axis of examples")
        return super().infer(node)


class _MeanAbsoluteError(ElementwiseLoss):
    """|prediction - target|, also called L1; its derivative at 0 is 0."""

    name = "MeanAbsoluteError"


class _Huber(ElementwiseLoss):
    """d^2 / 2 up to a distance d of `delta`, delta (d - delta / 2) beyond it (Huber, 1964)."""

    name = "Huber"
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "delta": Attribute("float", default=1.0),
        "reduction": _REDUCTION,
    }
    forward_blocks: ClassVar[tuple[str, ...]] = ("clipped",)

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        if not 0 < node.attributes["delta"] < math.inf:
            raise bad_attribute(node, "delta", "must be greater than 0 and finite")
        return super().infer(node)


class _BinaryCrossEntropy(ElementwiseLoss):
    """-(t log p + (1 - t) log(1 - p)), of probabilities or (`from_logits`) of sigmoid(prediction).

    `clamp` says how a probability of 0 or 1 stays finite: "probability" raises p and 1 - p to
    `PROBABILITY_EPSILON`, as Keras does; "logarithm" raises log p and log(1 - p) to -100 and, in the
    derivative of the prediction, p (1 - p) to 1e-12, as PyTorch does. Of logits nothing is cut off.
    """

    name = "BinaryCrossEntropy"
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "from_logits": Attribute("int", default=0, choices=(0, 1)),
        "clamp": Attribute(
            "string", default="probability", choices=("probability", "logarithm"), omit_default=True
        ),
        "reduction": _REDUCTION,
    }
    forward_blocks: ClassVar[tuple[str, ...]] = ("clipped", "work")
    backward_blocks: ClassVar[tuple[str, ...]] = ("clipped",)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        needs = super().backward(node, derivatives)
        return needs if 0 in derivatives else replace(needs, inputs=frozenset({0}))


def block_rows(prediction: TensorType) -> tuple[int, int, int]:
    """(rows, classes, rows of a block) of a prediction seen as [rows, classes]."""
    classes = prediction.shape[-1]
    rows = math.prod(prediction.shape[:-1])
    return rows, classes, max(1, min(rows, BLOCK_ELEMENTS // max(1, classes)))


class _CategoricalCrossEntropy(OperationType):
    """-sum t' log p over the last axis, of probabilities or (`from_logits`) of softmax(prediction).

    t' = (1 - label_smoothing) t + label_smoothing / classes. The target t has the shape of the
    prediction, or is the class of each example (`sparse`, integers). "mean" is over the examples.
    Examples of class `ignore_index`, where one is given, have no loss and no derivative, and are not counted.
    Probabilities below `epsilon` count as `epsilon`; of logits nothing is cut off.
    """

    name = "CategoricalCrossEntropy"
    arity = (2, 2)
    is_loss = True
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "from_logits": Attribute("int", default=0, choices=(0, 1)),
        "sparse": Attribute("int", default=0, choices=(0, 1)),
        "label_smoothing": Attribute("float", default=0.0, minimum=0.0),
        # Its inverse, the largest derivative, is a float32.
        "epsilon": Attribute("float", default=PROBABILITY_EPSILON, minimum=1e-30),
        "ignore_index": Attribute("int", omit_default=True),
        "reduction": _REDUCTION,
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        if node.attributes.get("ignore_index") is not None and not node.attributes["sparse"]:
            raise bad_attribute(node, "ignore_index", "goes with sparse targets only")
        if not node.attributes["label_smoothing"] <= 1:
            raise bad_attribute(node, "label_smoothing", "must be at most 1")
        dtype = same_floating(node, (0,))
        if not node.attributes["epsilon"] < 1:
            raise bad_attribute(node, "epsilon", "must be below 1")
        shape, target = node.input(0).shape, node.input(1)
        if not shape or not shape[-1]:
            raise node.mismatch("expected a prediction with an axis of classes")
        if node.attributes["sparse"]:
            if target.shape != shape[:-1] or target.dtype not in (DType.INT32, DType.INT64):
                raise node.mismatch(f"expected int32 or int64 classes of shape {list(shape[:-1])} as target")
        elif target != node.input(0):
            raise node.mismatch("expected a target of the type and shape of the prediction")
        return (TensorType(shape[:-1] if node.attributes["reduction"] == "none" else (), dtype),)

    def index_ranges(self, node: Node) -> Mapping[int, IndexRange]:
        if not node.attributes.get("sparse"):
            return {}
        most, ignored = node.input(0).shape[-1] - 1, node.attributes.get("ignore_index")
        return {1: IndexRange(node.operation.id, "class label", 0, most, ignored)}

    def _scratch(self, node: Node, *blocks: str, columns: tuple[str, ...]) -> tuple[ScratchRequest, ...]:
        """`blocks` of [rows, classes], `columns` of a value for each row, and room to index sparse labels."""
        _, classes, rows = block_rows(node.input(0))
        dtype = node.input(0).dtype
        requests = [scratch(name, (rows, classes), dtype) for name in blocks]
        requests += [scratch(name, (rows, 1), dtype) for name in columns]
        if node.attributes.get("sparse"):
            requests.append(scratch("index", (rows,), DType.INT64))
        if node.attributes.get("ignore_index") is not None:
            requests.append(scratch("ignored", (rows,), DType.BOOL))
        return tuple(requests)

    def forward_scratch(self, node: Node) -> tuple[ScratchRequest, ...]:
        rows, _, step = block_rows(node.input(0))
        columns = ("statistic", "total") if node.attributes["from_logits"] else ("statistic",)
        requests = self._scratch(node, "logarithm", "smoothed", columns=columns)
        if node.attributes["reduction"] == "none":
            return requests
        return (*requests, scratch("partials", (_blocks(rows, step),), node.input(0).dtype))

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        columns = ("statistic", "total") if node.attributes["from_logits"] else ()
        inputs = frozenset({0, 1}) if 0 in derivatives else frozenset({0})
        return BackwardNeeds(inputs=inputs, scratch=self._scratch(node, "logarithm", columns=columns))


class _KLDivergence(_CategoricalCrossEntropy):
    """sum t (log t - log p) over the last axis, of probabilities or (`from_logits`) of softmax(prediction).

    The target t has the type of the prediction and holds probabilities; where it is 0 the term is 0.
    """

    name = "KLDivergence"
    attributes: ClassVar[Mapping[str, Attribute]] = {
        "from_logits": Attribute("int", default=0, choices=(0, 1)),
        "reduction": _REDUCTION,
    }

    def infer(self, node: Node) -> tuple[TensorType, ...]:
        dtype, shape = same_floating(node, (0,)), node.input(0).shape
        if not shape or not shape[-1]:
            raise node.mismatch("expected a prediction with an axis of classes")
        if node.input(1) != node.input(0):
            raise node.mismatch("expected a target of the type and shape of the prediction")
        return (TensorType(shape[:-1] if node.attributes["reduction"] == "none" else (), dtype),)

    def backward(self, node: Node, derivatives: frozenset[int]) -> BackwardNeeds:
        return replace(super().backward(node, derivatives), inputs=frozenset({0, 1}))


OPERATORS: tuple[OperationType, ...] = (
    *(_MeanSquaredError(), _CategoricalCrossEntropy(), _BinaryCrossEntropy()),
    *(_KLDivergence(), _MeanAbsoluteError(), _Huber()),
)
