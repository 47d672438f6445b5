"""Edits become a graph: types follow, names are kept, operands that nothing reads any more go."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from solver.graph import output_types
from solver.graph.types import Operand, Operation, Role, TrainableGraph
from solver.preparations.rewriting.rule import Edit

__all__ = ["apply"]


def apply(graph: TrainableGraph, edits: Sequence[Edit]) -> TrainableGraph:
    """`graph` with edits that replace different operations; linear.

    Operations stay in a topological order: what is new stands where the anchor stood, behind all that
    it reads.
    """
    operations = tuple(_operations(graph, edits))
    new = {operand.id: operand for edit in edits for operand in edit.constants}
    return graph.with_graph(operands=_operands(graph, operations, new), operations=operations)


def _operations(graph: TrainableGraph, edits: Sequence[Edit]) -> Iterable[Operation]:
    gone = {name for edit in edits for name in edit.replaced}
    standing = {edit.anchor: edit.operations for edit in edits}
    renamed = dict(chain.from_iterable(edit.renamed.items() for edit in edits))
    for operation in graph.operations:
        kept = () if operation.id in gone else (operation,)
        for one in standing.get(operation.id, kept):
            inputs = tuple([_final(name, renamed) for name in one.inputs])
            yield one if inputs == one.inputs else replace(one, inputs=inputs)


def _final(name: str, renamed: Mapping[str, str]) -> str:
    while name in renamed:
        name = renamed[name]
    return name


def _operands(
    graph: TrainableGraph, operations: Sequence[Operation], new: Mapping[str, Operand]
) -> dict[str, Operand]:
    """Operands in the order that a graph has: those that are given, then those that are computed.

    Where an operation stays with all that it reads, its results stay.
    """
    read = {name for operation in operations for name in operation.inputs}
    sources = [
        operand
        for operand in (*graph.operands.values(), *new.values())
        if operand.role is not Role.INTERMEDIATE and operand.id in read
    ]
    operands = {operand.id: operand for operand in sources}
    before, standing = graph.operands, set(map(id, graph.operations))
    for operation in operations:
        if id(operation) in standing and all(operands[n] is before[n] for n in operation.inputs if n):
            operands.update((name, before[name]) for name in operation.outputs)
            continue
        types = output_types(operation, operands)
        for name, type_ in zip(operation.outputs, types, strict=True):
            operands[name] = Operand(name, type_, Role.INTERMEDIATE)
    return operands
