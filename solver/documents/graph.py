"""Graph documents: what a trainable graph looks like in JSON, and the way to and from `Graph`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from solver.collector import collector_paused
from solver.documents.floats import word_for
from solver.documents.graph_fields import GraphFields, OperandFields, OptimizerFields, usual_graph
from solver.documents.header import VERSION, read_header
from solver.documents.initializer import initializer_to_dict, to_initializer
from solver.documents.limits import MAX_INTEGER
from solver.documents.parse import to_bytes
from solver.documents.rules import LARGEST_RULES, RULES
from solver.errors import BatchError, DimensionError, DocumentError, GraphError, TrainableError
from solver.graph.build import MAX_OPERATIONS, DeclaredOperand, Trainable, build_graph
from solver.graph.declared import with_batch
from solver.graph.types import (
    DType,
    Initializer,
    Operand,
    Operation,
    OptimizerSpec,
    Role,
    TensorType,
    TrainableGraph,
    TrainingRules,
)
from solver.training.optimizers import optimizer_rules

__all__ = ["FORMAT", "dump_graph", "graph_to_dict", "load_graph"]

FORMAT = "arenaplan.graph"

_Path = tuple[str | int, ...]

_ROLES = {role.value: role for role in Role}
_DTYPES = {dtype.value: dtype for dtype in DType}


@collector_paused()
def load_graph(
    data: bytes | Mapping[str, Any],
    *,
    batch: int | None = None,
    max_operations: int = MAX_OPERATIONS,
    folder: Path | None = None,
) -> TrainableGraph:
    """The verified graph of a document, given as JSON text or as its parsed value.

    `batch` takes the place of the document's own. Files with first values are found from `folder`; without
    one, where they are is not kept, so that nothing reads a file because a document says so. Raises
    DocumentError or a GraphError with the path of the culprit.
    """
    value, _ = read_header(data, format_=FORMAT, versions=(VERSION,))
    document = usual_graph(value)
    if document is None:
        from solver.documents.graph_models import read_graph

        document = read_graph(value)
    size = _batch(document, batch)
    return build_graph(
        document.name,
        _all_declared(document, size, folder),
        document.operations,
        loss=document.loss,
        optimizer=_optimizer_spec(document.optimizer),
        trainable=_trainable_set(document),
        outputs=document.outputs,
        training=document.training,
        max_operations=max_operations,
    )


def _all_declared(document: GraphFields, batch: int | None, folder: Path | None) -> list[DeclaredOperand]:
    """The operands. Raises DocumentError where all constants by rule together are too large."""
    declared, by_rule = [], 0
    for i, operand in enumerate(document.operands):
        declared.append(_declared(operand, batch, ("operands", i), folder))
        initializer = declared[-1].initializer
        if operand.initializer is not None and operand.initializer.kind in RULES and initializer is not None:
            by_rule += len(initializer.data or b"")
        if by_rule > LARGEST_RULES:
            raise DocumentError(
                f"With operand {operand.name!r} the constants by rule exceed {LARGEST_RULES:,} bytes.",
                remedy="Let operations share them, or keep their elements in files.",
                path=("operands", i, "initializer"),
            )
    return declared


def _batch(document: GraphFields, override: int | None) -> int | None:
    value = document.batch if override is None else override
    if value is not None and not 1 <= value <= MAX_INTEGER:
        raise BatchError(
            f"The batch is {value}.", remedy="Give a positive number of examples.", path=("batch",)
        )
    symbolic = any("batch" in (operand.shape or ()) for operand in document.operands)
    if override is not None and not symbolic and override not in _fixed_batches(document):
        raise BatchError(
            f"A batch of {override} is asked for, but no shape of the graph is symbolic.",
            remedy='Write "batch" for the dimension that counts examples, or ask for no batch.',
            path=("batch",),
        )
    return value


def _fixed_batches(document: GraphFields) -> set[int | str]:
    """The first dimensions of the inputs. A mask or a table may be an input without a batch of its own."""
    return {
        operand.shape[0]
        for operand in document.operands
        if operand.role == Role.INPUT.value and operand.shape
    }


def _declared(operand: OperandFields, batch: int | None, path: _Path, folder: Path | None) -> DeclaredOperand:
    role = _ROLES[operand.role]
    if operand.trainable is not None and role is not Role.PARAMETER:
        raise DocumentError(
            f"Operand {operand.name!r} ({role.value}) says whether it is trainable; only parameters are.",
            remedy="Leave trainable out.",
            path=(*path, "trainable"),
        )
    shape = None if operand.shape is None else with_batch(operand.shape, batch, (*path, "shape"))
    dtype = None if operand.dtype is None else _DTYPES[operand.dtype]
    _check_dimensions(operand.name, shape or (), (*path, "shape"))
    initializer = _initializer(operand, role, shape, dtype, (*path, "initializer"))
    if initializer is not None and initializer.file is not None:
        place = "" if folder is None else str(folder / initializer.file.path)
        initializer = replace(initializer, file=replace(initializer.file, path=place))
    return DeclaredOperand(
        operand.name, role, shape, dtype, initializer, operand.trainable is not False, path
    )


def _check_dimensions(name: str, shape: Sequence[int], path: _Path) -> None:
    """Before anything is multiplied: what does not fit a 64-bit integer is refused."""
    for axis, dimension in enumerate(shape):
        if not 0 <= dimension <= MAX_INTEGER:
            shown = dimension if abs(dimension) <= MAX_INTEGER else "beyond 2**63 - 1"
            raise DimensionError(
                f"Operand {name!r} has dimension {shown} at axis {axis}.",
                remedy="Dimensions are integers from 0 to 2**63 - 1.",
                path=(*path, axis),
            )


def _initializer(
    operand: OperandFields, role: Role, shape: tuple[int, ...] | None, dtype: DType | None, path: _Path
) -> Initializer | None:
    if operand.initializer is None:
        return None
    if role not in (Role.PARAMETER, Role.STATE, Role.CONSTANT):
        raise DocumentError(
            f"Operand {operand.name!r} ({role.value}) has an initializer.",
            remedy="Only parameters, states and constants have first values.",
            path=path,
        )
    if shape is None or dtype is None:
        return None  # build_graph refuses the operand
    return to_initializer(operand.initializer, operand.name, TensorType(shape, dtype), path)


def _optimizer_spec(document: OptimizerFields) -> OptimizerSpec:
    """Checked here, where paths into the document are known; the rules are the optimizers' own."""
    spec = OptimizerSpec(document.type, document.parameters)
    try:
        optimizer_rules(spec)
    except GraphError as error:
        error.path = tuple(part for part in error.path if part != "attributes")
        raise
    return spec


