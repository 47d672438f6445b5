"""A problem as plain columns: what checks and bounds of very large problems compute with.

Shares no code with the solvers. Values that do not fit 64 bits make no columns: the caller then keeps to
exact Python integers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Final, Literal, Self, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from solver.collector import collector_paused
from solver.layout.model.problem import MAX_BYTES, Buffer, LayoutProblem, Lifespan

__all__ = ["UNPINNED", "Columns", "Tabled", "buffers_of", "columns_kept"]

_Row = TypeVar("_Row")
_Integers: TypeAlias = npt.NDArray[np.int64]
_Flags: TypeAlias = npt.NDArray[np.bool_]

#: In place of the offset of a buffer that no pin holds.
UNPINNED = -1

#: Of a row of holes, or of pieces.
HOLE_FIELDS: Final = 5

#: Buffers looked at in one go: their values stand in lists beside the columns meanwhile.
AT_ONCE: Final = 4096


@dataclass(frozen=True, slots=True)
class Columns:
    """One value a buffer, in the order of the problem, each of 63 bits.

    `holes` are rows of first step, one past the last, the bytes [low, high) that are held, and the buffer.
    All sizes and alignments together with any offset fit 63 bits as well.
    """

    size: _Integers
    start: _Integers
    end: _Integers
    alignment: _Integers
    pin: _Integers
    holes: _Integers = field(default_factory=lambda: np.empty((0, HOLE_FIELDS), np.int64))

    @classmethod
    def of(cls, problem: LayoutProblem) -> Columns | None:
        """None where something is not a plain integer, or the sum exceeds 63 bits."""
        buffers, kept = problem.buffers, _KEPT.get(id(problem.buffers))
        if isinstance(buffers, Tabled):
            return buffers.columns
        return kept[1] if kept is not None and kept[0] is buffers else cls._made(buffers)

    @classmethod
    def _made(cls, buffers: tuple[Buffer, ...]) -> Columns | None:
        made = [np.empty(len(buffers), np.int64) for _ in range(5)]
        holes = [np.empty((0, HOLE_FIELDS), np.int64)]
        total = highest = 0
        for first in range(0, len(buffers), AT_ONCE):
            some = buffers[first : first + AT_ONCE]
            sizes, alignments = [b.size for b in some], [b.alignment for b in some]
            starts, ends = [b.lifespan.start for b in some], [b.lifespan.end for b in some]
            pins = [b.offset for b in some if b.offset is not None]
            if not {int}.issuperset({*map(type, sizes), *map(type, starts), *map(type, ends)}):
                return None
            if not {int}.issuperset({*map(type, alignments), *map(type, pins)}):
                return None
            total += sum(sizes) + sum(alignments)
            highest = max(highest, max(pins, default=0))
            if max(*map(max, (sizes, alignments, starts, ends)), highest) > MAX_BYTES:
                return None
            if min(pins, default=0) < 0 or min(starts) < 0 or min(sizes) < 1 or min(alignments) < 1:
                return None
            pinned = [UNPINNED if b.offset is None else b.offset for b in some] if pins else UNPINNED
            for column, values in zip(made, (sizes, starts, ends, alignments, pinned), strict=True):
                column[first : first + AT_ONCE] = values
            rows = [
                (hole.lifespan.start, hole.lifespan.end, hole.low, hole.high, i)
                for i, b in enumerate(some, first)
                if b.holes
                for hole in b.holes
            ]
            if not {int}.issuperset({type(value) for row in rows for value in row}):
                return None
            if max(map(max, rows), default=0) > MAX_BYTES or min(map(min, rows), default=0) < 0:
                return None
            if rows:
                holes.append(np.array(rows, dtype=np.int64))
        if total + highest > MAX_BYTES:
            return None
        size, start, end, alignment, pin = made
        return cls(size, start, end, _once(alignment), _once(pin), np.concatenate(holes))

    @property
    def pinned(self) -> bool:
        """Whether any buffer is pinned."""
        return bool((self.pin != UNPINNED).any())

    def _before_holes(self) -> _Integers:
        """Where each hole's buffer begins, or the hole before it ends."""
        stop, owner = self.holes[:, 1], self.holes[:, 4]
        after: _Integers = self.start[owner]
        follows = np.flatnonzero(owner[1:] == owner[:-1]) + 1
        after[follows] = stop[follows - 1]
        return after

    def pieces(self, order: Literal["C", "F"] = "F") -> _Integers:
        """Rows as those of holes, of what is held: see `model.pieces`. Buffer by buffer, in order of time.

        In memory it is column after column, or (`C`) row after row.
        """
        size = self.size
        if not len(self.holes):
            return np.stack((self.start, self.end, np.zeros_like(size), size, np.arange(len(size)))).T
        everyone = np.arange(len(size), dtype=np.int32)
        begin, stop, low, high, owner = self.holes.T
        after, last = self._before_holes(), self.start.copy()
        last[owner] = stop  # of several, the last one
        # Before each hole, each hole, and after the last: where they stand follows from how many there are.
        before = 2 * np.arange(len(owner), dtype=np.int32) + owner.astype(np.int32)
        rest = everyone + 2 * np.bincount(owner, minlength=len(size)).cumsum(dtype=np.int32)
        held: tuple[tuple[npt.NDArray[np.int32], _Flags, tuple[npt.NDArray[Any] | None, ...]], ...] = (
            (before, after < begin, (after, begin, None, size[owner], owner)),
            (before + 1, low < high, (begin, stop, low, high, owner)),
            (rest, last < self.end, (last, self.end, None, size, everyone)),
        )
        place = np.zeros(len(size) + 2 * len(owner), np.int32)
        for at, some, _ in held:
            place[at] = some
        place.cumsum(out=place)
        made = np.empty((int(place[-1]), HOLE_FIELDS), np.int64, order)
        for at, some, values in held:
            to = place[at[some]] - 1
            for column, value in zip(made.T, values, strict=True):
                column[to] = 0 if value is None else value[some]
        return made

    def in_pieces(self) -> Columns:
        """Columns of `pieces.in_pieces`: each piece alone, with the smallest alignment if all can keep it."""
        if not len(self.holes):
            return self
        start, end, low, high, _ = self.pieces().T
        granule = int(self.alignment.min())
        granule = 1 if bool((low % granule).any()) else granule
        same, alone = (np.broadcast_to(np.int64(value), len(start)) for value in (granule, UNPINNED))
        return Columns(high - low, start, end, same, alone, self.holes[:0])


