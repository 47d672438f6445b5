"""The objective of training: the loss, the values to read, and the parameters that may change."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence

from solver.errors import DanglingOperandError, DuplicateNameError, LossError, TrainableError
from solver.graph.declared import Trainable
from solver.graph.nodes import resolve
from solver.graph.ops import signature
from solver.graph.ops.base import Node
from solver.graph.order import depends_on
from solver.graph.rules import check_rules
from solver.graph.types import (
    DType,
    Graph,
    Operand,
    Operation,
    OptimizerSpec,
    Role,
    TrainableGraph,
    TrainingRules,
    TrainingSpec,
)
from solver.graph.unroll import unrolled

__all__ = ["check_outputs", "with_training"]

_Path = tuple[str | int, ...]
#: Types of quantised elements, and of sums of their products.
_QUANTISED = (DType.INT8, DType.UINT8, DType.INT32)


def with_training(
    graph: Graph,
    *,
    loss: str | Sequence[str] | None,
    optimizer: OptimizerSpec | None,
    trainable: Trainable = "all",
    frozen: Collection[str] = (),
    rules: TrainingRules | None = None,
    max_operations: int,
    paths: Mapping[str, _Path] | None = None,
    nodes: Mapping[str, Node] | None = None,
) -> TrainableGraph:
    """A forward graph with its training spec; sequences are unrolled, at most to `max_operations`.

    `frozen` are parameters that "all" and a count leave out. `paths` lead to operands in a document.
    A graph without a loss is an inference program: nothing of it is trained, and optimizer and rules are
    dropped.
    `nodes` are those of the operations, where they are known; their outputs may be missing.
    Raises LossError, TrainableError, DuplicateNameError, or AttributeRuleError for the rules. Linear.
    """
    defined_by = {name: i for i, operation in enumerate(graph.operations) for name in operation.outputs}
    scalar = _loss(loss, graph.operands, defined_by)
    rules = rules or TrainingRules()
    check_rules(rules)
    if scalar is None:
        _check_inference(trainable, graph)
        spec = TrainingSpec(None, None, ())
    else:
        chosen = _trainable_set(trainable, frozenset(frozen), graph)
        _check_trainable(chosen, scalar, graph, defined_by, paths or {})
        nodes = nodes or {operation.id: resolve(operation, graph.operands) for operation in graph.operations}
        _check_derivatives(chosen, scalar, graph, defined_by, paths or {}, nodes)
        _check_optimizer(chosen, optimizer)
        spec = TrainingSpec(scalar, optimizer, chosen, rules)
    order = range(len(graph.operations))
    operations, operands = unrolled(graph.operations, order, graph.operands, max_operations)
    read = {name for operation in operations for name in operation.inputs} | set(graph.outputs)
    for name in [name for name, o in operands.items() if o.role is Role.CONSTANT and name not in read]:
        del operands[name]  # lengths of sequences that are all whole
    return TrainableGraph(Graph(graph.name, operands, operations, graph.outputs), spec)


def _loss(
    loss: str | Sequence[str] | None, typed: Mapping[str, Operand], defined_by: Mapping[str, int]
) -> str | None:
    if loss is None or not loss:
        return None
    if not isinstance(loss, str):
        if len(loss) > 1:
            raise LossError(
                f"The graph names {len(loss)} losses: {', '.join(map(repr, loss[:4]))}.",
                remedy="Add them up with Add operations and name the sum.",
                path=("loss",),
            )
        loss = loss[0]
    if loss not in defined_by:
        raise LossError(
            f"The loss {loss!r} is not defined by any operation.",
            remedy="Name the output of a loss operation.",
            path=("loss",),
        )
    type_ = typed[loss].type
    if type_.shape != () or not type_.dtype.is_floating:
        raise LossError(
            f"The loss {loss!r} is {type_}, not a floating scalar.",
            remedy='Use reduction "mean" or "sum", or reduce it with ReduceMean.',
            path=("loss",),
        )
    return loss


def _check_inference(trainable: Trainable, graph: Graph) -> None:
    """Checks that a graph without a loss asks for nothing to be trained, and for something to be computed."""
    remedy = "Set `loss` to the scalar operand that training minimises"
    if trainable != "all" and trainable != 0 and (isinstance(trainable, int) or trainable):
        raise LossError(
            "The graph names parameters to train and no loss.",
            remedy=f"{remedy}, or leave `trainable` out for an inference.",
            path=("loss",),
        )
    if not any(graph.operands[name].role is Role.INTERMEDIATE for name in graph.outputs):
        raise LossError(
            "The graph names no loss and no output that an operation defines: nothing is computed.",
            remedy=f"{remedy}, or name the results of an inference in `outputs`.",
            path=("loss",),
        )


def _check_optimizer(chosen: Sequence[str], optimizer: OptimizerSpec | None) -> None:
    if chosen and optimizer is None:
        raise TrainableError(
            f"Parameters are trained, {chosen[0]!r} among them, and the graph names no optimizer.",
            remedy='Set `optimizer`, as {"type": "SGD", "learning_rate": 0.01}; or set `trainable` to [] for'
            " an evaluation.",
            path=("optimizer",),
        )


def check_outputs(outputs: Sequence[str], typed: Mapping[str, Operand]) -> None:
    for k, name in enumerate(outputs):
        if name not in typed:
            raise DanglingOperandError(
                f"Output {name!r} is not an operand of the graph.",
                remedy="Name a defined operand.",
                path=("outputs", k),
            )


def _trainable_set(trainable: Trainable, frozen: Collection[str], graph: Graph) -> tuple[str, ...]:
    """Names of the parameters to train, in order of declaration."""
    parameters = [operand.id for operand in graph.operands.values() if operand.role is Role.PARAMETER]
    free = [name for name in parameters if name not in frozen]
    if trainable == "all" or (isinstance(trainable, int) and trainable < 0):
        return tuple(free)
    if isinstance(trainable, int):
        chosen = _last(trainable, set(free), graph.operations)
    else:
        chosen = set(trainable)
        _check_known(list(trainable), set(parameters))
    return tuple(name for name in parameters if name in chosen)


def _last(count: int, parameters: set[str], ordered: Sequence[Operation]) -> set[str]:
    """The parameters that the last `count` of their readers read (onert's num_of_trainable_ops)."""
    owners = [set(op.inputs) & parameters for op in ordered if set(op.inputs) & parameters]
    return set().union(*owners[max(0, len(owners) - count) :]) if count else set()


def _check_known(names: Sequence[str], parameters: set[str]) -> None:
    seen: set[str] = set()
    for k, name in enumerate(names):
        if name not in parameters:
            raise TrainableError(
                f"Trainable {name!r} is not a parameter of the graph.",
                remedy="Name operands whose role is parameter.",
                path=("trainable", k),
            )
        if name in seen:
            raise DuplicateNameError(
                f"Trainable {name!r} is listed twice.", remedy="List it once.", path=("trainable", k)
            )
        seen.add(name)


def _check_trainable(
    chosen: Sequence[str], loss: str, graph: Graph, defined_by: Mapping[str, int], paths: Mapping[str, _Path]
) -> None:
    """Checks that every trainable is floating and that the loss depends on it."""
    reached = depends_on(loss, graph.operations, defined_by)
    for name in chosen:
        operand = graph.operands[name]
        if not operand.dtype.is_floating:
            raise TrainableError(
                f"Trainable {name!r} is {operand.dtype.value}; only floating parameters can be trained.",
                remedy="Make it a constant, or leave it out of the trainable set.",
                path=paths.get(name, ()),
            )
        if operand.type.storage is not None:
            raise TrainableError(
                f"Trainable {name!r} is stored as {operand.type.storage}, in which nothing is trained.",
                remedy="Leave its storage out, or leave it out of the trainable set.",
                path=paths.get(name, ()),
            )
        if name not in reached:
            raise TrainableError(
                f"Trainable {name!r} does not influence the loss {loss!r}.",
                remedy="Leave it out of the trainable set, or connect it to the loss.",
                path=paths.get(name, ()),
            )


def _check_derivatives(
    chosen: Sequence[str],
    loss: str,
    graph: Graph,
    defined_by: Mapping[str, int],
    paths: Mapping[str, _Path],
    nodes: Mapping[str, Node],
) -> None:
    """Checks that every trainable reaches the loss through inputs that have derivatives."""

    def differentiable(operation: Operation) -> list[str]:
        positions = signature(operation.type).differentiable(nodes[operation.id])
        return [operation.inputs[i] for i in positions]

    _check_forward_only(chosen, loss, graph, defined_by, differentiable, nodes)
    reached = depends_on(loss, graph.operations, defined_by, differentiable)
    for name in chosen:
        if name not in reached:
            raise TrainableError(
                f"The loss {loss!r} has no derivative with respect to trainable {name!r}: it goes only into"
                " conditions, indices, bounds or other integers.",
                remedy="Leave it out of the trainable set, or make it a constant.",
                path=paths.get(name, ()),
            )


def _check_forward_only(
    chosen: Sequence[str],
    loss: str,
    graph: Graph,
    defined_by: Mapping[str, int],
    differentiable: Callable[[Operation], list[str]],
    nodes: Mapping[str, Node],
) -> None:
    """No trainable reaches the loss through an operator that has a forward kernel only."""
    forward_only = {operation.id for operation in graph.operations if signature(operation.type).forward_only}
    if not forward_only:
        return

    def sources(operation: Operation) -> list[str]:
        """Also quantised elements and their sums, which may be moved before they become floats again."""
        if operation.id in forward_only or operation.type == "Cast":
            return [name for name in operation.inputs if name]
        quantised = [name for name in operation.inputs if name and graph.operands[name].dtype in _QUANTISED]
        return [*differentiable(operation), *quantised]

    needed = depends_on(loss, graph.operations, defined_by, sources)
    #: The first trainable that each operand depends on.
    origin = {name: name for name in chosen}
    culprits: list[tuple[Operation, str]] = []
    for operation in graph.operations:
        name = next((origin[source] for source in sources(operation) if source in origin), None)
        if name is None:
            continue
        origin.update(dict.fromkeys(operation.outputs, name))
        if operation.id in forward_only and not needed.isdisjoint(operation.outputs):
            culprits.append((operation, name))
    if not culprits:
        return
    before = {output for operation, _ in culprits for output in operation.outputs}
    for operation in reversed(graph.operations):
        if not before.isdisjoint(operation.outputs):
            before.update(sources(operation))
    rest = ",".join(name for name in chosen if name not in before)
    operation, name = culprits[0]
    last = shlex.quote(culprits[-1][0].outputs[0])
    raise TrainableError(
        f"The derivative of operation {operation.id!r} is needed to train {name!r}, and its operator"
        f" {operation.type} has a forward kernel only: quantised weights and values are not trained.",
        remedy=f"Train only what follows it, as --trainable {shlex.quote(rest)} does for a model file, or"
        f" plan that alone with --freeze-before {last}."
        if rest
        else "Train a part that follows it, or export the model without it.",
        path=("trainable",),
    )
