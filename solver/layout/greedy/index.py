"""Placing in an order at scale, compiled: an index of free space, or lists of what is placed.

Compiled code is loaded at its first use, so that small problems do not wait for it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, cast

import numpy as np

from solver.layout.greedy.in_time import Sweep, in_time, time_kernel
from solver.layout.greedy.lists import Lists
from solver.layout.model.heap import paged
from solver.layout.model.instance import FREE, Instance, Integers
from solver.layout.structures.colouring import depth
from solver.native import runs_compiled

__all__ = ["COMPILED_FROM", "LISTED", "LOADED_FROM", "Kernel", "Walk", "kernel", "listed"]

#: Buffers from which the index beats a handful of NumPy calls for each; and from which a single pass does
#: even if the index has to be loaded first.
COMPILED_FROM: Final = 256
LOADED_FROM: Final = 3000

#: Strips of the index looked at for a placement, from which lists take less: there a placement costs about
#: as much as looking at so many, and a tenth of what the index takes where alignments leave slivers.
SEEN: Final = 200

#: Buffers of which one in so many lives at once, or more, and no more than so many in all, may go into lists:
#: a pass looks at a number of boxes that grows with the square.
LISTED: Final = 20
LISTED_BUFFERS: Final = 50_000

#: Placements between looks at the clock.
LOOK: Final = 250

_CHUNKS: Final = 64
_BUFFERS_OF_A_CHUNK: Final = 4
_BLOCK: Final = 16


class Kernel:
    """The compiled module, loaded and tried once; None where numba is missing or cannot compile."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked = False
        self._module: ModuleType | None = None

    def __call__(self) -> ModuleType | None:
        with self._lock:
            if not self._asked:
                self._asked = True
                self._module = self._load()
            return self._module

    @property
    def loaded(self) -> bool:
        """Whether asking costs nothing any more."""
        return self._asked

    @staticmethod
    def _load() -> ModuleType | None:
        from solver.layout.kernels import index_kernel

        one, zero = np.ones(1, np.int64), np.zeros(1, np.int64)
        for lists in (False, True):
            Walk(Instance(zero, one, one, one, one, zero + FREE, 1), index_kernel, lists=lists).place(zero, 1)
        return index_kernel if runs_compiled(index_kernel.place_some) else None


kernel = Kernel()


def listed(instance: Instance) -> bool:
    """Whether lists may be worth their memory. O(n + S)."""
    return 0 < len(instance) <= LISTED_BUFFERS and LISTED * depth(instance) > len(instance)


