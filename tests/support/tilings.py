"""Layout problems cut out of a full rectangle: no byte is free at any step, and the optimum is known.

The rectangle of steps by bytes is cut into pieces, each of which becomes a buffer, and the pieces are put in
another order. A layout as high as the rectangle exists and none is lower; to find it, a search has to put a
jigsaw together. Some cuts are pinwheels, which no order of straight cuts makes::

    bytes  +-----------+-----+
           |     1     |     |
           +---+-------+  2  |
           |   |   5   |     |
           | 4 +-------+-----+
           |   |      3      |
           +---+-------------+  steps

This is what the public instances of MiniMalloc are like at their capacity, in any number and size.
"""

from __future__ import annotations

import csv
import io
import random
from typing import NamedTuple

from solver.layout import Buffer, LayoutProblem, Lifespan

__all__ = ["Piece", "as_csv", "halved", "tiling"]


class Piece(NamedTuple):
    start: int
    end: int
    low: int
    high: int


def tiling(
    seed: int, *, buffers: int = 60, steps: int = 60, units: int = 64, unit: int = 16, free: float = 0.0
) -> LayoutProblem:
    """About `buffers` buffers that fill ``units * unit`` bytes, which is the capacity, through all the steps.

    Sizes are multiples of `unit`. A share `free` of the pieces is left out. Raises ValueError where a
    rectangle of so few steps and units has no room for so many pieces. O(buffers * log(buffers)) cuts.
    """
    if buffers * 4 > steps * units:
        raise ValueError(f"{steps} steps by {units} units cannot be cut into {buffers} pieces")
    draw = random.Random(seed)
    pieces = [Piece(0, steps, 0, units)]
    while len(pieces) < buffers:
        # Large ones first, but not always: sizes of several magnitudes.
        among = draw.sample(range(len(pieces)), min(3, len(pieces)))
        i = max(among, key=lambda k: (pieces[k].end - pieces[k].start) * (pieces[k].high - pieces[k].low))
        pieces[i : i + 1] = _cut(draw, pieces[i])
    kept = [piece for piece in pieces if draw.random() >= free]
    draw.shuffle(kept)
    made = (
        Buffer(f"b{i}", (piece.high - piece.low) * unit, Lifespan(piece.start, piece.end))
        for i, piece in enumerate(kept)
    )
    return LayoutProblem(tuple(made), units * unit)


def _cut(draw: random.Random, piece: Piece) -> list[Piece]:
    """Two pieces or, in a pinwheel, five; one that is too small stays whole."""
    start, end, low, high = piece
    if end - start >= 3 and high - low >= 3 and draw.random() < 0.4:
        left, right = sorted(draw.sample(range(start + 1, end), 2))
        bottom, top = sorted(draw.sample(range(low + 1, high), 2))
        return [
            Piece(start, right, top, high),
            Piece(right, end, bottom, high),
            Piece(left, end, low, bottom),
            Piece(start, left, low, top),
            Piece(left, right, bottom, top),
        ]
    return halved(draw, piece)


def halved(draw: random.Random, piece: Piece) -> list[Piece]:
    """A rectangle in two, across time or across bytes, at a random place; whole where it is too small."""
    start, end, low, high = piece
    if end - start > 1 and (high - low == 1 or draw.random() < 0.5):
        middle = draw.randrange(start + 1, end)
        return [Piece(start, middle, low, high), Piece(middle, end, low, high)]
    if high - low > 1:
        middle = draw.randrange(low + 1, high)
        return [Piece(start, end, low, middle), Piece(start, end, middle, high)]
    return [piece]


def as_csv(problem: LayoutProblem) -> str:
    """The interchange format of public allocators, as they write it: id, lower, upper, size; half-open."""
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("id", "lower", "upper", "size"))
    rows.writerows((b.id, b.lifespan.start, b.lifespan.end, b.size) for b in problem.buffers)
    return text.getvalue()
