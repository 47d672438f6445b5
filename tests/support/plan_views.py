"""Plans as reports see them, made by hand: steps and buffers without a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from solver.plan import Arena, PlannedBuffer, PlannedStep, PlanOptions, PlanView
from solver.program import Record, Replacement

__all__ = ["HandMadePlan"]


@dataclass(frozen=True)
class HandMadePlan:
    """Satisfies `solver.plan.PlanView`; nothing checks that steps and buffers agree."""

    steps: tuple[PlannedStep, ...]
    arenas: tuple[Arena, ...]
    options: PlanOptions = field(default_factory=PlanOptions)
    graph: str = "test"
    graph_digest: str = "0" * 64
    replacements: tuple[Replacement, ...] = ()
    records: tuple[Record, ...] = ()
    deterministic: bool = True
    digest: str = ""

    @classmethod
    def of(cls, plan: PlanView) -> HandMadePlan:
        """The same steps and buffers, to be changed by hand."""
        return cls(plan.steps, plan.arenas, plan.options, plan.graph, records=plan.records)

    @property
    def arena_bytes(self) -> int:
        return sum(arena.size for arena in self.arenas)

    @property
    def lower_bound(self) -> int:
        return sum(arena.certificate.lower_bound for arena in self.arenas)

    @property
    def gap_bytes(self) -> int:
        return self.arena_bytes - self.lower_bound

    @property
    def times(self) -> tuple[int, ...]:
        return tuple(step.level for step in self.steps)

    @property
    def duration(self) -> int:
        return min(max(self.times, default=-1) + 1, len(self.steps))

    def level_ids(self) -> tuple[str, ...]:
        last = self.duration - 1
        return tuple(
            " + ".join(step.id for step in self.steps if min(step.level, last) == level)
            for level in range(self.duration)
        )

    def buffers(self) -> Iterator[tuple[Arena, PlannedBuffer]]:
        return ((arena, buffer) for arena in self.arenas for buffer in arena.buffers)