def _trainable_set(document: GraphFields) -> Trainable:
    if isinstance(document.trainable, int | str):
        return document.trainable
    frozen = {operand.name for operand in document.operands if operand.trainable is False}
    for k, name in enumerate(document.trainable):
        if name in frozen:
            raise TrainableError(
                f"{name!r} is in the trainable set, and its operand says that it is not trainable.",
                remedy="Correct one of the two.",
                path=("trainable", k),
            )
    return tuple(document.trainable)


def dump_graph(graph: TrainableGraph, *, indent: int | None = None) -> bytes:
    """The document of a graph, shapes concrete. `load_graph` gives the same graph back."""
    return to_bytes(graph_to_dict(graph), indent=indent)


def graph_to_dict(graph: TrainableGraph) -> dict[str, Any]:
    """Intermediate operands are left out: their types follow from the operations. So are usual rules."""
    declared = [o for o in graph.operands.values() if o.role is not Role.INTERMEDIATE]
    rules = {k: v for k, v in asdict(graph.training).items() if v != getattr(TrainingRules(), k)}
    found = {
        "format": FORMAT,
        "version": 1,
        "name": graph.name,
        "operands": _operands_to_dicts(declared),
        "operations": [_operation_to_dict(operation) for operation in graph.operations],
        "loss": graph.loss,
        "optimizer": {
            "type": graph.optimizer.type,
            **{k: word_for(v) for k, v in graph.optimizer.attributes.items()},
        },
        "trainable": list(graph.trainable),
        "outputs": list(graph.outputs),
    }
    return found | {"training": rules} if rules else found


def _operands_to_dicts(operands: Sequence[Operand]) -> list[dict[str, Any]]:
    """Constants by rule, as far as a reader takes them."""
    dicts, by_rule = [], 0
    for operand in operands:
        is_constant = operand.role is Role.CONSTANT and by_rule + operand.type.nbytes <= LARGEST_RULES
        dicts.append(_operand_to_dict(operand, operand.type if is_constant else None))
        if dicts[-1].get("initializer", {}).get("kind") in RULES:
            by_rule += operand.type.nbytes
    return dicts


def _operand_to_dict(operand: Operand, rule_type: TensorType | None) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": operand.id,
        "role": operand.role.value,
        "shape": list(operand.shape),
        "dtype": operand.dtype.value,
    }
    if operand.initializer is not None:
        found["initializer"] = initializer_to_dict(operand.initializer, rule_type)
    return found


def _operation_to_dict(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = {
        "name": operation.id,
        "type": operation.type,
        "inputs": list(operation.inputs),
        "outputs": list(operation.outputs),
    }
    if operation.attributes:
        found["attributes"] = {key: word_for(value) for key, value in operation.attributes.items()}
    return found
