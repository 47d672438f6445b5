"""When a value is not touched: the gaps in which it may leave for slower memory.

    levels        0    1    2    3    4    5    6    7
    activation         W ------------ R ------ R            gaps 1-4 and 4-6; written out once for both
    weight        R ----------------------- R    U          gap 0-5, and a cyclic one from 6 to the next 0
    fed           ..... R                                    a head: it may start in slower memory
    result                            W ..........           a tail: it may end there

Contents stay valid in the slower memory until the value is written again: they go out once, however often
they come back. A copy has `ahead` levels, on which the value is in fast memory: out on the last ones before
it leaves, though all of them behind the write, and in on those before its next touch. On the levels between
its bytes are free.

Where all of a value is written before anything reads it again, what it held is gone: on the levels between
nothing has to be kept, at no cost.

    written again   W    R              W    R               free on the levels between R and W

    ahead 2         0    1    2    3    4    5    6
    read at once    W    o    o         i    i    R        gap 0-6: free on level 3
    read again      W    Ro   o         i    i    R        gap 1-6: free on level 3, too
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

from solver.layout import Lifespan
from solver.program import Access, Binding, EntryKind, Program, Step, lives, renewing

__all__ = ["Gap", "GapKind", "PagingProblem", "contents_apart", "paging_problem", "renewed"]


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
    the caller feeds and what never changes may be in the slower memory from the beginning. `out` are the
    first and the last level on which these contents are copied out if no earlier gap had them copied; the
    last is before the first where steps wait for the copy.
    """

    value: int
    kind: GapKind
    start: int
    end: int
    size: int
    free: tuple[Lifespan, ...]
    contents: int | None
    out: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class PagingProblem:
    """The gaps of a program, and the bytes that are in fast memory in any case. All sizes are bytes.

    `fixed` has for each level the touched values, scratch, and all values that cannot leave. `moved` has the
    bytes that come in at the end of each gap if it is taken, `contents` those of each version that may have
    to go out. `renewed` has for each value the levels on which it is written whole, so that what it held
    before is gone.
    """

    ahead: int
    levels: int
    fixed: tuple[int, ...]
    gaps: tuple[Gap, ...]
    contents: tuple[int, ...]
    moved: tuple[int, ...]
    renewed: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

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
        bytes_by_level, now = [], 0
        for level, fixed in enumerate(self.fixed):
            now += change[level]
            bytes_by_level.append(fixed + now)
        return bytes_by_level

    def cost(self, taken: frozenset[int]) -> tuple[int, int]:
        """Bytes that come in and that go out in one iteration."""
        out = {self.gaps[j].contents for j in taken}
        return sum(self.moved[j] for j in taken), sum(self.contents[c] for c in out if c is not None)


def contents_apart(program: Program) -> Program:
    """The program in which each time that a value is written whole is a value of its own. Linear.

    Only the caller and the next iteration know a value by its place: what is fed keeps its number up to the
    first such write, a result keeps it from the last one on, and what carries over keeps it throughout.
    """
    staying = {entry.value for entry in program.entry if entry.kind is not EntryKind.FED}
    fed = {entry.value for entry in program.entry}
    levels_by_value = {
        value: levels
        for value, levels in renewed(program).items()
        if value not in staying and not (value in fed and any(e.value == value for e in program.exit))
    }
    if not levels_by_value:
        return program
    values, numbers = list(program.values), dict[int, list[int]]()
    results = {exit_.value for exit_ in program.exit}
    for value, levels in levels_by_value.items():
        more = [len(values) + k for k in range(len(levels))]
        old = values[value]
        values += [replace(old, label=f"{old.label}@{k + 1}") for k in range(len(levels))]
        numbers[value] = [*more, value] if value in results else [value, *more]

    def number(binding: Binding, step: Step) -> int:
        value = binding.value
        return numbers[value][sum(step.level >= level for level in levels_by_value[value])]

    steps = tuple(
        replace(
            step,
            bindings=tuple(
                replace(b, value=number(b, step)) if b.value in levels_by_value else b for b in step.bindings
            ),
        )
        for step in program.steps
    )
    return replace(program, values=tuple(values), steps=steps)


def renewed(program: Program) -> dict[int, tuple[int, ...]]:
    """By value the levels, behind its first touch, on which it is written whole and nothing reads it."""
    levels_by_value: dict[int, list[int]] = {}
    touched: set[int] = set()
    for t, step in enumerate(program.steps):
        new = renewing(program, t)
        for value in new:
            if value in touched:
                levels_by_value.setdefault(value, []).append(step.level)
        touched.update(binding.value for binding in step.bindings)
    return {value: tuple(levels) for value, levels in levels_by_value.items()}


