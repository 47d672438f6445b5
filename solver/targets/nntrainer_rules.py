"""What nntrainer can train, and what its layers keep beside inputs, outputs and weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from solver.errors import OptionsError
from solver.graph.ops.base import Node
from solver.graph.types import DType, Graph, Operation, Role, TensorType, TrainingRules

__all__ = [
    "ACTIVATIONS",
    "BY_INPUT",
    "IN_PLACE",
    "LOSSES",
    "RESHAPES",
    "check_supported",
    "helper_type",
    "merged_activation",
    "trained_weights",
]

#: Element by element, derivative from the output: they overwrite their input.
IN_PLACE = frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu"})
#: Derivative from the input, which must not be released, or overwritten, before calcDerivative.
BY_INPUT = frozenset({"Swish", "Gelu"})
ACTIVATIONS = IN_PLACE | BY_INPUT | {"Softmax"}
RESHAPES = frozenset({"Flatten", "Reshape"})
#: Cross entropies -> the activation that becomes part of them.
_CROSS_ENTROPIES = {"CategoricalCrossEntropy": "Softmax", "BinaryCrossEntropy": "Sigmoid"}
LOSSES = frozenset({"MeanSquaredError", *_CROSS_ENTROPIES})

_WEIGHTED = frozenset({"Conv", "Gemm"})
_POOLINGS = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool"})
_JOINS = frozenset({"Add", "Concat"})
_OPERATORS = _WEIGHTED | _POOLINGS | _JOINS | ACTIVATIONS | RESHAPES | LOSSES
_OPTIMIZERS = ("SGD", "Adam", "AdamW")
_FUSED = ("None", "Relu", "Sigmoid", "Tanh")


def helper_type(node: Node) -> TensorType | None:
    """Positions of the maxima, for a max pooling: int32, as many as outputs."""
    return TensorType(node.outputs[0].shape, DType.INT32) if node.operation.type == "MaxPool" else None


def trained_weights(graph: Graph, operation: Operation) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(operation.inputs) if name in graph.trainable)


def merged_activation(graph: Graph) -> Operation | None:
    """The softmax, or sigmoid, that becomes part of the cross entropy which alone reads it."""
    loss = next(op for op in graph.operations if op.type in LOSSES)
    readers = [op for op in graph.operations if loss.inputs[0] in op.inputs]
    if len(readers) > 1:
        return None
    source = next((op for op in graph.operations if loss.inputs[0] in op.outputs), None)
    return source if source is not None and source.type == _CROSS_ENTROPIES.get(loss.type) else None


# ------------------------------------------------------------------------------------ what it trains


def check_supported(graph: Graph, nodes: Mapping[str, Node]) -> None:
    """Raise OptionsError, naming the culprit, where nntrainer cannot train the graph."""
    if graph.optimizer.type not in _OPTIMIZERS:
        raise _refused(f"with the optimizer {graph.optimizer.type}")
    if replace(graph.training, clip_global_norm=None) != TrainingRules():
        raise _refused("with training rules other than clip_global_norm")
    losses = [op for op in graph.operations if op.type in LOSSES]
    if len(losses) != 1 or losses[0].outputs[0] != graph.loss:
        raise _refused(f"a graph with {len(losses)} loss operations; it needs one, whose output is the loss")
    for operand in graph.operands.values():
        if operand.role is Role.STATE:
            raise _refused(f"operand {operand.id!r} of role state")
        if operand.role is not Role.CONSTANT and operand.dtype is not DType.FLOAT32:
            raise _refused(f"operand {operand.id!r} of type {operand.dtype.value}")
    read = {graph.loss, *(name for op in graph.operations for name in op.inputs)}
    for node in nodes.values():
        unread = [] if read.issuperset(node.operation.outputs) else ["whose output nothing reads"]
        for reason in (*_reasons(graph, node), *unread):
            raise _refused(f"operation {node.operation.id!r} ({node.operation.type}) {reason}")


def _reasons(graph: Graph, node: Node) -> Iterator[str]:
    type_ = node.operation.type
    if type_ not in _OPERATORS:
        yield "of that type"
        return
    if node.attributes.get("activation", "None") not in _FUSED:
        yield f"with the activation {node.attributes['activation']}"
    yield from _role_reasons(graph, node)
    if type_ == "Conv":
        yield from _convolution_reasons(node)
    elif type_ == "Gemm":
        yield from _fully_connected_reasons(node)
    elif type_ == "Add" and node.input(0).shape != node.input(1).shape:
        yield "of tensors of two shapes"
    elif type_ in LOSSES:
        yield from _loss_reasons(graph, node)


def _role_reasons(graph: Graph, node: Node) -> Iterator[str]:
    """Inputs of a layer are outputs of layers; only convolution and fully connected have weights."""
    operation = node.operation
    roles = [graph.operands[name].role for name in operation.inputs if name]
    data = len(roles) if operation.type in _JOINS else 1
    flowing = (Role.INPUT, Role.INTERMEDIATE)
    if any(role not in flowing for role in roles[:data]):
        yield "of something that is not the output of a layer"
    elif operation.type in _WEIGHTED:
        if any(role is not Role.PARAMETER for role in roles[1:]):
            yield "with weights that are not parameters"
        trained = trained_weights(graph, operation)
        if trained and len(trained) < len({*operation.inputs[1:]} - {""}):
            yield f"that trains {', '.join(trained)} alone; it freezes whole layers"


def _convolution_reasons(node: Node) -> Iterator[str]:
    if len(node.input(0).shape) not in (3, 4):
        yield "that is neither one- nor two-dimensional"
    if node.attributes["group"] != 1:
        yield "with groups"


def _fully_connected_reasons(node: Node) -> Iterator[str]:
    if node.attributes["transA"]:
        yield "with its input transposed"
    if node.attributes["alpha"] != 1 or node.attributes["beta"] != 1:
        yield "with a factor alpha or beta"


def _loss_reasons(graph: Graph, node: Node) -> Iterator[str]:
    attributes = node.attributes
    if graph.operands[node.operation.inputs[1]].role is not Role.LABEL:
        yield "whose second input is no label"
    if attributes.get("sparse"):
        yield "with sparse labels"
    if attributes.get("label_smoothing"):
        yield "with label smoothing"
    activation = _CROSS_ENTROPIES.get(node.operation.type)
    if activation and bool(attributes["from_logits"]) == (merged_activation(graph) is not None):
        yield f"of anything but logits, or a {activation} that nothing else reads"


def _refused(what: str) -> OptionsError:
    return OptionsError(
        f"The nntrainer target cannot train {what}.",
        remedy="Plan for the target 'reference'.",
        path=("target",),
    )
