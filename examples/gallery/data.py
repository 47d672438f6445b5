"""Data that the examples make for themselves; every generator is endless and repeats with its seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import numpy.typing as npt

from arenaplan.builder import Batch
from examples.digits import CLASSES, digits

__all__ = ["GESTURES", "SHAPES", "digit_batches", "gesture_batches", "shape_batches"]

Float = npt.NDArray[np.float32]

#: Kinds of shapes, and of gestures.
SHAPES = ("disc", "frame", "cross", "stripes")
GESTURES = ("shake", "swing", "circle", "tap")


def digit_batches(seed: int, size: int, among: Sequence[int] = range(CLASSES)) -> Iterator[Batch]:
    """Drawn digits, each batch anew: ``image`` and one-hot ``label``."""
    for index in count():
        images, labels = digits(size, seed * 1_000_003 + index, among)
        yield {"image": images, "label": labels}


def shape_batches(seed: int, size: int, side: int) -> Iterator[Batch]:
    """Images of one bright shape each, of any place, size and colours: ``image`` and one-hot ``label``."""
    rng = np.random.default_rng(seed)
    while True:
        kinds = rng.integers(0, len(SHAPES), size)
        ink = _shapes(kinds, rng, side)[..., None]
        bright, dark = rng.uniform(0.5, 1.5, (size, 1, 1, 3)), rng.uniform(-1.0, 0.0, (size, 1, 1, 3))
        images = np.where(ink, bright, dark) + rng.normal(0, 0.1, (size, side, side, 3))
        yield {"image": images.astype(np.float32), "label": np.eye(len(SHAPES), dtype=np.float32)[kinds]}


def _shapes(kinds: npt.NDArray[np.int64], rng: np.random.Generator, side: int) -> npt.NDArray[np.bool_]:
    """Which pixels belong to each shape: [size, side, side]."""
    grid = (np.arange(side) + 0.5) / side
    radius, centre = (
        rng.uniform(0.25, 0.4, (len(kinds), 1, 1)),
        rng.uniform(0.4, 0.6, (2, len(kinds), 1, 1)),
    )
    x, y = (grid[None, None, :] - centre[0]) / radius, (grid[None, :, None] - centre[1]) / radius
    longer, shorter = np.maximum(abs(x), abs(y)), np.minimum(abs(x), abs(y))
    inside = (
        np.hypot(x, y) < 1,
        (longer > 0.7) & (longer < 1),
        (longer < 1) & (shorter < 0.25),
        (longer < 1) & (np.sin(3 * np.pi * (x - y)) > 0),
    )
    return np.choose(kinds[:, None, None], inside)


def gesture_batches(seed: int, size: int, length: int) -> Iterator[Batch]:
    """What an accelerometer sees, three axes: ``motion`` [size, length, 3] and one-hot ``label``."""
    rng = np.random.default_rng(seed)
    while True:
        kinds = rng.integers(0, len(GESTURES), size)
        motion = _gestures(kinds, rng, length) * rng.uniform(0.7, 1.3, (size, 1, 1))
        noisy = motion + rng.normal(0, 0.2, motion.shape)
        yield {"motion": noisy.astype(np.float32), "label": np.eye(len(GESTURES), dtype=np.float32)[kinds]}


def _gestures(kinds: npt.NDArray[np.int64], rng: np.random.Generator, length: int) -> npt.NDArray[np.float64]:
    """Shake: fast in x. Swing: slow in x. Circle: slow in x and y. Tap: once in z."""
    time, start = np.linspace(0, 1, length), rng.uniform(0, 1, (len(kinds), 1))
    slow, fast = 2 * np.pi * (2 * time + start), 2 * np.pi * (6 * time + start)
    none, tap = np.zeros_like(slow), np.exp(-(((time - 0.2 - 0.6 * start) * 12) ** 2))
    kind = (
        (np.sin(fast), none, none),
        (np.sin(slow), none, none),
        (np.sin(slow), np.cos(slow), none),
        (none, none, 2 * tap),
    )
    each = np.stack([np.stack(axes, axis=-1) for axes in kind])
    return each[kinds, np.arange(len(kinds))]
