"""Constraints on the places of values: pins, alignments, and ranges of a memory that are not ours.

    pin       conv1.weight=0      the value begins at this byte of its space
    align     *@grad=4096         the value begins at a multiple
    reserve   0..8192             no value lies in these bytes of the first space, at any step

Names are labels of values. A pin is in the first space, or in the one whose name stands in front of it with a
colon, as in ``flash:conv1.weight=0``; so is a reserved range. An asterisk stands for any characters. Where
values share bytes, a constraint on one of them places them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from solver.errors import ConstraintError, OptionsError
from solver.layout import Alignment, Pin, Reserved
from solver.names import matching_names, nearest_names
from solver.program.ir import Program
from solver.program.lives import Region

__all__ = ["NO_CONSTRAINTS", "Conflict", "Constraints", "PlaceRules", "ReservedRange", "conflicts"]

#: The largest alignment of a value, in bytes: that of the largest pages in use.
MAX_ALIGNMENT = 2**30


@dataclass(frozen=True, slots=True)
class ReservedRange:
    """No value lies in the bytes ``[low, high)`` of a space, at any step; of the first one without a name."""

    low: int
    high: int
    space: str = ""

    def __str__(self) -> str:
        return f"{self.space}{':' if self.space else ''}{self.low}..{self.high}"


@dataclass(frozen=True, slots=True)
class PlaceRules:
    """Constraints with numbers of a program's values and spaces in the place of names.

    `pin_names` are the names of pins as they were written. `reserved` has the ranges of each space; `blocks`
    are the aligned blocks that they touch: no value can lie in the rest of such a block.
    """

    offsets: Mapping[int, int]
    pin_names: Mapping[int, str]
    alignments: Mapping[int, int]
    reserved: tuple[tuple[ReservedRange, ...], ...]
    blocks: tuple[tuple[Reserved, ...], ...]

    def pins(self, region: Region) -> bool:
        """Whether a region is pinned."""
        return bool(self.offsets) and any(member in self.offsets for member in region.members)

    def pinned(self, region: Region) -> int:
        """The first pinned value of a region, which has one."""
        return next(member for member in region.members if member in self.offsets)

    def place(self, program: Program, region: Region) -> tuple[int | None, int]:
        """The first byte of a region, None unless it is pinned, and its alignment.

        It must have no conflict of its own (`conflicts`).
        """
        alignment = program.spaces[region.space].alignment
        members = tuple(zip(region.members, region.offsets, strict=True))
        for member, shift in members:
            if member in self.offsets:
                return self.offsets[member] - shift, alignment
        return None, max([alignment, *(self.alignments.get(member, 1) for member, _ in members)])


@dataclass(frozen=True, slots=True)
class Constraints:
    """Pins, alignments and reserved ranges as they are asked for, by name."""

    pins: tuple[Pin, ...] = ()
    alignments: tuple[Alignment, ...] = ()
    reserved: tuple[ReservedRange, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.pins or self.alignments or self.reserved)

    def check(self) -> None:
        """Raises OptionsError for numbers that no program can keep."""
        for pin in self.pins:
            if pin.offset < 0:
                raise OptionsError(
                    f"The pin of {pin.name!r} is at byte {pin.offset}.",
                    remedy="Give zero or more bytes.",
                    path=("pins", pin.name),
                )
        for each in self.alignments:
            if each.bytes < 1 or each.bytes & (each.bytes - 1) or each.bytes > MAX_ALIGNMENT:
                raise OptionsError(
                    f"The alignment {each.bytes} of {each.name!r} is not a power of two up to 2**30.",
                    remedy="Give 64, 128, ..., as 4096 or 4KiB.",
                    path=("alignments", each.name),
                )
        for i, range_ in enumerate(self.reserved):
            if not 0 <= range_.low < range_.high:
                raise OptionsError(
                    f"The reserved range {range_} has no bytes.",
                    remedy="Write its first byte, then the first byte behind it, as 0..8KiB.",
                    path=("reserved", i),
                )
        ordered = sorted(self.reserved, key=lambda each: (each.space, each.low))
        for before, after in pairwise(ordered):
            if before.space == after.space and after.low < before.high:
                whole = ReservedRange(before.low, max(before.high, after.high), before.space)
                raise OptionsError(
                    f"The reserved ranges {before} and {after} overlap.",
                    remedy=f"Reserve {whole} in their place.",
                    path=("reserved", self.reserved.index(after)),
                )

    def rules(self, program: Program) -> PlaceRules:
        """The constraints with numbers of this program's values and spaces. Linear in values and names.

        Raises OptionsError for a name that no value has, a pin of several values, and an unknown space.
        """
        offsets: dict[int, int] = {}
        names_of_pins: dict[int, str] = {}
        alignments: dict[int, int] = {}
        for pin in self.pins:
            values = _named(program, "pins", pin.name)
            if len(values) > 1:
                listed = ", ".join(repr(program.values[value].label) for value in values[:3])
                listed += ", ..." if len(values) > 3 else ""
                raise OptionsError(
                    f"The pin {pin.name!r} names {len(values):,} values: {listed}.",
                    remedy=f"Pin one of them: {program.values[values[0]].label}={pin.offset}.",
                    path=("pins", pin.name),
                )
            if offsets.setdefault(values[0], pin.offset) != pin.offset:
                label, other = program.values[values[0]].label, offsets[values[0]]
                raise OptionsError(
                    f"{label!r} is pinned at {other} and at {pin.offset}.",
                    remedy="Give one pin of each value.",
                    path=("pins", pin.name),
                )
            names_of_pins[values[0]] = pin.name
        for each in self.alignments:
            for value in _named(program, "alignments", each.name):
                alignments[value] = max(alignments.get(value, 1), each.bytes)
        by_space: list[list[ReservedRange]] = [[] for _ in program.spaces]
        names = [space.name for space in program.spaces]
        for i, range_ in enumerate(self.reserved):
            if range_.space and range_.space not in names:
                raise OptionsError(
                    f"There is no memory {range_.space!r} to reserve bytes of.",
                    remedy=f"Write one of {', '.join(names)} in front of the range, or none for {names[0]}.",
                    path=("reserved", i),
                )
            by_space[names.index(range_.space) if range_.space else 0].append(range_)
        ranges = tuple(tuple(sorted(each, key=lambda range_: range_.low)) for each in by_space)
        blocks = zip(program.spaces, ranges, strict=True)
        return PlaceRules(
            offsets,
            names_of_pins,
            alignments,
            ranges,
            tuple(_blocks(space.alignment, each) for space, each in blocks),
        )


def _named(program: Program, option: str, name: str) -> list[int]:
    """The values of a name, at least one: pinned ones of the first space, or of the one that it names.

    Raises OptionsError with the nearest names.
    """
    spaces = [each.name for each in program.spaces]
    head, colon, rest = name.partition(":")
    space, label = (0 if option == "pins" else None), name
    if colon and head in spaces and name not in program.by_label:
        space, label = spaces.index(head), rest
    known = program.by_label.get(label)
    if known is not None and space in (None, program.values[known].space):
        return [known]
    inside = [value for value, each in enumerate(program.values) if space in (None, each.space)]
    labels = [program.values[value].label for value in inside]
    matching = matching_names(label, labels)
    if not matching and space is not None:
        # Paging calls the copy of a value in slower memory by the name of that memory.
        matching = matching_names(f"{label}@{spaces[space]}", labels)
    if matching:
        return [inside[k] for k in matching]
    if known is None or space is None:
        remedy = nearest_names(label, labels)
        raise OptionsError(f"No value is called {name!r}.", remedy=remedy, path=(option, name))
    other = spaces[program.values[known].space]
    raise OptionsError(
        f"The value {label!r} lies in {other!r}, not in {spaces[space]!r}.",
        remedy=f"Write {other}:{label} in the place of {name}.",
        path=(option, name),
    )


def _blocks(alignment: int, ranges: Sequence[ReservedRange]) -> tuple[Reserved, ...]:
    """The ranges, which are in order, rounded to multiples of the alignment; those that meet as one."""
    blocks: list[Reserved] = []
    for range_ in ranges:
        low, high = range_.low // alignment * alignment, -(-range_.high // alignment) * alignment
        if blocks and low <= blocks[-1].high:
            blocks[-1] = Reserved(blocks[-1].low, high)
        else:
            blocks.append(Reserved(low, high))
    return tuple(blocks)


NO_CONSTRAINTS: Final = Constraints()


@dataclass(frozen=True, slots=True)
class Conflict:
    """Why no layout of these regions keeps the constraints; `path` leads to one of them in the options."""

    regions: tuple[Region, ...]
    message: str
    remedy: str
    path: tuple[str, ...]

    def error(self) -> ConstraintError:
        return ConstraintError(self.message, remedy=self.remedy, path=self.path)


def conflicts(
    program: Program, regions: Sequence[Region], rules: PlaceRules, capacities: Sequence[int | None] = ()
) -> Iterator[Conflict]:
    """The constraints that no layout of these regions of the program keeps.

    `capacities` are those of the spaces. Without a conflict there is a layout, apart from the capacities.
    O(n log n) for n pinned regions that share no bytes.
    """
    pinned: list[tuple[int, int, Region]] = []
    for region in regions:
        conflict = _inside(program, region, rules)
        if conflict is not None:
            yield conflict
            continue
        offset, _ = rules.place(program, region)
        if offset is None:
            continue
        conflict = _beside(program, region, offset, rules, capacities)
        if conflict is not None:
            yield conflict
        elif region.size:
            pinned.append((region.space, offset, region))
    pinned.sort(key=lambda row: row[:2])
    open_: list[tuple[int, int, Region]] = []
    for space, offset, region in pinned:
        open_ = [row for row in open_ if row[0] == space and row[1] + row[2].size > offset]
        for _, other_offset, other in open_:
            level = _shared_level(region, other)
            if level is not None:
                yield _collision(program, (other, other_offset), (region, offset), level, rules)
        open_.append((space, offset, region))


def _inside(program: Program, region: Region, rules: PlaceRules) -> Conflict | None:
    """Constraints of the region's own values that no place of it keeps."""
    space = program.spaces[region.space]
    pinned: tuple[int, int] | None = None

    def conflict(message: str, remedy: str, *path: str) -> Conflict:
        return Conflict((region,), message, remedy, path)

    for member, shift in zip(region.members, region.offsets, strict=True):
        if member not in rules.offsets:
            continue
        offset, label = rules.offsets[member], program.values[member].label
        start = offset - shift
        if start < 0 or start % space.alignment:
            low = shift + max(0, start) // space.alignment * space.alignment
            message = f"The pin of {label!r} at {offset} is"
            if shift:
                front = program.values[region.members[0]].label
                message = f"The pin of {label!r} puts {front!r}, whose bytes it shares, at {start},"
            message += f" no multiple of {space.alignment}, the alignment of {space.name!r}."
            remedy = f"Pin it at {low} or {low + space.alignment}, or plan with a smaller alignment."
            return conflict(message, remedy, "pins", rules.pin_names[member])
        if pinned is None:
            pinned = member, start
        elif pinned[1] != start:
            other, at = program.values[pinned[0]].label, rules.offsets[pinned[0]]
            message = f"{other!r} and {label!r} share bytes; their pins, {at} and {offset}, disagree."
            remedy = "Leave one of the two pins out."
            return conflict(message, remedy, "pins", rules.pin_names[member])
    for member, shift in zip(region.members, region.offsets, strict=True):
        multiple, label = rules.alignments.get(member, 1), program.values[member].label
        if pinned is None and shift % multiple:
            front = program.values[region.members[0]].label
            message = f"{label!r} lies {shift} bytes behind {front!r}, whose bytes it shares: no multiple"
            remedy = "Align it to less, or leave the alignment out."
            return conflict(f"{message} of {multiple}.", remedy, "alignments")
        if pinned is not None and (pinned[1] + shift) % multiple:
            other, at = program.values[pinned[0]].label, pinned[1] + shift
            message = (
                f"The pin of {other!r} puts {label!r} at {at}, no multiple of its alignment, {multiple}."
            )
            remedy = f"Pin it at a multiple of {multiple}."
            return conflict(message, remedy, "pins", rules.pin_names[pinned[0]])
    return None


