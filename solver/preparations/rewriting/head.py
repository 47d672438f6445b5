"""The head of a classifier, whose logits are computed in chunks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from solver.graph.ops.base import Node
from solver.graph.ops.movement import permuted_axes
from solver.graph.ops.slicing import cut
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
    the logits may be computed in chunks, backward once more. Between product and loss may stand a sum with a
    bias, and what moves rows and keeps classes whole (views, Transpose, Slice): X is then moved in the place
    of the logits. W may be transposed by an operation of its own. Sums are taken in another order. L and P
    are 0 for an ignored class; a mean is then the sum of L - P over the number of the other labels. Not for
    smoothed labels, probabilities, scaled products, or logits that something else reads.
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
    """The operations between X and the loss, and what the product reads; `weight` as `trans_b` says.

    `movements` are those of the operations that move rows of logits, from the product on, each with the axis
    of classes behind it.
    """

    replaced: tuple[Operation, ...]
    movements: tuple[tuple[Operation, int], ...]
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
    replaced, movements = list[Operation](), list[tuple[Operation, int]]()
    name, bias, axis = loss.inputs[0], None, len(around.nodes[loss.id].input(0).shape) - 1
    while True:
        operation = around.feeding(name)
        if operation is None:
            return f"reads {name!r}, which {_other_use(around, name)}"
        node = around.nodes[operation.id]
        replaced.insert(0, operation)
        is_last = axis == len(node.outputs[0].shape) - 1
        if operation.type in ("Gemm", "MatMul") and is_last:
            break
        axis_before = _axis_before(node, axis)
        sides = _bias_of(node) if operation.type == "Add" and bias is None and is_last else None
        if axis_before is not None:
            movements.insert(0, (operation, axis))
            name, axis = operation.inputs[0], axis_before
        elif sides is not None:
            name, bias = sides
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
    return _Head((*replaced, loss), tuple(movements), operation.inputs[0], weight, trans_b, bias)


def _other_use(around: Surroundings, name: str) -> str:
    if around.definition(name) is None:
        return "no operation computes"
    return "is an output" if name in around.kept else "has other readers"


def _axis_before(node: Node, axis: int) -> int | None:
    """The axis of classes in front of an operation that has it at `axis`, and moves nothing along it.

    Nothing where the operation does more.
    """
    before, after = node.input(0).shape, node.outputs[0].shape
    if node.operation.type in _VIEWS:
        is_last = axis == len(after) - 1 and before[-1:] == after[-1:]
        return len(before) - 1 if is_last else None
    if node.operation.type == "Transpose":
        return permuted_axes(node)[axis]
    if node.operation.type == "Slice":
        return axis if cut(node)[axis] == slice(0, before[axis], 1) else None
    return None


def _bias_of(node: Node) -> tuple[str, str] | None:
    """(the other operand, the bias) of an Add of an element for each class; nothing where it does more."""
    for i in (0, 1):
        is_bias = node.outputs[0] == node.input(i) and _is_vector(node.input(1 - i), node.outputs[0])
        if is_bias and node.attributes["activation"] == "None":
            return node.operation.inputs[i], node.operation.inputs[1 - i]
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
    labels = parts.shaped(loss.inputs[1], classes.shape, (rows,), "labels")
    x_type = around.graph.operands[head.x].type
    inner = x_type.shape[-1]
    x, shape = parts.moved(head, inner)
    inputs = [parts.shaped(x, shape, (rows, inner), "x"), head.weight, labels]
    if head.bias is not None:
        bias = around.graph.operands[head.bias].shape
        inputs.append(parts.shaped(head.bias, bias, (columns,), "bias"))
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


def _joined(around: Surroundings, movements: Sequence[tuple[Operation, int]]) -> list[tuple[Operation, int]]:
    """The movements without views at the end or in front of views, and pairs of Transpose as one or none."""
    joined = list[tuple[Operation, int]]()
    perms = list[tuple[int, ...]]()
    for operation, axis in movements:
        previous = joined[-1][0] if joined else None
        if operation.type == "Transpose":
            perm = permuted_axes(around.nodes[operation.id])
            if previous is not None and previous.type == "Transpose":
                first = perms.pop()
                perm = tuple(first[i] for i in perm)
                joined.pop()
            if perm != tuple(range(len(perm))):
                perms.append(perm)
                joined.append((replace(operation, attributes={"perm": perm}), axis))
            continue
        if previous is not None and {previous.type, operation.type} <= _VIEWS:
            joined.pop()
        joined.append((operation, axis))
    while joined and joined[-1][0].type in _VIEWS:
        joined.pop()
    return joined


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

    def moved(self, head: _Head, inner: int) -> tuple[str, tuple[int, ...]]:
        """(X, moved as the head moves its logits, and its shape), but for views at the end."""
        name, shape = head.x, self._around.graph.operands[head.x].shape
        for k, (operation, axis) in enumerate(_joined(self._around, head.movements)):
            logits = self._around.nodes[operation.id].outputs[0].shape
            word, before, shape = f"moved{k}", shape, (*logits[:axis], inner, *logits[axis + 1 :])
            if operation.type in _VIEWS:
                name = self.shaped(name, before, shape, word)
                continue
            result = self.operand(word)
            self.add(operation.type, (name, *operation.inputs[1:]), (result,), word, **operation.attributes)
            name = result
        return name, shape

    def shaped(self, name: str, own: tuple[int, ...], shape: tuple[int, ...], word: str) -> str:
        """An operand in another shape, by a Reshape where its `own` one is another."""
        if own == shape:
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
