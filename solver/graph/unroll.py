"""Sequences of a graph turned into the cells that they stand for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from solver.errors import DuplicateNameError, GraphError, TooManyOperationsError
from solver.graph.nodes import output_types, resolve
from solver.graph.ops import SEQUENCES
from solver.graph.types import Operand, Operation, Role

__all__ = ["unrolled"]


def unrolled(
    operations: Sequence[Operation], order: Sequence[int], operands: Mapping[str, Operand], limit: int
) -> tuple[tuple[Operation, ...], dict[str, Operand]]:
    """The operations in `order`, cells in the place of sequences, and the operands with those between cells.

    Names of what is new begin with the sequence's own and a dot. Raises TooManyOperationsError above `limit`,
    DuplicateNameError where such a name is taken, and what the cells raise; paths lead to the sequence.
    """
    flat: list[Operation] = []
    typed = dict(operands)
    taken = {operation.id for operation in operations}
    for i in order:
        if operations[i].type not in SEQUENCES:
            flat.append(operations[i])
            continue
        try:
            node = resolve(operations[i], typed)
            own = {name for name in operations[i].outputs if name}
            for operation in SEQUENCES[node.operation.type].unroll(node, limit - len(flat)):
                _add(operation, typed, taken, own)
                flat.append(operation)
        except GraphError as error:
            error.path = ("operations", i)
            raise
    if len(flat) > limit:
        raise TooManyOperationsError(
            f"Unrolled over time, the graph has {len(flat):,} operations; at most {limit:,} are allowed.",
            remedy="Cut the sequences, or raise the limit where the planner is configured.",
            path=("operations",),
        )
    return tuple(flat), typed


def _add(operation: Operation, typed: dict[str, Operand], taken: set[str], own: set[str]) -> None:
    """Type an operation of a sequence, in whose `own` outputs are those that no operation has defined yet.

    They have types already. One that is called like an operand between the cells would be defined twice.
    """
    types = output_types(operation, typed)
    for name, type_ in zip(operation.outputs, types, strict=True):
        if name in typed and name not in own:
            raise _taken(name)
        own.discard(name)
        typed[name] = Operand(name, type_, Role.INTERMEDIATE)
    if operation.id in taken:
        raise _taken(operation.id)
    taken.add(operation.id)


def _taken(name: str) -> DuplicateNameError:
    return DuplicateNameError(
        f"A sequence unrolled over time takes the name {name!r}, which is taken.",
        remedy="Rename the sequence, or what else has this name.",
    )
