"""A scene as SVG: text, no dependency, one path for all boxes of a colour."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, assert_never
from xml.sax.saxutils import escape

from solver.exporters.memory_map.scene import Area, Boxes, Label, Mark, Scene, Strokes

__all__ = ["to_svg"]

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
            return f'<path d="{"".join(_boxes(mark))}" fill="{mark.fill}" stroke="{mark.outline}"' + _THIN
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


def _boxes(mark: Boxes) -> Iterator[str]:
    for x, y, width, height in mark.boxes:
        yield f"M{_n(x)} {_n(y)}h{_n(width)}v{_n(height)}h{_n(-width)}z"


def _n(value: float) -> str:
    """Hundredths of a pixel, without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"
