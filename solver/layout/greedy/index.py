"""Placing in an order at scale: the compiled index of free space, and NumPy where nothing compiles.

Compiled code is loaded at its first use, so that small problems do not wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.layout.compiled import index_state as state
from solver.layout.compiled.fallback import UNCOMPILED, warn_uncompiled
from solver.layout.compiled.kernels import Kernel
from solver.layout.model.instance import FREE, Instance, Integers

__all__ = ["COMPILED_FROM", "LOADED_FROM", "Index", "Loaded", "Walk", "kernel"]

#: Buffers from which the index beats a handful of NumPy calls for each; and from which a single pass does
#: even if the index has to be loaded first.
COMPILED_FROM: Final = 256
LOADED_FROM: Final = 3000

#: Placements between looks at the clock.
LOOK: Final = 1000

_CHUNKS: Final = 64
_BUFFERS_OF_A_CHUNK: Final = 8
_BLOCK: Final = 16


@dataclass(frozen=True, slots=True)
class Index:
    """The compiled functions of the index."""

    grow_tree: Kernel
    begin: Kernel
    place_some: Kernel


class Loaded:
    """The compiled index, loaded and tried once; None where numba is missing or cannot compile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = False
        self._index: Index | None = None

    def __call__(self) -> Index | None:
        with self._lock:
            if not self._asked:
                self._asked = True
                self._index = self._load()
            return self._index

    @property
    def loaded(self) -> bool:
        """Whether asking costs nothing any more."""
        return self._asked

    @staticmethod
    def _load() -> Index | None:
        strips, walks = "solver.layout.compiled.index_strips", "solver.layout.compiled.index_kernel"
        index = Index(
            Kernel(strips, "grow_tree", lambda: _tree(_load_of_one())),
            Kernel(walks, "begin", lambda: (_shelf(1, 1), 1)),
            Kernel(walks, "place_some", lambda: (_shelf(1, 1), _block(), _block(), 0, 0, state.FIRST)),
        )
        try:
            one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
            Walk(Instance(zero, one, one, one, one, zero + FREE, 1), index).place(zero, 1)
        except UNCOMPILED as error:
            warn_uncompiled(error)
            return None
        return index


kernel = Loaded()


def _load_of_one() -> Integers:
    return np.ones(1, np.int64)


def _block() -> Integers:
    return np.empty((_BLOCK, 5), np.int64)


def _tree(load: Integers) -> tuple[Integers, Integers, Integers]:
    """What `grow_tree` takes."""
    return load, np.zeros((len(load) + 2, 6), np.int64), np.empty((len(load) + 2, 3), np.int64)


def _shelf(chunks: int, nodes: Integers | int) -> state.Shelf:
    """With so many chunks, none of them in use."""
    return state.Shelf(
        np.zeros((nodes, 6), np.int64) if isinstance(nodes, int) else nodes,
        np.empty(4 * chunks, np.int64),
        np.empty((chunks, 3), np.int64),
        np.empty((chunks, state.CHUNK, 4), np.int64),
        np.arange(chunks - 1, -1, -1),
        np.empty((state.DEPTH, 4), np.int64),
        np.array([chunks, 0, state.DONE]),
    )


class Walk:
    """One pass through an order; what was placed stays. Memory: 60 to 150 bytes a buffer, as measured."""

    def __init__(self, instance: Instance, index: Index) -> None:
        self._index, self._instance, self._block = index, instance, _block()
        self._shelf = self._empty(instance)
        pinned = np.flatnonzero(instance.offset != FREE)
        self._offsets = instance.offset.copy() if len(pinned) else np.full(len(instance), FREE)
        self._pinned = bool(len(pinned))
        if self._pinned:
            self._go(pinned, state.INFINITY, state.PINNED)

    @property
    def offsets(self) -> Integers:
        """`FREE` where not placed. The array changes with what is placed later."""
        return self._offsets

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the free space is kept in."""
        return sum(rows.nbytes for rows in (*self._shelf, self._block))

    def place(
        self,
        order: Integers,
        limit: int,
        *,
        best_fit: bool = False,
        late: Callable[[], bool] = lambda: False,
    ) -> int:
        """Place in this order, pinned ones excepted; how far into it this got within `limit`.

        It stops early once `late`, which is asked every few milliseconds.
        """
        fit, done = state.BEST if best_fit else state.FIRST, 0
        while done < len(order) and not late():
            some = order[done : done + LOOK]
            free = np.flatnonzero(self._instance.offset[some] == FREE) if self._pinned else None
            placed = self._go(some if free is None else some[free], limit, fit)
            if placed < (len(some) if free is None else len(free)):
                return done + (placed if free is None else int(free[placed]))
            done += len(some)
        return done

    def _empty(self, instance: Instance) -> state.Shelf:
        load, nodes, stack = _tree(instance.load())
        made = self._index.grow_tree(load, nodes, stack)
        # About as many chunks as are needed in the end: what is not used takes no memory, and growing copies.
        shelf = _shelf(_CHUNKS + made + len(instance) // _BUFFERS_OF_A_CHUNK, nodes[:made].copy())
        self._index.begin(shelf, len(load))
        return shelf

    def _more_chunks(self) -> None:
        """Half as many again; what is in use keeps its place."""
        old = self._shelf
        free = int(old.counts[state.FREE])
        more = _grown(old.chunks)
        added = len(more) - len(old.chunks)
        unused = np.empty(len(more), np.int64)
        unused[:added] = np.arange(len(more) - 1, len(old.chunks) - 1, -1)
        unused[added : added + free] = old.free[:free]
        self._shelf = old._replace(chunks=more, strips=_grown(old.strips), free=unused)
        old.counts[state.FREE] = free + added

    def _go(self, some: Integers, limit: int, fit: int) -> int:
        """How many of these were placed. Their rows are gathered first, so that they are read in a row."""
        instance, position = self._instance, 0
        columns = (instance.start, instance.end, instance.size, instance.exact, instance.alignment)
        rows = np.stack([column[some] for column in (*columns, self._offsets)], axis=1)
        while True:
            position = self._index.place_some(self._shelf, self._block, rows, position, limit, fit)
            match int(self._shelf.counts[state.WHY]):
                case state.SHORT_OF_STRIPS:
                    self._block = _grown(self._block)
                case state.SHORT_OF_CHUNKS:
                    self._more_chunks()
                case state.SHORT_OF_ENTRIES:
                    self._shelf = self._shelf._replace(entries=_grown(self._shelf.entries))
                case _:
                    self._offsets[some[:position]] = rows[:position, state.OFFSET]
                    return position


def _grown(rows: Integers) -> Integers:
    """Half as many rows again, which cost no memory before they are used."""
    more = np.empty((len(rows) + len(rows) // 2, *rows.shape[1:]), np.int64)
    more[: len(rows)] = rows
    return more
