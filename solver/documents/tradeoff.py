"""Trade-off documents: what smaller peaks cost in modelled time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from solver.canonical import to_bytes
from solver.documents.fields import DocumentModel, JsonList, Name, Natural, Positive, Text
from solver.documents.read import header, read
from solver.reports.verdict import TradeOff, TradeOffPoint

__all__ = ["TradeOffDocument", "dump_tradeoff", "load_tradeoff"]


class PointOfTradeOff(DocumentModel):
    """One schedule. Sizes are bytes, costs are nanoseconds of modelled time."""

    peak: Natural
    extra: Natural = Field(description="Nanoseconds of the steps that run again.")
    bound: Natural = Field(description="Proved lower bound of `extra` in this order; 0: nothing proved.")
    extra_flops: Natural
    repeated_steps: Natural


class TradeOffDocument(DocumentModel):
    """Points with falling peaks and rising costs; the first is the program in which nothing runs again."""

    format: Literal["arenaplan.tradeoff"]
    version: Literal[1]
    graph: Name
    floor: Natural = Field(description="No schedule of any order takes less: proved.")
    floor_step: Text = Field(description="The step that needs the floor.")
    impossible: Natural = Field(description="Proved to be too few bytes for this order; 0: nothing known.")
    step_nanoseconds: Positive = Field(description="Modelled time of an iteration, nothing running again.")
    step_flops: Natural
    complete: bool = Field(description="False where wall time ended a search.")
    points: Annotated[JsonList[PointOfTradeOff], Field(min_length=1)]


def load_tradeoff(data: bytes | Mapping[str, Any]) -> TradeOff:
    """The curve of a document. Raises DocumentError."""
    document = read(TradeOffDocument, data)
    figures = document.model_dump(exclude={"format", "version", "points"})
    return TradeOff(points=tuple(TradeOffPoint(**point.model_dump()) for point in document.points), **figures)


def dump_tradeoff(curve: TradeOff, *, indent: int | None = None) -> bytes:
    """The document of a curve."""
    return to_bytes({**header(TradeOffDocument), **asdict(curve)}, indent=indent)
