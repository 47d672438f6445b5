"""Where tensors live: views into planned spaces, or memory of their own for the reference run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from solver.errors import PlanError
from solver.graph.types import Array
from solver.plan import Plan
from solver.program import Program

__all__ = ["BASE_ALIGNMENT", "POISON", "Memory", "in_spaces", "on_their_own"]

#: Arenas begin on a boundary this fine, so that an offset's residue is its address's residue.
#: SIMD kernels may round differently at another residue modulo the widest vector register.
BASE_ALIGNMENT = 64

#: Every float of these bytes is a NaN, every signed integer -1: a stale read cannot look plausible.
POISON = 0xFF

#: More than this is refused before NumPy tries, with a sentence instead of a MemoryError.
_MAX_ALLOCATION = 2**47


class Memory:
    """Raw bytes of every value of a program, by number."""

    def __init__(self, program: Program, raw: Sequence[Array]) -> None:
        self._program = program
        self._raw = tuple(raw)

    def raw(self, value: int) -> Array:
        """The bytes of a value, ``uint8[nbytes]``."""
        return self._raw[value]

    def view(self, value: int) -> Array:
        """A value as a C-contiguous tensor; no copy."""
        type_ = self._program.values[value].type
        return self._raw[value].view(type_.dtype.numpy).reshape(type_.shape)


def in_spaces(plan: Plan) -> Memory:
    """One preallocated ``uint8`` array for each space, full of poison; each value a view at its offset.

    Raises PlanError when a value lies outside its space or the machine cannot hold a space.
    """
    program = plan.program
    blocks = [
        _allocate(size, 0, f"space {space.name!r}")
        for space, size in zip(program.spaces, plan.sizes, strict=True)
    ]
    for block in blocks:
        block.fill(POISON)
    raw = []
    for value, offset in zip(program.values, plan.offsets, strict=True):
        end = offset + value.type.nbytes
        if offset < 0 or end > plan.sizes[value.space]:
            raise PlanError(
                f"{value.label!r} lies outside space {program.spaces[value.space].name!r}.",
                remedy="Plan again.",
            )
        raw.append(blocks[value.space][offset:end])
    return Memory(program, raw)


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
    if size > _MAX_ALLOCATION:
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
