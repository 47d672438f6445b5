"""The head of a classifier, whose logits are computed in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from solver.graph.types import Array, AttributeValue, DType, Initializer, Operand, Operation, Role, TensorType
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import Surroundings

__all__ = ["ChunkHead", "why_not"]

#: Same elements, same order, another shape.
_VIEWS = frozenset({"Flatten", "Reshape", "Squeeze", "Unsqueeze"})
_LOSS = "CategoricalCrossEntropy"
#: Numbers of element types in ONNX, as Cast takes them.
_CAST_TO = {DType.FLOAT32: 1, DType.FLOAT64: 11}


class ChunkHead(Rule):
    """Cross-entropy of X W + b = mean or sum of L - P, where (L, P) = ProductLogSumExp(X, W, classes, b).

    The loss of logits z and class c is log sum exp(z) - z[c], so that it takes two numbers of each row, and
    the logits may be computed in chunks, backward once more. Between product and loss may stand views that
    keep the axis of classes, and a sum with a bias; W may be transposed by an operation of its own. Sums are
    taken in another order. L and P are 0 for an ignored class; a mean is then their sum over the number of
    the other labels. Not for smoothed labels, probabilities, scaled products, or logits that something else
    reads.
    """

    name: ClassVar[str] = "chunk-head"
    value: ClassVar[Agreement] = Agreement.ROUNDING
    gradient: ClassVar[Agreement] = Agreement.ROUNDING

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.type != _LOSS:
            return None
        head = _head(around, operation)
        return None if isinstance(head, str) else _edit(around, operation, head)


def why_not(around: Surroundings) -> str:
    """The reason why no loss of the graph has a head that `ChunkHead` takes: a clause for each loss."""
    reasons = [
        f"{operation.id!r} {reason}"
        for operation in around.graph.operations
        if operation.type == _LOSS and isinstance(reason := _head(around, operation), str)
    ]
    return "; ".join(reasons) or f"it has no {_LOSS}"


@dataclass(frozen=True, slots=True)
class _Head:
    """The operations between X and the loss, and what the product reads; `weight` as `trans_b` says."""

    replaced: tuple[Operation, ...]
    x: str
    weight: str
    trans_b: int
    bias: str | None


def _head(around: Surroundings, loss: Operation) -> _Head | str:
    """The head of a loss, or the reason why it has none."""
    attributes = around.nodes[loss.id].attributes
    if not attributes["from_logits"] or not attributes["sparse"]:
        return "does not compare logits with classes by number"
    if attributes["label_smoothing"]:
        return "smooths its labels"
    replaced, name, bias = list[Operation](), loss.inputs[0], None
    while True:
        operation = around.feeding(name)
        if operation is None:
            return f"reads {name!r}, which {_other_use(around, name)}"
        node = around.nodes[operation.id]
        replaced.insert(0, operation)
        sides = _bias_of(around, operation) if operation.type == "Add" and bias is None else None
        if operation.type in _VIEWS and node.input(0).shape[-1:] == node.outputs[0].shape[-1:]:
            name = operation.inputs[0]
        elif sides is not None:
            name, bias = sides
        elif operation.type in ("Gemm", "MatMul"):
            break
        else:
            return f"reads the result of {operation.id!r} ({operation.type}), not of a product with a matrix"
    if not _is_plain(around, operation, bias):
        return (
            f"reads the product {operation.id!r}, which does more than multiply by a matrix and add a vector"
        )
    if len(operation.inputs) > 2 and operation.inputs[2]:
        bias = operation.inputs[2]
    weight, trans_b = operation.inputs[1], around.nodes[operation.id].attributes.get("transB", 0)
    turned = around.feeding(weight)
    if turned is not None and turned.type == "Transpose":
        replaced.insert(0, turned)
        weight, trans_b = turned.inputs[0], 1 - trans_b
    return _Head((*replaced, loss), operation.inputs[0], weight, trans_b, bias)


def _other_use(around: Surroundings, name: str) -> str:
    if around.definition(name) is None:
        return "no operation computes"
    return "is an output" if name in around.kept else "has other readers"


def _bias_of(around: Surroundings, add: Operation) -> tuple[str, str] | None:
    """(the other operand, the bias) of an Add of an element for each class; nothing where it adds more."""
    node = around.nodes[add.id]
    for i in (0, 1):
        if node.outputs[0] == node.input(i) and _is_vector(node.input(1 - i), node.outputs[0]):
            return add.inputs[i], add.inputs[1 - i]
    return None


def _is_vector(bias: TensorType, output: TensorType) -> bool:
    """Whether `bias` has an element for each class, and is broadcast along all other axes."""
    return bias.shape[-1:] == output.shape[-1:] and bias.elements == output.shape[-1]


def _is_plain(around: Surroundings, product: Operation, bias: str | None) -> bool:
    """Whether a product is X W, or X W and a vector, of one matrix W."""
    node = around.nodes[product.id]
    scaled = any(node.attributes.get(name, 1) != 1 for name in ("alpha", "beta"))
    if scaled or node.attributes["activation"] != "None" or node.attributes.get("transA"):
        return False
    if len(node.input(1).shape) != 2:
        return False
    return not node.has_input(2) or (bias is None and _is_vector(node.input(2), node.outputs[0]))


def _edit(around: Surroundings, loss: Operation, head: _Head) -> Edit:
    parts = _Parts(around, loss)
    classes = around.graph.operands[loss.inputs[1]].type
    rows, columns = classes.elements, around.nodes[loss.id].input(0).shape[-1]
    labels = parts.shaped(loss.inputs[1], (rows,), "labels")
    x_type = around.graph.operands[head.x].type
    inputs = [parts.shaped(head.x, (rows, x_type.shape[-1]), "x"), head.weight, labels]
    inputs += [] if head.bias is None else [parts.shaped(head.bias, (columns,), "bias")]
    attributes = around.nodes[loss.id].attributes
    ignored: int | None = attributes.get("ignore_index")
    own: dict[str, AttributeValue] = {"transB": 1} if head.trans_b else {}
    own |= {} if ignored is None else {"ignore_index": ignored}
    log_sums, chosen = parts.operand("log_sums"), parts.operand("chosen")
    parts.add("ProductLogSumExp", inputs, (log_sums, chosen), "head", **own)
    reduction = attributes["reduction"]
    if reduction == "none" and len(classes.shape) == 1:
        parts.add("Sub", (log_sums, chosen), loss.outputs)
        return parts.edit(head)
    losses = parts.operand("losses")
    parts.add("Sub", (log_sums, chosen), (losses,), "losses")
    if reduction == "none":
        parts.add("Reshape", (losses, parts.shape(classes.shape, "shape")), loss.outputs)
    elif reduction == "sum" or ignored is None:
        kind = "ReduceSum" if reduction == "sum" else "ReduceMean"
        parts.add(kind, (losses,), loss.outputs, axes=(0,), keepdims=0)
    else:
        total, count = (
            parts.operand("total"),
            parts.count_of_others(labels, classes.dtype, ignored, x_type.dtype),
        )
        parts.add("ReduceSum", (losses,), (total,), "total", axes=(0,), keepdims=0)
        parts.add("Div", (total, count), loss.outputs)
    return parts.edit(head)


class _Parts:
    """The operations in the place of one loss, as they are put together; the last one has the loss's name."""

    def __init__(self, around: Surroundings, loss: Operation) -> None:
        self._around, self._loss = around, loss
        self._operations, self._constants = list[Operation](), list[Operand]()

    def operand(self, word: str) -> str:
        return self._around.new_operand(f"{self._loss.id}.{word}")

    def add(
        self,
        type_: str,
        inputs: Sequence[str],
        outputs: tuple[str, ...],
        word: str = "",
        **attributes: AttributeValue,
    ) -> None:
        """An operation; without a word of its own it takes the loss's name."""
        own = self._around.new_operation(f"{self._loss.id}.{word}") if word else self._loss.id
        self._operations.append(Operation(own, type_, tuple(inputs), outputs, attributes))

    def shaped(self, name: str, shape: tuple[int, ...], word: str) -> str:
        """An operand in another shape, by a Reshape where it has not got it."""
        if self._around.graph.operands[name].shape == shape:
            return name
        result = self.operand(word)
        self.add("Reshape", (name, self.shape(shape, f"{word}.shape")), (result,), word)
        return result

    def shape(self, shape: tuple[int, ...], word: str) -> str:
        return self._constant(np.array(shape, np.int64), word)

    def count_of_others(self, labels: str, dtype: DType, ignored: int, to: DType) -> str:
        """The number of labels that are not `ignored`, as an operand of type `to`."""
        names = [self.operand(word) for word in ("is_ignored", "counts", "ones", "count")]
        other = self._constant(np.array(ignored, dtype.numpy), "ignored")
        self.add("Equal", (labels, other), (names[0],), "is_ignored")
        self.add("Not", (names[0],), (names[1],), "counts")
        self.add("Cast", (names[1],), (names[2],), "ones", to=_CAST_TO[to])
        self.add("ReduceSum", (names[2],), (names[3],), "count", axes=(0,), keepdims=0)
        return names[3]

    def _constant(self, value: Array, word: str) -> str:
        name = self.operand(word)
        type_ = TensorType(value.shape, DType(value.dtype.name))
        self._constants.append(Operand(name, type_, Role.CONSTANT, Initializer("values", value.tobytes())))
        return name

    def edit(self, head: _Head) -> Edit:
        return Edit(tuple(op.id for op in head.replaced), tuple(self._operations), tuple(self._constants))
