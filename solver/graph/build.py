"""The entry point to a `Graph`: declarations in, a verified and fully typed graph out.

Checks run in the order in which a reader would find them out: names, references, definitions,
cycles, shapes, states, loss, trainable set. Each failure names the culprit and where it stands.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from solver.errors import (
    DanglingOperandError,
    DimensionError,
    DuplicateDefError,
    DuplicateNameError,
    GraphError,
    ShapeMismatchError,
    StateError,
    TooManyOperationsError,
    TrainableError,
    UseBeforeDefError,
)
from solver.graph.declared import MAX_BYTES, DeclaredOperand, Trainable
from solver.graph.nodes import node_with_types
from solver.graph.objective import check_outputs, with_training
from solver.graph.ops import SEQUENCES, signature
from solver.graph.ops.base import Node
from solver.graph.order import topological_order
from solver.graph.packing import check_packed, check_storage
from solver.graph.types import (
    DType,
    Graph,
    Operand,
    Operation,
    OptimizerSpec,
    Role,
    TensorType,
    TrainableGraph,
    TrainingRules,
)
from solver.graph.unroll import unrolled
from solver.names import check_characters

__all__ = ["MAX_OPERATIONS", "DeclaredOperand", "Trainable", "build_graph", "forward_graph", "with_training"]


#: More operations than the largest published training graphs have; a bound on the work of a request.
MAX_OPERATIONS = 20_000


def build_graph(
    name: str,
    operands: Iterable[DeclaredOperand],
    operations: Sequence[Operation],
    *,
    loss: str | Sequence[str] | None,
    optimizer: OptimizerSpec | None,
    trainable: Trainable = "all",
    outputs: Sequence[str] = (),
    training: TrainingRules | None = None,
    max_operations: int = MAX_OPERATIONS,
) -> TrainableGraph:
    """Verify and type a graph together with how it is trained: `forward_graph`, then `with_training`."""
    declared = tuple(operands)
    graph, nodes = _verified(name, declared, operations, outputs, max_operations)
    return with_training(
        graph,
        loss=loss,
        optimizer=optimizer,
        trainable=trainable,
        frozen=[o.id for o in declared if not o.trainable or o.storage is not None],
        rules=training,
        max_operations=max_operations,
        paths={operand.id: operand.path for operand in declared},
        nodes=nodes,
    )


def forward_graph(
    name: str,
    operands: Iterable[DeclaredOperand],
    operations: Sequence[Operation],
    *,
    outputs: Sequence[str] = (),
    max_operations: int = MAX_OPERATIONS,
) -> Graph:
    """Verify and type a forward graph.

    `operations` may come in any order; they are returned topologically sorted, ties in the
    given order. Sequences stay as they are written; `with_training` unrolls them. Raises a subclass of
    GraphError whose `path` leads to the culprit, as ``("operations", 3, "inputs", 0)``. Cost: linear in
    operands and operations.
    """
    return _verified(name, operands, operations, outputs, max_operations)[0]


def _verified(
    name: str,
    operands: Iterable[DeclaredOperand],
    operations: Sequence[Operation],
    outputs: Sequence[str],
    max_operations: int,
) -> tuple[Graph, Mapping[str, Node]]:
    """The graph, and the nodes of its operations, without their outputs."""
    check_characters("graph", name, ("name",))
    _check_count(operations, max_operations)
    declared = _by_name(operands)
    _check_operation_names(operations)
    defined_by = _definitions(declared, operations)
    _check_references(declared, defined_by, operations, outputs)
    order = topological_order(operations, defined_by)
    typed, nodes = _infer(declared, operations, order)
    _check_shape_pairs(declared, typed)
    _check_states(operations, typed, nodes)
    check_outputs(outputs, typed)
    if any(operation.type in SEQUENCES for operation in operations):
        unrolled(operations, order, typed, max_operations)  # what the cells raise is raised here
    return Graph(name, typed, tuple(operations[i] for i in order), tuple(outputs)), nodes


def _check_count(operations: Sequence[Operation], limit: int) -> None:
    if len(operations) > limit:
        raise TooManyOperationsError(
            f"The graph has {len(operations):,} operations; at most {limit:,} are allowed.",
            remedy="Split the graph, or raise the limit where the planner is configured.",
            path=("operations",),
        )
    if not operations:
        raise GraphError(
            "The graph has no operations.",
            remedy="Add the forward operations and a loss.",
            path=("operations",),
        )


def _by_name(operands: Iterable[DeclaredOperand]) -> dict[str, DeclaredOperand]:
    by_name: dict[str, DeclaredOperand] = {}
    for operand in operands:
        _check_name("operand", operand.id, (*operand.path, "name"))
        if operand.id in by_name:
            raise DuplicateNameError(
                f"Operand {operand.id!r} is declared twice.",
                remedy="Names are unique: rename one of them.",
                path=(*operand.path, "name"),
            )
        by_name[operand.id] = operand
    return by_name


def _check_name(what: str, name: str, path: tuple[str | int, ...]) -> None:
    check_characters(what, name, path)
    if not name or "@" in name:
        raise GraphError(
            f"{name!r} cannot name an {what}: names are not empty and contain no '@'.",
            remedy="'@' is reserved for what the planner derives; rename it.",
            path=path,
        )


def _check_operation_names(operations: Sequence[Operation]) -> None:
    seen: set[str] = set()
    for i, operation in enumerate(operations):
        _check_name("operation", operation.id, ("operations", i, "name"))
        if operation.id in seen:
            raise DuplicateNameError(
                f"Operation {operation.id!r} is declared twice.",
                remedy="Names are unique: rename one of them.",
                path=("operations", i, "name"),
            )
        seen.add(operation.id)


def _definitions(declared: Mapping[str, DeclaredOperand], operations: Sequence[Operation]) -> dict[str, int]:
    """Which operation defines each intermediate operand."""
    defined_by: dict[str, int] = {}
    for i, operation in enumerate(operations):
        for k, output in enumerate(operation.outputs):
            path = ("operations", i, "outputs", k)
            if not output and operation.type in SEQUENCES:
                continue
            _check_name("operand", output, path)
            if output in defined_by:
                first = operations[defined_by[output]].id
                raise DuplicateDefError(
                    f"Operand {output!r} is defined twice: by {first!r} and by {operation.id!r}.",
                    remedy="Every operand has one definition: give the second output its own name.",
                    path=path,
                )
            if output in declared and declared[output].role is not Role.INTERMEDIATE:
                raise DuplicateDefError(
                    f"Operation {operation.id!r} defines {output!r}, which is declared as"
                    f" {declared[output].role.value}.",
                    remedy="Only intermediate operands are defined by operations.",
                    path=path,
                )
            defined_by[output] = i
    return defined_by


def _check_references(
    declared: Mapping[str, DeclaredOperand],
    defined_by: Mapping[str, int],
    operations: Sequence[Operation],
    outputs: Sequence[str],
) -> None:
    used: set[str] = set()
    for i, operation in enumerate(operations):
        for k, name in enumerate(operation.inputs):
            if name and name not in defined_by:
                _check_given(name, declared, operation, ("operations", i, "inputs", k))
            used.add(name)
    for operand in declared.values():
        if operand.id in used or operand.id in defined_by:
            continue
        if operand.id in outputs and operand.role is not Role.INTERMEDIATE:
            raise DanglingOperandError(
                f"Output {operand.id!r} ({operand.role.value}) is used by no operation: a plan has no place"
                " for it, and the caller has its contents already.",
                remedy=f"Take {operand.id!r} out of the outputs and out of the operands, or use it in an"
                " operation.",
                path=("outputs", list(outputs).index(operand.id)),
            )
        if operand.role is Role.PARAMETER:
            raise TrainableError(
                f"Parameter {operand.id!r} is used by no operation.",
                remedy="Use it, or take it out of the document.",
                path=operand.path,
            )
        raise DanglingOperandError(
            f"Operand {operand.id!r} ({operand.role.value}) is neither defined nor used.",
            remedy="Use it, or take it out of the document.",
            path=operand.path,
        )


def _check_given(
    name: str,
    declared: Mapping[str, DeclaredOperand],
    operation: Operation,
    path: tuple[str | int, ...],
) -> None:
    """Checks that an operand which no operation defines is declared, with a role that has first values."""
    if name not in declared:
        raise DanglingOperandError(
            f"Operation {operation.id!r} ({operation.type}) reads {name!r}, which nothing defines.",
            remedy="Declare it as an input, label, parameter or constant, or add its operation.",
            path=path,
        )
    if declared[name].role is Role.INTERMEDIATE:
        raise UseBeforeDefError(
            f"Operation {operation.id!r} ({operation.type}) reads {name!r}, which is declared as"
            " intermediate and defined by no operation.",
            remedy="Add the operation that defines it, or declare the role that it has.",
            path=path,
        )


def _infer(
    declared: Mapping[str, DeclaredOperand], operations: Sequence[Operation], order: Sequence[int]
) -> tuple[dict[str, Operand], dict[str, Node]]:
    """Types of all operands, in order of definition; and the nodes of all operations."""
    # Most operands have the type of others: one object for each type is compared and numbered fast.
    alike: dict[TensorType, TensorType] = {}
    typed = {d.id: _declared_operand(d, alike) for d in declared.values() if d.role is not Role.INTERMEDIATE}
    nodes: dict[str, Node] = {}
    for i in order:
        operation = operations[i]
        try:
            nodes[operation.id], types = node_with_types(operation, typed)
        except GraphError as error:
            error.path = ("operations", i, *error.path)
            raise
        for k, (output, type_) in enumerate(zip(operation.outputs, types, strict=True)):
            if not output:
                continue
            _check_bytes(output, type_, ("operations", i, "outputs", k))
            typed[output] = Operand(output, alike.setdefault(type_, type_), Role.INTERMEDIATE)
    return typed, nodes


def _declared_operand(declared: DeclaredOperand, alike: dict[TensorType, TensorType]) -> Operand:
    if declared.shape is None or declared.dtype is None:
        raise DimensionError(
            f"Operand {declared.id!r} ({declared.role.value}) has no shape or dtype.",
            remedy="Only intermediate operands may leave them out.",
            path=declared.path,
        )
    for axis, dimension in enumerate(declared.shape):
        if dimension < 0:
            raise DimensionError(
                f"Operand {declared.id!r} has dimension {dimension} at axis {axis}.",
                remedy="Dimensions are at least 0.",
                path=(*declared.path, "shape", axis),
            )
    if declared.dtype.is_storage:
        raise ShapeMismatchError(
            f"Operand {declared.id!r} is {declared.dtype.value}, in which values are only kept.",
            remedy="Declare it as float32, and plan with the option `storage`.",
            path=(*declared.path, "dtype"),
        )
    type_ = TensorType(declared.shape, declared.dtype)
    if declared.storage is not None:
        check_storage(declared.id, declared.role, type_, declared.storage, declared.path)
        type_ = replace(type_, storage=declared.storage)
    _check_bytes(declared.id, type_, (*declared.path, "shape"))
    _check_values(declared, type_)
    return Operand(declared.id, alike.setdefault(type_, type_), declared.role, declared.initializer)


def _check_bytes(name: str, type_: TensorType, path: tuple[str | int, ...]) -> None:
    if type_.nbytes > MAX_BYTES:
        raise DimensionError(
            f"Operand {name!r} is {type_}: {type_.elements:,} elements, {type_.nbytes:,} bytes; at most"
            f" 2**63 - 1 bytes can be addressed.",
            remedy="Reduce its dimensions.",
            path=path,
        )


def _check_values(declared: DeclaredOperand, type_: TensorType) -> None:
    initializer = declared.initializer
    if declared.role is Role.CONSTANT and initializer is None:
        raise GraphError(
            f"Constant {declared.id!r} has no values.",
            remedy="Give it inline values or a named initializer.",
            path=declared.path,
        )
    if initializer is None or initializer.data is None:
        return
    if type_.storage is not None:
        check_packed(declared.id, initializer.data, type_, (*declared.path, "initializer"))
    elif len(initializer.data) != type_.nbytes:
        raise ShapeMismatchError(
            f"Operand {declared.id!r} is {type_}, {type_.nbytes:,} bytes, but its values decode to"
            f" {len(initializer.data):,} bytes.",
            remedy="Encode exactly the raw little-endian elements in C order.",
            path=(*declared.path, "initializer"),
        )


def _check_shape_pairs(declared: Mapping[str, DeclaredOperand], typed: Mapping[str, Operand]) -> None:
    """Declared shapes of intermediate operands must be the inferred ones."""
    for operand in declared.values():
        if operand.role is not Role.INTERMEDIATE:
            continue
        inferred_type = typed[operand.id].type
        for what, stated, inferred in (
            ("shape", operand.shape, inferred_type.shape),
            ("dtype", operand.dtype, inferred_type.dtype),
        ):
            if stated is not None and stated != inferred:
                raise ShapeMismatchError(
                    f"Operand {operand.id!r} is declared with {what} {_shown(stated)} but its operation"
                    f" defines {_shown(inferred)}.",
                    remedy=f"Correct the declared {what}, or leave it out: it is inferred.",
                    path=(*operand.path, what),
                )


def _shown(value: DType | tuple[int, ...]) -> str:
    return value.value if isinstance(value, DType) else str(list(value))


def _check_states(
    operations: Sequence[Operation], typed: Mapping[str, Operand], nodes: Mapping[str, Node]
) -> None:
    """Checks that operations update states alone, each of which no other input of any operation names.

    Another reader would see the old or the new value, as the execution order has it. States that no
    operation updates may be read anywhere. Raises StateError at the input. Linear.
    """
    readers = Counter(name for operation in operations for name in operation.inputs if name)
    for i, operation in enumerate(operations):
        for k in sorted(signature(operation.type).updates(nodes[operation.id])):
            name, path = operation.inputs[k], ("operations", i, "inputs", k)
            update = f"Operation {operation.id!r} ({operation.type}) updates {name!r} in place"
            if typed[name].role is not Role.STATE:
                raise StateError(
                    f"{update}, whose role is {typed[name].role.value}.",
                    remedy="Declare it with the role state.",
                    path=path,
                )
            if readers[name] > 1:
                raise StateError(
                    f"{update}, and {_other_reader(operations, operation, name)} it.",
                    remedy="A state that is updated is one input of one operation: give each its own.",
                    path=path,
                )


def _other_reader(operations: Sequence[Operation], updater: Operation, name: str) -> str:
    """The other reader of a state, for a sentence."""
    others = (op for op in operations if op is not updater and name in op.inputs)
    other = next(others, None)
    return "another of its inputs is" if other is None else f"operation {other.id!r} ({other.type}) reads"
