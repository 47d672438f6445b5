"""Explicit programs: operations with the blocks of memory that each one reads and writes.

For runtimes that buffer operations instead of building a graph (Apache SINGA's delayed execution). No
operator is known here: an operation is a name, what it reads and what it writes, in the order given.

* A block in `writes` and not in `reads` is written whole; what writes a part of it reads it too.
* A block in both is updated in place.
* A block that is read before it is written holds a value when the iteration begins. It comes from the
  caller (`fed`), or is what the iteration before left there.
* A view is a block in the bytes of another one: a slice, a permutation, an expansion. What touches it touches
  those bytes, and takes no memory and no step for it.
* An operation may have a workspace, undefined before and after, and may permit that a block which it writes
  takes the place of one that it reads.
* An operation may be pure: what it reads decides what it writes, and nothing else changes. Then it may run
  again, and `OperationCost` says how long that takes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from solver.canonical import digest_of
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
from solver.graph.types import DType, TensorType
from solver.names import check_characters

__all__ = [
    "Block",
    "BlockOperation",
    "BlockProgram",
    "BlockView",
    "OperationCost",
    "build_program",
    "program_content",
    "program_digest",
]

_Path = tuple[str | int, ...]

#: The largest figures of a cost, so that sums over all operations and their repetitions stay in 64 bits.
_MOST = {"nanoseconds": 10**12, "flops": 10**14, "bytes": 10**13}


@dataclass(frozen=True, slots=True)
class BlockView:
    """The place of a view: `offset` bytes behind the beginning of the block `of`, which is no view itself.

    `strides` are the elements from one index to the next, for each axis, not negative; 0 repeats an element.
    None stands for those of an array in C order.
    """

    of: str
    offset: int = 0
    strides: tuple[int, ...] | None = None

    def byte_strides(self, type_: TensorType) -> tuple[int, ...]:
        """The bytes from one index to the next, for each axis of a view of this type."""
        strides = self.strides
        if strides is None:
            strides = tuple(math.prod(type_.shape[axis + 1 :]) for axis in range(len(type_.shape)))
        return tuple(stride * type_.dtype.itemsize for stride in strides)


@dataclass(frozen=True, slots=True)
class Block:
    """A piece of memory with one address for the whole program, or a `view` of one.

    `fed`: the caller writes it anew before every iteration, so nothing of it carries over.
    `kept`: the caller reads it after the last operation.
    """

    name: str
    type: TensorType
    fed: bool = False
    kept: bool = False
    view: BlockView | None = None


@dataclass(frozen=True, slots=True)
class OperationCost:
    """How long an operation takes: `nanoseconds`, or what a roofline makes of its `flops` and `bytes`.

    `bytes` are those that it moves; None stands for all that it reads and writes.
    """

    nanoseconds: int | None = None
    flops: int = 0
    bytes: int | None = None

    @property
    def figures(self) -> dict[str, int]:
        """The figures that it has, by name."""
        figures = {"nanoseconds": self.nanoseconds, "flops": self.flops or None, "bytes": self.bytes}
        return {name: figure for name, figure in figures.items() if figure is not None}


#: The cost of an operation of which nothing is known: it moves what it reads and writes.
_NO_COST = OperationCost()


@dataclass(frozen=True, slots=True)
class BlockOperation:
    """One operation; `kernel` is a word for readers of the plan.

    `overwrites` permits a block that is written to lie in the bytes of one that is read, by name; whether it
    does, the plan says. `workspace` bytes are undefined before and after. A `pure` operation writes the same
    bits whenever it reads the same bits, and changes nothing else, so that it may run again.
    """

    name: str
    reads: tuple[str, ...] = ()
    writes: tuple[str, ...] = ()
    kernel: str = ""
    overwrites: tuple[tuple[str, str], ...] = ()
    workspace: int = 0
    pure: bool = False
    cost: OperationCost = _NO_COST

    @property
    def touched(self) -> tuple[str, ...]:
        """Reads, then writes, each block once."""
        return tuple(dict.fromkeys((*self.reads, *self.writes)))


@dataclass(frozen=True, slots=True)
class BlockProgram:
    """A verified program, as `build_program` returns it. It runs its operations over and over.

    `any_order` permits every order in which each operation finds what it finds in the one that is given.
    """

    name: str
    blocks: Mapping[str, Block]
    operations: tuple[BlockOperation, ...]
    any_order: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "blocks", MappingProxyType(dict(self.blocks)))


def build_program(
    name: str,
    blocks: Sequence[Block],
    operations: Sequence[BlockOperation],
    *,
    any_order: bool = False,
    max_operations: int = MAX_OPERATIONS,
) -> BlockProgram:
    """Verify a program. Linear in blocks and in what the operations list.

    Raises the GraphError that names the culprit, with its place as in ``("operations", 3, "reads", 0)``:
    no or too many operations, a name that is empty, used twice or has characters that cannot be seen, a
    size that no runtime can hold, a block that is touched without being declared or declared without being
    touched, an operation that touches nothing, a cost out of range, a fed block that is overwritten before
    anything reads it, a view that leaves its block, a permission to overwrite that cannot be used.
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
    for i, block in enumerate(blocks):
        if block.view is not None:
            _check_view(block, block.view, declared, ("blocks", i))
    for i, operation in enumerate(operations):
        _check_operation(operation, declared, ("operations", i))
        _check_cost(operation, ("operations", i, "cost"))
        _check_permissions(operation, declared, ("operations", i))
    program = BlockProgram(name, declared, tuple(operations), any_order)
    _check_blocks(program)
    return program


