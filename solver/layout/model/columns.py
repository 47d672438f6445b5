"""A problem as plain columns: what checks and bounds of very large problems compute with.

Shares no code with the solvers. Values that do not fit 64 bits make no columns: the caller then keeps to
exact Python integers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.model.problem import MAX_BYTES, Buffer, LayoutProblem

__all__ = ["UNPINNED", "Columns", "Tabled", "columns_kept"]

_Integers: TypeAlias = npt.NDArray[np.int64]

#: In place of the offset of a buffer that no pin holds.
UNPINNED = -1


@dataclass(frozen=True, slots=True)
class Columns:
    """One value a buffer, in the order of the problem. Any two sums of sizes and offsets fit 63 bits."""

    size: _Integers
    start: _Integers
    end: _Integers
    alignment: _Integers
    pin: _Integers

    @classmethod
    def of(cls, problem: LayoutProblem) -> Columns | None:
        """None where there are holes, something is not a plain integer, or the sum exceeds 64 bits."""
        buffers, kept = problem.buffers, _KEPT.get(id(problem.buffers))
        if isinstance(buffers, Tabled):
            return buffers.columns
        if kept is not None and kept[0] is buffers:
            return kept[1]
        return None if any(b.holes for b in buffers) else cls._made(buffers)

    @classmethod
    def _made(cls, buffers: tuple[Buffer, ...]) -> Columns | None:
        sizes = [b.size for b in buffers]
        starts, ends = [b.lifespan.start for b in buffers], [b.lifespan.end for b in buffers]
        alignments = [b.alignment for b in buffers]
        pins = [b.offset for b in buffers if b.offset is not None]
        if not {int}.issuperset({*map(type, sizes), *map(type, starts), *map(type, ends)}):
            return None
        if not {int}.issuperset({*map(type, alignments), *map(type, pins)}):
            return None
        if sum(sizes) + sum(alignments) + max(pins, default=0) > MAX_BYTES or min(pins, default=0) < 0:
            return None
        if max(ends, default=0) > MAX_BYTES or min(starts, default=0) < 0 or min(sizes, default=1) < 1:
            return None
        if min(alignments, default=1) < 1:
            return None
        pin = [UNPINNED if b.offset is None else b.offset for b in buffers] if pins else UNPINNED
        return cls(
            np.array(sizes, dtype=np.int64),
            np.array(starts, dtype=np.int64),
            np.array(ends, dtype=np.int64),
            np.array(alignments, dtype=np.int64),
            np.array(np.broadcast_to(pin, len(buffers)), dtype=np.int64),
        )

    @property
    def pinned(self) -> bool:
        """Whether any offset is given."""
        return bool((self.pin != UNPINNED).any())

    def well_formed(self) -> bool:
        """Lifespans hold a step, alignments are powers of two, pins are aligned."""
        lives = bool((self.end > self.start).all())
        powers = not bool((self.alignment & (self.alignment - 1)).any())
        pinned = self.pin != UNPINNED
        return lives and powers and not bool((self.pin[pinned] % self.alignment[pinned]).any())


class Tabled(tuple[Buffer, ...]):
    """Buffers that were made from columns, which they keep: 40 bytes a buffer."""

    columns: Columns

    def __new__(cls, buffers: Iterable[Buffer], columns: Columns) -> Self:
        made = super().__new__(cls, buffers)
        made.columns = columns
        return made

    def __reduce__(self) -> tuple[type[Tabled], tuple[tuple[Buffer, ...], Columns]]:
        return Tabled, (tuple(self), self.columns)


#: Buffers and what columns they make, by the identity of the tuple.
_KEPT: Final[dict[int, tuple[tuple[Buffer, ...], Columns | None]]] = {}


@contextmanager
def columns_kept(problem: LayoutProblem) -> Iterator[None]:
    """Within it, columns of these buffers are made once: .5 s for a million, 40 bytes a buffer."""
    key = id(problem.buffers)
    _KEPT[key] = (problem.buffers, Columns.of(problem))
    try:
        yield
    finally:
        _KEPT.pop(key, None)  # another thread may have solved the same buffers
