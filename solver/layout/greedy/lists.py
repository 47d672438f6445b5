"""The lists that `compiled.list_kernel` places with: which windows there are, and room for their boxes.

Compiled code is loaded at its first use, so that small problems do not wait for it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.layout.model.heap import paged
from solver.layout.model.instance import Instance, Integers

__all__ = ["Lists"]

#: Windows that a buffer lies in, on average, on the level of the smallest ones: with lives of two steps,
#: these windows are as long as lives.
WINDOWS: Final = 4


class Lists:
    """Nothing placed yet, with room for all. O(n log S).

    Memory: 24 bytes a buffer, and 4 to 8 for each window that it lies in; 30 to 110 in all, as measured. What
    is not used yet takes none.
    """

    def __init__(self, instance: Instance) -> None:
        from solver.layout.kernels import list_kernel

        self._kernel = list_kernel
        chunk = list_kernel.CHUNK
        counts, self._shift = _levels(instance, len(instance) * WINDOWS // chunk)
        # A window has as many chunks as it needs where each is half full.
        rooms = np.concatenate([-(-count // (chunk // 2)) for count in counts])
        chunks = int(rooms.sum())
        self._shelf = list_kernel.Shelf(
            paged(len(instance), 2, of=np.int32),
            paged(len(instance), 2),
            paged(chunks, chunk, of=np.int32),
            np.empty(chunks, np.int32),
            np.empty(chunks, np.int32),
            np.cumsum(rooms) - rooms,
            np.zeros(len(rooms), np.int64),
            np.cumsum([0, *map(len, counts)]),
            np.empty(chunk, np.int64),
            np.zeros(2, np.int64),
        )

    @property
    def nbytes(self) -> int:
        """Bytes of memory, what was not touched yet included."""
        return sum(rows.nbytes for rows in self._shelf)

    def place(self, rows: Integers, limit: int, fit: int) -> int:
        """Place buffers, one a row, as in `list_some`; how many."""
        return int(self._kernel.list_some(self._shelf, self._shift, rows, limit, fit))


def _levels(instance: Instance, most: int) -> tuple[list[Integers], int]:
    """How many buffers live in each window, by level, the smallest first; and the shift of that level.

    There are no more than `most` windows on a level, so that chunks are not nearly empty.
    """
    shift = max(0, (instance.sections - 1).bit_length())
    counts = [_living(instance, shift)]
    while shift > 0 and (instance.sections >> (shift - 1)) < most:
        smaller = _living(instance, shift - 1)
        if smaller.sum() > WINDOWS * len(instance):
            break
        counts.append(smaller)
        shift -= 1
    return counts[::-1], shift


def _living(instance: Instance, shift: int) -> Integers:
    """How many buffers live in each window of a level: two steps from each step on."""
    steps = ((instance.sections - 1) >> shift) + 1
    first = np.maximum(0, (instance.start >> shift) - 1)
    change = np.bincount(first, minlength=steps + 1)
    change -= np.bincount(((instance.end - 1) >> shift) + 1, minlength=steps + 1)
    return change.cumsum()[:steps]