def _check_view(block: Block, view: BlockView, declared: Mapping[str, Block], path: _Path) -> None:
    base = declared.get(view.of)
    strides = view.strides
    if base is None or base.view is not None:
        what = "which is a view itself" if base is not None else "which the program does not declare"
        remedy = "Say where it lies in the block that has the memory."
    elif block.fed:
        what, remedy = "and is fed by itself", "Declare the block that it is a view of as fed."
    elif strides is not None and len(strides) != len(block.type.shape):
        what = f"and has {len(strides)} strides for {len(block.type.shape)} axes"
        remedy = "Give one for each axis, or leave them out."
    elif view.offset < 0 or any(stride < 0 for stride in strides or ()):
        what, remedy = "and goes backwards", "Offsets and strides are not negative."
    else:
        steps = zip(block.type.shape, view.byte_strides(block.type), strict=True)
        last = sum((n - 1) * s for n, s in steps) + block.type.dtype.itemsize if block.type.nbytes else 0
        if view.offset + last <= base.type.nbytes:
            return
        what = f"and goes to byte {view.offset + last:,} of {base.type.nbytes:,}"
        remedy = "Correct its offset, shape or strides."
    raise GraphError(
        f"Block {block.name!r} is a view of {view.of!r}, {what}.", remedy=remedy, path=(*path, "view")
    )


def _check_permissions(operation: BlockOperation, declared: Mapping[str, Block], path: _Path) -> None:
    if operation.workspace < 0 or operation.workspace > MAX_BYTES:
        raise DimensionError(
            f"Operation {operation.name!r} has a workspace of {operation.workspace} bytes.",
            remedy="Give 0 to 2**63 - 1 bytes.",
            path=(*path, "workspace"),
        )
    for name in operation.writes:
        view = declared[name].view
        if view is not None and 0 in (view.strides or ()):
            raise GraphError(
                f"Operation {operation.name!r} writes {name!r}, whose elements are one and the same.",
                remedy="Write the block that it repeats.",
                path=(*path, "writes", operation.writes.index(name)),
            )
    for target, source in operation.overwrites:
        written = target in operation.writes and target not in operation.reads
        read = source in operation.reads and source not in operation.writes
        if not written or not read:
            culprit = source if written else target
            what = f"is not what it {'only reads' if written else 'writes without reading'}"
        elif any(declared[name].view is not None for name in (target, source)):
            culprit = target if declared[target].view is not None else source
            what = "is a view, which has no bytes of its own"
        elif declared[target].type.nbytes != declared[source].type.nbytes:
            what, culprit = "has another size", target
        else:
            continue
        raise GraphError(
            f"Operation {operation.name!r} permits {target!r} to overwrite {source!r}, but"
            f" {culprit!r} {what}.",
            remedy="Leave the permission out.",
            path=(*path, "overwrites", target),
        )