class Walk:
    """One pass through an order; what was placed stays.

    An order of time is a sweep. Any other begins with the index; where `listed` says so, it goes on with
    lists once the index sees too many strips. With `lists` all is in lists from the beginning, or in the
    index. The layout does not depend on it. Memory: 60 to 150 bytes a buffer, as measured; about as much with
    lists; a third in a sweep.
    """

    def __init__(self, instance: Instance, module: ModuleType, *, lists: bool | None = None) -> None:
        from solver.layout.kernels import index_strips

        self._module, self._strips, self._instance = module, index_strips, instance
        self._block, self._shelf = np.empty((_BLOCK, 5), np.int64), cast(Any, ())
        self._lists, self._begun = Lists(instance) if lists else None, False
        #: What has an offset and has yet to be put there.
        self._waiting: Integers | None = None
        self._may_sweep, self._may_list = lists is None, lists is None and listed(instance)
        self._offsets = instance.offset.copy()
        self._pinned = instance.pinned

    @property
    def offsets(self) -> Integers:
        """`FREE` where not placed. The array changes with what is placed later."""
        return self._offsets

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the free space is kept in."""
        lists = self._lists.nbytes if self._lists else 0
        return lists + sum(int(rows.nbytes) for rows in (*self._shelf, self._block))

    @property
    def fragments(self) -> int:
        """About how scattered free space is: chunks of strips that are in use. Only without lists."""
        return len(self._shelf.chunks) - int(self._shelf.counts[self._strips.FREE])

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
        if self._may_sweep:
            self._may_sweep = False
            module, way = time_kernel(), in_time(self._instance, order)
            if module is not None and way:
                sweep = Sweep(self._instance, module, backwards=way < 0)
                self._offsets = sweep.offsets
                return sweep.place(order, limit, best_fit=best_fit, late=late)
        if not (self._begun or self._begin(late)):
            return 0
        fit, done = self._module.BEST if best_fit else self._module.FIRST, 0
        while done < len(order) and not late():
            some = order[done : done + LOOK]
            free = np.flatnonzero(self._instance.offset[some] == FREE) if self._pinned else None
            placed = self._go(some if free is None else some[free], limit, fit)
            if placed < (len(some) if free is None else len(free)):
                return done + (placed if free is None else int(free[placed]))
            done += len(some)
            if self._may_list and done < len(order):
                self._list_where_worth_it(placed)
        return done

    def _begin(self, late: Callable[[], bool]) -> bool:
        """What has an offset, by a pin or a sweep, is where it is; whether time allowed that."""
        if self._lists is None and self._waiting is None:
            self._shelf = self._empty(self._instance)
        waiting = np.flatnonzero(self._offsets != FREE) if self._waiting is None else self._waiting
        while len(waiting) and not late():
            self._put(waiting[:LOOK])
            waiting = waiting[LOOK:]
        self._waiting, self._begun = waiting, not len(waiting)
        return self._begun

    def _put(self, some: Integers) -> None:
        if len(some):
            self._go(some, self._strips.INFINITY, self._module.PINNED)

    def _list_where_worth_it(self, placements: int) -> None:
        """After so many placements, which tell how many strips are looked at for one."""
        seen = int(self._shelf.counts[self._strips.SEEN])
        self._shelf.counts[self._strips.SEEN] = 0
        if seen > SEEN * placements:
            self._shelf = ()  # its memory counts no more
            self._lists, self._may_list = Lists(self._instance), False
            self._put(np.flatnonzero(self._offsets != FREE))

    def _empty(self, instance: Instance) -> Any:
        strips, load = self._strips, instance.load()
        # A node is split where it has more than 32 sections, and no side gets fewer than a quarter of them:
        # so each leaf has eight at least, and there is a node for every four at most.
        nodes = np.zeros((len(load) // 4 + 2, 6), np.int64)
        made = strips.grow_tree(load, nodes, np.empty((len(nodes), 3), np.int64))
        # About as many as are needed in the end: what is not used takes no memory, and growing copies.
        chunks = _CHUNKS + made + len(instance) // _BUFFERS_OF_A_CHUNK
        shelf = strips.Shelf(
            nodes[:made].copy(),
            np.empty(4 * chunks, np.int64),
            np.empty((chunks, 3), np.int64),
            paged(chunks, strips.CHUNK, 4),
            np.arange(chunks - 1, -1, -1),
            np.empty((strips.DEPTH, 4), np.int64),
            np.array([chunks, 0, self._module.DONE, 0]),
        )
        strips.insert(shelf, 0, len(load), 0, strips.INFINITY)
        return shelf

    def _more_chunks(self) -> None:
        """Half as many again; what is in use keeps its place."""
        strips, old = self._strips, self._shelf
        free = int(old.counts[strips.FREE])
        more = _grown(old.chunks)
        added = len(more) - len(old.chunks)
        unused = np.empty(len(more), np.int64)
        unused[:added] = np.arange(len(more) - 1, len(old.chunks) - 1, -1)
        unused[added : added + free] = old.free[:free]
        self._shelf = old._replace(chunks=more, strips=_grown(old.strips), free=unused)
        old.counts[strips.FREE] = free + added

    def _go(self, some: Integers, limit: int, fit: int) -> int:
        """How many of these were placed. Their rows are gathered first, so that they are read in a row."""
        instance, module, position = self._instance, self._module, 0
        columns = (instance.start, instance.end, instance.size, instance.exact, instance.alignment)
        rows = np.stack([column[some] for column in (*columns, self._offsets)], axis=1)
        if self._lists is not None:
            position = self._lists.place(rows, limit, fit)
            self._offsets[some[:position]] = rows[:position, self._strips.OFFSET]
            return position
        while True:
            position = int(module.place_some(self._shelf, self._block, rows, position, limit, fit))
            match int(self._shelf.counts[self._strips.WHY]):
                case module.SHORT_OF_STRIPS:
                    self._block = _grown(self._block)
                case module.SHORT_OF_CHUNKS:
                    self._more_chunks()
                case module.SHORT_OF_ENTRIES:
                    self._shelf = self._shelf._replace(entries=_grown(self._shelf.entries))
                case _:
                    self._offsets[some[:position]] = rows[:position, self._strips.OFFSET]
                    return position


def _grown(rows: Integers) -> Integers:
    """Half as many rows again, which cost no memory before they are used."""
    more = paged(len(rows) + len(rows) // 2, *rows.shape[1:])
    more[: len(rows)] = rows
    return more
