"""A buffer with holes as several pieces that move together.

::

    offset + size  _______            ______      a hole during which bytes [low, high) are held: the buffer
    offset + high |       |__________|      |     is three pieces, and others may use what is above and
    offset + low  |       |__________|      |     below the one in the middle
    offset        |_______|          |______|

The largest load of the pieces is a lower bound, a layout in which no two pieces overlap is right, and a
layout of the buffers without their holes is one with them. Shares no code with the solvers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from solver.layout.model.problem import Buffer, LayoutProblem, Lifespan

__all__ = ["Piece", "has_holes", "in_pieces", "pieces", "without_holes"]


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes ``[low, high)`` of the buffer at position `owner`, held throughout `lifespan`."""

    owner: int
    lifespan: Lifespan
    low: int
    high: int


def has_holes(problem: LayoutProblem) -> bool:
    return any(buffer.holes for buffer in problem.buffers)


def without_holes(problem: LayoutProblem) -> LayoutProblem:
    """All bytes held throughout: a layout of this is one of the problem, its bounds are not.

    The very same problem where there are no holes.
    """
    if not has_holes(problem):
        return problem
    return replace(problem, buffers=tuple(replace(b, holes=()) if b.holes else b for b in problem.buffers))


def pieces(problem: LayoutProblem) -> list[Piece]:
    """Buffer by buffer, in order of time; one that has no holes is one piece, and one of 0 bytes is none."""
    buffers = enumerate(problem.buffers)
    return [piece for owner, buffer in buffers if buffer.size for piece in _cut(owner, buffer)]


def _cut(owner: int, buffer: Buffer) -> Iterator[Piece]:
    begin = buffer.lifespan.start
    for hole in buffer.holes:
        if begin < hole.lifespan.start:
            yield Piece(owner, Lifespan(begin, hole.lifespan.start), 0, buffer.size)
        if hole.low < hole.high:
            yield Piece(owner, hole.lifespan, hole.low, hole.high)
        begin = hole.lifespan.end
    if begin < buffer.lifespan.end:
        yield Piece(owner, Lifespan(begin, buffer.lifespan.end), 0, buffer.size)


def in_pieces(problem: LayoutProblem) -> LayoutProblem:
    """Each piece a buffer of its own, free to move by itself; the same problem where there are no holes.

    Offsets are multiples of the smallest alignment, and so are bottoms of pieces where what lies below them
    is: each piece keeps that alignment then. Otherwise none does.
    """
    if not has_holes(problem):
        return problem
    buffers, held = problem.buffers, pieces(problem)
    granule = min(buffer.alignment for buffer in buffers)
    if any(p.low % granule for p in held):
        granule = 1
    alone = (Buffer(buffers[p.owner].id, p.high - p.low, p.lifespan, granule) for p in held)
    return replace(problem, buffers=tuple(alone))
