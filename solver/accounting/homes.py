"""Homes: how long a step takes to reach its values, by the memory that each one lies in; and a bound on that.

    nanoseconds of an iteration  =  those of its levels, as in one memory  +  those of all accesses
    access of one binding        =  bytes read / read rate  +  bytes written / write rate  +  latency

What a step updates is read and written, and so is its scratch. A copy has a time of its own
(`solver.accounting.clocks`), and a step whose results are all views does nothing. Memories are shared, so
accesses of steps that run at the same time add up. A memory without a bandwidth is as fast as costs have it.

Homes are chosen for regions, because the values of an alias set share bytes. With x[i, k] = 1 where region i
lies in memory k, and t[i, k] for its accesses there:

    least  sum t[i, k] x[i, k]      one home for each region
                                    on each level, for each memory:  sum size[i] x[i, k] <= capacity[k]

For all multipliers m >= 0 of the rows of levels, no choice of homes takes less than

    sum over regions of min over k of ( t[i, k] + size[i] * sum of m[k, level] on the levels of i )
      - sum of m[k, level] * capacity[k]                                        (weak duality)

so good multipliers come from a solver, and nothing has to be believed about it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from re import compile as compiled

from solver.layout import Lifespan
from solver.memories import Tier, access_nanoseconds
from solver.names import matching_names
from solver.program import COPY, Access, HomeRow, Program, Region, Space

__all__ = [
    "HomeItem",
    "HomeProblem",
    "added_up_homes",
    "as_one_memory",
    "home_problem",
    "in_memories",
    "level_accesses",
    "places_of",
    "reduced_times",
]

#: The suffixes of values that hold again what a value of the reference program holds.
_AGAIN = compiled(r"(@(again|stay)[0-9]+)+$")


@dataclass(frozen=True, slots=True)
class HomeItem:
    """Bytes that need one home: `size` bytes on the levels of `spans`, which are apart and in order of time.

    `nanoseconds[k]` are those of all accesses if the home is memory k; None where it must not lie there.
    """

    size: int
    spans: tuple[Lifespan, ...]
    nanoseconds: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class HomeProblem:
    """Items, and the bytes of each memory. Levels are any whole numbers."""

    items: tuple[HomeItem, ...]
    capacities: tuple[int, ...]

    def nanoseconds(self, homes: Sequence[int]) -> int:
        """The time of all accesses with these homes, by item."""
        return sum(item.nanoseconds[home] or 0 for item, home in zip(self.items, homes, strict=True))


def _accesses(program: Program) -> Iterable[tuple[int, int, int, int]]:
    """Level, value, reads and writes of each binding of a step that does something and is no copy."""
    views: dict[int, set[int]] = {}
    for alias in program.aliases:
        if alias.view:
            views.setdefault(alias.step, set()).add(alias.value)
    for t, step in enumerate(program.steps):
        if step.reference is None and program.kernel(step) == COPY:
            continue
        if t in views and {b.value for b in step.bindings if b.access.defines} <= views[t]:
            continue
        for b in step.bindings:
            scratch = b.access is Access.SCRATCH
            yield step.level, b.value, int(b.access.reads or scratch), int(b.access.defines or scratch)


def level_accesses(program: Program, memories: Sequence[Tier]) -> list[int]:
    """Nanoseconds of all accesses on each level; memory k is that of space k. Linear in the bindings."""
    values, nanoseconds = program.values, [0] * program.duration
    for level, value, reads, writes in _accesses(program) if memories else ():
        memory = memories[values[value].space]
        nanoseconds[level] += access_nanoseconds(memory, values[value].type.nbytes, reads, writes)
    return nanoseconds


def home_problem(
    program: Program, regions: Sequence[Region], memories: Sequence[Tier], allowed: Mapping[int, int]
) -> HomeProblem:
    """The problem of homes for `regions` of a program. `allowed` has the only home of some values.

    A region that has values with two only homes has none. Linear in bindings and levels.
    """
    by_value: dict[int, list[int]] = {}
    for _, value, reads, writes in _accesses(program):
        row = by_value.setdefault(value, [0] * len(memories))
        for k, memory in enumerate(memories):
            row[k] += access_nanoseconds(memory, program.values[value].type.nbytes, reads, writes)
    items = []
    for region in regions:
        rows = [by_value[member] for member in region.members if member in by_value]
        only = {allowed[member] for member in region.members if member in allowed}
        nanoseconds = tuple(
            sum(row[k] for row in rows) if only <= {k} else None for k in range(len(memories))
        )
        items.append(HomeItem(region.size, region.spans, nanoseconds))
    return HomeProblem(tuple(items), tuple(memory.bytes for memory in memories))


def added_up_homes(problem: HomeProblem, rows: Sequence[HomeRow], denominator: int) -> int:
    """Nanoseconds that the rows prove of every choice of homes. O(i log r) for i items and r rows.

    Raises ValueError, with a sentence, for rows that prove nothing.
    """
    total = sum(
        min((each for each in row if each is not None), default=0)
        for row in reduced_times(problem, rows, denominator)
    )
    total -= sum(row.multiplier * problem.capacities[row.memory] for row in rows)
    return max(0, -(-total // denominator))


def reduced_times(problem: HomeProblem, rows: Sequence[HomeRow], denominator: int) -> list[list[int | None]]:
    """For each item and memory the time of accesses with what the multipliers of rows ask for its bytes, in
    parts of the denominator. Raises ValueError and costs as `added_up_homes`.
    """
    if denominator < 1:
        raise ValueError(f"its denominator is {denominator}.")
    levels = sorted({row.level for row in rows})
    at = {level: position for position, level in enumerate(levels)}
    weights = [[0] * len(levels) for _ in problem.capacities]
    for row in rows:
        if row.multiplier < 0 or not 0 <= row.memory < len(problem.capacities):
            raise ValueError(f"a row has multiplier {row.multiplier} and is of memory {row.memory}.")
        weights[row.memory][at[row.level]] += row.multiplier
    sums = [list(accumulate(weight, initial=0)) for weight in weights]
    reduced: list[list[int | None]] = []
    for item in problem.items:
        ends = [(bisect_left(levels, span.start), bisect_left(levels, span.end)) for span in item.spans]
        reduced.append(
            [
                None
                if t is None
                else t * denominator + item.size * sum(sums[k][b] - sums[k][a] for a, b in ends)
                for k, t in enumerate(item.nanoseconds)
            ]
        )
    return reduced


def in_memories(
    program: Program, regions: Sequence[Region], homes: Sequence[int], memories: Sequence[Tier]
) -> Program:
    """The program with a space for each memory in the place of its first one, and each region in its home.

    `homes` has those of the regions in the first space, in their order. Linear.
    """
    first, *others = program.spaces
    spaces = [Space(memory.name, first.alignment) for memory in memories]
    inside = [region for region in regions if region.space == 0]
    home = {m: k for region, k in zip(inside, homes, strict=True) for m in region.members}
    shift = len(memories) - 1
    values = tuple(
        replace(value, space=value.space + shift if value.space else home.get(number, 0))
        for number, value in enumerate(program.values)
    )
    return replace(program, spaces=(*spaces, *others), values=values)


def as_one_memory(program: Program, count: int) -> Program:
    """The program whose first `count` spaces, in which kernels work, are one. Linear."""
    if count < 2:
        return program
    values = tuple(replace(value, space=max(0, value.space - count + 1)) for value in program.values)
    name = "+".join(space.name for space in program.spaces[:count])
    one = replace(program.spaces[0], name=name)
    return replace(program, spaces=(one, *program.spaces[count:]), values=values)


def places_of(program: Program, place: Sequence[str], memories: Sequence[Tier]) -> dict[int, int]:
    """By value the memory that it must lie in, by ``NAME=memory``; of several that fit the last one counts.

    An asterisk stands for any characters. A name stands as well for what holds the same again: a repetition,
    or a value that a copy brings back. Values outside the memories have none. Quadratic: values times places.
    """
    number = {memory.name: k for k, memory in enumerate(memories)}
    inside = [i for i, value in enumerate(program.values) if value.space < len(memories)]
    labels = [_AGAIN.sub("", program.values[i].label) for i in inside] if place else []
    memory_by_value: dict[int, int] = {}
    for text in place:
        name, _, memory = text.rpartition("=")
        memory_by_value.update((inside[k], number[memory]) for k in matching_names(name, labels))
    return memory_by_value
