"""A scene as PNG. Pillow draws it and brings the font; it is the extra ``plot``."""

from __future__ import annotations

import io
from functools import cache
from typing import TYPE_CHECKING, Final, assert_never

from solver.errors import OptionsError
from solver.exporters.memory_map.scene import Area, Boxes, Label, Mark, Scene, Strokes

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw
    from PIL.ImageFont import FreeTypeFont, ImageFont

__all__ = ["to_png"]

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
            _boxes(draw, mark)
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


def _boxes(draw: ImageDraw, mark: Boxes) -> None:
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
