"""Scenes as files: SVG that parses, holding no markup of the caller's; PNG, or why not."""

from __future__ import annotations

import struct
import sys
import xml.etree.ElementTree as ET

import pytest

from solver.errors import OptionsError
from solver.layout import Buffer, LayoutProblem, Lifespan
from solver.pictures import Scene, draw, to_png, to_svg
from solver.pictures.scene import Area, Boxes, Label, Strokes, dashes
from tests.support.buffers import layout, problem

SVG = "{http://www.w3.org/2000/svg}"
PAIR = problem((4, 0, 3), (6, 2, 9))


@pytest.fixture
def scene() -> Scene:
    return draw(PAIR, layout(PAIR, 6, 0), title="two", lower_bound=9)


def test_svg(scene: Scene) -> None:
    root = ET.fromstring(to_svg(scene))
    assert root.tag == f"{SVG}svg"
    assert root.attrib["viewBox"] == "0 0 1280 800"
    assert root[0].text == "two"
    assert {element.tag.removeprefix(SVG) for element in root} == {"title", "rect", "path", "polygon", "text"}


def test_svg_escapes_names() -> None:
    evil = "</text><script>alert('&')</script>"
    one = LayoutProblem((Buffer(evil, 8, Lifespan(0, 9)),))
    data = to_svg(draw(one, layout(one, 0), title=evil))
    assert b"<script" not in data
    assert evil in [element.text for element in ET.fromstring(data)]


def test_svg_parses_whatever_the_names() -> None:
    one = LayoutProblem((Buffer("a\x00\ufffe", 8, Lifespan(0, 9)),))
    root = ET.fromstring(to_svg(draw(one, layout(one, 0), title="odd")))
    assert "a��" in {element.text for element in root}


def test_svg_is_small() -> None:
    many = problem(*((10, start, start + 1) for start in range(10_000)))
    assert len(to_svg(draw(many, layout(many, *([0] * 10_000)), title="many"))) < 1_000_000


def test_dashes() -> None:
    assert list(dashes(0, 30, 5, on=8, off=4)) == [(0, 5, 8, 5), (12, 5, 20, 5)]
    assert list(dashes(0, 5, 1)) == [(0, 1, 5, 1)]


def test_png(scene: Scene) -> None:
    pytest.importorskip("PIL", reason='the extra "plot" is not installed')
    data = to_png(scene)
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (2560, 1600)


def test_png_pixels() -> None:
    """The pixels of the map, so that both formats show the same."""
    image = pytest.importorskip("PIL.Image", reason='the extra "plot" is not installed')
    import io

    sheet = Scene(40, 20, "pixels")
    sheet.add(
        Boxes("#ff0000", "#000000", ((2, 2, 10, 10),)),
        Strokes("#0000ff", 1, ((20, 2, 30, 2),)),
        Area("#00ff00", ((20, 10), (30, 10), (30, 18), (20, 18))),
        Label((1, 19), "x", 4, "#000000"),
    )
    pixel = image.open(io.BytesIO(to_png(sheet))).getpixel
    assert pixel((14, 14)) == (255, 0, 0)
    assert pixel((4, 4)) == (0, 0, 0)
    assert pixel((50, 4)) == (0, 0, 255)
    assert pixel((50, 28)) == (0, 255, 0)
    assert pixel((70, 30)) == (255, 255, 255)


def test_png_without_the_extra(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(OptionsError, match="pillow") as caught:
        to_png(scene)
    assert caught.value.path == ("plot",)
    assert "pip install 'pillow>=" in caught.value.remedy
    assert ".svg" in caught.value.remedy
