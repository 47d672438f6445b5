"""Explicit programs: block classes, dependencies, lifespans, and the buffers they lead to.

Classes and edges are those of Apache SINGA's scheduler, so that its figures can be compared::

    in ──► add ──► mid ──► multiply ──► out          every arrow into or out of an operation belongs to
           ▲                  ▲                      an edge: (none, add) for `in` and b1, (add, multiply)
    b1 ────┘           in ────┘                      for mid, (none, multiply) for in, (multiply, none)

Edges follow values. Where a block is written again there are orderings besides: the new value has to
wait for the readers of the old one (WAR) and for its writer (WAW).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from solver.errors import DimensionError
from solver.layout import Lifespan
from solver.layout.model.problem import MAX_BYTES
from solver.liveness.dependencies import dependencies
from solver.targets import Pool, TargetBuffer, TargetPlan, reference
from solver.targets.pools import TargetStep
from solver.training.explicit import Block, BlockOperation, BlockProgram
from solver.training.program import Lifetime, OperandKind

__all__ = [
    "BlockClass",
    "Carry",
    "Hazard",
    "Ordering",
    "ValueEdge",
    "analyze_blocks",
    "block_classes",
    "block_lifespans",
    "carries",
    "orderings",
    "predecessors",
    "value_edges",
]


class BlockClass(Enum):
    """How the program as a whole uses a block.

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
    found: dict[str, BlockClass] = {}
    for operation in program.operations:
        for name in operation.reads:
            if found.setdefault(name, BlockClass.INPUT) is BlockClass.END:
                found[name] = BlockClass.INTER
        for name in operation.writes:
            if found.setdefault(name, BlockClass.END) is BlockClass.INPUT:
                found[name] = BlockClass.PARAM
    return found


def value_edges(program: BlockProgram) -> tuple[ValueEdge, ...]:
    """One edge for each value and reader, or for each value alone that has no reader; in order of making.

    SINGA counts the same: a write opens an edge, the first reader closes it, further readers get edges
    of their own. Linear.
    """
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
    found: list[Ordering] = []
    writer: dict[str, int] = {}
    readers: dict[str, list[int]] = {}
    for t, operation in enumerate(program.operations):
        for name in operation.reads:
            if name in writer:
                found.append(Ordering(Hazard.RAW, name, writer[name], t))
            readers.setdefault(name, []).append(t)
        for name in operation.writes:
            earlier = readers.pop(name, [])
            found += [Ordering(Hazard.WAR, name, reader, t) for reader in earlier if reader != t]
            if name in writer and t not in earlier:
                found.append(Ordering(Hazard.WAW, name, writer[name], t))
            writer[name] = t
    return tuple(found)


def predecessors(program: BlockProgram) -> tuple[frozenset[int], ...]:
    """For each operation the positions of those that it has to follow directly."""
    return dependencies((o.reads, o.writes) for o in program.operations)


def carries(program: BlockProgram) -> tuple[Carry, ...]:
    """The cycles across iterations: blocks read before they are written, and not fed by the caller."""
    writer = {name: t for t, operation in enumerate(program.operations) for name in operation.writes}
    readers: dict[str, list[int]] = {}
    for edge in value_edges(program):
        if edge.source is None and edge.target is not None:
            readers.setdefault(edge.block, []).append(edge.target)
    return tuple(
        Carry(name, writer[name], tuple(found))
        for name, found in readers.items()
        if name in writer and not program.blocks[name].fed
    )


def block_lifespans(program: BlockProgram) -> dict[str, Lifespan]:
    """Half-open lifespan of every block, in the order of first touch; in operations or waves. Linear.

    | block | lifespan |
    |---|---|
    | INPUT or PARAM | the whole iteration |
    | INPUT or PARAM, fed | from 0 to its last touch |
    | INTER or END | from its first touch (lazy allocation) to its last |
    | any, kept | to the end |

    A block that carries over is dead between the last reader of the old value and the first writer of
    the new one. It keeps its bytes all the same: a buffer has one interval, and an update in place, the
    usual case, leaves no gap between the two.
    """
    last = {name: t for t, operation in _timed(program) for name in operation.touched}
    first = _first_touches(program)
    classes = block_classes(program)
    found: dict[str, Lifespan] = {}
    for name, class_ in classes.items():
        lifetime = _lifetime(program.blocks[name], class_)
        start = first[name] if class_ in (BlockClass.INTER, BlockClass.END) else 0
        end = program.duration if lifetime.outlives_iteration else last[name] + 1
        found[name] = Lifespan(start, end)
    return found


def _first_touches(program: BlockProgram) -> Mapping[str, int]:
    first: dict[str, int] = {}
    for t, operation in _timed(program):
        for name in operation.touched:
            first.setdefault(name, t)
    return first


def _timed(program: BlockProgram) -> Iterator[tuple[int, BlockOperation]]:
    return zip(program.times, program.operations, strict=True)


def _lifetime(block: Block, class_: BlockClass) -> Lifetime:
    if class_ in (BlockClass.INPUT, BlockClass.PARAM) and not block.fed:
        return Lifetime.MAX
    return Lifetime.EPOCH if block.kept else Lifetime.ITERATION


_KINDS = {
    BlockClass.INPUT: OperandKind.INPUT,
    BlockClass.PARAM: OperandKind.PARAMETER,
    BlockClass.INTER: OperandKind.ACTIVATION,
    BlockClass.END: OperandKind.RESULT,
}


def analyze_blocks(program: BlockProgram, alignment: int = reference.ALIGNMENT) -> TargetPlan:
    """Buffers in the order of first touch and steps in the order given, one pool. Linear.

    `alignment` is in bytes. Raises DimensionError when the sizes, rounded up to it, do not fit the 64-bit
    offsets of any runtime.
    """
    buffers = tuple(_buffers(program, alignment))
    if sum(buffer.size for buffer in buffers) > MAX_BYTES:
        raise DimensionError(
            f"The blocks, rounded up to {alignment} bytes, add up to more than 2**63 - 1 bytes.",
            remedy="Reduce the blocks, or the alignment.",
            path=("blocks",),
        )
    waves = program.waves or (None,) * len(program.operations)
    steps = tuple(
        TargetStep(o.name, o.kernel, o.reads, o.writes, (), wave)
        for o, wave in zip(program.operations, waves, strict=True)
    )
    return TargetPlan(steps, (Pool(reference.POOL, buffers),))


def _buffers(program: BlockProgram, alignment: int) -> Iterator[TargetBuffer]:
    classes = block_classes(program)
    for name, span in block_lifespans(program).items():
        block, class_ = program.blocks[name], classes[name]
        yield TargetBuffer(name, _KINDS[class_], _lifetime(block, class_), block.type, span, alignment)
