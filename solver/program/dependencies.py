"""How steps touch values: as columns of numbers, as use-def chains, and as dependencies between steps, with
the levels on which these let steps run at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Final, TypeVar

import numpy as np
import numpy.typing as npt

from solver.program.ir import Access, Program

__all__ = [
    "Touched",
    "UseDefChain",
    "dependencies",
    "followers",
    "in_order",
    "list_schedule",
    "touched",
    "use_def_chains",
]

_Flags = npt.NDArray[np.bool_]

_NUMBER: Final = {access: number for number, access in enumerate(Access)}

#: By the number of an access: whether it reads, and whether it defines.
_READS: Final[_Flags] = np.array([access.reads for access in Access])
_DEFINES: Final[_Flags] = np.array([access.defines for access in Access])


@dataclass(frozen=True, slots=True, eq=False)
class Touched:
    """A row for each binding, step by step: the number of its step, its value, and its access."""

    step: npt.NDArray[np.int64]
    value: npt.NDArray[np.int64]
    access: npt.NDArray[np.int8]

    @property
    def reads(self) -> _Flags:
        """For each row, whether its step reads the bytes."""
        return _READS[self.access]

    @property
    def defines(self) -> _Flags:
        """For each row, whether its step leaves a result there."""
        return _DEFINES[self.access]

    def has(self, access: Access) -> _Flags:
        """For each row, whether it has this access."""
        rows: _Flags = self.access == _NUMBER[access]
        return rows


def touched(program: Program) -> Touched:
    """The columns of a program; made once, linear."""
    return program.once("touched", _made)


def in_order(program: Program, order: Sequence[int]) -> Program:
    """`Program.reordered`, with columns that follow from those of the program; linear."""
    rows = touched(program)
    position = np.empty(len(order), np.int64)
    position[list(order)] = np.arange(len(order))
    step = position[rows.step]
    then = np.argsort(step, kind="stable")
    reordered = program.reordered(order)
    reordered.once("touched", lambda _: Touched(step[then], rows.value[then], rows.access[then]))
    return reordered


def _made(program: Program) -> Touched:
    bindings = [binding for step in program.steps for binding in step.bindings]
    many = np.array([len(step.bindings) for step in program.steps], np.int64)
    values = np.array([binding.value for binding in bindings], np.int64)
    accesses = np.array([_NUMBER[binding.access] for binding in bindings], np.int8)
    return Touched(np.repeat(np.arange(len(many)), many), values, accesses)


K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class UseDefChain:
    """Positions of the steps that define a value and of those that use it, in execution order.

    A step that updates it stands in both, and so does the step of a scratch value. The chains are those of
    Samsung ONE's TrainableGraph, with the accumulations that it leaves implicit made explicit.
    """

    value: int
    defs: tuple[int, ...]
    uses: tuple[int, ...]


def use_def_chains(program: Program) -> tuple[UseDefChain, ...]:
    """The chain of each value, by number. Linear in the bindings. Checks nothing."""
    defs: list[list[int]] = [[] for _ in program.values]
    uses: list[list[int]] = [[] for _ in program.values]
    for t, step in enumerate(program.steps):
        for value in dict.fromkeys(b.value for b in step.bindings if b.access.writes):
            defs[value].append(t)
        for value in dict.fromkeys(b.value for b in step.bindings if b.access is not Access.WRITE):
            uses[value].append(t)
    return tuple(UseDefChain(i, tuple(defs[i]), tuple(uses[i])) for i in range(len(program.values)))


def dependencies(touches: Iterable[tuple[Iterable[K], Iterable[K]]]) -> tuple[frozenset[int], ...]:
    """For each step the positions of those that it has to follow directly; `touches` has (reads, writes).

    RAW: a read follows the last write. WAR: a write follows the reads since then. WAW: a write
    follows the last write. Longer chains follow from these. Linear in touches and result.
    """
    before_each: list[frozenset[int]] = []
    writer: dict[K, int] = {}
    readers: dict[K, list[int]] = {}
    for t, (reads, writes) in enumerate(touches):
        before: set[int] = set()
        for key in reads:
            before.update((writer[key],) if key in writer else ())
            readers.setdefault(key, []).append(t)
        for key in writes:
            before.update((writer[key],) if key in writer else ())
            before.update(readers.pop(key, ()))
            writer[key] = t
        before_each.append(frozenset(before - {t}))
    return tuple(before_each)


def followers(before: Sequence[Iterable[int]]) -> list[list[int]]:
    """For each step the positions of those that have to follow it directly, in order. Linear.

    `before` are the `dependencies` of the steps.
    """
    after_each: list[list[int]] = [[] for _ in before]
    for t, earlier in enumerate(before):
        for s in earlier:
            after_each[s].append(t)
    return after_each


def list_schedule(before: Sequence[Collection[int]], parallelism: int) -> Iterator[list[int]]:
    """Each level takes, of the steps that are ready, the `parallelism` earliest in the order.

    `before` lists for each step the steps that it has to follow; a step is ready when all of them are on
    earlier levels. The earliest first, because the execution order is the one that keeps memory low: the
    further ahead a step runs, the longer its results wait for their readers.
    O((n + e) log n) for n steps and e dependencies. List scheduling: Graham, 1966.
    """
    waiting = [len(earlier) for earlier in before]
    after = followers(before)
    ready = [t for t, count in enumerate(waiting) if not count]  # rising, so a heap
    while ready:
        level = [heappop(ready) for _ in range(min(parallelism, len(ready)))]
        yield level
        for s in level:
            for t in after[s]:
                waiting[t] -= 1
                if not waiting[t]:
                    heappush(ready, t)
