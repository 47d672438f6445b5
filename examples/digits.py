"""Synthetic handwritten digits: strokes under a random affine map, drawn with a random pen, with noise.

Nothing is downloaded. The same seed gives the same digits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

__all__ = ["CLASSES", "SIDE", "batches", "digits"]

Float = npt.NDArray[np.float32]

#: Pixels along one side of an image, and digits.
SIDE, CLASSES = 28, 10

#: Corners of each digit's strokes in a unit square, x to the right and y down; strokes stand apart by "/".
_STROKES = (
    ".50,.05 .80,.25 .85,.50 .80,.75 .50,.95 .20,.75 .15,.50 .20,.25 .50,.05",
    ".30,.25 .55,.05 .55,.95 / .35,.95 .75,.95",
    ".18,.28 .35,.07 .65,.07 .80,.28 .70,.50 .15,.95 .85,.95",
    ".20,.10 .75,.10 .50,.42 .80,.58 .80,.80 .55,.95 .18,.85",
    ".65,.95 .65,.05 .12,.68 .88,.68",
    ".80,.07 .25,.07 .22,.45 .60,.40 .82,.60 .75,.85 .45,.95 .18,.85",
    ".72,.07 .35,.30 .18,.65 .30,.92 .65,.95 .82,.72 .65,.52 .35,.55 .20,.70",
    ".15,.07 .85,.07 .45,.95 / .35,.50 .72,.50",
    ".50,.05 .76,.20 .70,.40 .28,.58 .20,.80 .50,.95 .80,.80 .72,.58 .30,.40 .24,.20 .50,.05",
    ".78,.30 .60,.48 .30,.45 .20,.25 .40,.07 .68,.07 .80,.30 .74,.65 .50,.95",
)


def _segments(strokes: str) -> npt.NDArray[np.float64]:
    """Start and end of every straight piece: [pieces, 2, 2]."""
    pieces: list[tuple[tuple[float, ...], tuple[float, ...]]] = []
    for stroke in strokes.split("/"):
        points = [tuple(map(float, point.split(","))) for point in stroke.split()]
        pieces += pairwise(points)
    return np.array(pieces)


_DIGITS = tuple(map(_segments, _STROKES))
#: Centres of the pixels of one row or column.
_CENTRES = np.arange(SIDE) + 0.5


def digits(count: int, seed: int, among: Sequence[int] = range(CLASSES)) -> tuple[Float, Float]:
    """`count` images [count, 28, 28, 1] in [0, 1] of the digits `among`, and which of those each one is.

    The latter as one-hot rows [count, len(among)].
    """
    rng = np.random.default_rng(seed)
    classes = rng.integers(0, len(among), count)
    images = np.stack([_draw(_DIGITS[among[digit]], rng) for digit in classes])
    return images, np.eye(len(among), dtype=np.float32)[classes]


def batches(count: int, size: int, seed: int) -> Iterator[tuple[Float, Float]]:
    """`count` batches of `size` fresh digits."""
    for index in range(count):
        yield digits(size, seed + index)


def _draw(segments: npt.NDArray[np.float64], rng: np.random.Generator) -> Float:
    """One image: bright within half the pen's width of a piece, fading over one pixel."""
    placed = _placed(segments, rng)
    width = rng.uniform(1.4, 3.2)
    ink = np.clip(width / 2 + 0.5 - _distance(placed), 0.0, 1.0)
    noisy = ink * rng.uniform(0.75, 1.0) + rng.normal(0.0, 0.08, ink.shape)
    return np.clip(noisy, 0.0, 1.0).astype(np.float32).reshape(SIDE, SIDE, 1)


def _placed(segments: npt.NDArray[np.float64], rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Pieces in pixels, after a random scale, rotation, slant and shift; corners tremble a little."""
    angle, slant = rng.uniform(-0.2, 0.2), rng.uniform(-0.25, 0.25)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    scale = np.diag(rng.uniform((13.0, 17.0), (19.0, 22.0)))
    moved: npt.NDArray[np.float64] = (segments - 0.5) @ (
        turn @ np.array([[1.0, slant], [0.0, 1.0]]) @ scale
    ).T
    return moved + SIDE / 2 + rng.uniform(-2.0, 2.0, 2) + rng.normal(0.0, 0.25, segments.shape)


def _distance(segments: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """From each pixel's centre to the nearest piece, in pixels: [28 * 28]."""
    (start_x, start_y), (end_x, end_y) = segments.transpose(1, 2, 0)[..., None, None]
    along_x, along_y = end_x - start_x, end_y - start_y
    x, y = _CENTRES - start_x, _CENTRES[:, None] - start_y
    share = np.clip((x * along_x + y * along_y) / (along_x**2 + along_y**2), 0.0, 1.0)
    squares = (x - share * along_x) ** 2 + (y - share * along_y) ** 2
    nearest: npt.NDArray[np.float64] = np.sqrt(squares.min(axis=0)).ravel()
    return nearest
