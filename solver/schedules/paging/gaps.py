"""When a value is not touched: the gaps in which it may leave for slower memory.

    levels        0    1    2    3    4    5    6    7
    activation         W ------------ R ------ R            gaps 1-4 and 4-6; written out once for both
    weight        R ----------------------- R    U          gap 0-5, and a cyclic one from 6 to the next 0
    fed           ..... R                                    a head: it may start in slower memory
    result                            W ..........           a tail: it may end there

A value that leaves behind level t stays for `ahead` levels more, while it is copied; one that is back for
level u is there `ahead` levels before. On the levels between its bytes are free. What it held when it left is
valid in the slower memory until it is written again: its contents go out once, however often they come back.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from solver.layout import Lifespan
from solver.program import Access, EntryKind, Program, lives

__all__ = ["Gap", "GapKind", "PagingProblem", "paging_problem"]


class GapKind(Enum):
    """`HEAD`: before the first touch of what the caller feeds. `TAIL`: behind the last one of a result.
    `CYCLIC`: from the last touch of what carries over to its first one in the next iteration.
    """

    MIDDLE = "middle"
    HEAD = "head"
    TAIL = "tail"
    CYCLIC = "cyclic"


@dataclass(frozen=True, slots=True)
class Gap:
    """A value is touched on `start` and next on `end`; its `size` bytes are `free` in between if it leaves.

    `start` is -1 for a head, `end` the number of levels for a tail; a cyclic gap ends on a level at or before
    its start. `contents` is the number of what it holds then, None where that needs not be written out: what
    the caller feeds and what never changes may be in the slower memory from the beginning.
    """

    value: int
    kind: GapKind
    start: int
    end: int
    size: int
    free: tuple[Lifespan, ...]
    contents: int | None


@dataclass(frozen=True, slots=True)
class PagingProblem:
    """What may leave, and what is there in any case. All sizes are bytes.

    `fixed` has for each level what is touched, scratch, and all that cannot leave. `moved` has the bytes that
    come in at the end of each gap if it is taken, `contents` those of each thing that may have to go out.
    """

    ahead: int
    levels: int
    fixed: tuple[int, ...]
    gaps: tuple[Gap, ...]
    contents: tuple[int, ...]
    moved: tuple[int, ...]

    @property
    def smallest(self) -> int:
        """The least bytes that the fast memory must have."""
        return max(self.fixed, default=0)

    def loads(self, taken: frozenset[int] = frozenset()) -> list[int]:
        """Bytes in fast memory on each level where the gaps `taken`, by number, are paged."""
        change = [0] * (self.levels + 1)
        for j, gap in enumerate(self.gaps):
            if j not in taken:
                for span in gap.free:
                    change[span.start] += gap.size
                    change[span.end] -= gap.size
        found, now = [], 0
        for level, fixed in enumerate(self.fixed):
            now += change[level]
            found.append(fixed + now)
        return found

    def cost(self, taken: frozenset[int]) -> tuple[int, int]:
        """Bytes that come in and that go out in one iteration."""
        out = {self.gaps[j].contents for j in taken}
        return sum(self.moved[j] for j in taken), sum(self.contents[c] for c in out if c is not None)


def paging_problem(program: Program, ahead: int) -> PagingProblem:
    """The gaps of a program without aliases. Linear in bindings, levels and gaps.

    Left out, and so held, are values that a step defines which does not run in each iteration, and fed ones
    that are results as well.
    """
    levels = program.duration
    alignment = program.spaces[0].alignment
    touched: dict[int, list[int]] = {}
    written: dict[int, list[int]] = {}
    held: set[int] = set()
    for step in program.steps:
        for binding in step.bindings:
            row = touched.setdefault(binding.value, [])
            if not row or row[-1] < step.level:
                row.append(step.level)
            if binding.access.defines:
                changes = written.setdefault(binding.value, [])
                if not changes or changes[-1] < step.level:
                    changes.append(step.level)
            if binding.access is Access.SCRATCH:
                held.add(binding.value)
    entry = {e.value: e.kind for e in program.entry}
    exits = {e.value for e in program.exit}
    first: dict[int, bool] = {}
    for step in program.steps:
        for binding in step.bindings:
            if binding.access.defines and binding.value not in entry:
                first.setdefault(binding.value, step.due)
    held |= {value for value, due in first.items() if due}
    held |= {value for value, kind in entry.items() if kind is EntryKind.FED and value in exits}
    collected = _Collected(ahead, levels, [0] * (levels + 1))
    for value, span in lives(program).items():
        size = -(-program.values[value].type.nbytes // alignment) * alignment
        collected.hold(size, span)
        if value not in held:
            collected.add(
                value,
                size,
                program.values[value].type.nbytes,
                touched[value],
                written.get(value, []),
                entry.get(value),
                is_result=value in exits,
            )
    fixed, now = [], 0
    for change in collected.change[:-1]:
        now += change
        fixed.append(now)
    return PagingProblem(
        ahead,
        levels,
        tuple(fixed),
        tuple(collected.gaps),
        tuple(collected.contents),
        tuple(collected.moved),
    )


class _Collected:
    """The gaps so far; `change` has what is there in any case, by differences."""

    def __init__(self, ahead: int, levels: int, change: list[int]) -> None:
        self.ahead, self.levels, self.change = ahead, levels, change
        self.gaps: list[Gap] = []
        self.contents: list[int] = []
        self.moved: list[int] = []

    def hold(self, size: int, span: Lifespan) -> None:
        self.change[span.start] += size
        self.change[span.end] -= size

    def add(
        self,
        value: int,
        size: int,
        nbytes: int,
        touched: list[int],
        written: list[int],
        entry: EntryKind | None,
        *,
        is_result: bool,
    ) -> None:
        """All gaps of one value. Its contents are numbered by the writes before."""
        carried = entry in (EntryKind.CARRIED, EntryKind.CONSTANT)
        known: dict[int, int | None] = {}

        def contents(start: int) -> int | None:
            version = sum(level <= start for level in written)
            if carried and written:
                version %= len(written)  # what the last write leaves is there when the next iteration begins
            elif entry is not None and not version:
                return None
            if version not in known:
                known[version] = len(self.contents)
                self.contents.append(nbytes)
            return known[version]

        last, final = touched[-1], self.levels
        wanted: list[tuple[GapKind, int, int]] = []
        if entry is EntryKind.FED and touched[0]:
            wanted.append((GapKind.HEAD, -1, touched[0]))
        wanted += [(GapKind.MIDDLE, a, b) for a, b in pairwise(touched)]
        if carried:
            wanted.append((GapKind.CYCLIC, last, touched[0]))
        elif is_result and last + 1 < final:
            wanted.append((GapKind.TAIL, last, final))
        for kind, start, end in wanted:
            number = contents(start)
            free = tuple(self._free(kind, start, end, leaving=0 if number is None else self.ahead))
            if not free:
                continue
            self.gaps.append(Gap(value, kind, start, end, size, free, number))
            self.moved.append(0 if kind is GapKind.TAIL else nbytes)
            for span in free:
                self.hold(-size, span)

    def _free(self, kind: GapKind, start: int, end: int, leaving: int) -> Iterator[Lifespan]:
        ahead, final = self.ahead, self.levels
        behind, before = start + 1 + leaving, end - ahead
        if kind is GapKind.HEAD:
            parts = [(0, before)]
        elif kind is GapKind.TAIL:
            parts = [(behind, final)]
        elif kind is GapKind.CYCLIC:
            parts = [(0, before), (behind, final)]
        else:
            parts = [(behind, before)]
        return (Lifespan(low, high) for low, high in parts if low < high)
