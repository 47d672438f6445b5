"""The layers that nntrainer can train, and the tensors they keep beside inputs, outputs and weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from solver.errors import OptionsError
from solver.graph.ops.base import Node
from solver.graph.ops.recurrent import GATES
from solver.graph.types import DType, Operation, Role, TensorType, TrainableGraph, TrainingRules
from solver.targets.nntrainer.orders import TensorLifespan

__all__ = [
    "ACTIVATIONS",
    "BY_INPUT",
    "IN_PLACE",
    "LOSSES",
    "RESHAPES",
    "Helper",
    "check_supported",
    "helpers",
    "merged_activation",
    "trained_weights",
]

#: Element by element, derivative from the output.
_BY_OUTPUT = frozenset({"Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu"})
_NORMALISATION = "BatchNormalization"
#: They overwrite their input; a normalisation keeps what its derivative takes in a tensor of its own.
IN_PLACE = _BY_OUTPUT | {_NORMALISATION}
#: Derivative from the input, which must not be released, or overwritten, before calcDerivative.
BY_INPUT = frozenset({"Swish", "Gelu"})
ACTIVATIONS = _BY_OUTPUT | BY_INPUT | {"Softmax"}
RESHAPES = frozenset({"Flatten", "Reshape"})
#: Cross entropies -> the activation that becomes part of them.
_CROSS_ENTROPIES = {"CategoricalCrossEntropy": "Softmax", "BinaryCrossEntropy": "Sigmoid"}
LOSSES = frozenset({"MeanSquaredError", *_CROSS_ENTROPIES})

_WEIGHTED = frozenset({"Conv", "Gemm", _NORMALISATION})
_POOLINGS = frozenset({"MaxPool", "AveragePool", "GlobalAveragePool"})
_JOINS = frozenset({"Add", "Concat"})
_OPERATORS = _WEIGHTED | _POOLINGS | _JOINS | ACTIVATIONS | RESHAPES | LOSSES
_OPTIMIZERS = ("SGD", "Adam", "AdamW")
_FUSED = ("None", "Relu", "Sigmoid", "Tanh")


@dataclass(frozen=True, slots=True)
class Helper:
    """A tensor that a layer keeps for itself during some of its functions."""

    name: str
    type: TensorType
    lifespan: TensorLifespan = TensorLifespan.ITERATION


def helpers(node: Node) -> tuple[Helper, ...]:
    """Of a max pooling the positions of the maxima, int32, as many as outputs; of a normalisation the
    deviations, statistics of each channel and their backup, and what its derivative takes for itself."""
    if node.operation.type == "MaxPool":
        return (Helper("helper", TensorType(node.outputs[0].shape, DType.INT32)),)
    if node.operation.type != _NORMALISATION:
        return ()
    whole, channels = node.input(0), node.input(1)
    both = TensorLifespan.FORWARD | TensorLifespan.CALC_DERIV
    return (
        *(Helper(name, channels) for name in ("mean_backup", "variance_backup")),
        Helper("deviation", whole),
        Helper("inverse_deviation", channels),
        Helper("full", whole, TensorLifespan.CALC_DERIV),
        Helper("variance", channels),
        Helper("reduced", channels, both),
    )


def trained_weights(graph: TrainableGraph, operation: Operation) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(operation.inputs) if name in graph.trained)


def merged_activation(graph: TrainableGraph) -> Operation | None:
    """The softmax, or sigmoid, that becomes part of the cross entropy which alone reads it."""
    loss = next(op for op in graph.operations if op.type in LOSSES)
    readers = [op for op in graph.operations if loss.inputs[0] in op.inputs]
    if len(readers) > 1:
        return None
    source = next((op for op in graph.operations if loss.inputs[0] in op.outputs), None)
    return source if source is not None and source.type == _CROSS_ENTROPIES.get(loss.type) else None


# ------------------------------------------------------------------------------------ what it trains


def check_supported(graph: TrainableGraph, nodes: Mapping[str, Node]) -> None:
    """Raise OptionsError, naming the culprit, where nntrainer cannot train the graph."""
    if graph.loss is None or graph.optimizer is None:
        raise _refused("a graph that names no loss or no optimizer")
    if graph.optimizer.type not in _OPTIMIZERS:
        raise _refused(f"with the optimizer {graph.optimizer.type}")
    if replace(graph.training, clip_global_norm=None) != TrainingRules():
        raise _refused("with training rules other than clip_global_norm")
    cell = next((op for op in graph.operations if op.type in GATES), None)
    if cell is not None:
        raise _refused(f"recurrent layers, unrolled as they are here: {cell.id!r} ({cell.type})")
    losses = [op for op in graph.operations if op.type in LOSSES]
    if len(losses) != 1 or losses[0].outputs[0] != graph.loss:
        raise _refused(f"a graph with {len(losses)} loss operations; it needs one, whose output is the loss")
    for operand in graph.operands.values():
        if operand.role is not Role.CONSTANT and operand.dtype is not DType.FLOAT32:
            raise _refused(f"operand {operand.id!r} of type {operand.dtype.value}")
    read = {graph.loss, *(name for op in graph.operations for name in op.inputs)}
    for node in nodes.values():
        unread = [] if read.issuperset(node.operation.outputs) else ["whose output nothing reads"]
        for reason in (*_reasons(graph, node), *unread):
            raise _refused(f"operation {node.operation.id!r} ({node.operation.type}) {reason}")


def _reasons(graph: TrainableGraph, node: Node) -> Iterator[str]:
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
    elif type_ == _NORMALISATION and not node.attributes["training_mode"]:
        yield "by running statistics; it trains with those of the batch"
    elif type_ == "Add" and node.input(0).shape != node.input(1).shape:
        yield "of tensors of two shapes"
    elif type_ in LOSSES:
        yield from _loss_reasons(graph, node)


def _role_reasons(graph: TrainableGraph, node: Node) -> Iterator[str]:
    """Inputs of a layer are outputs of layers; behind them come weights, where a layer has any."""
    operation = node.operation
    roles = [graph.operands[name].role for name in operation.inputs if name]
    data = len(roles) if operation.type in _JOINS else 1
    flowing = (Role.INPUT, Role.INTERMEDIATE)
    if any(role not in flowing for role in roles[:data]):
        yield "of something that is not the output of a layer"
    elif operation.type in _WEIGHTED:
        states = 2 if operation.type == _NORMALISATION else 0
        if roles[1:] != [Role.PARAMETER] * (len(roles) - 1 - states) + [Role.STATE] * states:
            yield "with weights that are not parameters" + (" and running statistics" if states else "")
        trained = trained_weights(graph, operation)
        if trained and len(trained) < len({*operation.inputs[1 : len(roles) - states]} - {""}):
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


def _loss_reasons(graph: TrainableGraph, node: Node) -> Iterator[str]:
    attributes = node.attributes
    if graph.operands[node.operation.inputs[1]].role is not Role.LABEL:
        yield "whose second input is not a label"
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
