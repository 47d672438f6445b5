"""Layout documents: buffers at their offsets with the certificate and, like a plan, a digest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import repeat
from typing import Any, Literal, NamedTuple

from pydantic import Field

from solver.canonical import digest_of, to_bytes
from solver.documents.buffers import (
    GapDocument,
    ReservedDocument,
    buffer_to_dict,
    reserved_content,
    to_gaps,
    to_reserved,
)
from solver.documents.fields import (
    CertificateOfPlan,
    DocumentModel,
    Int64,
    JsonList,
    Name,
    Natural,
    Positive,
    to_certificate,
)
from solver.documents.options import LayoutOptionFields, layout_options_content, to_layout_options
from solver.documents.read import header, read
from solver.documents.rows import Table
from solver.errors import PlanError
from solver.layout.check import check_holes
from solver.layout.model.placed import PlacedBuffers, PlacedHomes, PlacedMemory
from solver.layout.model.problem import Buffer, Layout, LayoutProblem, Lifespan
from solver.names import check_characters
from solver.plan.content import certificate_content

__all__ = ["LayoutDocument", "dump_layout", "layout_with_digest", "load_layout"]


class BufferOfLayout(DocumentModel):
    """`size` bytes at `offset` during steps ``[start, end)``."""

    id: Name
    size: Natural
    start: Int64
    end: Int64
    alignment: Positive = 1
    pinned: bool = Field(False, description="Whether the offset was given, not found.")
    offset: Natural
    gaps: JsonList[GapDocument] = ()
    reads: Natural = 1
    writes: Natural = 1
    memory: Name | None = Field(None, description="The memory that it must lie in.")
    home: Natural | None = Field(None, description="The memory that it lies in, by number.")


class PeakOfMemory(DocumentModel):
    """One of several memories: the peak of its layout, and how good that is."""

    memory: Name
    peak: Natural
    certificate: CertificateOfPlan


class HomeRowOfLayout(NamedTuple):
    """The capacity of a memory on a step, with its multiplier in parts of the denominator."""

    memory: Natural
    step: Int64
    multiplier: Natural


class HomesOfLayout(DocumentModel):
    """Nanoseconds that all accesses take, and at least in every choice of homes: `bound`, of which `checked`
    follow from `rows` of a memory, a step and a multiplier in parts of the denominator.
    """

    accesses: Natural
    bound: Natural
    checked: Natural
    denominator: Positive
    rows: Table[HomeRowOfLayout]
    memories: JsonList[PeakOfMemory]


class LayoutDocument(DocumentModel):
    """Buffers placed in one arena of `peak` bytes, and how good that is."""

    format: Literal["arenaplan.layout"]
    version: Literal[1]
    digest: str = Field(description="SHA-256 over the canonical JSON of everything else, in hexadecimal.")
    options: LayoutOptionFields
    deterministic: bool
    capacity: Natural | None = Field(None, description="What the peak had to fit.")
    peak: Natural = Field(description="Largest offset + size; of several memories the sum of theirs.")
    certificate: CertificateOfPlan
    reserved: JsonList[ReservedDocument] = Field((), description="Ranges in which no buffer lies.")
    buffers: JsonList[BufferOfLayout]
    homes: HomesOfLayout | None = Field(None, description="Left out with one memory.")


def layout_with_digest(placed: PlacedBuffers) -> PlacedBuffers:
    """The layout with its digest: SHA-256 over its canonical JSON without the digest."""
    content = _content(placed)
    del content["digest"]
    return replace(placed, digest=digest_of(content))


def dump_layout(placed: PlacedBuffers, *, indent: int | None = None) -> bytes:
    """The document of a layout, field by field in a fixed order: equal layouts give equal bytes."""
    return to_bytes(_content(placed), indent=indent)


def load_layout(data: bytes | Mapping[str, Any]) -> PlacedBuffers:
    """The layout of a document. Raises DocumentError, PlanError when content and digest disagree, or
    ProblemError for gaps that are none.

    Whether the layout is right is for `solver.layout.find_violations` to say.
    """
    document = read(LayoutDocument, data, range_error=PlanError)
    placed = PlacedBuffers(
        problem=LayoutProblem(
            tuple(_buffer(i, b) for i, b in enumerate(document.buffers)),
            document.capacity,
            to_reserved(document.reserved),
        ),
        options=to_layout_options(document.options),
        layout=Layout(tuple(buffer.offset for buffer in document.buffers), document.peak),
        certificate=to_certificate(document.certificate),
        deterministic=document.deterministic,
        digest=document.digest,
        homes=_homes(document),
    )
    if layout_with_digest(placed).digest != placed.digest:
        raise PlanError(
            "The layout's content does not match its digest: it was changed after it was made.",
            remedy="Take the layout as the solver wrote it, or make a new one.",
            path=("digest",),
        )
    return placed


def _homes(document: LayoutDocument) -> PlacedHomes | None:
    homes, memories = document.homes, to_layout_options(document.options).memories
    if homes is None:
        return None
    places = [buffer.home for buffer in document.buffers]
    names = [row.memory for row in homes.memories]
    if names != [memory.name for memory in memories] or not all(
        place is not None and place < len(names) for place in places
    ):
        raise PlanError(
            "The homes of the layout are not the memories of its options.",
            remedy="Take the layout as the solver wrote it, or make a new one.",
            path=("homes", "memories"),
        )
    return PlacedHomes(
        tuple(place or 0 for place in places),
        tuple(
            PlacedMemory(memory, row.peak, to_certificate(row.certificate))
            for memory, row in zip(memories, homes.memories, strict=True)
        ),
        homes.accesses,
        homes.bound,
        homes.checked,
        homes.denominator,
        tuple((row.memory, row.step, row.multiplier) for row in homes.rows),
    )


def _homes_content(homes: PlacedHomes) -> dict[str, Any]:
    return {
        "accesses": homes.accesses,
        "bound": homes.bound,
        "checked": homes.checked,
        "denominator": homes.denominator,
        "rows": [list(row) for row in homes.rows],
        "memories": [
            {
                "memory": each.memory.name,
                "peak": each.peak,
                "certificate": certificate_content(each.certificate),
            }
            for each in homes.memories
        ],
    }


def _buffer(i: int, buffer: BufferOfLayout) -> Buffer:
    check_characters("buffer", buffer.id, ("buffers", i, "id"), PlanError)
    if not 0 <= buffer.start < buffer.end:
        raise PlanError(
            f"Buffer {buffer.id!r} lives [{buffer.start}, {buffer.end}), which is not a lifespan.",
            remedy="Lifespans are half-open, start at 0 or later, and are not empty.",
            path=("buffers", i, "end"),
        )
    span = Lifespan(buffer.start, buffer.end)
    pin = buffer.offset if buffer.pinned else None
    placed = Buffer(
        buffer.id,
        buffer.size,
        span,
        buffer.alignment,
        pin,
        to_gaps(buffer.gaps),
        buffer.reads,
        buffer.writes,
        buffer.memory or "",
    )
    check_holes(i, placed)
    return placed


def _content(placed: PlacedBuffers) -> dict[str, Any]:
    homes: Iterable[dict[str, int]] = repeat({}, len(placed.layout.offsets))
    if placed.homes is not None:
        homes = ({"home": home} for home in placed.homes.homes)
    return {
        **header(LayoutDocument),
        "digest": placed.digest,
        "options": layout_options_content(placed.options),
        "deterministic": placed.deterministic,
        "capacity": placed.problem.capacity,
        "peak": placed.layout.peak,
        "certificate": certificate_content(placed.certificate),
        **reserved_content(placed.problem),
        "buffers": [
            buffer_to_dict(buffer, {} if buffer.offset is None else {"pinned": True})
            | {"offset": offset}
            | home
            for buffer, offset, home in zip(placed.problem.buffers, placed.layout.offsets, homes, strict=True)
        ],
        **({} if placed.homes is None else {"homes": _homes_content(placed.homes)}),
    }