def _once(values: _Integers) -> _Integers:
    """The same values; where they are all one, in the memory of one, and read-only."""
    once: _Integers = np.broadcast_to(values[:1].copy(), values.shape)
    return values if bool((values != once).any()) else once


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
    key, before = id(problem.buffers), _KEPT.get(id(problem.buffers))
    if before is not None and before[0] is problem.buffers:
        yield
        return
    _KEPT[key] = (problem.buffers, Columns.of(problem))
    try:
        yield
    finally:
        _KEPT.pop(key, None)  # another thread may have solved the same buffers


@collector_paused()
def buffers_of(ids: Sequence[str], columns: Columns) -> tuple[Buffer, ...]:
    """One buffer a row, without holes. What the columns hold is not checked. O(n), .7 µs a buffer."""
    spans = _made(Lifespan, len(ids), {"start": columns.start.tolist(), "end": columns.end.tolist()})
    pins: Iterable[int | None] = repeat(None)
    if columns.pinned:
        pins = (None if pin == UNPINNED else pin for pin in columns.pin.tolist())
    fields: dict[str, Iterable[Any]] = {"id": ids, "size": columns.size.tolist(), "lifespan": spans}
    fields |= {"alignment": columns.alignment.tolist(), "offset": pins, "holes": repeat(())}
    return Tabled(_made(Buffer, len(ids), fields), columns)


def _made(kind: type[_Row], count: int, fields: dict[str, Iterable[Any]]) -> list[_Row]:
    """Instances of a slotted class, a field of all at a time: calls of the class take four times as long."""
    made = list(map(object.__new__, repeat(kind, count)))
    for name, values in fields.items():
        put: Callable[[_Row, Any], None] = kind.__dict__[name].__set__
        deque(map(put, made, values), maxlen=0)
    return made
