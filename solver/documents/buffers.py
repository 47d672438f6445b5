"""Buffers documents: a bare layout problem, for those who bring sizes and lifespans of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from solver.canonical import to_bytes
from solver.documents.fields import MAX_LISTED, DocumentModel, Int64, JsonList, Name, Natural, Positive
from solver.documents.read import header, read
from solver.errors import ProblemError
from solver.layout.model.problem import Buffer, Hole, LayoutProblem, Lifespan, Reserved
from solver.names import check_characters

__all__ = [
    "BuffersDocument",
    "GapDocument",
    "ReservedDocument",
    "buffer_to_dict",
    "dump_buffers",
    "load_buffers",
    "reserved_content",
    "to_gaps",
    "to_reserved",
]


class GapDocument(DocumentModel):
    """During steps ``[start, end)`` it holds bytes ``[low, high)`` alone; none where the two are equal."""

    start: Int64
    end: Int64
    low: Natural = 0
    high: Natural = 0


class BufferDocument(DocumentModel):
    """`size` bytes during steps ``[start, end)``; an `offset` pins it.

    Where there are several memories, all of it is read and written so often, and lies in `memory`, if named.
    """

    id: Name
    size: Natural
    start: Int64
    end: Int64
    alignment: Positive = 1
    offset: Natural | None = None
    gaps: JsonList[GapDocument] = ()
    reads: Natural = 1
    writes: Natural = 1
    memory: Name | None = None


class ReservedDocument(DocumentModel):
    """Bytes from `low` to before `high` of the arena."""

    low: Natural
    high: Natural


class BuffersDocument(DocumentModel):
    """Buffers to place in one arena of at most `capacity` bytes."""

    format: Literal["arenaplan.buffers"]
    version: Literal[1]
    capacity: Natural | None = Field(None, description="Without it the arena is as small as possible.")
    reserved: JsonList[ReservedDocument] = Field(
        (), max_length=MAX_LISTED, description="Ranges in which no buffer may lie."
    )
    buffers: JsonList[BufferDocument]


def load_buffers(data: bytes | Mapping[str, Any]) -> LayoutProblem:
    """The layout problem of a document. Raises DocumentError, or ProblemError for a value out of range.

    Whether the problem makes sense (names, alignments, pins) is for `solver.layout` to say.
    """
    document = read(BuffersDocument, data, range_error=ProblemError)
    buffers = tuple(_to_buffer(i, b) for i, b in enumerate(document.buffers))
    return LayoutProblem(buffers, document.capacity, to_reserved(document.reserved))


def _to_buffer(i: int, document: BufferDocument) -> Buffer:
    check_characters("buffer", document.id, ("buffers", i, "id"), ProblemError)
    if document.end <= document.start:
        raise ProblemError(
            f"Buffer {document.id!r} lives [{document.start}, {document.end}), which is empty.",
            remedy="Lifespans are half-open: the end is greater than the start.",
            path=("buffers", i, "end"),
        )
    return Buffer(
        document.id,
        document.size,
        Lifespan(document.start, document.end),
        document.alignment,
        document.offset,
        to_gaps(document.gaps),
        document.reads,
        document.writes,
        document.memory or "",
    )


def to_reserved(documents: tuple[ReservedDocument, ...]) -> tuple[Reserved, ...]:
    """Whether they make sense is for `solver.layout` to say."""
    return tuple(Reserved(range_.low, range_.high) for range_ in documents)


def reserved_content(problem: LayoutProblem) -> dict[str, Any]:
    """The field for reserved ranges, left out where there are none."""
    ranges = [{"low": range_.low, "high": range_.high} for range_ in problem.reserved]
    return {"reserved": ranges} if ranges else {}


def to_gaps(documents: tuple[GapDocument, ...]) -> tuple[Hole, ...]:
    """Whether they make sense is for `solver.layout` to say."""
    return tuple(Hole(Lifespan(gap.start, gap.end), gap.low, gap.high) for gap in documents)


def _gaps_to_list(gaps: tuple[Hole, ...]) -> list[dict[str, int]]:
    """The bytes that a gap still holds are left out where there are none."""
    spans = ({"start": gap.lifespan.start, "end": gap.lifespan.end} for gap in gaps)
    held = ({"low": gap.low, "high": gap.high} if gap.low < gap.high else {} for gap in gaps)
    return [span | kept for span, kept in zip(spans, held, strict=True)]


def dump_buffers(problem: LayoutProblem, *, indent: int | None = None) -> bytes:
    """The document of a layout problem; what has its default is left out."""
    document: dict[str, Any] = header(BuffersDocument)
    if problem.capacity is not None:
        document["capacity"] = problem.capacity
    document |= reserved_content(problem)
    document["buffers"] = [
        buffer_to_dict(buffer, {} if buffer.offset is None else {"offset": buffer.offset})
        for buffer in problem.buffers
    ]
    return to_bytes(document, indent=indent)


def buffer_to_dict(buffer: Buffer, place: Mapping[str, Any]) -> dict[str, Any]:
    """A buffer with the fields that say where it lies; what has its default is left out."""
    content: dict[str, Any] = {
        "id": buffer.id,
        "size": buffer.size,
        "start": buffer.lifespan.start,
        "end": buffer.lifespan.end,
    }
    if buffer.alignment != 1:
        content["alignment"] = buffer.alignment
    content |= place
    if buffer.holes:
        content["gaps"] = _gaps_to_list(buffer.holes)
    for name in ("reads", "writes"):
        if getattr(buffer, name) != 1:
            content[name] = getattr(buffer, name)
    if buffer.memory:
        content["memory"] = buffer.memory
    return content
