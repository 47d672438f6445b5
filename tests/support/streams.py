"""Tight layout problems made by running a memory, and by moving the cuts of a layout.

Nothing is placed by a rule: what is free at a step is filled at once by buffers that are born there, of any
size and length, so the layout that is made on the way fills the capacity but for the share that is left
out. The order of the buffers is drawn anew, and nothing is left of the layout but that there is one::

    bytes  +------+-----------+
           |  1   |     3     |
           +------+--+--------+
           |    2    |   4    |      1 dies: 3 is born there; 2 dies: 4 is born there
           +---------+--------+  steps

`recut` joins and cuts buffers of such a layout where they stand. What it makes fits where the first did, has
the same load, and has lifespans and sizes that no longer come from one distribution.
"""

from __future__ import annotations

import random
from typing import Final

from solver.layout import Buffer, LayoutProblem, Lifespan
from tests.support.tilings import Piece, halved

__all__ = ["recut", "stream"]

UNIT: Final = 1024


def stream(
    seed: int, *, buffers: int, steps: int, live: int, units: int = 1024, free: float = 0.0, long: float = 0.1
) -> LayoutProblem:
    """About `buffers` buffers, some `live` at a time, under a capacity of ``units`` KiB.

    A share `free` of the pieces is left out; a share `long` lives for a third of the time or more.
    """
    draw = random.Random(seed)
    return _problem(draw, _pieces(draw, buffers, steps, live, units, free, long), units)


def recut(
    seed: int, *, buffers: int, steps: int, live: int, units: int = 1024, free: float = 0.0, changes: int = 60
) -> LayoutProblem:
    """A stream of which so many pieces are joined with a neighbour or cut in two."""
    draw = random.Random(seed)
    pieces = _pieces(draw, buffers, steps, live, units, free, 0.1)
    for _ in range(changes):
        piece = pieces.pop(draw.randrange(len(pieces)))
        pieces += halved(draw, piece) if draw.random() < 0.5 else [_joined(piece, pieces)]
    return _problem(draw, pieces, units)


def _pieces(
    draw: random.Random, buffers: int, steps: int, live: int, units: int, free: float, long: float
) -> list[Piece]:
    """Step by step, what is free is filled from the bottom."""
    mean, width = units / live, live * steps / buffers
    pieces, alive = list[Piece](), list[Piece]()
    for step in range(steps):
        alive = sorted((piece for piece in alive if piece.end > step), key=lambda piece: piece.low)
        holes = zip([0, *(p.high for p in alive)], [*(p.low for p in alive), units], strict=True)
        for low, high in list(holes):
            at = low
            while at < high:
                size = max(1, min(high - at, int(draw.lognormvariate(0, 1.1) * mean * 0.6)))
                # What would be left is too little for another: it goes to this one.
                if high - at - size < draw.random() * mean * 0.5:
                    size = high - at
                lives = int(draw.expovariate(1 / width)) + 1
                if draw.random() < long:
                    lives = draw.randint(steps // 3, steps)
                alive.append(Piece(step, min(steps, step + lives), at, at + size))
                if draw.random() >= free:
                    pieces.append(alive[-1])
                at += size
    return pieces


def _joined(piece: Piece, others: list[Piece]) -> Piece:
    """With the first that makes a rectangle with it, which is taken from the others; or as it is."""
    start, end, low, high = piece
    for i, other in enumerate(others):
        beside = (other.low, other.high) == (low, high) and (other.start == end or other.end == start)
        above = (other.start, other.end) == (start, end) and (other.low == high or other.high == low)
        if beside or above:
            del others[i]
            return Piece(
                min(start, other.start), max(end, other.end), min(low, other.low), max(high, other.high)
            )
    return piece


def _problem(draw: random.Random, pieces: list[Piece], units: int) -> LayoutProblem:
    draw.shuffle(pieces)
    made = (
        Buffer(f"b{i}", (piece.high - piece.low) * UNIT, Lifespan(piece.start, piece.end))
        for i, piece in enumerate(pieces)
    )
    return LayoutProblem(tuple(made), units * UNIT)
