"""Explicit programs: operations with the blocks of memory that each one reads and writes.

For runtimes that buffer operations instead of building a graph (Apache SINGA's delayed execution). No
operator is known here: an operation is a name, what it reads and what it writes, in the order given.

* A block in `writes` and not in `reads` is written whole; what writes a part of it reads it too.
* A block in both is updated in place.
* A block that is read before it is written holds a value when the iteration begins. It comes from the
  caller (`fed`), or is what the iteration before left there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from solver.errors import (
    DanglingOperandError,
    DimensionError,
    DuplicateNameError,
    GraphError,
    TooManyOperationsError,
    UseBeforeDefError,
)
from solver.graph.build import MAX_OPERATIONS
from solver.graph.declared import MAX_BYTES
from solver.graph.types import TensorType
from solver.names import check_characters

__all__ = ["Block", "BlockOperation", "BlockProgram", "build_program"]

_Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of memory with one address for the whole program.

    `fed`: the caller writes it anew before every iteration, so nothing of it carries over.
    `kept`: the caller reads it after the last operation.
    """

    name: str
    type: TensorType
    fed: bool = False
    kept: bool = False


@dataclass(frozen=True, slots=True)
class BlockOperation:
    """One operation; `kernel` is a word for readers of the plan."""

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    kernel: str = ""

    @property
    def touched(self) -> tuple[str, ...]:
        """Reads, then writes, each block once."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


@dataclass(frozen=True, slots=True)
class BlockProgram:
    """A verified program, as `build_program` returns it. It runs its operations over and over."""

    name: str
    blocks: Mapping[str, Block]
    operations: tuple[BlockOperation, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", MappingProxyType(dict(self.blocks)))


def build_program(
    name: str,
    blocks: Sequence[Block],
    operations: Sequence[BlockOperation],
    *,
    max_operations: int = MAX_OPERATIONS,
) -> BlockProgram:
    """Verify a program. Linear in blocks and in what the operations list.

    Raises the GraphError that names the culprit, with its place as in ``("operations", 3, "reads", 0)``:
    no or too many operations, a name that is empty, used twice or has characters that cannot be seen, a
    size that no runtime can hold, a block that is touched without being declared or declared without being
    touched, an operation that touches nothing, a fed block that is overwritten before anything reads it.
    """
    check_characters("program", name, ("name",))
    _check_count(operations, max_operations)
    _check_names("block", "blocks", [block.name for block in blocks])
    _check_names("operation", "operations", [operation.name for operation in operations])
    for i, operation in enumerate(operations):
        check_characters("kernel", operation.kernel, ("operations", i, "kernel"))
    for i, block in enumerate(blocks):
        _check_size(block, ("blocks", i))
    declared = {block.name: block for block in blocks}
    for i, operation in enumerate(operations):
        _check_operation(operation, declared, ("operations", i))
    program = BlockProgram(name, declared, tuple(operations))
    _check_blocks(program)
    return program


def _check_count(operations: Sequence[BlockOperation], limit: int) -> None:
    if len(operations) > limit:
        raise TooManyOperationsError(
            f"The program has {len(operations)} operations; at most {limit} are allowed.",
            remedy="Split the program, or raise the limit where the planner is configured.",
            path=("operations",),
        )
    if not operations:
        raise GraphError(
            "The program has no operations.",
            remedy="Add the operations of one training iteration, in their order.",
            path=("operations",),
        )


def _check_names(what: str, key: str, names: Sequence[str]) -> None:
    seen: set[str] = set()
    for i, name in enumerate(names):
        check_characters(what, name, (key, i, "name"))
        if not name:
            raise GraphError(f"A {what} has no name.", remedy="Name it.", path=(key, i, "name"))
        if name in seen:
            raise DuplicateNameError(
                f"There are two {what}s {name!r}.",
                remedy="Names are unique: rename one of them.",
                path=(key, i, "name"),
            )
        seen.add(name)


def _check_size(block: Block, path: _Path) -> None:
    if any(dimension < 1 for dimension in block.type.shape) or block.type.nbytes > MAX_BYTES:
        raise DimensionError(
            f"Block {block.name!r} has {block.type}; its size must be 1 to 2**63 - 1 bytes.",
            remedy="Correct the size, or the shape and dtype.",
            path=path,
        )


def _check_operation(operation: BlockOperation, declared: Mapping[str, Block], path: _Path) -> None:
    if not operation.touched:
        raise GraphError(
            f"Operation {operation.name!r} neither reads nor writes anything.",
            remedy="Leave it out; a barrier reads the blocks that it waits for.",
            path=path,
        )
    for key, names in (("reads", operation.reads), ("writes", operation.writes)):
        seen: set[str] = set()
        for k, name in enumerate(names):
            if name not in declared:
                raise DanglingOperandError(
                    f"Operation {operation.name!r} {key} {name!r}, which the program does not declare.",
                    remedy="Add the block to `blocks`, or correct the name.",
                    path=(*path, key, k),
                )
            if name in seen:
                raise DuplicateNameError(
                    f"Operation {operation.name!r} lists {name!r} twice in {key}.",
                    remedy="List each block once.",
                    path=(*path, key, k),
                )
            seen.add(name)


def _check_blocks(program: BlockProgram) -> None:
    read_first: dict[str, bool] = {}
    for operation in program.operations:
        for name in operation.reads:
            read_first.setdefault(name, True)
        for name in operation.writes:
            read_first.setdefault(name, False)
    for i, block in enumerate(program.blocks.values()):
        if block.name not in read_first:
            raise DanglingOperandError(
                f"Block {block.name!r} is touched by no operation.",
                remedy="Remove it, or declare it with the operations that touch it.",
                path=("blocks", i),
            )
        if block.fed and not read_first[block.name]:
            raise UseBeforeDefError(
                f"What the caller writes to {block.name!r} is overwritten before any operation reads it.",
                remedy="Read the block first, or do not declare it as fed.",
                path=("blocks", i, "fed"),
            )