def _check_count(operations: Sequence[BlockOperation], limit: int) -> None:
    if len(operations) > limit:
        raise TooManyOperationsError(
            f"The program has {len(operations):,} operations; at most {limit:,} are allowed.",
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
    if any(dimension < 0 for dimension in block.type.shape) or block.type.nbytes > MAX_BYTES:
        raise DimensionError(
            f"Block {block.name!r} has {block.type}; its size must be 0 to 2**63 - 1 bytes.",
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


def _check_cost(operation: BlockOperation, path: _Path) -> None:
    cost = operation.cost
    for name, figure in cost.figures.items():
        if not 0 <= figure <= _MOST[name]:
            raise DimensionError(
                f"Operation {operation.name!r} costs {figure:,} {name}.",
                remedy=f"Give 0 to {_MOST[name]:,}, or leave it out.",
                path=(*path, name),
            )
    if cost.nanoseconds is not None and (cost.flops or cost.bytes is not None):
        raise GraphError(
            f"Operation {operation.name!r} costs nanoseconds, and flops or bytes besides.",
            remedy="Give the nanoseconds alone, or flops and bytes, which a roofline turns into nanoseconds.",
            path=path,
        )


def _check_blocks(program: BlockProgram) -> None:
    read_first: dict[str, bool] = {}
    based = {b.name: b.name if b.view is None else b.view.of for b in program.blocks.values()}
    for operation in program.operations:
        for name in operation.reads:
            read_first.setdefault(based[name], read_first.setdefault(name, True))
        for name in operation.writes:
            # What is written through a view leaves the rest of its block.
            read_first.setdefault(based[name], read_first.setdefault(name, False) or based[name] != name)
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


def program_digest(program: BlockProgram) -> str:
    """SHA-256, in hexadecimal, over the canonical document without the program's title."""
    return digest_of({**program_content(program), "name": ""})


def program_content(program: BlockProgram) -> dict[str, Any]:
    """The fields of a program document, in version 1 where that says all of it; defaults are left out."""
    blocks = [_block_content(block) for block in program.blocks.values()]
    operations = [_operation_content(operation) for operation in program.operations]
    second = program.any_order or any("view" in block for block in blocks)
    second = second or any({"overwrites", "workspace"} & operation.keys() for operation in operations)
    third = any({"pure", "cost"} & operation.keys() for operation in operations)
    return {
        "format": "arenaplan.program",
        "version": 3 if third else 2 if second else 1,
        "name": program.name,
        **({"any_order": True} if program.any_order else {}),
        "blocks": blocks,
        "operations": operations,
    }


def _block_content(block: Block) -> dict[str, Any]:
    content: dict[str, Any] = {"name": block.name}
    if block.type.dtype is DType.UINT8 and len(block.type.shape) == 1:
        content["bytes"] = block.type.nbytes
    else:
        content |= {"shape": list(block.type.shape), "dtype": block.type.dtype.value}
    if block.view is not None:
        view: dict[str, Any] = {"of": block.view.of}
        if block.view.offset:
            view["offset"] = block.view.offset
        if block.view.strides is not None:
            view["strides"] = list(block.view.strides)
        content["view"] = view
    return content | {flag: True for flag in ("fed", "kept") if getattr(block, flag)}


def _operation_content(operation: BlockOperation) -> dict[str, Any]:
    content: dict[str, Any] = {"name": operation.name}
    if operation.kernel:
        content["type"] = operation.kernel
    lists = {"reads": list(operation.reads), "writes": list(operation.writes)}
    content |= {key: names for key, names in lists.items() if names}
    if operation.overwrites:
        content["overwrites"] = dict(operation.overwrites)
    if operation.workspace:
        content["workspace"] = operation.workspace
    if operation.pure:
        content["pure"] = True
    if operation.cost.figures:
        content["cost"] = operation.cost.figures
    return content
