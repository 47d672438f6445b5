"""The operands that onert's training layers read in the backward pass, and the extra tensors they ask for.

onert is the training runtime of Samsung ONE; the rules are those of release 0.1.0, and of the draft
that hands extra tensors to the memory planner. Sizes are bytes of the layer's own operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from solver.errors import OptionsError
from solver.graph.ops.base import Node
from solver.graph.types import DType, Role, TensorType, TrainableGraph, TrainingRules

__all__ = [
    "DEPTHWISE_THREADS",
    "ExtraTensor",
    "backward_reads",
    "check_supported",
    "extra_tensors",
    "is_loss",
    "runtime_type",
]

_WEIGHTED = frozenset({"Conv", "Gemm"})
_BINARY = frozenset({"Add", "Sub", "Mul", "Div"})
_LOSSES = frozenset({"MeanSquaredError", "CategoricalCrossEntropy"})
#: Layers whose derivative is a function of their output.
_BY_OUTPUT = frozenset({"Relu", "Clip", "Softmax"})
#: Layers that read nothing but the derivative of their output.
_BY_DERIVATIVE = frozenset({"MaxPool", "AveragePool", "Reshape", "Flatten", "ReduceMean", "Pad"})

_OPERATORS = _WEIGHTED | _BINARY | _LOSSES | _BY_OUTPUT | _BY_DERIVATIVE
_OPTIMIZERS = ("SGD", "Adam")
_ACTIVATIONS = ("None", "Relu", "Relu6")

#: Threads that a depthwise convolution keeps buffers for: two workers and the caller. The runtime has
#: a worker for each core, and its published totals were measured with two.
DEPTHWISE_THREADS = 3


@dataclass(frozen=True, slots=True)
class ExtraTensor:
    """Memory of one layer beside its operands.

    `from_forward` tensors carry something from the forward to the backward pass of the layer, the
    others mean nothing outside its backward pass. The draft leaves those that are not `planned`
    to the layer.
    """

    name: str
    type: TensorType
    from_forward: bool = False
    planned: bool = True


def is_loss(node: Node) -> bool:
    return node.operation.type in _LOSSES


def runtime_type(type_: TensorType) -> TensorType:
    """The type that the runtime's model format stores: shapes, pads and axes are int32 there."""
    return TensorType(type_.shape, DType.INT32) if type_.dtype is DType.INT64 else type_


def backward_reads(node: Node) -> tuple[str, ...]:
    """Values that the backward pass of a layer reads, in order: X and W or both operands, then Y."""
    operation = node.operation
    both_inputs = operation.type in _WEIGHTED | _BINARY | _LOSSES
    fused = _has_activation(node) and operation.type in _WEIGHTED | _BINARY
    inputs = operation.inputs[:2] if both_inputs else ()
    outputs = operation.outputs if fused or operation.type in _BY_OUTPUT else ()
    return (*inputs, *outputs)


def extra_tensors(node: Node) -> tuple[ExtraTensor, ...]:
    """Extra tensors of a layer, in the order of its requests."""
    rules = {"Conv": _convolution, "Gemm": _fully_connected, "MaxPool": _pooling, "AveragePool": _pooling}
    rule = rules.get(node.operation.type)
    return tuple(rule(node)) if rule else ()


def _has_activation(node: Node) -> bool:
    return str(node.attributes.get("activation", "None")) != "None"


def _activation_gradient(node: Node, *, planned: bool = True) -> Iterator[ExtraTensor]:
    if _has_activation(node):
        yield ExtraTensor("activation_gradient", node.outputs[0], planned=planned)


def _convolution(node: Node) -> Iterator[ExtraTensor]:
    weight = node.input(1)
    if node.attributes["group"] != 1:
        yield from _depthwise(node)
        return
    yield ExtraTensor("transposed_weights", weight)
    yield ExtraTensor("conv_back_prop", node.outputs[0])
    yield ExtraTensor("transposed_gradient", weight)
    yield from _activation_gradient(node)


def _depthwise(node: Node) -> Iterator[ExtraTensor]:
    """A padded filter for each example, and a filter and one value of each channel for each thread."""
    weight, output = node.input(1), node.outputs[0]
    filters = (("padded_filter", output.shape[0]), ("filter_buffers", DEPTHWISE_THREADS))
    yield from _activation_gradient(node, planned=False)
    for name, count in filters:
        yield ExtraTensor(name, TensorType((count, *weight.shape), weight.dtype), planned=False)
    channels = TensorType((DEPTHWISE_THREADS, weight.shape[0]), weight.dtype)
    yield ExtraTensor("filter_dim_buffers", channels, planned=False)


def _fully_connected(node: Node) -> Iterator[ExtraTensor]:
    yield ExtraTensor("transposed_weights", node.input(1))
    yield ExtraTensor("transposed_input", node.input(0))
    yield ExtraTensor("transposed_back_prop", node.outputs[0])
    yield from _activation_gradient(node)


def _pooling(node: Node) -> Iterator[ExtraTensor]:
    if node.operation.type == "MaxPool":
        yield ExtraTensor("arg_max", node.outputs[0], from_forward=True)
    yield from _activation_gradient(node)


# ------------------------------------------------------------------------------------ what it trains


def check_supported(graph: TrainableGraph, nodes: Mapping[str, Node]) -> None:
    """Raise OptionsError, naming the culprit, where onert cannot train the graph."""
    if graph.loss is None or graph.optimizer is None:
        raise _refused("a graph that names no loss or no optimizer")
    if graph.optimizer.type not in _OPTIMIZERS:
        raise _refused(f"the optimizer {graph.optimizer.type}")
    if graph.training != TrainingRules():
        raise _refused("a graph with training rules")
    losses = [node.operation for node in nodes.values() if is_loss(node)]
    if len(losses) != 1 or losses[0].outputs[0] != graph.loss:
        raise _refused(f"a graph with {len(losses)} loss operations; it needs one, whose output is the loss")
    for operand in graph.operands.values():
        if operand.role is Role.STATE:
            raise _refused(f"operand {operand.id!r} of role state")
        if operand.dtype is DType.FLOAT64:
            raise _refused(f"operand {operand.id!r} of type float64")
    for node in nodes.values():
        for reason in _reasons(node):
            raise _refused(f"operation {node.operation.id!r} ({node.operation.type}) {reason}")


def _reasons(node: Node) -> Iterator[str]:
    if node.operation.type not in _OPERATORS:
        yield "of that type"
    elif node.attributes.get("activation", "None") not in _ACTIVATIONS:
        yield f"with the activation {node.attributes['activation']}"
    elif node.operation.type == "Conv":
        yield from _convolution_reasons(node)
    elif node.operation.type == "Pad" and node.attributes["mode"] != "constant":
        yield f"in mode {node.attributes['mode']!r}"
    elif node.attributes.get("sparse"):
        yield "with sparse labels"
    elif node.attributes.get("reduction") == "none":
        yield "without a reduction"


def _convolution_reasons(node: Node) -> Iterator[str]:
    if len(node.input(0).shape) != 4:
        yield "that is not two-dimensional"
    dilations = node.attributes.get("dilations")
    if dilations and any(dilation != 1 for dilation in dilations):
        yield "with dilation"
    channels = node.input(0).shape[3 if node.attributes["data_layout"] == "NHWC" else 1]
    if node.attributes["group"] not in (1, channels):
        yield "with groups that are neither one nor one for each channel"


def _refused(what: str) -> OptionsError:
    return OptionsError(
        f"The onert target cannot train {what}.",
        remedy="Plan for the target 'reference'.",
        path=("target",),
    )
