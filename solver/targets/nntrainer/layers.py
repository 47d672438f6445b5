"""The layers that nntrainer makes of a graph, and which of them work in place.

    operations                      layers
    Gemm activation=Relu            fully connected, activation      an activation is a layer of its own
    x read by two operations        multi-out behind x               one value, a derivative for each reader
    Softmax, cross entropy          cross entropy with softmax       merged, and so is Sigmoid with binary
    input operand                   input                            the caller's memory

In place, RESTRICTING or not, is nntrainer's own distinction: an activation, or a batch normalisation,
overwrites its input unless a multi-out layer stands before it (perhaps behind a reshape), whose other
readers need the old value. Nor does it overwrite the caller's memory, or what the activation before it
needs for its derivative.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

from solver.graph.nodes import graph_nodes
from solver.graph.ops.base import Node
from solver.graph.types import Operation, Role, TensorType, TrainableGraph
from solver.targets.nntrainer.rules import (
    ACTIVATIONS,
    BY_INPUT,
    IN_PLACE,
    LOSSES,
    RESHAPES,
    Helper,
    check_supported,
    helpers,
    merged_activation,
    trained_weights,
)

__all__ = ["Connection", "InPlace", "Layer", "LayerKind", "layers_of"]


class InPlace(Enum):
    """Whether a layer writes its output over its input, and forbids its successors to do the same."""

    NONE = "none"
    RESTRICTING = "restricting"
    NON_RESTRICTING = "non_restricting"


class LayerKind(Enum):
    """Layers whose tensors live differently."""

    INPUT = "input"
    ORDINARY = "ordinary"
    ACTIVATION = "activation"
    #: An activation whose derivative is a function of its input.
    ACTIVATION_BY_INPUT = "activation_by_input"
    #: Its derivative takes neither input nor output.
    NORMALISATION = "normalisation"
    MULTI_OUT = "multi_out"
    LOSS = "loss"


@dataclass(frozen=True, slots=True)
class Connection:
    """The connection of two layers: buffers of the value and of its derivative.

    `derivative` is None where no derivative exists: behind an input, and behind the loss. `is_kept`
    where the derivative of the layer that defined the value is a function of it.
    """

    value: str
    derivative: str | None
    type: TensorType
    in_place: InPlace = InPlace.NONE
    is_caller: bool = False
    is_kept: bool = False


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. `trainable` decides its ticks: layers without weights count as trainable.

    `states` are weights that the forward function changes, and no gradient does. `helpers` are tensors of
    its own, beside the output.
    """

    id: str
    kernel: str
    kind: LayerKind
    inputs: tuple[Connection, ...]
    outputs: tuple[Connection, ...]
    weights: tuple[str, ...] = ()
    trainable: bool = True
    states: tuple[str, ...] = ()
    helpers: tuple[Helper, ...] = ()


def layers_of(graph: TrainableGraph) -> tuple[Layer, ...]:
    """Layers in topological order. Raises OptionsError for a graph that nntrainer cannot train. Linear."""
    nodes = graph_nodes(graph)
    check_supported(graph, nodes)
    return tuple(_Realisation(graph, nodes).layers())


