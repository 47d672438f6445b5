"""Inference and evaluation: the forward part of a training graph, as the trained network is used.

    Dropout              is left out: its readers read its input
    BatchNormalization   normalises by its running statistics, which are read and no longer updated
    everything else      stays as it is; numbers that the graph itself draws are drawn

Operands keep their names, types and roles, so a parameter or a running statistic is one and the same
persistent value in all three programs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from solver.arguments import checks_arguments
from solver.errors import GraphError, LossError
from solver.graph.ops import signature
from solver.graph.order import depends_on
from solver.graph.types import Graph, Operation, Resizable, Role, TrainableGraph, TrainingSpec

__all__ = ["evaluation", "inference"]

#: Operators that scale or move a mask, or multiply by it.
_OF_MASKS = frozenset({"Mul", "Div", "Reshape", "Expand", "Unsqueeze", "Squeeze", "Transpose", "Flatten"})

#: Inputs of a BatchNormalization that has running statistics.
_WITH_STATISTICS = 5


@checks_arguments
def inference(graph: TrainableGraph) -> TrainableGraph:
    """The forward part that the predictions need, without a loss.

    Its outputs are those of the graph that depend on no label; where no operation defines one of these, the
    operands that the loss compares with labels. Labels stay only where such a prediction depends on them.
    Raises LossError where there is no prediction, GraphError for a random mask that is more than a factor.
    Linear.
    """
    forward = _forward(graph.graph, _predictions(graph))
    spec = TrainingSpec(loss=None, optimizer=None, trainable=())
    return TrainableGraph(forward, spec, _resizable(graph, inference, forward))


@checks_arguments
def evaluation(graph: TrainableGraph) -> TrainableGraph:
    """The forward part that the loss and the outputs need.

    Raises LossError without a loss, GraphError as `inference` does. Linear.
    """
    if graph.loss is None:
        raise LossError(
            "The graph names no loss to evaluate.",
            remedy="Set `loss` to the scalar operand that training minimises, or plan an inference.",
            path=("loss",),
        )
    forward = _forward(graph.graph, graph.outputs, graph.loss)
    spec = TrainingSpec(loss=graph.loss, optimizer=None, trainable=())
    return TrainableGraph(forward, spec, _resizable(graph, evaluation, forward))


@dataclass(frozen=True, slots=True)
class _Resizable:
    """Other sizes of what `purpose` makes of a training graph: made of that graph at these sizes."""

    graph: TrainableGraph
    purpose: Callable[[TrainableGraph], TrainableGraph]
    axes: Mapping[str, tuple[str | None, ...]]

    @property
    def sizes(self) -> Mapping[str, int]:
        return self.graph.sizes

    def at(self, sizes: Mapping[str, int]) -> TrainableGraph:
        return self.purpose(self.graph.at(**sizes))


def _resizable(
    graph: TrainableGraph, purpose: Callable[[TrainableGraph], TrainableGraph], forward: Graph
) -> Resizable | None:
    if graph.resizable is None:
        return None
    axes = {name: axes for name, axes in graph.resizable.axes.items() if name in forward.operands}
    return _Resizable(graph, purpose, axes)


def _forward(graph: Graph, outputs: Collection[str], *more: str) -> Graph:
    """The operations that `outputs` and `more` need, as they are when nothing is trained."""
    results = {*outputs, *more}
    _check_masks(graph, _needed(graph.operations, results))
    operations = _needed([*_untrained(graph.operations, results)], results)
    used = {name for operation in operations for name in (*operation.inputs, *operation.outputs)}
    operands = {name: operand for name, operand in graph.operands.items() if name in used}
    return Graph(graph.name, operands, operations, tuple(name for name in outputs if name in used))


def _untrained(operations: Collection[Operation], results: Collection[str]) -> Iterator[Operation]:
    """The operations in inference mode. Dropout whose output is a result stays, as the identity."""
    source: dict[str, str] = {}
    for operation in operations:
        inputs = tuple(source.get(name, name) for name in operation.inputs)
        changes: Mapping[str, int | float] = {}
        if operation.type == "Dropout":
            (output,) = operation.outputs
            source[output] = inputs[0]
            if output not in results:
                continue
            changes = {"ratio": 0.0}
        elif operation.type == "BatchNormalization" and len(inputs) == _WITH_STATISTICS:
            changes = {"training_mode": 0}
        yield replace(operation, inputs=inputs, attributes={**operation.attributes, **changes})


def _check_masks(graph: Graph, operations: Sequence[Operation]) -> None:
    """Checks that a mask, which is dropout of a constant, is a factor and nothing else.

    Then what is left of it without dropout is the mean of the factor. Raises GraphError for another use, as
    in alpha dropout: nothing says what it comes to when nothing is dropped.
    """
    masks: dict[str, Operation] = {}
    for operation in operations:
        constant = [not name or graph.operands[name].role is Role.CONSTANT for name in operation.inputs]
        if operation.type == "Dropout" and constant == [True]:
            masks[operation.outputs[0]] = operation
        read = [i for i, name in enumerate(operation.inputs) if name in masks]
        if not read:
            continue
        origin = masks[operation.inputs[read[0]]]
        if len(read) > 1 or operation.type not in _OF_MASKS or (read != [0] and operation.type != "Mul"):
            raise GraphError(
                f"Operation {origin.id!r} draws a mask, and {operation.id!r} ({operation.type}) reads it as"
                " more than a factor: nothing says what that is without dropout.",
                remedy="Import the network for inference: without a loss, behind `module.eval()`.",
                path=("operations", graph.operations.index(operation)),
            )
        if all(is_constant for i, is_constant in enumerate(constant) if i not in read):
            masks |= dict.fromkeys(operation.outputs, origin)


def _needed(operations: Collection[Operation], results: Collection[str]) -> tuple[Operation, ...]:
    """The operations that the results depend on, in their order."""
    needed, read = list[Operation](), set(results)
    for operation in reversed([*operations]):
        if not read.isdisjoint(operation.outputs):
            needed.append(operation)
            read.update(filter(None, operation.inputs))
    return tuple(reversed(needed))


def _predictions(graph: TrainableGraph) -> tuple[str, ...]:
    """The outputs of an inference. Raises LossError where there are none."""
    if graph.loss is None:
        return graph.outputs
    labelled = _dependent(graph.graph, Role.LABEL)
    named = [name for name in graph.outputs if name != graph.loss and name not in labelled]
    if any(graph.operands[name].role is Role.INTERMEDIATE for name in named):
        return tuple(named)
    compared = tuple(dict.fromkeys(_compared(graph, graph.loss, labelled)))
    if not compared:
        raise LossError(
            "There is no prediction: the graph names no outputs, and its loss"
            f" {graph.loss!r} compares nothing that an operation defines with a label.",
            remedy="Name the results of an inference in `outputs`.",
            path=("outputs",),
        )
    return compared


def _compared(graph: TrainableGraph, loss: str, labelled: Set[str]) -> Iterator[str]:
    """The operands that the loss compares with labels: in operators that are losses, if there are any.

    Losses that compare with something else, as that of an autoencoder, count where none reads a label.
    """
    defined_by = {name: i for i, operation in enumerate(graph.operations) for name in operation.outputs}
    reached = depends_on(loss, graph.operations, defined_by)
    targets = labelled - _dependent(graph.graph, Role.INPUT, Role.PARAMETER, Role.STATE)

    def predicted(operation: Operation) -> list[str]:
        return [name for name in operation.inputs if name in defined_by and name not in targets]

    def reads_labels(operation: Operation) -> bool:
        return not targets.isdisjoint(operation.inputs)

    before = [operation for operation in graph.operations if not reached.isdisjoint(operation.outputs)]
    losses = [operation for operation in before if signature(operation.type).is_loss]
    if losses:
        for operation in [op for op in losses if reads_labels(op)] or losses:
            yield from predicted(operation)[:1]
        return
    for operation in before:
        if reads_labels(operation):
            yield from (name for name in predicted(operation) if name not in labelled)


def _dependent(graph: Graph, *roles: Role) -> set[str]:
    """The operands of these roles, and all that are computed from them."""
    names = {operand.id for operand in graph.operands.values() if operand.role in roles}
    for operation in graph.operations:
        if not names.isdisjoint(operation.inputs):
            names.update(filter(None, operation.outputs))
    return names
