"""Lives: when the bytes of a value must stay, and of the buffers that several values share.

    level       0   1   2   3   4   5   6
    fed         [--------)                      entry to last touch
    activation      [----------)                first write to last touch
    scratch                 [--)                its one level
    result                      [----------     first write to the end: it is in `exit`
    weight      [---------------------------    constant and carried values: the whole iteration

A life is computed, never believed; a target may lengthen it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from solver.layout import Lifespan
from solver.program.ir import EntryKind, Program

__all__ = ["Region", "alias_sets", "held_lives", "lives", "regions"]


@dataclass(frozen=True, slots=True)
class Region:
    """The bytes that the values of an alias set share: what a layout places.

    `members` are numbers of values, the first one in front; member k begins `offsets[k]` bytes behind the
    region's beginning. `nbytes` are needed; `size` is that rounded up to the alignment of the space.
    """

    members: tuple[int, ...]
    offsets: tuple[int, ...]
    space: int
    nbytes: int
    size: int
    lifespan: Lifespan


def lives(program: Program) -> dict[int, Lifespan]:
    """The half-open lifespan, in levels, of every value that a step touches, in the order of values. Linear.

    A value that no step touches has no life, even where the caller or the iteration before defines it.
    """
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for step in program.steps:
        level, until = step.level, step.until
        for binding in step.bindings:
            value = binding.value
            if value not in first:
                first[value], last[value] = level, until
            elif last[value] < until:
                last[value] = until
    end = program.duration
    for entry in program.entry:
        if entry.value in first:
            first[entry.value] = 0
            if entry.kind is not EntryKind.FED:
                last[entry.value] = end - 1
    for exit_ in program.exit:
        if exit_.value in first:
            last[exit_.value] = end - 1
    return {value: Lifespan(first[value], last[value] + 1) for value in sorted(first)}


def alias_sets(program: Program) -> dict[int, list[tuple[int, int]]]:
    """By the first value of each alias set: its members with offsets in bytes, in order of definition."""
    place: dict[int, tuple[int, int]] = {}
    found: dict[int, list[tuple[int, int]]] = {}
    for alias in sorted(program.aliases, key=lambda alias: alias.step):
        root, offset = place.get(alias.source, (alias.source, 0))
        place[alias.value] = (root, offset + alias.offset)
        found.setdefault(root, [(root, 0)]).append((alias.value, offset + alias.offset))
    return found


def regions(program: Program, holds: Mapping[int, Lifespan] | None = None) -> tuple[Region, ...]:
    """The regions of a program, each in the place of its first value in the order of values. Linear.

    `holds` are lives that a target makes longer than the program needs.
    """
    return tuple(_regions(program, held_lives(program, holds or {})))


def held_lives(program: Program, holds: Mapping[int, Lifespan]) -> dict[int, Lifespan]:
    """The life of each value, made longer where a target holds it, in the order of values. Linear."""
    spans = lives(program)
    if not holds:
        return spans
    for value, hold in holds.items():
        span = spans.get(value, hold)
        spans[value] = Lifespan(min(span.start, hold.start), max(span.end, hold.end))
    return dict(sorted(spans.items()))


def _regions(program: Program, spans: Mapping[int, Lifespan]) -> Iterator[Region]:
    sets = alias_sets(program)
    inner = {value for members in sets.values() for value, _ in members[1:]}
    alignments = [space.alignment for space in program.spaces]
    for value, span in spans.items():
        if value in inner:
            continue
        found = program.values[value]
        alignment, nbytes = alignments[found.space], found.type.nbytes
        if value not in sets:
            size = -(-nbytes // alignment) * alignment
            yield Region((value,), (0,), found.space, nbytes, size, span)
            continue
        members = sets[value]
        of = [spans[member] for member, _ in members]
        nbytes = max(offset + program.values[member].type.nbytes for member, offset in members)
        yield Region(
            tuple(member for member, _ in members),
            tuple(offset for _, offset in members),
            found.space,
            nbytes,
            -(-nbytes // alignment) * alignment,
            Lifespan(min(span.start for span in of), max(span.end for span in of)),
        )