class _Realisation:
    """Follows the connections through one graph; lives for one call of `layers_of`."""

    def __init__(self, graph: TrainableGraph, nodes: dict[str, Node]) -> None:
        self.graph = graph
        self.nodes = nodes
        self.merged = merged_activation(graph)
        self.readers = self._readers()
        #: Connections not yet taken, by operand.
        self.open: dict[str, list[Connection]] = {}

    def _readers(self) -> Counter[str]:
        """How many layers read each operand, counted as often as they read it."""
        readers = Counter(name for op in self.graph.operations for name in self._data(op))
        if self.merged is not None:
            readers[self.merged.outputs[0]] -= 1
        return readers

    def _data(self, operation: Operation) -> Iterator[str]:
        """Inputs that come from other layers."""
        for name in operation.inputs:
            if name and self.graph.operands[name].role in (Role.INPUT, Role.INTERMEDIATE):
                yield name

    def layers(self) -> Iterator[Layer]:
        for operand in self.graph.operands.values():
            if operand.role is Role.INPUT:
                source = Connection(operand.id, None, operand.type, is_caller=True)
                yield Layer(operand.id, "Input", LayerKind.INPUT, (), (source,))
                yield from self._publish(operand.id, source)
        for operation in self.graph.operations:
            if operation is not self.merged:
                yield from self._operation(operation)

    def _publish(self, name: str, connection: Connection) -> Iterator[Layer]:
        """Hand an output to its readers, through a multi-out layer if there are several."""
        count = self.readers[name]
        self.open[name] = [connection]
        if count > 1:
            branches = [self._branch(connection, name, k) for k in range(count)]
            self.open[name] = branches[::-1]
            yield Layer(f"{name}@multi_out", "MultiOut", LayerKind.MULTI_OUT, (connection,), tuple(branches))

    @staticmethod
    def _branch(connection: Connection, name: str, k: int) -> Connection:
        derivative = None if connection.derivative is None else f"{name}@grad.{k}"
        return replace(connection, derivative=derivative, in_place=InPlace.RESTRICTING)

    def _operation(self, operation: Operation) -> Iterator[Layer]:
        if operation.type in LOSSES:
            yield self._loss(operation)
            return
        layer = self._layer(operation)
        yield layer
        (output,) = layer.outputs
        activation = str(self.nodes[operation.id].attributes.get("activation", "None"))
        if activation != "None":
            overwritten = replace(output, in_place=InPlace.NON_RESTRICTING, is_kept=True)
            identifier = f"{operation.id}@activation"
            yield Layer(identifier, activation, _kind(activation), (output,), (overwritten,))
            output = overwritten
        yield from self._publish(operation.outputs[0], output)

    def _layer(self, operation: Operation) -> Layer:
        inputs = tuple(self.open[name].pop() for name in self._data(operation))
        names = dict.fromkeys(operation.inputs)
        weights, states = (
            tuple(x for x in names if x and self.graph.operands[x].role is role)
            for role in (Role.PARAMETER, Role.STATE)
        )
        return Layer(
            operation.id,
            operation.type,
            _kind(operation.type),
            inputs,
            (self._output(operation.type, operation.outputs[0], inputs),),
            weights,
            trainable=not weights or bool(trained_weights(self.graph, operation)),
            states=states,
            helpers=helpers(self.nodes[operation.id]),
        )

    def _output(self, type_: str, name: str, inputs: tuple[Connection, ...]) -> Connection:
        in_place = _in_place(type_, inputs[0])
        output = replace(inputs[0], in_place=in_place)
        if in_place is InPlace.NONE:
            output = Connection(name, f"{name}@grad", self.graph.operands[name].type)
        return replace(output, is_kept=output.is_kept or type_ in ACTIVATIONS)

    def _loss(self, operation: Operation) -> Layer:
        """The loss layer keeps a prediction as large as its input; the loss itself is a number.

        The label lies where the derivative of that prediction would be: in the caller's memory.
        """
        last = operation if self.merged is None else self.merged
        source = self.open[last.inputs[0]].pop()
        prediction = operation.outputs[0] if self.merged is None else self.merged.outputs[0]
        output = Connection(prediction, None, self.graph.operands[last.inputs[0]].type)
        return Layer(operation.id, operation.type, LayerKind.LOSS, (source,), (output,))


def _kind(type_: str) -> LayerKind:
    if type_ in BY_INPUT:
        return LayerKind.ACTIVATION_BY_INPUT
    if type_ == "BatchNormalization":
        return LayerKind.NORMALISATION
    return LayerKind.ACTIVATION if type_ in ACTIVATIONS else LayerKind.ORDINARY


def _in_place(type_: str, source: Connection) -> InPlace:
    """A reshape always works in place and passes on a restriction; an activation stops at one."""
    restricted = source.in_place is InPlace.RESTRICTING
    if type_ in RESHAPES:
        return InPlace.RESTRICTING if restricted else InPlace.NON_RESTRICTING
    is_free = not restricted and not source.is_caller and not source.is_kept
    return InPlace.NON_RESTRICTING if type_ in IN_PLACE and is_free else InPlace.NONE
