"""The shapes of a picture, in pixels from the top left; independent of the file format."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Anchor", "Area", "Boxes", "Label", "Mark", "Point", "Quads", "Scene", "Strokes", "dashes"]

Anchor = Literal["start", "middle", "end"]
Point = tuple[float, float]
Quads = tuple[tuple[float, float, float, float], ...]


@dataclass(frozen=True, slots=True)
class Boxes:
    """Rectangles (x, y, width, height) of one colour, outlined in another."""

    fill: str
    outline: str
    boxes: Quads


@dataclass(frozen=True, slots=True)
class Strokes:
    """Straight lines (x0, y0, x1, y1), each horizontal or vertical."""

    colour: str
    width: float
    segments: Quads


@dataclass(frozen=True, slots=True)
class Area:
    """A filled polygon."""

    fill: str
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Label:
    """Text around (x, y), the anchor of its baseline."""

    at: Point
    text: str
    size: float
    colour: str
    anchor: Anchor = "start"


Mark = Boxes | Strokes | Area | Label


@dataclass(slots=True)
class Scene:
    """A white sheet; later marks cover earlier ones. `title` is for those who cannot see it."""

    width: int
    height: int
    title: str
    marks: list[Mark] = field(default_factory=list)

    def add(self, *marks: Mark) -> None:
        self.marks.extend(marks)


def dashes(x0: float, x1: float, y: float, *, on: float = 8.0, off: float = 5.0) -> Quads:
    """Horizontal dashes from x0 to x1."""
    count = max(1, int((x1 - x0 + off) // (on + off)))
    starts = (x0 + k * (on + off) for k in range(count))
    return tuple((x, y, min(x + on, x1), y) for x in starts)
