"""Where tensors live: views into planned spaces, or memory of their own for the reference run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate

import numpy as np

from solver.errors import PlanError
from solver.executor.paging_file import PagingFile
from solver.graph.types import Array
from solver.plan import Plan
from solver.program import RESIDUE, Program, Space

__all__ = ["BASE_ALIGNMENT", "POISON", "Memory", "arenas", "in_spaces", "on_their_own", "slow_bytes"]

#: Arenas begin on a boundary this fine, so that an offset's residue is its address's residue.
BASE_ALIGNMENT = RESIDUE

#: Every float of these bytes is a NaN, every signed integer -1: a stale read cannot look plausible.
POISON = 0xFF

#: More than this is refused before NumPy tries, with a sentence instead of a MemoryError.
_MAX_ALLOCATION_BYTES = 2**47


class Memory:
    """Raw bytes of every value of a program, by number; of those in a file copies."""

    def __init__(
        self,
        program: Program,
        raw: Sequence[Array],
        file: PagingFile | None = None,
        positions: Mapping[int, int] | None = None,
    ) -> None:
        self._program = program
        self._raw = tuple(raw)
        self._file = file
        self._positions = dict(positions or {})

    def raw(self, value: int) -> Array:
        """The bytes of a value, ``uint8[nbytes]``; a copy of what is in a file."""
        if self._file is not None and value in self._positions:
            self._file.read(self._raw[value], self._positions[value], count=False)
        return self._raw[value]

    def keep(self, value: int) -> None:
        """Write what was put into the view of a value to the file, if it lies there."""
        if self._file is not None and value in self._positions:
            self._file.write(self._raw[value], self._positions[value], count=False)

    def copy(self, source: int, target: int) -> Callable[[], None]:
        """A function that copies the bytes of a value to another one, of which one at most lies in a file.

        Bytes from and to the file are counted.
        """
        ours, theirs, file = self._raw[source], self._raw[target], self._file
        if file is not None and source in self._positions:
            return partial(file.read, theirs, self._positions[source])
        if file is not None and target in self._positions:
            return partial(file.write, ours, self._positions[target])
        return partial(np.copyto, theirs, ours)

    def poison(self, value: int) -> None:
        """Fill the bytes of a value with NaN patterns."""
        self._raw[value].fill(POISON)
        if self._file is not None and value in self._positions:
            patterns = np.full(self._program.values[value].type.nbytes, POISON, np.uint8)
            self._file.write(patterns, self._positions[value], count=False)

    def view(self, value: int) -> Array:
        """A value as a C-contiguous tensor; no copy. Empty for what only copies to and from a file touch.

        A stored one as its packed rows, ``uint8[rows, bytes of a row]``.
        """
        type_ = self._program.values[value].type
        if len(self._raw[value]) < type_.nbytes:
            return np.empty(0, type_.dtype.numpy)
        if type_.storage is not None:
            return self._raw[value].reshape(type_.shape[type_.storage.axis], -1)
        return self._raw[value].view(type_.dtype.numpy).reshape(type_.shape)


def arenas(spaces: Sequence[Space], sizes: Sequence[int], file: PagingFile | None = None) -> list[Array]:
    """One preallocated ``uint8`` array for each space, full of poison; empty for a space that lies in `file`.

    Raises PlanError where the machine cannot hold a space.
    """
    blocks = [
        _allocate(0 if file is not None and not space.addressable else size, 0, f"space {space.name!r}")
        for space, size in zip(spaces, sizes, strict=True)
    ]
    for block in blocks:
        block.fill(POISON)
    return blocks


def in_spaces(
    plan: Plan,
    file: PagingFile | None = None,
    blocks: Sequence[Array] | None = None,
    sizes: Sequence[int] | None = None,
) -> Memory:
    """Each value a view at its offset in one of the `blocks`, those of `arenas` by default.

    `sizes` are those of the spaces that several programs share, by default those of the plan.

    With a `file`, of `slow_bytes`, spaces that kernels cannot reach lie in it, one behind the other; their
    values have copies outside, for callers, which are allocated one by one. Raises PlanError when a
    value lies outside its space or the machine cannot hold a space.
    """
    program = plan.program
    filed = [file is not None and not space.addressable for space in program.spaces]
    sizes = sizes or plan.sizes
    if blocks is None:
        blocks = arenas(program.spaces, sizes, file)
    starts = list(accumulate((size * there for size, there in zip(sizes, filed, strict=True)), initial=0))
    positions: dict[int, int] = {}
    outer = {entry.value for entry in program.entry} | {exit_.value for exit_ in program.exit}
    raw = []
    for number, (value, offset) in enumerate(zip(program.values, plan.offsets, strict=True)):
        end = offset + value.type.nbytes
        if offset < 0 or end > plan.sizes[value.space]:
            raise PlanError(
                f"{value.label!r} lies outside space {program.spaces[value.space].name!r}.",
                remedy="Plan again.",
            )
        if filed[value.space]:
            positions[number] = starts[value.space] + offset
            raw.append(_allocate(value.type.nbytes if number in outer else 0, 0, repr(value.label)))
        else:
            raw.append(blocks[value.space][offset:end])
    return Memory(program, raw, file, positions)


def slow_bytes(spaces: Sequence[Space], sizes: Sequence[int]) -> int:
    """Bytes of a file that stands for all spaces that kernels cannot reach."""
    return sum(size for space, size in zip(spaces, sizes, strict=True) if not space.addressable)


def on_their_own(program: Program, residues: Sequence[int]) -> Memory:
    """Each value alone, at an address of the given residue modulo BASE_ALIGNMENT: the run to compare with."""
    raw = [
        _allocate(value.type.nbytes, residue, repr(value.label))
        for value, residue in zip(program.values, residues, strict=True)
    ]
    for block in raw:
        block.fill(POISON)
    return Memory(program, raw)


def _allocate(size: int, residue: int, what: str) -> Array:
    """``uint8[size]`` whose address is `residue` modulo BASE_ALIGNMENT."""
    if size > _MAX_ALLOCATION_BYTES:
        raise PlanError(
            f"This machine cannot allocate the {size:,} bytes of {what}.",
            remedy="Train on a smaller batch.",
        )
    try:
        block = np.empty(size + 2 * BASE_ALIGNMENT, np.uint8)
    except MemoryError:
        raise PlanError(
            f"This machine cannot allocate the {size:,} bytes of {what}.",
            remedy="Train on a smaller batch.",
        ) from None
    start = (residue - block.ctypes.data) % BASE_ALIGNMENT
    return block[start : start + size]
