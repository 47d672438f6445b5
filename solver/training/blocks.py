"""Explicit programs: block classes, dependencies, lifespans, and the buffers they lead to.

Classes and edges are those of Apache SINGA's scheduler, so that its figures can be compared::

    in ──► add ──► mid ──► multiply ──► out          every arrow into or out of an operation belongs to
           ▲                  ▲                      an edge: (none, add) for `in` and b1, (add, multiply)
    b1 ────┘           in ────┘                      for mid, (none, multiply) for in, (multiply, none)

Edges follow values. Where a block is written again there are orderings besides: the new value has to
wait for the readers of the old one (WAR) and for its writer (WAW).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from solver.graph.ops.base import Node
from solver.graph.types import DType, Operation, TensorType
from solver.program import (
    PURE,
    Access,
    Binding,
    Builder,
    EntryKind,
    Kind,
    Phase,
    Program,
    Space,
    dependencies,
    permission_attributes,
)
from solver.training.block_views import without_views
from solver.training.explicit import BlockOperation, BlockProgram

__all__ = [
    "BlockClass",
    "Carry",
    "Hazard",
    "Ordering",
    "ValueEdge",
    "block_classes",
    "carries",
    "explicit_program",
    "orderings",
    "predecessors",
    "value_edges",
]


class BlockClass(Enum):
    """The use of a block by the program as a whole.

    | class | first touch | later | SINGA's name |
    |---|---|---|---|
    | INPUT | read | never written: data from outside | kInput |
    | PARAM | read | written: carries over to the next iteration | kParam |
    | INTER | written | read: made and used inside | kInter |
    | END | written | never read | kEnd |
    """

    INPUT = "input"
    PARAM = "param"
    INTER = "inter"
    END = "end"


class Hazard(Enum):
    """Why one operation has to follow another."""

    RAW = "read-after-write"
    WAR = "write-after-read"
    WAW = "write-after-write"


@dataclass(frozen=True, slots=True)
class ValueEdge:
    """A value on its way from its writer to a reader, operations by position.

    No `source`: it was there before the iteration. No `target`: nothing reads it in this iteration.
    """

    block: str
    source: int | None
    target: int | None


@dataclass(frozen=True, slots=True)
class Ordering:
    """Operation `target` must follow `source` because of what both do to `block`."""

    hazard: Hazard
    block: str
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Carry:
    """A cycle across iterations: what `writer` leaves is what `readers` find in the next iteration."""

    block: str
    writer: int
    readers: tuple[int, ...]


def block_classes(program: BlockProgram) -> dict[str, BlockClass]:
    """The class of every block, in the order of first touch (reads of an operation come before its writes).

    That order also numbers blocks as SINGA does. Linear.
    """
    program = without_views(program)
    classes: dict[str, BlockClass] = {}
    for operation in program.operations:
        for name in operation.reads:
            if classes.setdefault(name, BlockClass.INPUT) is BlockClass.END:
                classes[name] = BlockClass.INTER
        for name in operation.writes:
            if classes.setdefault(name, BlockClass.END) is BlockClass.INPUT:
                classes[name] = BlockClass.PARAM
    return classes


def value_edges(program: BlockProgram) -> tuple[ValueEdge, ...]:
    """One edge for each value and reader, or for each value alone that has no reader; in order of making.

    SINGA counts the same: a write opens an edge, the first reader closes it, further readers get edges
    of their own. Linear.
    """
    program = without_views(program)
    edges: list[ValueEdge] = []
    writer: dict[str, int] = {}
    unread: dict[str, int] = {}
    for t, operation in enumerate(program.operations):
        for name in operation.reads:
            edge = ValueEdge(name, writer.get(name), t)
            if name in unread:
                edges[unread.pop(name)] = edge
            else:
                edges.append(edge)
        for name in operation.writes:
            unread[name], writer[name] = len(edges), t
            edges.append(ValueEdge(name, t, None))
    return tuple(edges)


def orderings(program: BlockProgram) -> tuple[Ordering, ...]:
    """Every RAW, WAR and WAW dependency between two operations of one iteration.

    A writer that reads the block too follows the writer before by RAW alone. Linear in the result.
    """
    program = without_views(program)
    edges: list[Ordering] = []
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for t, operation in enumerate(program.operations):
        for name in operation.reads:
            if name in writer:
                edges.append(Ordering(Hazard.RAW, name, writer[name], t))
            readers.setdefault(name, []).append(t)
        for name in operation.writes:
            earlier = readers.pop(name, [])
            edges += [Ordering(Hazard.WAR, name, reader, t) for reader in earlier if reader != t]
            if name in writer and t not in earlier:
                edges.append(Ordering(Hazard.WAW, name, writer[name], t))
            writer[name] = t
    return tuple(edges)


def predecessors(program: BlockProgram) -> tuple[frozenset[int], ...]:
    """For each operation the positions of those that it has to follow directly."""
    program = without_views(program)
    return dependencies((o.reads, o.writes) for o in program.operations)


def carries(program: BlockProgram) -> tuple[Carry, ...]:
    """The cycles across iterations: blocks read before they are written, and not fed by the caller."""
    program = without_views(program)
    writer = {name: t for t, operation in enumerate(program.operations) for name in operation.writes}
    readers: dict[str, list[int]] = {}
    for edge in value_edges(program):
        if edge.source is None and edge.target is not None:
            readers.setdefault(edge.block, []).append(edge.target)
    return tuple(
        Carry(name, writer[name], tuple(steps))
        for name, steps in readers.items()
        if name in writer and not program.blocks[name].fed
    )


_KINDS = {
    BlockClass.INPUT: Kind.INPUT,
    BlockClass.PARAM: Kind.PARAMETER,
    BlockClass.INTER: Kind.ACTIVATION,
    BlockClass.END: Kind.RESULT,
}

#: Where the blocks live, before a target says where.
_SPACE = Space("arena", 64)


def explicit_program(program: BlockProgram) -> Program:
    """The program of what a runtime buffered: its own reference. Linear.

    Blocks are numbered in the order of first touch (lazy allocation). What is read before it is written is
    fed by the caller, constant, or carried over; a block that carries over is one value for the whole
    iteration, so that its bytes are kept between the last reader of the old contents and the writer of
    the new ones.
    """
    program = without_views(program)
    builder = Builder(program.name, [_SPACE])
    classes = block_classes(program)
    number = {
        name: builder.value(name, program.blocks[name].type, _KINDS[class_], name)
        for name, class_ in classes.items()
    }
    names = {value: name for name, value in number.items()}
    for name, value in number.items():
        block, class_ = program.blocks[name], classes[name]
        if class_ in (BlockClass.INPUT, BlockClass.PARAM):
            constant = EntryKind.CONSTANT if class_ is BlockClass.INPUT else EntryKind.CARRIED
            builder.entries[value] = EntryKind.FED if block.fed else constant
        if block.kept or builder.entries.get(value) is EntryKind.CARRIED:
            builder.exits[value] = None
    for operation in program.operations:
        bindings = _bindings(operation, number)
        slots = {names[binding.value]: binding.slot for binding in bindings}
        attributes: dict[str, object] = dict(
            permission_attributes({slots[t]: slots[s] for t, s in operation.overwrites})
        )
        attributes |= operation.cost.figures
        if operation.pure:
            attributes[PURE] = True
        if operation.workspace:
            label = f"{operation.name}.workspace"
            type_ = TensorType((operation.workspace,), DType.UINT8)
            value = builder.value(_free(label, number), type_, Kind.SCRATCH, operation.name)
            bindings.append(Binding("workspace", value, Access.SCRATCH))
        node = Node(Operation(operation.name, operation.kernel, (), ()), (), (), (), attributes)
        builder.step(builder.operation(node), Phase.EXPLICIT, bindings)
    return builder.finish()


def _free(label: str, taken: Collection[str]) -> str:
    """A label that no block has."""
    while label in taken:
        label += "_"
    return label


def _bindings(operation: BlockOperation, number: dict[str, int]) -> list[Binding]:
    reads, writes = set(operation.reads), set(operation.writes)
    bindings = []
    for i, name in enumerate(operation.reads):
        access, slot = (Access.UPDATE, f"u{i}") if name in writes else (Access.READ, f"r{i}")
        bindings.append(Binding(slot, number[name], access))
    for i, name in enumerate(operation.writes):
        if name not in reads:
            bindings.append(Binding(f"w{i}", number[name], Access.WRITE))
    return bindings
