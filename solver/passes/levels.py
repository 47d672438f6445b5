"""The pass `levels`: steps that run at the same time, on concurrency levels.

    execution order   a  b  c  d  e  f          level       0   1   2   3
    has to follow     -  a  a  b  c  d,e        one thread  a   b   d   f
                                                another         c   e

A level ends when all its steps have ended (a barrier), so it is the unit of time of lifespans: what
steps of one level touch, scratch included, lives at the same time and shares no byte. Two steps of a
level never write the same value, and none reads what another writes; so each step finds the contents that
it finds in the execution order, and computes the same bits.

Where recomputation or paging made the order fit a capacity, levels keep it as well: of what runs ahead on a
level that is too full, steps wait for the one in front of them, until none is too full.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar

from solver.accounting import paging_problem
from solver.errors import OptionsError
from solver.passes.aliases import define_in_place
from solver.passes.base import Pass
from solver.program import UPDATE, Program, Tier, dependencies, list_schedule, loads

__all__ = ["MAX_PARALLELISM", "Levels"]

#: More threads than any machine has that trains on a CPU, and few enough to start at once.
MAX_PARALLELISM = 64


@dataclass(frozen=True, slots=True)
class Levels(Pass):
    """At most `parallelism` steps on a level.

    Where updates stand at the end, none of them fills a level of the backward pass. With `recompute` no level
    takes more than `capacity`, with `tiers` none touches more than the first one holds, as far as one step at
    a time does not. Raises OptionsError for a parallelism out of range.
    """

    name: ClassVar[str] = "levels"
    requires: ClassVar[frozenset[str]] = frozenset({"sequential", "own memory"})
    keeps: ClassVar[frozenset[str]] = frozenset({"own memory"})

    parallelism: int = 1
    update: str = "immediate"
    recompute: bool = False
    capacity: int | None = None
    in_place: bool = False
    tiers: tuple[Tier, ...] = ()

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
        waiting, share = set[int](), 1
        while True:
            levels = _levels(program, self.parallelism, stage, waiting)
            candidate = _placed(program, levels)
            full = self._too_full(program, candidate)
            # More in each round: mostly a few that wait are enough, and the rest may stay side by side.
            more = {t for level in full for t in _ahead(levels, level, waiting)[:share]}
            if not full:
                return candidate
            if not more:  # aliases may need more bytes on levels than one step at a time needs anywhere
                return program
            waiting |= more
            share *= 2

    def _too_full(self, program: Program, candidate: Program) -> list[int]:
        """The levels that need more than is there; none if one step at a time needs more as well."""
        if self.parallelism == 1 or not (self.tiers or (self.recompute and self.capacity is not None)):
            return []
        most = self.tiers[0].bytes if self.tiers else self.capacity or 0
        if max(self._needs(program), default=0) > most:
            return []
        return [level for level, needs in enumerate(self._needs(candidate)) if needs > most]

    def _needs(self, program: Program) -> Sequence[int]:
        """Bytes that must be there on each level: all that live, or what cannot be paged out."""
        if self.tiers:
            return paging_problem(program, 0).fixed
        return loads(define_in_place(program) if self.in_place else program)[0]

    def facts(self, before: Program, after: Program) -> dict[str, int | str | bool]:
        return {"parallelism": self.parallelism, "steps": len(after.steps), "levels": after.duration}


def _levels(program: Program, parallelism: int, stage: int, waiting: Collection[int]) -> list[int]:
    """The level of each step; those `waiting` do not run ahead of the step in front of them.

    The step at position `stage` and those behind it wait for all steps before it: updates that are to come
    at the end do not fill levels of the backward pass.
    """
    if parallelism == 1:
        return list(range(len(program.steps)))
    before = [
        # A repeated step was put where its result is wanted: it waits for the step in front of it.
        earlier | {t - 1} if t and (program.runs[t] or t in waiting) else earlier
        for t, earlier in enumerate(dependencies(program.touches()))
    ]
    late = [frozenset(s - stage for s in earlier if s >= stage) for earlier in before[stage:]]
    ends = ([t + stage for t in level] for level in list_schedule(late, parallelism))
    levels = [0] * len(program.steps)
    for number, level in enumerate(chain(list_schedule(before[:stage], parallelism), ends)):
        for t in level:
            levels[t] = number
    return levels


def _placed(program: Program, levels: Sequence[int]) -> Program:
    order = sorted(range(len(levels)), key=lambda t: (levels[t], t))
    if all(levels[t] == step.level for t, step in enumerate(program.steps)):
        return program
    return program.reordered(order, [levels[t] for t in order])


def _ahead(levels: Sequence[int], level: int, waiting: Collection[int]) -> list[int]:
    """The steps that have run by the end of a level before one in front of them has; the furthest first."""
    behind = min(t for t, number in enumerate(levels) if number >= level)
    steps_ahead = [t for t in range(behind + 1, len(levels)) if levels[t] <= level and t not in waiting]
    return sorted(steps_ahead, key=lambda t: (levels[t], t), reverse=True)
