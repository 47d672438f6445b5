"""Placing in an order, compiled: an index of free space, and for buffers with holes lists of pieces.

Compiled code is loaded at its first use, so that small problems do not wait for it, and compiled once NumPy
has taken some time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Final

import numpy as np

from solver.layout.model.heap import paged
from solver.layout.model.instance import FREE, Instance, Integers
from solver.layout.model.problem import MAX_BYTES
from solver.native import PYTHON_SECONDS, compiling_after, may_compile, runs_compiled

__all__ = ["place_compiled", "placed_in_numpy", "placing_is_compiled"]

#: Pieces from which compiled code takes less time than NumPy calls for each buffer: all orders together if it
#: has to be loaded first, or a single pass, also if it has to be compiled; and any pass once it is loaded.
COMPILED_FROM: Final = 256
COMPILED_ONCE_FROM: Final = 3000
LOADED_FROM: Final = 8

#: Seconds that NumPy places in before smaller problems load what was compiled before: as long as that takes.
LOADING_SECONDS: Final = 0.25

#: Placements between looks at the clock.
LOOK: Final = 250

#: Rows of memory to begin with: chunks, and a chunk more for each 4 buffers; strips of a free block.
CHUNKS: Final = 64
BUFFERS_PER_CHUNK: Final = 4
STRIPS: Final = 16


def place_compiled(
    instance: Instance,
    order: Integers,
    limit: int,
    *,
    best_fit: bool,
    late: Callable[[], bool],
    once: bool = False,
) -> tuple[Integers, int] | None:
    """The answer of `placement.place`; None where NumPy takes less time, or nothing compiles here.

    `once`: no other pass follows.
    """
    pieces = len(instance) if instance.pieces is None else len(instance.pieces)
    least = COMPILED_ONCE_FROM if once else COMPILED_FROM
    if _LOADED or (pieces >= LOADED_FROM and _worth_loading()):
        least = LOADED_FROM
    compiles = pieces >= COMPILED_ONCE_FROM or sum(_NUMPY_SECONDS) >= PYTHON_SECONDS
    if pieces < least or not placing_is_compiled(compiles=compiles):
        return None
    free = order[instance.offset[order] == FREE] if instance.pinned else order
    placing = _Index(instance) if instance.pieces is None else _Lists(instance)
    done, chosen = 0, np.flatnonzero(instance.offset != FREE)
    while len(chosen) and not late():  # what has an offset already
        placing.go(chosen[:LOOK], MAX_BYTES, best_fit=False)
        chosen = chosen[LOOK:]
    while not len(chosen) and done < len(free) and not late():
        some = np.ascontiguousarray(free[done : done + LOOK])
        placed = placing.go(some, limit, best_fit=best_fit)
        done += placed
        if placed < len(some):
            break
    if done == len(free):
        return placing.offsets, len(order)
    return placing.offsets, int((order == free[done]).argmax())


def placed_in_numpy(seconds: float) -> None:
    """NumPy has placed for so long: kernels are compiled once that adds up to `PYTHON_SECONDS`."""
    _NUMPY_SECONDS[0] += seconds


def _worth_loading() -> bool:
    """Whether NumPy has placed for so long, or twice as long as before, that code on disk is looked for."""
    if _NUMPY_SECONDS[0] < _NEXT_LOOK[0]:
        return False
    _NEXT_LOOK[0] = 2 * _NUMPY_SECONDS[0]
    return True


def placing_is_compiled(*, compiles: bool) -> bool:
    """Whether the kernels run as machine code; compiles them if asked to, unless a deadline forbids it."""
    if not _LOADED:
        from solver.layout.kernels import index_kernel, pieces_kernel

        one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
        instance = Instance(zero, one, one, one, one, zero + FREE, 1)
        with compiling_after(0) if compiles and may_compile() else nullcontext():
            for placing in (_Index, _Lists):
                placing(instance).go(zero, 1, best_fit=False)
        if runs_compiled(index_kernel.place_some) and runs_compiled(pieces_kernel.place_pieces):
            _LOADED.append(True)
    return bool(_LOADED)


#: Whether the kernels run as machine code in this process, the seconds that NumPy has placed in their stead,
#: and those after which code on disk is looked for.
_LOADED: Final[list[bool]] = []
_NUMPY_SECONDS: Final = [0.0]
_NEXT_LOOK: Final = [LOADING_SECONDS]


class _Index:
    """One pass with the index of `kernels.index_kernel`. Memory: 60 to 150 bytes a buffer, as measured."""

    def __init__(self, instance: Instance) -> None:
        from solver.layout.kernels import index_kernel

        self._kernel, self._instance = index_kernel, instance
        self.offsets = instance.offset.copy()
        self._block, load = np.empty((STRIPS, 5), np.int64), instance.load()
        # A node is split where it has more than 32 sections, and no side gets fewer than a quarter of them:
        # so each leaf has eight at least, and there is a node for every four at most.
        nodes = np.zeros((len(load) // 4 + 2, 6), np.int64)
        used = index_kernel.grow_tree(load, nodes, np.empty((len(nodes), 3), np.int64))
        # About as many as are needed in the end: what is not used takes no memory, and growing copies.
        chunks = CHUNKS + used + len(instance) // BUFFERS_PER_CHUNK
        self._shelf = index_kernel.Shelf(
            nodes[:used].copy(),
            np.empty(4 * chunks, np.int64),
            np.empty((chunks, 3), np.int64),
            paged(chunks, index_kernel.CHUNK, 4),
            np.arange(chunks - 1, -1, -1),
            np.empty((index_kernel.DEPTH, 4), np.int64),
            np.array([chunks, 0, index_kernel.DONE]),
        )
        index_kernel.insert(self._shelf, 0, len(load), 0, index_kernel.INFINITY)

    def go(self, some: Integers, limit: int, *, best_fit: bool) -> int:
        """Places these buffers in this order, each with an offset where that is; how many within `limit`."""
        instance, kernel, position = self._instance, self._kernel, 0
        columns = (instance.start, instance.end, instance.size, instance.exact, instance.alignment)
        # Rows are gathered first, so that they are read in a row.
        rows = np.stack([column[some] for column in (*columns, self.offsets)], axis=1)
        fit = kernel.BEST if best_fit else kernel.FIRST
        if len(some) and self.offsets[some[0]] != FREE:
            fit = kernel.PINNED
        while True:
            position = int(kernel.place_some(self._shelf, self._block, rows, position, limit, fit))
            match int(self._shelf.counts[self._kernel.WHY]):
                case kernel.SHORT_OF_STRIPS:
                    self._block = _grown(self._block)
                case kernel.SHORT_OF_CHUNKS:
                    self._more_chunks()
                case kernel.SHORT_OF_ENTRIES:
                    self._shelf = self._shelf._replace(entries=_grown(self._shelf.entries))
                case _:
                    self.offsets[some[:position]] = rows[:position, self._kernel.OFFSET]
                    return position

    def _more_chunks(self) -> None:
        """Half as many again; what is in use keeps its place."""
        kernel, old = self._kernel, self._shelf
        free = int(old.counts[kernel.FREE])
        more = _grown(old.chunks)
        added = len(more) - len(old.chunks)
        unused = np.empty(len(more), np.int64)
        unused[:added] = np.arange(len(more) - 1, len(old.chunks) - 1, -1)
        unused[added : added + free] = old.free[:free]
        self._shelf = old._replace(chunks=more, strips=_grown(old.strips), free=unused)
        old.counts[kernel.FREE] = free + added


class _Lists:
    """One pass with the lists of `kernels.pieces_kernel`. Memory: some 40 bytes a piece beside its row."""

    def __init__(self, instance: Instance) -> None:
        from solver.layout.kernels import pieces_kernel

        self._kernel, self._rows = pieces_kernel, instance.rows
        start, end, owner = self._rows[:, 0], self._rows[:, 1], self._rows[:, 4]
        self._buffers = np.stack((instance.exact, instance.alignment, instance.offset), axis=1)
        self._first = np.searchsorted(owner, np.arange(len(instance) + 1))
        # As wide as lives are long, on average: a piece then stands in two or three stretches.
        self._width = max(1, int((end - start).mean()))
        self._head = np.full(int(end.max()) // self._width + 1, pieces_kernel.NONE)
        stretches = int(((end - 1) // self._width - start // self._width).sum()) + len(owner)
        self._entries = np.empty((stretches, 2), np.int32)
        # Pieces that each buffer meets at most; steps are ranks, which fit 32 bits.
        start, end = start.astype(np.int32), end.astype(np.int32)
        met = np.zeros(len(owner) + 1, np.int64)
        met[1:] = np.sort(start).searchsorted(end, side="left")
        met[1:] -= np.sort(end).searchsorted(start, side="right")
        np.cumsum(met, out=met)
        self._scratch = np.empty((2, int(np.diff(met[self._first]).max())), np.int64)
        self._counts = np.zeros(1, np.int64)

    @property
    def offsets(self) -> Integers:
        return self._buffers[:, self._kernel.OFFSET].copy()

    def go(self, some: Integers, limit: int, *, best_fit: bool) -> int:
        """Places these buffers in this order, each with an offset where that is; how many within `limit`."""
        return int(
            self._kernel.place_pieces(
                self._buffers, self._rows, self._first, some, self._width, self._head, self._entries,
                self._scratch, self._counts, limit, best_fit,
            )
        )  # fmt: skip


def _grown(rows: Integers) -> Integers:
    """Half as many rows again, which cost no memory before they are used."""
    more = paged(len(rows) + len(rows) // 2, *rows.shape[1:])
    more[: len(rows)] = rows
    return more