def _beside(
    program: Program, region: Region, offset: int, rules: PlaceRules, capacities: Sequence[int | None]
) -> Conflict | None:
    """A pinned region that lies in reserved bytes, or beyond the capacity."""
    member = rules.pinned(region)
    end, path = offset + region.size, ("pins", rules.pin_names[member])
    shown = f"The pin of {program.values[member].label!r}, bytes [{offset}, {end})"
    for range_ in rules.reserved[region.space] if region.size else ():
        if offset < range_.high and range_.low < end:
            message = f"{shown}, lies in the reserved range {range_}."
            return Conflict((region,), message, "Pin it elsewhere, or reserve less.", path)
    capacity = capacities[region.space] if region.space < len(capacities) else None
    if capacity is not None and end > capacity:
        message = f"{shown}, ends beyond the capacity of {capacity:,} bytes."
        return Conflict((region,), message, f"Pin it lower, or raise the capacity to {end:,}.", path)
    return None


def _shared_level(one: Region, other: Region) -> int | None:
    """The first level on which both hold their bytes."""
    levels = [max(a.start, b.start) for a in one.spans for b in other.spans if a.overlaps(b)]
    return min(levels, default=None)


def _collision(
    program: Program, one: tuple[Region, int], other: tuple[Region, int], level: int, rules: PlaceRules
) -> Conflict:
    members = [rules.pinned(region) for region, _ in (one, other)]
    labels = [program.values[member].label for member in members]
    (a, low), (b, high) = one, other
    step = next(
        (program.step_labels[t] for t, step in enumerate(program.steps) if step.until >= level), "the end"
    )
    message = (
        f"The pins of {labels[0]!r}, bytes [{low}, {low + a.size}), and {labels[1]!r}, bytes [{high},"
        f" {high + b.size}), collide: both hold them at step {step!r} (level {level})."
    )
    remedy = f"Pin {labels[1]!r} at {low + a.size} or beyond, or leave one of the two pins out."
    return Conflict((a, b), message, remedy, ("pins", rules.pin_names[members[1]]))
