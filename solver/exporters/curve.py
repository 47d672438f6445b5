"""The picture of a trade-off: peak against extra time, with what is proved beside it.

extra    floor
time %     ┊ o             o  a schedule; the line is what each capacity costs
           ┊ └──o          ╌  no schedule of this order costs less
           ┊ ╌╌╌└─────o
           ┊    ╌╌╌╌╌╌└──o    the last point is the program as it is
           └──────────────── peak
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Final

from solver.pictures.scene import Boxes, Label, Point, Quads, Scene, Strokes, dashes, to_png, to_svg
from solver.reports.verdict import TradeOff, TradeOffPoint

__all__ = ["draw_curve", "dump_curve"]

WIDTH: Final = 960
HEIGHT: Final = 560

_LEFT, _RIGHT, _TOP, _BOTTOM = 80.0, 924.0, 96.0, 492.0

_INK, _FAINT, _GRID = "#1f2933", "#5b6770", "#dfe4e8"
_COST, _BOUND, _FLOOR, _NEVER = "#1a56db", "#0b7a5b", "#c81e1e", "#fbeaea"

#: Colour -> its replacement on a dark page.
_DARK: Final = MappingProxyType(
    {
        "#ffffff": "#11181f", _INK: "#e6edf3", _FAINT: "#9fb0bd", _GRID: "#26323c",
        _COST: "#82aaff", _BOUND: "#4fd1a5", _FLOOR: "#ff8080", _NEVER: "#2e1b1f",
    }
)  # fmt: skip

#: Pixels between two figures beside points.
_LABEL_GAP_PIXELS: Final = 44.0


def dump_curve(curve: TradeOff, *, png: bool = False) -> bytes:
    """The picture as SVG, which follows the reader's light or dark; as PNG with the extra ``plot``.

    Raises OptionsError where that extra is not installed.
    """
    scene = draw_curve(curve)
    return to_png(scene) if png else to_svg(scene, _DARK)


def draw_curve(curve: TradeOff) -> Scene:
    """The scene of a curve, on white. Linear in its points."""
    points, total = curve.points, max(curve.step_nanoseconds, 1)
    share = [100 * point.extra / total for point in points]
    low, high = curve.floor, curve.present.peak
    margin = max((high - low) // 24, 1)
    top = max(*share, 0.1) * 1.1

    def x(peak: float) -> float:
        return _LEFT + (peak - low + margin) / (high - low + 2 * margin) * (_RIGHT - _LEFT)

    def y(percent: float) -> float:
        return _BOTTOM - percent / top * (_BOTTOM - _TOP)

    scene = Scene(WIDTH, HEIGHT, f"{curve.graph}: memory against time")
    scene.add(
        Label((_LEFT, 34), f"{curve.graph}: peak memory against extra time", 18, _INK),
        Label((_LEFT, 56), _description(curve), 13, _FAINT),
        Boxes(_NEVER, _NEVER, ((_LEFT, _TOP, x(low) - _LEFT, _BOTTOM - _TOP),)),
    )
    unit, name = next((u, n) for u, n in _UNITS if high >= 4 * u or u == 1)
    for tick in _ticks((low - margin) / unit, (high + margin) / unit, 8):
        scene.add(Strokes(_GRID, 1.0, ((x(tick * unit), _TOP, x(tick * unit), _BOTTOM),)))
        scene.add(Label((x(tick * unit), _BOTTOM + 20), f"{tick:,g} {name}", 12, _FAINT, "middle"))
    for tick in _ticks(0, top, 6):
        scene.add(Strokes(_GRID, 1.0, ((_LEFT, y(tick), _RIGHT, y(tick)),)))
        scene.add(Label((_LEFT - 8, y(tick) + 4), f"+{tick:g} %" if tick else "0", 12, _FAINT, "end"))
    scene.add(
        Label(((_LEFT + _RIGHT) / 2, _BOTTOM + 46), "bytes live at once", 13, _FAINT, "middle"),
        Strokes(_FLOOR, 1.6, ((x(low), _TOP, x(low), _BOTTOM),)),
        Label((x(low) + 6, _TOP + 14), f"floor {low:,}", 12, _FLOOR),
    )
    at = [(x(point.peak), y(percent)) for point, percent in zip(points, share, strict=True)]
    proved = [y(100 * point.bound / total) for point in points]
    scene.add(Strokes(_BOUND, 1.6, tuple(_proved(at, proved, x(max(low, curve.impossible))))))
    scene.add(Strokes(_COST, 2.0, tuple(_stairs(at))))
    scene.add(Boxes(_COST, _COST, tuple((a - 3.5, b - 3.5, 7.0, 7.0) for a, b in at)))
    for (a, b), percent in _with_label_gaps(at, share):
        scene.add(Label((a + 8, b - 7), f"+{percent:.1f} %" if percent else "now", 12, _INK))
    scene.add(*_legend(points))
    return scene


def _description(curve: TradeOff) -> str:
    least = curve.points[-1]
    extra = 100 * least.extra / max(curve.step_nanoseconds, 1)
    return (
        f"{curve.present.peak:,} bytes as it is; {least.peak:,} for {extra:.1f} % more modelled time;"
        f" step {curve.floor_step} needs the floor"
    )


def _stairs(at: Sequence[Point]) -> Iterator[tuple[float, float, float, float]]:
    """The cost at a capacity: that of the point with the largest peak within it."""
    for (right, above), (left, below) in pairwise(at):
        yield left, below, right, below
        yield right, below, right, above


def _proved(at: Sequence[Point], bounds: Sequence[float], end: float) -> Quads:
    """The bound of a peak holds down to the next one, the last one down to where nothing is possible."""
    segments: list[tuple[float, float, float, float]] = []
    ends = [*(left for left, _ in at[1:]), min(end, at[-1][0])]
    for (right, _), bound, left in zip(at, bounds, ends, strict=True):
        segments += dashes(left, right, bound)
    return tuple(segments)


def _with_label_gaps(at: Sequence[Point], share: Sequence[float]) -> Iterator[tuple[Point, float]]:
    """The points whose figures do not touch, the ends of the curve first."""
    shown: list[Point] = []
    for i in (0, len(at) - 1, *range(1, len(at) - 1)):
        if all(
            abs(at[i][0] - a) > _LABEL_GAP_PIXELS or abs(at[i][1] - b) > _LABEL_GAP_PIXELS / 3
            for a, b in shown
        ):
            shown.append(at[i])
            yield at[i], share[i]


def _legend(points: Sequence[TradeOffPoint]) -> Iterator[Strokes | Label]:
    yield Strokes(_COST, 2.0, ((_RIGHT - 330, 79.5, _RIGHT - 306, 79.5),))
    yield Label((_RIGHT - 300, 84), "schedules found", 12, _FAINT)
    if any(point.bound for point in points):
        yield Strokes(_BOUND, 1.6, dashes(_RIGHT - 190, _RIGHT - 164, 79.5))
        yield Label((_RIGHT - 158, 84), "proved: at least this much", 12, _FAINT)


_UNITS: Final = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B"))


def _ticks(low: float, high: float, count: int) -> list[float]:
    """Round numbers (1, 2 or 5 times a power of ten) in ``[low, high]``, about `count` of them."""
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(k * step, 10) for k in range(first, last + 1)]
