"""MiniMalloc's CSV: one buffer a line, strictly read; every refusal names its line.

    id,lower,upper,size,alignment,gaps,hint,offset      columns in any order, the last four optional
    b1,0,3,4,1,,,                                       live [0, 3)
    b2,3,9,4,2,,16,                                     a layout to start from may put it at 16
    b3,0,9,4,1,7-9,,8                                   live [0, 7), pinned at 8
    b4,0,9,4,1,2-4 5-6@0:2,,                            free in [2, 4), in [5, 6) but for its first two bytes

``lower`` may be called ``start`` or ``begin``, ``id`` also ``buffer`` or ``buffer_id``. ``upper`` is the
first step behind the lifespan; a column ``end`` in its place holds the last step inside, in gaps too.
An empty cell of an optional column leaves the value out, and so does the hint -1.

A gap ``a-b`` frees the buffer during ``[a, b)``; ``a-b@p:q`` frees all but its bytes ``[p, q)``. One that
frees either end of the lifespan shortens it. Gaps may touch, and reach beyond the lifespan; those that free
all bytes may overlap.

The format is that of MiniMalloc (Moffitt, ASPLOS 2023).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, NoReturn, overload

from solver.errors import DocumentError, ProblemError
from solver.importers.text import shown
from solver.layout import Buffer, Hole, Layout, LayoutProblem, Lifespan, check_problem, find_violations
from solver.names import first_hidden

__all__ = ["MiniMallocTable", "load_minimalloc"]

_SYNONYMS: Final[Mapping[str, str]] = {
    "buffer": "id", "buffer_id": "id", "begin": "lower", "start": "lower", "end": "upper",
}  # fmt: skip
_REQUIRED: Final = ("id", "lower", "upper", "size")
_KNOWN: Final = (*_REQUIRED, "alignment", "gaps", "hint", "offset", "reads", "writes", "memory")

_INTEGER: Final = re.compile(r"-?[0-9]{1,19}", re.ASCII)
_GAP: Final = re.compile(r"([0-9]{1,19})-([0-9]{1,19})(?:@([0-9]{1,19}):([0-9]{1,19}))?", re.ASCII)
#: Characters of a name, as of names in graphs.
_MAX_ID_CHARACTERS: Final = 1024

#: The number of the line behind the header; lines count from 1.
_FIRST_ROW_LINE: Final = 2

#: Any number of this many digits fits 63 bits.
_SAFE_DIGITS: Final = 18


@dataclass(frozen=True, slots=True)
class MiniMallocTable:
    """The buffers in the order of the file, and the offset that each row hints at."""

    problem: LayoutProblem
    hints: tuple[int | None, ...]

    def incumbent(self) -> Layout | None:
        """The layout that hints and pins describe, where they place every buffer rightly."""
        placed = zip(self.problem.buffers, self.hints, strict=True)
        offsets = [hint if buffer.offset is None else buffer.offset for buffer, hint in placed]
        if not any(hint is not None for hint in self.hints):
            return None
        known = tuple(offset for offset in offsets if offset is not None)
        if len(known) < len(offsets):
            return None
        peak = max(b.size and o + b.size for o, b in zip(known, self.problem.buffers, strict=True))
        layout = Layout(known, peak)
        return None if find_violations(LayoutProblem(self.problem.buffers), layout, limit=1) else layout


@dataclass(slots=True)
class _Row:
    """One line of the file: `index` counts rows from 0, `cells` are by column.

    A column ``end`` adds 1, `inclusive`, to reach the first step behind.
    """

    index: int
    cells: Mapping[str, str]
    inclusive: int

    def fail(self, column: str, what: str, remedy: str) -> NoReturn:
        raise ProblemError(
            f"Line {self.index + _FIRST_ROW_LINE}: {what}.", remedy=remedy, path=("rows", self.index, column)
        )

    def integer(self, column: str) -> int:
        text = self.cells.get(column, "")
        if not _INTEGER.fullmatch(text):
            self.fail(column, f"{column} is {shown(text)}", "Write a whole number, digits only.")
        return int(text)

    def natural(self, column: str) -> int:
        text = self.cells.get(column, "")
        if len(text) <= _SAFE_DIGITS and text.isdecimal() and text.isascii():
            return int(text)
        value = self.integer(column)
        if not 0 <= value < 2**63:
            self.fail(column, f"{column} is {value}", "It must be from 0 to 2**63 - 1.")
        return value

    @overload
    def optional(self, column: str) -> int | None: ...
    @overload
    def optional(self, column: str, default: int) -> int: ...
    def optional(self, column: str, default: int | None = None) -> int | None:
        return self.natural(column) if self.cells.get(column, "") else default


def load_minimalloc(data: bytes, *, capacity: int | None = None) -> MiniMallocTable:
    """The layout problem of a CSV file, checked as `solver.layout` does. O(n log n).

    Raises DocumentError when the text or its header is wrong, ProblemError for a bad row; its path is
    ``("rows", n, column)`` with n counted from 0.
    """
    text = _text(data)
    first, _, rest = text.partition("\n")
    rows = list(_rows(rest, first.removesuffix("\r").split(",")))
    problem, hints = LayoutProblem(tuple(map(_buffer, rows)), capacity), tuple(map(_hint, rows))
    try:
        check_problem(problem)
    except ProblemError as error:
        raise _with_line(error) from None
    return MiniMallocTable(problem, hints)


def _text(data: bytes) -> str:
    """The text without line ends behind the last line."""
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DocumentError(f"Line {line} is not UTF-8.", remedy="Save the file as UTF-8.") from None
    if text.startswith("\ufeff"):
        raise DocumentError(
            "The file starts with a byte order mark.", remedy="Save it as UTF-8 without a byte order mark."
        )
    if not text.strip():
        raise DocumentError("The file is empty.", remedy=f"Start it with {','.join(_REQUIRED)}.")
    return text.rstrip("\r\n")


def _columns(names: Sequence[str]) -> list[str]:
    """The columns that a header names, by the first of their synonyms."""
    columns: list[str] = []
    for name in names:
        column = _SYNONYMS.get(name, name)
        if column not in _KNOWN:
            _bad_header(f"Line 1: there is no column {shown(name)}", f"Known columns: {', '.join(_KNOWN)}.")
        if column in columns:
            _bad_header(f"Line 1: the column {column} stands there twice", "Remove one of the two.")
        columns.append(column)
    missing = [column for column in _REQUIRED if column not in columns]
    if missing:
        _bad_header(f"Line 1: the column {missing[0]} is missing", f"Needed: {', '.join(_REQUIRED)}.")
    return columns


def _bad_header(what: str, remedy: str) -> NoReturn:
    raise DocumentError(f"{what}.", remedy=remedy, path=("header",))


def _rows(text: str, names: Sequence[str]) -> Iterator[_Row]:
    columns, inclusive = _columns(names), int("end" in names)
    for index, line in enumerate(text.split("\n") if text else ()):
        cells = line.removesuffix("\r").split(",")
        if len(cells) != len(columns):
            number = index + _FIRST_ROW_LINE
            raise DocumentError(
                f"Line {number} has {len(cells)} cells, the header has {len(columns)}."
                if cells != [""]
                else f"Line {number} is blank.",
                remedy="Every line has one cell a column; quotes have no meaning in this format.",
                path=("rows", index),
            )
        yield _Row(index, dict(zip(columns, cells, strict=True)), inclusive)


def _buffer(row: _Row) -> Buffer:
    name = row.cells["id"]
    if not name or len(name) > _MAX_ID_CHARACTERS or first_hidden(name) is not None:
        row.fail("id", f"id is {shown(name)}", "Give 1 to 1,024 characters that can be seen.")
    size = row.natural("size")
    lifespan, gaps = _with_gaps(row, _lifespan(row), size)
    alignment, offset = row.optional("alignment", 1), row.optional("offset")
    reads, writes = row.optional("reads", 1), row.optional("writes", 1)
    return Buffer(name, size, lifespan, alignment, offset, gaps, reads, writes, row.cells.get("memory", ""))


def _lifespan(row: _Row) -> Lifespan:
    start, end = row.natural("lower"), row.natural("upper") + row.inclusive
    if end <= start:
        remedy = "The lifespan ends after its start: upper is the first step behind it, end the last inside."
        row.fail("upper", f"the lifespan [{start}, {end}) is empty", remedy)
    return Lifespan(start, end)


def _with_gaps(row: _Row, lifespan: Lifespan, size: int) -> tuple[Lifespan, tuple[Hole, ...]]:
    """The lifespan without what gaps free at its ends, and the gaps inside, in order of time."""
    texts = row.cells.get("gaps", "").split()
    if not texts:
        return lifespan, ()
    parsed = (_gap(row, text, size) for text in texts)
    gaps = _joined(row, sorted((gap for gap in parsed if gap is not None), key=lambda gap: gap.lifespan))
    start, end = lifespan.start, lifespan.end
    for gap in gaps:
        if gap.low == gap.high and gap.lifespan.start <= start:
            start = max(start, gap.lifespan.end)
    for gap in reversed(gaps):
        if gap.low == gap.high and gap.lifespan.end >= end:
            end = min(end, gap.lifespan.start)
    if end <= start:
        row.fail("gaps", "the gaps leave nothing of the lifespan", "Remove the row or correct its gaps.")
    inside = (Lifespan(max(gap.lifespan.start, start), min(gap.lifespan.end, end)) for gap in gaps)
    kept = (replace(gap, lifespan=span) for gap, span in zip(gaps, inside, strict=True))
    return Lifespan(start, end), tuple(gap for gap in kept if gap.lifespan.start < gap.lifespan.end)


def _joined(row: _Row, gaps: Sequence[Hole]) -> list[Hole]:
    """Gaps that free all bytes made one where they touch or overlap; others must lie apart."""
    joined: list[Hole] = []
    for gap in gaps:
        last = joined[-1] if joined else None
        if last is None or last.lifespan.end < gap.lifespan.start:
            joined.append(gap)
        elif last.low == last.high and gap.low == gap.high:
            end = max(last.lifespan.end, gap.lifespan.end)
            joined[-1] = Hole(Lifespan(last.lifespan.start, end))
        elif last.lifespan.end == gap.lifespan.start:
            joined.append(gap)
        else:
            span = gap.lifespan
            what = f"the gap [{span.start}, {span.end}) overlaps one that keeps other bytes"
            row.fail("gaps", what, "Give each step one gap.")
    return joined


def _gap(row: _Row, text: str, size: int) -> Hole | None:
    """The hole that a gap's text describes, or None if it keeps all bytes."""
    match = _GAP.fullmatch(text)
    if match is None:
        row.fail("gaps", f"the gap {shown(text)} is malformed", "Write a-b or a-b@p:q, with spaces between.")
    start, end = int(match[1]), int(match[2]) + row.inclusive
    if end <= start:
        row.fail("gaps", f"the gap {shown(text)} is empty", "A gap ends after its start.")
    if match[3] is None:
        return Hole(Lifespan(start, end))
    low, high = int(match[3]), int(match[4])
    if low >= high:
        what = f"the gap {shown(text)} keeps no bytes: [{low}, {high}) ends where it begins, or before"
        row.fail("gaps", what, "Leave out what stands from @ on, or let it end after its start.")
    if high > size:
        row.fail("gaps", f"the gap {shown(text)} keeps bytes outside the buffer", f"Its size is {size}.")
    return None if (low, high) == (0, size) else Hole(Lifespan(start, end), low, high)


def _hint(row: _Row) -> int | None:
    return None if row.cells.get("hint", "") in ("", "-1") else row.natural("hint")


def _with_line(error: ProblemError) -> ProblemError:
    """The error about buffer n, reworded to name its line."""
    if error.path[:1] != ("buffers",):
        return error
    message = f"Line {int(error.path[1]) + _FIRST_ROW_LINE}: {error.message[:1].lower()}{error.message[1:]}"
    return ProblemError(message, remedy=error.remedy, path=("rows", *error.path[1:]))
