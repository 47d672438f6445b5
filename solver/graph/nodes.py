"""From an operation and the operands known so far to the `Node` that its family looks at."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.errors import GraphError, ShapeMismatchError, StorageError
from solver.graph.ops import signature
from solver.graph.ops.base import DEFAULT_SCRATCH_BUDGET, Node, Signature
from solver.graph.types import DType, Initializer, Operand, Operation, Role, TensorType, TrainableGraph

__all__ = ["graph_nodes", "node_with_types", "output_types", "resolve", "stored_axes"]


def resolve(
    operation: Operation, operands: Mapping[str, Operand], scratch_budget: int = DEFAULT_SCRATCH_BUDGET
) -> Node:
    """The node of an operation; its outputs are filled in where they are already typed.

    Raises UnknownOperatorError, AttributeRuleError, or ShapeMismatchError for a wrong number of inputs.
    """
    try:
        kind = signature(operation.type)
    except GraphError as error:
        error.path = ("type",)
        raise
    least, most = kind.arity
    if not least <= len(operation.inputs) <= most:
        raise ShapeMismatchError(
            f"Operation {operation.id!r} ({operation.type}) takes {least} to {most} inputs, not"
            f" {len(operation.inputs)}.",
            remedy='Name the operands in the operator\'s order; an optional one that is left out is "".',
            path=("inputs",),
        )
    inputs: list[TensorType | None] = []
    constants: list[tuple[int, ...] | None] = []
    floats: dict[int, tuple[float, ...]] = {}
    for k, name in enumerate(operation.inputs):
        if not name:
            inputs.append(None)
            constants.append(None)
            continue
        operand, must = operands[name], k in kind.constant_inputs
        inputs.append(operand.type)
        # Most inputs are neither.
        is_known = must or operand.role is Role.CONSTANT
        constants.append(_constant(operation, k, operand, must=must) if is_known else None)
        if must and operand.dtype.is_floating and operand.type.storage is None:
            floats[k] = _floats(operand)
    return Node(
        operation=operation,
        inputs=tuple(inputs),
        outputs=tuple([operands[name].type for name in operation.outputs if name in operands]),
        constants=tuple(constants),
        attributes=kind.normalise(operation),
        scratch_budget=scratch_budget,
        floats=floats,
    )


def _floats(operand: Operand) -> tuple[float, ...]:
    data = operand.initializer.data if operand.initializer else None
    return tuple(float(v) for v in np.frombuffer(data or b"", operand.dtype.numpy))


def output_types(operation: Operation, operands: Mapping[str, Operand]) -> tuple[TensorType, ...]:
    """Types of what an operation defines, one for each name in its outputs.

    Raises what `node_with_types` raises.
    """
    return node_with_types(operation, operands)[1]


def node_with_types(
    operation: Operation, operands: Mapping[str, Operand]
) -> tuple[Node, tuple[TensorType, ...]]:
    """The node of an operation, without its outputs, and their types.

    Raises what `resolve` raises, ShapeMismatchError where types or the number of outputs do not fit, and
    GraphError where a constant holds what the operator cannot take.
    """
    node = resolve(operation, operands)
    kind = signature(operation.type)
    count = max(1, len(operation.outputs)) if kind.outputs is None else kind.outputs
    if len(operation.outputs) != count:
        raise ShapeMismatchError(
            f"Operation {operation.id!r} ({operation.type}) has {count} output(s), not"
            f" {len(operation.outputs)}.",
            remedy="Name one operand for each output.",
            path=("outputs",),
        )
    types = kind.infer(node)
    _check_stored(kind, node)
    filled = {
        k: value
        for k, name in enumerate(operation.inputs)
        if name and operands[name].role is Role.CONSTANT and (value := _filled(operands[name])) is not None
    }
    kind.check_filled(node, filled)
    return node, types


def _check_stored(kind: Signature, node: Node) -> None:
    """Raises StorageError for a stored input whose rows the operator's kernels do not take."""
    for position, type_ in enumerate(node.inputs):
        if type_ is None or type_.storage is None:
            continue
        axis, storage = kind.stored_axis(node, position), type_.storage
        if axis == storage.axis:
            continue
        operation, name = node.operation, node.operation.inputs[position]
        reads = "elements alone" if axis is None else f"the rows of axis {axis}"
        remedy = "Leave the storage of this operand out."
        raise StorageError(
            f"Operation {operation.id!r} ({operation.type}) reads {name!r}, which is stored as {storage} with"
            f" its rows along axis {storage.axis}; as input {position} it takes {reads}.",
            remedy=remedy if axis is None else f'Store this operand with "axis": {axis}.',
            path=("inputs", position),
        )


def _filled(operand: Operand) -> int | None:
    """The number that fills a constant of integers by a named scheme, or None."""
    if operand.dtype.is_floating:
        return None
    match operand.initializer:
        case Initializer(kind="zeros"):
            return 0
        case Initializer(kind="ones"):
            return 1
        case Initializer(kind="constant", value=value):
            with np.errstate(invalid="ignore"):  # converted as the first value will be
                return int(np.float64(value).astype(operand.dtype.numpy))
    return None


def _constant(operation: Operation, position: int, operand: Operand, *, must: bool) -> tuple[int, ...] | None:
    values = operand.initializer.data if operand.initializer else None
    known = operand.role is Role.CONSTANT and values is not None
    if known and values is not None and not operand.dtype.is_floating:
        return tuple(int(v) for v in np.frombuffer(values, operand.dtype.numpy))
    if must and not known:
        raise ShapeMismatchError(
            f"Input {position} of operation {operation.id!r} ({operation.type}), {operand.id!r}, must be a"
            " constant with inline values.",
            remedy="Shapes are static here: give the values in the document.",
            path=("inputs", position),
        )
    return None


def graph_nodes(graph: TrainableGraph, scratch_budget: int = DEFAULT_SCRATCH_BUDGET) -> dict[str, Node]:
    """Nodes of all operations of a verified graph, by operation, in its order."""
    return {op.id: resolve(op, graph.operands, scratch_budget) for op in graph.operations}


def stored_axes(graph: TrainableGraph) -> dict[str, int]:
    """Weights that may have a storage, with the axis that has to count its rows.

    These are float32 parameters that are not trained and constants, without a storage so far, of which every
    operation that reads one takes the rows of the same axis. Linear.
    """
    frozen = {
        operand.id
        for operand in graph.operands.values()
        if operand.role in (Role.PARAMETER, Role.CONSTANT)
        and operand.id not in graph.trained
        and operand.id not in graph.fixed_types
        and operand.type == TensorType(operand.shape, DType.FLOAT32)
        and operand.id not in graph.results
    }
    axes: dict[str, set[int | None]] = {}
    for node in graph_nodes(graph).values():
        kind = signature(node.operation.type)
        for position, name in enumerate(node.operation.inputs):
            if name in frozen:
                axes.setdefault(name, set()).add(kind.stored_axis(node, position))
    return {name: axis for name, (axis, *more) in axes.items() if axis is not None and not more}
