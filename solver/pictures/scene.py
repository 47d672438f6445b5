"""Pictures: shapes in pixels from the top left, and the files that they are written as.

SVG is text and needs no dependency: one path for all boxes of a colour. PNG is drawn by Pillow, which brings
the font; it is the extra ``plot``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final, Literal, assert_never
from xml.sax.saxutils import escape

from solver.errors import OptionsError

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

__all__ = [
    "Anchor",
    "Area",
    "Boxes",
    "Label",
    "Mark",
    "Point",
    "Quads",
    "Scene",
    "Strokes",
    "dashes",
    "to_png",
    "to_svg",
]

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


# ---------------------------------------------------------------------------------------------- SVG

_FONTS: Final = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"
_THIN: Final = ' stroke-width="0.5"/>'
#: Characters that XML 1.0 cannot hold, not even escaped.
_NO_XML: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def to_svg(scene: Scene, dark: Mapping[str, str] | None = None) -> bytes:
    """A document of its own, scripts and fonts from elsewhere excluded.

    `dark` says which colour takes the place of which, white among them, for readers who prefer dark pages.
    """
    size = f'viewBox="0 0 {scene.width} {scene.height}" width="{scene.width}" height="{scene.height}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="{_FONTS}">',
        f"<title>{_text(scene.title)}</title>",
        *_style(dark or {}),
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *(_element(mark) for mark in scene.marks),
        "</svg>",
    ]
    return "\n".join(lines).encode() + b"\n"


def _style(dark: Mapping[str, str]) -> Iterator[str]:
    """Rules of a style sheet go before the attributes of elements, so each colour is replaced by name."""
    if dark:
        yield "<style>@media (prefers-color-scheme: dark) {"
        for light, other in dark.items():
            yield f'[fill="{light}"] {{ fill: {other}; }} [stroke="{light}"] {{ stroke: {other}; }}'
        yield "}</style>"


def _text(text: str) -> str:
    return escape(_NO_XML.sub("�", text))


def _element(mark: Mark) -> str:
    match mark:
        case Boxes():
            return f'<path d="{"".join(_path(mark))}" fill="{mark.fill}" stroke="{mark.outline}"' + _THIN
        case Strokes():
            lines = "".join(f"M{_n(a)} {_n(b)}L{_n(c)} {_n(d)}" for a, b, c, d in mark.segments)
            return f'<path d="{lines}" stroke="{mark.colour}" stroke-width="{_n(mark.width)}" fill="none"/>'
        case Area():
            points = " ".join(f"{_n(x)},{_n(y)}" for x, y in mark.points)
            return f'<polygon points="{points}" fill="{mark.fill}"/>'
        case Label():
            x, y = mark.at
            return (
                f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(mark.size)}" fill="{mark.colour}" '
                f'text-anchor="{mark.anchor}">{_text(mark.text)}</text>'
            )
    assert_never(mark)


def _path(mark: Boxes) -> Iterator[str]:
    for x, y, width, height in mark.boxes:
        yield f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z"


def _n(value: float) -> str:
    """Hundredths of a pixel, without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


# ---------------------------------------------------------------------------------------------- PNG

#: Pixels of the image for one of the scene, so that small print stays sharp.
_SCALE: Final = 2
_ANCHORS: Final = {"start": "ls", "middle": "ms", "end": "rs"}


def to_png(scene: Scene) -> bytes:
    """The image, twice the scene's size. Raises OptionsError where the extra is not installed."""
    try:
        from PIL import Image, ImageDraw
    except ImportError:
        raise OptionsError(
            "PNG needs the package pillow, which is not installed.",
            remedy="pip install 'pillow>=12', or name a file that ends in .svg.",
            path=("plot",),
        ) from None
    image = Image.new("RGB", (scene.width * _SCALE, scene.height * _SCALE), "#ffffff")
    draw = ImageDraw.Draw(image)
    for mark in scene.marks:
        _paint(draw, mark)
    stream = io.BytesIO()
    image.save(stream, "PNG", optimize=True)
    return stream.getvalue()


def _paint(draw: ImageDraw, mark: Mark) -> None:
    match mark:
        case Boxes():
            _rectangles(draw, mark)
        case Strokes():
            for segment in mark.segments:
                draw.line([_p(value) for value in segment], mark.colour, max(1, _p(mark.width)))
        case Area():
            draw.polygon([(_p(x), _p(y)) for x, y in mark.points], mark.fill)
        case Label():
            at = (_p(mark.at[0]), _p(mark.at[1]))
            draw.text(at, mark.text, mark.colour, _font(mark.size), anchor=_ANCHORS[mark.anchor])
        case _:
            assert_never(mark)


def _rectangles(draw: ImageDraw, mark: Boxes) -> None:
    """Neighbours share their border: each box ends on the pixel where the next one begins."""
    for x, y, width, height in mark.boxes:
        corners = (_p(x), _p(y), max(_p(x + width), _p(x)), max(_p(y + height), _p(y)))
        outlined = width * _SCALE >= 3 and height * _SCALE >= 3
        draw.rectangle(corners, mark.fill, mark.outline if outlined else None)


@cache
def _font(size: float) -> FreeTypeFont | ImageFont:
    from PIL import ImageFont

    return ImageFont.load_default(size * _SCALE)


def _p(value: float) -> int:
    return round(value * _SCALE)
