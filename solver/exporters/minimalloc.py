"""MiniMalloc's CSV out: what `solver.importers.minimalloc` reads, with offsets from a layout."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from solver.errors import ProblemError
from solver.layout import Buffer, Hole, Layout, LayoutProblem

__all__ = ["dump_minimalloc"]

_UNSAFE: Final = re.compile(r"[,\x00-\x1f\x7f]")


def dump_minimalloc(problem: LayoutProblem, layout: Layout | None = None) -> bytes:
    """One line a buffer; columns of alignments and gaps where there are any, of offsets for a layout or pins.

    Without a layout the cells of buffers that are not pinned stay empty. Raises ProblemError for an
    id that the format, which has no quotes, cannot hold.
    """
    columns = [_column(problem, name) for name in ("id", "lower", "upper", "size")]
    if any(buffer.alignment != 1 for buffer in problem.buffers):
        columns.append(_column(problem, "alignment"))
    if any(buffer.holes for buffer in problem.buffers):
        columns.append(_column(problem, "gaps"))
    offsets = _offsets(problem, layout)
    if layout is not None or any(offsets):
        columns.append(["offset", *offsets])
    return "".join(",".join(row) + "\n" for row in zip(*columns, strict=True)).encode()


def _column(problem: LayoutProblem, name: str) -> list[str]:
    """The cells of a column, its heading first."""
    take = _COLUMNS[name]
    return [name, *(take(index, buffer) for index, buffer in enumerate(problem.buffers))]


def _id(index: int, buffer: Buffer) -> str:
    if not buffer.id or _UNSAFE.search(buffer.id):
        raise ProblemError(
            f"The id {buffer.id!r:.80} cannot be written to CSV.",
            remedy="Name the buffer without commas and control characters, or write JSON.",
            path=("buffers", index, "id"),
        )
    return buffer.id


_COLUMNS: Final[Mapping[str, Callable[[int, Buffer], str]]] = {
    "id": _id,
    "lower": lambda _, buffer: str(buffer.lifespan.start),
    "upper": lambda _, buffer: str(buffer.lifespan.end),
    "size": lambda _, buffer: str(buffer.size),
    "alignment": lambda _, buffer: str(buffer.alignment),
    "gaps": lambda _, buffer: " ".join(map(_gap, buffer.holes)),
}


def _gap(gap: Hole) -> str:
    kept = f"@{gap.low}:{gap.high}" if gap.low < gap.high else ""
    return f"{gap.lifespan.start}-{gap.lifespan.end}{kept}"


def _offsets(problem: LayoutProblem, layout: Layout | None) -> list[str]:
    if layout is not None:
        return [str(offset) for offset in layout.offsets]
    return ["" if buffer.offset is None else str(buffer.offset) for buffer in problem.buffers]