def paging_problem(program: Program, ahead: int, *, relaxed: bool = False) -> PagingProblem:
    """The gaps of a program without aliases. Linear in bindings, levels and gaps.

    What is held for other programs stays; with `relaxed` it takes nothing, as it may lie in slower memory.

    Left out, and so held, are values that a step defines which does not run in each iteration, and fed ones
    that are results as well. With `relaxed` their gaps are there, too: then what is proved of the problem
    holds for every program with copies, but `with_transfers` makes none of it. Values of 0 bytes have none.
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
    if not relaxed:
        held |= {value for value, due in first.items() if due}
        held |= {value for value, kind in entry.items() if kind is EntryKind.FED and value in exits}
    others = {value for value, kind in entry.items() if kind is EntryKind.HELD}
    held |= others
    again = renewed(program)
    staying = {value for value, kind in entry.items() if kind is not EntryKind.FED}
    collected = _Collected(ahead, levels, [0] * (levels + 1))
    for value, span in lives(program).items():
        if program.values[value].space or (relaxed and value in others):
            continue  # it is not in fast memory, or need not be
        size = -(-program.values[value].type.nbytes // alignment) * alignment
        collected.hold(size, span)
        rows, ends = touched.get(value, []), again.get(value, ())
        gone = [(a, b) for a, b in pairwise(rows) if b in ends and (relaxed or value in staying)]
        for a, b in gone:
            collected.hold(-size, Lifespan(a + 1, b))
        if size and value not in held:
            collected.add(
                value,
                size,
                program.values[value].type.nbytes,
                rows,
                written.get(value, []),
                entry.get(value),
                {b for _, b in gone},
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
        again,
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
        renewed: Collection[int],
        *,
        is_result: bool,
    ) -> None:
        """All gaps of one value but those that end on a level on which it is `renewed`. Its contents are
        numbered by the writes before.
        """
        carried = entry in (EntryKind.CARRIED, EntryKind.CONSTANT)
        known: dict[int, int | None] = {}

        def contents(start: int) -> tuple[int | None, int | None]:
            """Their number, and the level of this iteration that wrote them, if one did."""
            version = sum(level <= start for level in written)
            level = written[version - 1] if version else None
            if carried and written:
                version %= len(written)  # what the last write leaves is there when the next iteration begins
            elif entry is not None and not version:
                return None, None
            if version not in known:
                known[version] = len(self.contents)
                self.contents.append(nbytes)
            return known[version], level

        last, final = touched[-1], self.levels
        candidates: list[tuple[GapKind, int, int]] = []
        if entry is EntryKind.FED and touched[0]:
            candidates.append((GapKind.HEAD, -1, touched[0]))
        candidates += [(GapKind.MIDDLE, a, b) for a, b in pairwise(touched) if b not in renewed]
        if carried:
            candidates.append((GapKind.CYCLIC, last, touched[0]))
        elif is_result and last + 1 < final:
            candidates.append((GapKind.TAIL, last, final))
        for kind, start, end in candidates:
            number, write = contents(start)
            out = None if number is None else self._out(start, write)
            behind = start + 1 if out is None else max(start, out[1]) + 1
            free = tuple(self._free(kind, behind, end - self.ahead))
            if not free:
                continue
            self.gaps.append(Gap(value, kind, start, end, size, free, number, out))
            self.moved.append(0 if kind is GapKind.TAIL else nbytes)
            for span in free:
                self.hold(-size, span)

    def _out(self, start: int, write: int | None) -> tuple[int, int]:
        """The levels on which contents are copied out that leave behind `start`: the last ones on which the
        value is in fast memory in any case, but all of them behind the write. They end with the iteration.
        """
        last = start if write is None else max(start, write + self.ahead)
        return max(0, last - self.ahead + 1), min(last, self.levels - 1)

    def _free(self, kind: GapKind, behind: int, before: int) -> Iterator[Lifespan]:
        if kind is GapKind.HEAD:
            parts = [(0, before)]
        elif kind is GapKind.TAIL:
            parts = [(behind, self.levels)]
        elif kind is GapKind.CYCLIC:
            parts = [(0, before), (behind, self.levels)]
        else:
            parts = [(behind, before)]
        return (Lifespan(low, high) for low, high in parts if low < high)
