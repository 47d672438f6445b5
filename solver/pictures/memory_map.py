"""The picture of a layout: who lies where and when, above how much lives when.

offset   lower bound and peak as lines
  ┌───────────────────────────────┐
  │   ┌──────┐        ┌─────────┐ │      each buffer is a rectangle
  │ ┌─┴──────┴──┐     │         │ │      lifespan × [offset, offset + size)
  └─┴───────────┴─────┴─────────┴─┘
bytes
  ▁▃▃▆▆▆▆▃▃▃▁▁▅▅▅▅▅▅▅▅▂                  live bytes
  0               steps
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise
from typing import Final

from solver.layout import Layout, LayoutProblem, Piece, in_pieces, pieces
from solver.pictures.scene import Area, Boxes, Label, Scene, Strokes, dashes

__all__ = ["draw"]

WIDTH: Final = 1280
HEIGHT: Final = 800

_LEFT, _RIGHT = 96.0, 1256.0
_MAP_TOP, _MAP_BOTTOM = 92.0, 580.0
_CURVE_TOP, _CURVE_BOTTOM = 636.0, 744.0

_INK, _FAINT, _GRID = "#1f2933", "#5b6770", "#dfe4e8"
_PEAK, _BOUND, _LIVE = "#c81e1e", "#1a56db", "#8fb8de"

#: Fill and outline; neighbours in the order of birth get colours far apart.
_COLOURS: Final = (
    ("#a6cee3", "#4f87a8"), ("#fdbf6f", "#b87a24"), ("#b2df8a", "#6a9a40"), ("#cab2d6", "#8262a0"),
    ("#fb9a99", "#b54e4d"), ("#9fd8cb", "#4c9485"), ("#f6e58d", "#ad9a2e"), ("#d9d9d9", "#8a8a8a"),
    ("#f4b6d2", "#b3608b"), ("#b7c9f2", "#6478b5"), ("#d8c3a5", "#93784f"),
)  # fmt: skip

#: Labels inside rectangles need room for the text, and thousands of them cannot be read.
_LABEL_SIZE, _CHARACTER = 10.0, 6.2
_MAX_LABELS: Final = 300


@dataclass(frozen=True, slots=True)
class _Axis:
    """Maps ``[low, high]`` to pixels from `begin` to `end`."""

    low: int
    high: int
    begin: float
    end: float

    def __call__(self, value: float) -> float:
        return self.begin + (value - self.low) / (self.high - self.low) * (self.end - self.begin)


def draw(
    problem: LayoutProblem, layout: Layout, *, title: str, about: str = "", lower_bound: int = 0
) -> Scene:
    """The scene of a layout that is right. `about` is a second line, below the title; O(n log n)."""
    scene = Scene(WIDTH, HEIGHT, title)
    first = min((b.lifespan.start for b in problem.buffers), default=0)
    last = max((b.lifespan.end for b in problem.buffers), default=1)
    steps = _Axis(first, last, _LEFT, _RIGHT)
    offsets = _Axis(0, max(layout.peak, 1), _MAP_BOTTOM, _MAP_TOP)
    scene.add(Label((_LEFT, 32), title, 18, _INK), Label((_LEFT, 54), about, 13, _FAINT))
    _frame(scene, steps, offsets, "offset")
    _rectangles(scene, problem, layout, steps, offsets)
    _limits(scene, layout.peak, lower_bound, offsets)
    curve = _Axis(0, max(layout.peak, 1), _CURVE_BOTTOM, _CURVE_TOP)
    _live(scene, problem, steps, curve)
    scene.add(Label(((_LEFT + _RIGHT) / 2, _CURVE_BOTTOM + 42), "step", 13, _FAINT, "middle"))
    return scene


def _frame(scene: Scene, steps: _Axis, vertical: _Axis, name: str, ticks: int = 8) -> None:
    """Grid and numbers; the name of the vertical axis stands above it."""
    values = _byte_ticks(vertical.high, ticks)
    rows = tuple((_LEFT, vertical(value), _RIGHT, vertical(value)) for value in values)
    columns = tuple(
        (steps(step), vertical.begin, steps(step), vertical.end) for step in _ticks(steps.low, steps.high, 12)
    )
    scene.add(Strokes(_GRID, 1.0, rows + columns))
    for value in values:
        scene.add(Label((_LEFT - 8, vertical(value) + 4), _bytes(value, values), 12, _FAINT, "end"))
    for step in _ticks(steps.low, steps.high, 12):
        scene.add(Label((steps(step), vertical.begin + 18), f"{step:,}", 12, _FAINT, "middle"))
    scene.add(Label((_LEFT - 8, vertical.end - 12), name, 13, _FAINT, "end"))


def _rectangles(scene: Scene, problem: LayoutProblem, layout: Layout, steps: _Axis, offsets: _Axis) -> None:
    """Pieces of one buffer have one colour."""
    buffers = problem.buffers
    order = sorted(range(len(buffers)), key=lambda i: (buffers[i].lifespan, layout.offsets[i]))
    rank = {i: k for k, i in enumerate(order)}
    held = sorted(pieces(problem), key=lambda piece: rank[piece.owner])
    boxes = [_box(piece, layout.offsets[piece.owner], steps, offsets) for piece in held]
    for k, (fill, outline) in enumerate(_COLOURS):
        pairs = zip(held, boxes, strict=True)
        mine = tuple(box for piece, box in pairs if rank[piece.owner] % len(_COLOURS) == k)
        if mine:
            scene.add(Boxes(fill, outline, mine))
    names = [buffers[piece.owner].id for piece in held]
    for name, (x, y, width, height) in _roomy(names, boxes):
        middle = (x + width / 2, y + height / 2 + _LABEL_SIZE * 0.36)
        scene.add(Label(middle, name, _LABEL_SIZE, _INK, "middle"))


_Box = tuple[float, float, float, float]


def _box(piece: Piece, offset: int, steps: _Axis, offsets: _Axis) -> _Box:
    left, right = steps(piece.lifespan.start), steps(piece.lifespan.end)
    bottom, top = offsets(offset + piece.low), offsets(offset + piece.high)
    return left, top, right - left, bottom - top


def _roomy(names: Sequence[str], boxes: Sequence[_Box]) -> list[tuple[str, _Box]]:
    """The largest rectangles that have room for their name."""
    fitting = [
        (name, box)
        for name, box in zip(names, boxes, strict=True)
        if box[2] >= len(name) * _CHARACTER + 6 and box[3] >= _LABEL_SIZE + 3
    ]
    return sorted(fitting, key=lambda item: -item[1][2] * item[1][3])[:_MAX_LABELS]


def _limits(scene: Scene, peak: int, lower_bound: int, offsets: _Axis) -> None:
    """The peak as a line above everything, and the lower bound dashed where it is another."""
    if 0 < lower_bound < peak:
        y = offsets(lower_bound)
        scene.add(Strokes(_BOUND, 1.6, dashes(_LEFT, _RIGHT, y)))
        scene.add(Label((_RIGHT - 360, _MAP_TOP - 12), f"lower bound {lower_bound:,}", 13, _BOUND, "end"))
    same = " = lower bound" if peak and lower_bound == peak else ""
    scene.add(Strokes(_PEAK, 1.6, ((_LEFT, offsets(peak), _RIGHT, offsets(peak)),)))
    scene.add(Label((_RIGHT, _MAP_TOP - 12), f"peak {peak:,} bytes{same}", 13, _PEAK, "end"))


def _live(scene: Scene, problem: LayoutProblem, steps: _Axis, curve: _Axis) -> None:
    """Bytes live at each step, filled; the peak of the layout as the same red line."""
    _frame(scene, steps, curve, "live bytes", ticks=3)
    points = [(steps.begin, curve.begin)]
    for step, load in _loads(problem):
        points += [(steps(step), points[-1][1]), (steps(step), curve(load))]
    outline = tuple((a, b, c, d) for (a, b), (c, d) in pairwise(points))
    scene.add(Area(_LIVE, (*points, (points[-1][0], curve.begin))))
    scene.add(Strokes("#33658a", 1.2, outline))
    scene.add(Strokes(_PEAK, 1.6, ((_LEFT, curve.end, _RIGHT, curve.end),)))


def _loads(problem: LayoutProblem) -> Iterator[tuple[int, int]]:
    """Steps at which the live bytes change, with the bytes from then on."""
    held = in_pieces(problem).buffers
    changes = sorted((b.lifespan.start, b.size) for b in held)
    changes += sorted((b.lifespan.end, -b.size) for b in held)
    by_step = groupby(sorted(changes), key=lambda change: change[0])
    steps, deltas = [], []
    for step, group in by_step:
        steps.append(step)
        deltas.append(sum(delta for _, delta in group))
    yield from zip(steps, accumulate(deltas), strict=True)


def _ticks(low: int, high: int, count: int) -> list[int]:
    """Round numbers (1, 2 or 5 times a power of ten) in ``[low, high]``, about `count` of them."""
    span = max(high - low, 1)
    rough = max(span / count, 1.0)
    power = 10 ** int(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return list(range(-(-low // step) * step, high + 1, step))


_UNITS: Final = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def _unit(high: int) -> tuple[int, str]:
    return next((unit, name) for unit, name in _UNITS if high >= 8 * unit or unit == 1)


def _byte_ticks(high: int, count: int) -> list[int]:
    unit, _ = _unit(high)
    return [tick * unit for tick in _ticks(0, high // unit, count)]


def _bytes(value: int, ticks: Sequence[int]) -> str:
    unit, name = _unit(max(ticks[-1], 1))
    return f"{value // unit:,} {name}" if value else "0"
