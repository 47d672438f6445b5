"""The pass `paging` for a program that shares its memory with others: what lies where between two runs.

    between runs   sram   w1  w2            each value that stays is in one memory, the same for all programs
                   flash  w3  w4  w3@m      those of slower memory are copied in and out in each run

A value that stays has its gap from the last touch to the first one of the next run, the cyclic one, or none:
others know then where it lies. Where it has that gap, it may leave in between as well.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TypeVar

from solver.accounting import PagingProblem, is_copy, paging_problem
from solver.accounting.gaps import GapKind
from solver.layout import Deadline
from solver.passes.base import Applied, Pass, Tell, silent
from solver.passes.paging import Paging
from solver.program import EntryKind, Program, Tier

__all__ = ["in_shared_memory"]

_Options = TypeVar("_Options")


def in_shared_memory(
    passes: Callable[[_Options], Sequence[Pass]], away: Mapping[str, int]
) -> Callable[[_Options], Sequence[Pass]]:
    """The same passes for a program whose values `away`, by label, lie in the tier of this number between
    two runs. Values that stay and are not among them may join them.
    """
    return lambda options: [
        _JointPaging(**{field.name: getattr(p, field.name) for field in fields(p)}, away=(*away.items(),))
        if isinstance(p, Paging)
        else p
        for p in passes(options)
    ]


@dataclass(frozen=True, slots=True)
class _JointPaging(Paging):
    """Two searches. The first may page every value; those of its choice that stay from run to run are away
    between two runs in the second, where no others that stay leave. It has all the gaps that the first took.
    """

    away: tuple[tuple[str, int], ...] = ()
    is_second: bool = False

    def apply(self, program: Program, deadline: Deadline, tell: Tell = silent) -> Applied:
        applied = Paging.apply(self, program, deadline, tell)
        if self.is_second or not self.tiers:
            return applied
        known = dict(self.away)
        leaving = _leaving(program, applied.program)
        more = {label: tier for label, tier in leaving.items() if label not in known}
        if not more:
            return applied
        again = replace(self, away=(*self.away, *more.items()), is_second=True)
        return again.apply(program, deadline, tell)

    def _home_of(self, program: Program) -> dict[int, int]:
        """The tier between two runs of each value that is away, those held for others among them."""
        by_label = program.by_label
        return {by_label[label]: tier for label, tier in self.away if label in by_label}

    def _with_homes(self, program: Program) -> Program:
        held = {entry.value for entry in program.entry if entry.kind is EntryKind.HELD}
        values = list(program.values)
        for value, tier in self._home_of(program).items():
            if value in held:
                values[value] = replace(values[value], space=tier)
        return replace(program, values=tuple(values))

    def _away(self, program: Program) -> Collection[int]:
        return self._home_of(program).keys() & _staying(program)

    def _problem(self, program: Program, ahead: int) -> PagingProblem:
        away = self._away(program)
        problem = paging_problem(program, ahead, away=away)
        if not self.is_second:
            return problem
        fast = _staying(program).difference(away)
        dropped = {j for j, gap in enumerate(problem.gaps) if gap.value in fast}
        return _without(problem, dropped) if dropped else problem

    def _taken(self, program: Program, problem: PagingProblem) -> frozenset[int]:
        away = self._away(program)
        return frozenset(
            j for j, gap in enumerate(problem.gaps) if gap.value in away and gap.kind is GapKind.CYCLIC
        )

    def _homes(
        self, program: Program, problem: PagingProblem, taken: Collection[int]
    ) -> dict[int, int] | None:
        places = Paging._homes(self, program, problem, self._choosing(program, problem, taken))
        home_of = self._home_of(program)
        return None if places is None else places | {v: home_of[v] for v in self._away(program)}

    def _choosing(self, program: Program, problem: PagingProblem, taken: Collection[int]) -> frozenset[int]:
        home_of = self._home_of(program)
        return frozenset(j for j in taken if problem.gaps[j].value not in home_of)

    def _room(self, program: Program) -> tuple[Tier, ...]:
        alignment = program.spaces[0].alignment
        bytes_left = [tier.bytes for tier in self.tiers]
        for value, tier in self._home_of(program).items():
            bytes_left[tier] -= -(-program.values[value].type.nbytes // alignment) * alignment
        pairs = zip(self.tiers, bytes_left, strict=True)
        return tuple(replace(tier, bytes=max(0, left)) for tier, left in pairs)


def _leaving(before: Program, after: Program) -> dict[str, int]:
    """By label the values that stay and that copies move, with the tier that they leave for.

    A value keeps its number, with its place between two runs or the one that it leaves then.
    """
    staying = _staying(before)
    leaving: dict[str, int] = {}
    for step in after.steps:
        if is_copy(after, step):
            slow = max(after.values[binding.value].space for binding in step.bindings)
            moved = staying.intersection(binding.value for binding in step.bindings)
            leaving.update((before.values[value].label, slow) for value in moved)
    return leaving


def _staying(program: Program) -> set[int]:
    """The values that one run leaves to the next."""
    kinds = (EntryKind.CARRIED, EntryKind.CONSTANT)
    return {entry.value for entry in program.entry if entry.kind in kinds}


def _without(problem: PagingProblem, dropped: Collection[int]) -> PagingProblem:
    """The problem without these gaps: what they would free is there in any case."""
    fixed = list(problem.fixed)
    for j in dropped:
        for span in problem.gaps[j].free:
            for level in range(span.start, span.end):
                fixed[level] += problem.gaps[j].size
    kept = [j for j in range(len(problem.gaps)) if j not in dropped]
    return replace(
        problem,
        fixed=tuple(fixed),
        gaps=tuple(problem.gaps[j] for j in kept),
        moved=tuple(problem.moved[j] for j in kept),
    )
