"""Layout documents: buffers at their offsets with the certificate and, like a plan, a digest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

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
from solver.errors import PlanError
from solver.layout.check import check_holes
from solver.layout.model.placed import PlacedBuffers
from solver.layout.model.problem import Buffer, Layout, LayoutProblem, Lifespan
from solver.names import check_characters
from solver.plan import certificate_content

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


class LayoutDocument(DocumentModel):
    """Buffers placed in one arena of `peak` bytes, and how good that is."""

    format: Literal["arenaplan.layout"]
    version: Literal[1]
    digest: str = Field(description="SHA-256 over the canonical JSON of everything else, in hexadecimal.")
    options: LayoutOptionFields
    deterministic: bool
    capacity: Natural | None = Field(None, description="What the peak had to fit.")
    peak: Natural = Field(description="Largest offset + size.")
    certificate: CertificateOfPlan
    reserved: JsonList[ReservedDocument] = Field((), description="Ranges in which no buffer lies.")
    buffers: JsonList[BufferOfLayout]


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
    )
    if layout_with_digest(placed).digest != placed.digest:
        raise PlanError(
            "The layout's content does not match its digest: it was changed after it was made.",
            remedy="Take the layout as the solver wrote it, or make a new one.",
            path=("digest",),
        )
    return placed


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
    placed = Buffer(buffer.id, buffer.size, span, buffer.alignment, pin, to_gaps(buffer.gaps))
    check_holes(i, placed)
    return placed


def _content(placed: PlacedBuffers) -> dict[str, Any]:
    buffers = zip(placed.problem.buffers, placed.layout.offsets, strict=True)
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
            buffer_to_dict(buffer, {} if buffer.offset is None else {"pinned": True}) | {"offset": offset}
            for buffer, offset in buffers
        ],
    }
