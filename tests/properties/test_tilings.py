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

This is what the public instances of MiniMalloc are like at their capacity, in any number and size."""

from __future__ import annotations

import csv
import io
import random
from dataclasses import replace
from typing import NamedTuple

import pytest

from solver.importers import load_minimalloc
from solver.layout import Buffer, LayoutProblem, Lifespan, Status, max_load, solve
from tests.support.buffers import solved
from tests.support.every import grid


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


#: From one that is seen through at once to one of the size of MiniMalloc's, some with a little room.
HARD = [
    pytest.param(
        tiling(seed, buffers=buffers, steps=steps, units=units, free=free), id=f"{buffers}-{free}-{seed}"
    )
    for buffers, steps, units in ((20, 16, 16), (60, 60, 64), (150, 120, 128), (250, 200, 256))
    for free in (0.0, 0.05)
    for seed in (0, 1)
]


@pytest.mark.parametrize("seed", range(5))
def test_a_tiling_is_full_at_every_step(seed: int) -> None:
    p = tiling(seed, buffers=40, steps=30, units=32, unit=16)
    assert 40 <= len(p.buffers) <= 44
    assert p.capacity == 32 * 16
    for step in range(30):
        assert sum(b.size for b in p.buffers if b.lifespan.overlaps(Lifespan(step, step + 1))) == p.capacity


def test_there_is_room_for_every_piece() -> None:
    with pytest.raises(ValueError, match="4 steps by 4 units"):
        tiling(1, buffers=5, steps=4, units=4)


@grid("p", HARD)
def test_the_capacity_is_reached(p: LayoutProblem) -> None:
    solved(p)


@grid("p", HARD)
def test_the_least_is_found_without_a_capacity(p: LayoutProblem) -> None:
    p = replace(p, capacity=None)
    outcome = solved(p)
    assert outcome.layout.peak == outcome.lower_bound == max_load(p).bytes


@grid("method", ["greedy", "wic", "first-fit", "bump"])
@grid("p", HARD[-4:])
def test_methods_are_valid_above_the_bound(p: LayoutProblem, method: str) -> None:
    p = replace(p, capacity=None)
    outcome = solved(p, solver=method)
    assert outcome.layout.peak >= outcome.lower_bound == max_load(p).bytes


@pytest.mark.parametrize("p", HARD[:4])
def test_one_byte_less_is_refused(p: LayoutProblem) -> None:
    outcome = solve(replace(p, capacity=max_load(p).bytes - 1))
    assert (outcome.layout, outcome.status) == (None, Status.INFEASIBLE)


@grid("p", HARD)
def test_they_are_read_from_the_interchange_format(p: LayoutProblem) -> None:
    assert load_minimalloc(as_csv(p).encode(), capacity=p.capacity).problem == p
