"""The picture of a layout: each buffer where it lies, lines where they belong, nothing outside the sheet."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from solver.layout import Buffer, Hole, Layout, LayoutProblem, Lifespan, solve
from solver.pictures import Scene, draw
from solver.pictures.memory_map import HEIGHT, WIDTH
from solver.pictures.scene import Area, Boxes, Label, Strokes
from tests.support.buffers import layout, problem, random_problem

PAIR = problem((4, 0, 3), (6, 2, 9))
LAID = layout(PAIR, 6, 0)


def boxes(scene: Scene) -> list[tuple[float, float, float, float]]:
    return [box for mark in scene.marks if isinstance(mark, Boxes) for box in mark.boxes]


def texts(scene: Scene) -> list[str]:
    return [mark.text for mark in scene.marks if isinstance(mark, Label)]


def points(scene: Scene) -> Iterator[tuple[float, float]]:
    for mark in scene.marks:
        match mark:
            case Boxes():
                yield from ((x, y) for x, y, _, _ in mark.boxes)
                yield from ((x + width, y + height) for x, y, width, height in mark.boxes)
            case Strokes():
                yield from (point for a, b, c, d in mark.segments for point in ((a, b), (c, d)))
            case Area():
                yield from mark.points
            case Label():
                yield mark.at


def test_rectangles_lie_to_scale() -> None:
    first, second = sorted(boxes(draw(PAIR, LAID, title="two")))
    assert first[2] / second[2] == pytest.approx(3 / 7)
    assert first[3] / second[3] == pytest.approx(4 / 6)
    assert first[1] + first[3] == pytest.approx(second[1])  # the first lies on the second


def test_gaps_are_left_free() -> None:
    gaps = (Hole(Lifespan(2, 4)), Hole(Lifespan(5, 6), 0, 2))
    gapped = LayoutProblem((Buffer("a", 8, Lifespan(0, 9), holes=gaps), Buffer("b", 8, Lifespan(2, 4))))
    scene = draw(gapped, Layout((0, 0), 8), title="gaps")
    found = sorted(boxes(scene))
    assert len(found) == 5
    heights = {round(height) for _, _, _, height in found}
    assert len(heights) == 2
    assert texts(scene).count("a") == 4
    assert len([mark for mark in scene.marks if isinstance(mark, Boxes)]) == 2  # all of a have one colour


def test_words() -> None:
    found = texts(draw(PAIR, LAID, title="two", about="by hand", lower_bound=10))
    assert {"two", "by hand", "b0", "b1", "peak 10 bytes = lower bound", "step", "offset"} <= set(found)
    assert "live bytes" in found


def test_lower_bound_below_the_peak_is_a_line_of_its_own() -> None:
    found = draw(PAIR, LAID, title="two", lower_bound=9)
    assert {"lower bound 9", "peak 10 bytes"} <= set(texts(found))
    assert any(isinstance(mark, Strokes) and len(mark.segments) > 20 for mark in found.marks)


def test_live_bytes_are_steps() -> None:
    (area,) = (mark for mark in draw(PAIR, LAID, title="two").marks if isinstance(mark, Area))
    heights = [y for _, y in area.points]
    assert heights[0] == heights[-1] == max(heights)
    loads = sorted({round((max(heights) - y) / (max(heights) - min(heights)) * 10, 6) for y in heights})
    assert loads == [0, 4, 6, 10]


def test_nothing_to_draw() -> None:
    assert boxes(draw(LayoutProblem(()), Layout((), 0), title="none")) == []


def test_one_byte_one_step() -> None:
    one = problem((1, 5, 6))
    assert len(boxes(draw(one, layout(one, 0), title="one", lower_bound=1))) == 1


@pytest.mark.parametrize("size", [1, 10**6, 2**40, 2**62])
def test_sizes_of_any_kind(size: int) -> None:
    one = problem((size, 0, 10**9))
    found = draw(one, layout(one, 0), title="one")
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points(found))
    assert len(found.marks) < 60


def test_all_inside_the_sheet() -> None:
    rng = random.Random(1)
    for _ in range(20):
        found = random_problem(rng, 40, 30, 100, (1, 4))
        laid = solve(found, solver="greedy").layout
        assert laid is not None
        scene = draw(found, laid, title="random", lower_bound=laid.peak - 1)
        assert len(boxes(scene)) == 40
        assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points(scene))


def test_few_names_on_a_full_map() -> None:
    many = problem(*((10, start, start + 50) for start in range(0, 50_000, 50)))
    laid = layout(many, *(0 for _ in many.buffers))
    assert len([text for text in texts(draw(many, laid, title="many")) if text.startswith("b")]) <= 300


def test_deterministic() -> None:
    assert draw(PAIR, LAID, title="two") == draw(PAIR, LAID, title="two")
