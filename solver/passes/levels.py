"""The pass `levels`: steps that run at the same time, on concurrency levels.

    execution order   a  b  c  d  e  f          level       0   1   2   3
    has to follow     -  a  a  b  c  d,e        one thread  a   b   d   f
                                                another         c   e

A level ends when all its steps have ended (a barrier), so it is the unit of time of lifespans: what
steps of one level touch, scratch included, lives at the same time and shares no byte. Two steps of a
level never write the same value, and none reads what another writes; so each step finds the contents that
it finds in the execution order, and computes the same bits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from typing import ClassVar

from solver.errors import OptionsError
from solver.passes.base import Pass
from solver.program import UPDATE, Program, dependencies

__all__ = ["MAX_PARALLELISM", "Levels", "in_levels", "list_schedule"]

#: More threads than any machine has that trains on a CPU, and few enough to start at once.
MAX_PARALLELISM = 64


@dataclass(frozen=True, slots=True)
class Levels(Pass):
    """At most `parallelism` steps on a level.

    Where updates stand at the end, none of them fills a level of the backward pass. Raises OptionsError for
    a parallelism out of range.
    """

    name: ClassVar[str] = "levels"
    requires: ClassVar[frozenset[str]] = frozenset({"sequential", "own memory"})
    keeps: ClassVar[frozenset[str]] = frozenset({"own memory"})

    parallelism: int = 1
    update: str = "immediate"

    def __post_init__(self) -> None:
        if not 1 <= self.parallelism <= MAX_PARALLELISM:
            raise OptionsError(
                f"The parallelism is {self.parallelism}.",
                remedy=f"Give 1 to {MAX_PARALLELISM} steps at the same time.",
                path=("parallelism",),
            )

    def run(self, program: Program) -> Program:
        stage = 0
        if self.update == "end":
            stage = next((t for t, s in enumerate(program.steps) if program.kernel(s) == UPDATE), 0)
        return in_levels(program, self.parallelism, stage=stage)

    def facts(self, before: Program, after: Program) -> dict[str, int | str | bool]:
        return {"parallelism": self.parallelism, "steps": len(after.steps), "levels": after.duration}


def in_levels(program: Program, parallelism: int, *, stage: int = 0) -> Program:
    """The steps of `program` level by level; the program itself where one step runs at a time. Deterministic.

    The step at position `stage` and those behind it wait for all steps before it: updates that are to come
    at the end do not fill levels of the backward pass.
    """
    if parallelism == 1:
        return program
    before = [
        # A repeated step was put where its result is wanted: it waits for the step in front of it.
        found | {t - 1} if program.runs[t] and t else found
        for t, found in enumerate(dependencies(program.touches()))
    ]
    late = [frozenset(s - stage for s in found if s >= stage) for found in before[stage:]]
    ends = ([t + stage for t in level] for level in list_schedule(late, parallelism))
    order: list[int] = []
    levels: list[int] = []
    for number, level in enumerate(chain(list_schedule(before[:stage], parallelism), ends)):
        order += level
        levels += [number] * len(level)
    return program.reordered(order, levels)


def list_schedule(before: Sequence[Collection[int]], parallelism: int) -> Iterator[list[int]]:
    """Each level takes, of the steps that are ready, the `parallelism` earliest in the order.

    `before` lists for each step the steps that it has to follow; a step is ready when all of them are on
    earlier levels. The earliest first, because the execution order is the one that keeps memory low: the
    further ahead a step runs, the longer its results wait for their readers.
    O((n + e) log n) for n steps and e dependencies. List scheduling: Graham, 1966.
    """
    waiting = [len(found) for found in before]
    after: list[list[int]] = [[] for _ in before]
    for t, found in enumerate(before):
        for s in found:
            after[s].append(t)
    ready = [t for t, count in enumerate(waiting) if not count]
    heapify(ready)
    while ready:
        level = [heappop(ready) for _ in range(min(parallelism, len(ready)))]
        yield level
        for s in level:
            for t in after[s]:
                waiting[t] -= 1
                if not waiting[t]:
                    heappush(ready, t)
