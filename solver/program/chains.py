"""Use-def chains of a program, and the dependencies between its steps."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from solver.program.ir import Access, Program

__all__ = ["UseDefChain", "dependencies", "followers", "use_def_chains"]

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
    found: list[frozenset[int]] = []
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
        found.append(frozenset(before - {t}))
    return tuple(found)


def followers(before: Sequence[Iterable[int]]) -> list[list[int]]:
    """For each step the positions of those that have to follow it directly, in order. Linear.

    `before` is what `dependencies` answers.
    """
    found: list[list[int]] = [[] for _ in before]
    for t, earlier in enumerate(before):
        for s in earlier:
            found[s].append(t)
    return found
