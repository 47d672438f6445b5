"""Where tensors live: views into one planned arena, or memory of their own for the reference run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

import numpy as np

from solver.errors import PlanError
from solver.graph.types import Array, TensorType
from solver.plan.plan import Arena, Plan, PlannedBuffer
from solver.plan.verify import verify

__all__ = ["BASE_ALIGNMENT", "POISON", "Memory", "check_plan", "in_arenas", "on_their_own"]

#: Arenas begin on a boundary this fine, so that an offset's residue is its address's residue.
#: SIMD kernels may round differently at another residue modulo the widest vector register.
BASE_ALIGNMENT = 64

#: Every float of these bytes is a NaN, every signed integer -1: a stale read cannot look plausible.
POISON = 0xFF

#: More than this is refused before NumPy tries, with a sentence instead of a MemoryError.
_MAX_ALLOCATION = 2**47


class Memory:
    """Raw bytes of every operand of a plan, by id."""

    def __init__(self, raw: Mapping[str, Array]) -> None:
        self._raw = MappingProxyType(dict(raw))

    def raw(self, name: str) -> Array:
        """The operand's bytes, ``uint8[nbytes]``."""
        return self._raw[name]

    def view(self, name: str, type_: TensorType) -> Array:
        """The operand as a C-contiguous tensor; no copy."""
        return self._raw[name].view(type_.dtype.numpy).reshape(type_.shape)

    def poison(self) -> None:
        for raw in self._raw.values():
            raw.fill(POISON)


def check_plan(plan: Plan) -> None:
    """Raises PlanError for a plan that breaks a rule (`solver.plan.verify`): nothing is run in it."""
    violations = verify(plan)
    if violations:
        raise PlanError(
            f"The plan is wrong ({len(violations)} violations): {violations[0].detail}", remedy="Plan again."
        )


def in_arenas(arenas: Iterable[Arena]) -> Memory:
    """One preallocated ``uint8`` array for each arena; each operand a view at its buffer's planned offset.

    Raises PlanError when a buffer lies outside its arena or the machine cannot hold the arena.
    """
    raw: dict[str, Array] = {}
    for arena in arenas:
        block = _allocate(arena.size, 0, f"arena {arena.name!r}")
        block.fill(POISON)
        for buffer in arena.buffers:
            if buffer.offset < 0 or buffer.offset + buffer.nbytes > arena.size:
                raise PlanError(f"{buffer.id!r} lies outside arena {arena.name!r}.", remedy="Plan again.")
            for operand in buffer.operands:
                raw[operand.id] = block[buffer.offset : buffer.offset + buffer.nbytes]
    return Memory(raw)


def on_their_own(buffers: Iterable[PlannedBuffer]) -> Memory:
    """Each operand alone, at its planned address modulo BASE_ALIGNMENT: the run to compare with."""
    raw: dict[str, Array] = {}
    for buffer in buffers:
        for operand in buffer.operands:
            raw[operand.id] = _allocate(buffer.nbytes, buffer.offset % BASE_ALIGNMENT, repr(operand.id))
            raw[operand.id].fill(POISON)
    return Memory(raw)


def _allocate(size: int, residue: int, what: str) -> Array:
    """``uint8[size]`` whose address is `residue` modulo BASE_ALIGNMENT."""
    if size > _MAX_ALLOCATION:
        raise PlanError(
            f"This machine cannot allocate the {size} bytes of {what}.", remedy="Train on a smaller batch."
        )
    try:
        block = np.empty(size + 2 * BASE_ALIGNMENT, np.uint8)
    except MemoryError:
        raise PlanError(
            f"This machine cannot allocate the {size} bytes of {what}.", remedy="Train on a smaller batch."
        ) from None
    start = (residue - block.ctypes.data) % BASE_ALIGNMENT
    return block[start : start + size]
