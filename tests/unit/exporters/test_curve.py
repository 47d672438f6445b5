"""The picture of a trade-off: everything in its place, names escaped, light and dark, and as pixels."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from solver.exporters.curve import HEIGHT, WIDTH, draw_curve, dump_curve
from solver.pictures.scene import Boxes, Label, Strokes
from solver.reports.verdict import TradeOff, TradeOffPoint

POINTS = (
    TradeOffPoint(4000, 0, 0, 0, 0),
    TradeOffPoint(3000, 10, 10, 5, 1),
    TradeOffPoint(2100, 90, 40, 50, 4),
)


def curve(*points: TradeOffPoint, name: str = "net", floor: int = 2000) -> TradeOff:
    return TradeOff(name, points or POINTS, floor, "conv1:calc_gradient", 0, 1000, 100)


def labels(drawn: TradeOff) -> list[str]:
    return [mark.text for mark in draw_curve(drawn).marks if isinstance(mark, Label)]


def test_what_a_reader_has_to_know_is_there() -> None:
    found = labels(curve())
    assert {"now", "+1.0 %", "+9.0 %", "floor 2,000"} <= set(found)
    assert any("conv1:calc_gradient" in text and "2,100 for 9.0 %" in text for text in found)


def test_everything_is_on_the_sheet() -> None:
    for mark in draw_curve(curve()).marks:
        if isinstance(mark, Boxes):
            assert all(x >= 0 and x + w <= WIDTH and y >= 0 and y + h <= HEIGHT for x, y, w, h in mark.boxes)
        elif isinstance(mark, Strokes):
            for x0, y0, x1, y1 in mark.segments:
                assert x0 == x1 or y0 == y1
                assert all(0 <= x <= WIDTH for x in (x0, x1))
                assert all(0 <= y <= HEIGHT for y in (y0, y1))


def test_more_time_is_higher_and_less_memory_is_further_left() -> None:
    points = [mark for mark in draw_curve(curve()).marks if isinstance(mark, Boxes)][-1]
    places = [(x, y) for x, y, _, _ in points.boxes]
    assert [x for x, _ in places] == sorted((x for x, _ in places), reverse=True)
    assert [y for _, y in places] == sorted((y for _, y in places), reverse=True)


@pytest.mark.parametrize(
    "drawn",
    [
        curve(TradeOffPoint(4000, 0, 0, 0, 0)),
        curve(TradeOffPoint(0, 0, 0, 0, 0), floor=0),
        curve(TradeOffPoint(5 * 2**30, 0, 0, 0, 0), TradeOffPoint(2**30, 1, 0, 0, 1), floor=2**30),
    ],
    ids=["one point", "nothing", "gigabytes"],
)
def test_corners(drawn: TradeOff) -> None:
    ElementTree.fromstring(dump_curve(drawn))


def test_without_bounds_the_legend_has_none() -> None:
    assert not any("proved" in text for text in labels(curve(TradeOffPoint(4, 0, 0, 0, 0), floor=2)))
    assert any("proved" in text for text in labels(curve()))


def test_a_name_is_escaped() -> None:
    text = dump_curve(curve(name="<b>&\x01")).decode()
    ElementTree.fromstring(text)
    assert "<b>" not in text


def test_every_colour_has_one_for_dark_pages() -> None:
    text = dump_curve(curve()).decode()
    style, body = text.split("</style>")
    assert "prefers-color-scheme: dark" in style
    used = set(re.findall(r'(?:fill|stroke)="(#[0-9a-f]{6})"', body))
    assert used
    assert used <= set(re.findall(r'\[fill="(#[0-9a-f]{6})"\]', style))


def test_pixels() -> None:
    pytest.importorskip("PIL")
    assert dump_curve(curve(), png=True).startswith(b"\x89PNG")


def test_the_same_curve_is_the_same_picture() -> None:
    assert dump_curve(curve()) == dump_curve(curve())
