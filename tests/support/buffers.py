"""Short ways to write layout problems in tests and to solve them, and an oracle that tries everything."""

from __future__ import annotations

import csv
import random
from collections.abc import Iterable
from itertools import chain, repeat
from pathlib import Path
from typing import Any, cast

from solver.layout import (
    Buffer,
    Deadline,
    Layout,
    LayoutProblem,
    Lifespan,
    Outcome,
    Piece,
    Status,
    find_violations,
    pieces,
    solve,
)

__all__ = [
    "DATA",
    "best_peak",
    "countdown",
    "layout",
    "problem",
    "random_problem",
    "read_csv",
    "smallest",
    "solved",
    "tight_problem",
    "varied",
]

#: Public instances that stand beside the project in some check-outs; tests skip without them.
DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def problem(*rows: tuple[int, int, int], alignment: int = 1, capacity: int | None = None) -> LayoutProblem:
    """Buffers b0, b1, ... from (size, start, end)."""
    buffers = (Buffer(f"b{i}", z, Lifespan(s, e), alignment) for i, (z, s, e) in enumerate(rows))
    return LayoutProblem(tuple(buffers), capacity)


def layout(problem: LayoutProblem, *offsets: int) -> Layout:
    tops = (offset + b.size for b, offset in zip(problem.buffers, offsets, strict=True))
    return Layout(offsets, max(tops, default=0))


class Placed(Outcome):
    """An outcome with a layout."""

    layout: Layout


def solved(problem: LayoutProblem, **how: Any) -> Placed:
    """The outcome of `solve`, which has to have a layout that keeps all rules and is not below the bound.

    A layout above the capacity is right only if the outcome says that none fits or that none is known.
    """
    outcome = solve(problem, **how)
    assert outcome.layout is not None
    may_exceed = outcome.status in (Status.INFEASIBLE, Status.UNKNOWN)
    broken = {violation.rule for violation in find_violations(problem, outcome.layout)}
    assert broken <= ({"capacity"} if may_exceed else set())
    assert outcome.lower_bound <= outcome.layout.peak
    return cast("Placed", outcome)


def countdown(asked: int) -> Deadline:
    """A deadline that has passed once it has been asked this many times: no test needs to wait."""
    answers = chain(repeat(False, asked), repeat(True))

    class Countdown(Deadline):
        @property
        def expired(self) -> bool:
            return next(answers)

    return Countdown()


def best_peak(problem: LayoutProblem) -> int:
    """The smallest peak, from every order of placing each buffer as low as it goes.

    Some order of the offsets of an optimum, moved down, reproduces its peak; pins come first.
    """
    free = [b for b in problem.buffers if b.offset is None]
    pinned = [(b, b.offset) for b in problem.buffers if b.offset is not None]
    best = sum(b.size + b.alignment for b in free) + max((o + b.size for b, o in pinned), default=0)

    def descend(placed: list[tuple[Buffer, int]], left: list[Buffer], peak: int) -> None:
        nonlocal best
        if peak >= best:
            return
        if not left:
            best = peak
        for i, buffer in enumerate(left):
            offset = _lowest(buffer, placed)
            rest = left[:i] + left[i + 1 :]
            descend([*placed, (buffer, offset)], rest, max(peak, offset + buffer.size))

    descend(pinned, free, max((o + b.size for b, o in pinned), default=0))
    return best


def _lowest(buffer: Buffer, placed: Iterable[tuple[Buffer, int]]) -> int:
    offset = 0
    taken = sorted((o, o + b.size) for b, o in placed if b.lifespan.overlaps(buffer.lifespan))
    for bottom, top in taken:
        if offset + buffer.size <= bottom:
            break
        offset = max(offset, -(-top // buffer.alignment) * buffer.alignment)
    return offset


def smallest(problem: LayoutProblem, unit: int = 1) -> int | None:
    """The least peak over all layouts whose offsets are multiples of `unit`; None if there is none.

    By trying every place, with holes, pins and reserved ranges; the capacity is left aside. Exponential in
    the buffers: for five or six of a few units each.
    """
    held: list[list[Piece]] = [[] for _ in problem.buffers]
    for piece in pieces(problem):
        held[piece.owner].append(piece)
    top = sum(buffer.size + buffer.alignment for buffer in problem.buffers)
    top += max([0, *(r.high for r in problem.reserved), *(b.offset or 0 for b in problem.buffers)])
    best: int | None = None

    def meet(i: int, at: int, j: int, beside: int) -> bool:
        return any(
            p.lifespan.overlaps(q.lifespan) and at + p.low < beside + q.high and beside + q.low < at + p.high
            for p in held[i]
            for q in held[j]
        )

    def place(offsets: list[int], peak: int) -> None:
        nonlocal best
        if best is not None and peak >= best:
            return
        i = len(offsets)
        if i == len(problem.buffers):
            best = peak
            return
        buffer = problem.buffers[i]
        places = range(0, top + 1 if buffer.size else 1, unit)
        for offset in places if buffer.offset is None else (buffer.offset,):
            end = offset + buffer.size if buffer.size else 0
            if best is not None and end >= best:
                return
            if offset % buffer.alignment or any(offset < r.high and r.low < end for r in problem.reserved):
                continue
            if not any(meet(i, offset, j, beside) for j, beside in enumerate(offsets)):
                place([*offsets, offset], max(peak, end))

    place([], 0)
    return best


def random_problem(
    rng: random.Random, buffers: int, steps: int, largest: int, alignments: tuple[int, ...] = (1,)
) -> LayoutProblem:
    made = []
    for i in range(buffers):
        start = rng.randrange(steps)
        span = Lifespan(start, rng.randint(start + 1, steps))
        made.append(Buffer(f"b{i}", rng.randint(1, largest), span, rng.choice(alignments)))
    return LayoutProblem(tuple(made))


def tight_problem(rng: random.Random) -> LayoutProblem:
    """Nearly full at every step: the kind whose optimum may lie above the max-load bound."""
    height, smallest = rng.randint(6, 14), rng.choice((1, 2, 3))
    largest = rng.randint(max(smallest, height // 3), max(smallest, height // 2))
    longest, alignment = rng.randint(3, 6), rng.choice((1, 1, 1, 2))
    steps = rng.randint(5, 10)
    made: list[Buffer] = []
    for step in range(steps):
        load = sum(b.size for b in made if b.lifespan.end > step)
        while load + smallest <= height:
            size = rng.randint(smallest, min(height - load, largest))
            span = Lifespan(step, min(steps, step + rng.randint(1, longest)))
            made.append(Buffer(f"b{len(made)}", size, span, alignment))
            load += size
    return LayoutProblem(tuple(made))


def varied(rng: random.Random, base: LayoutProblem) -> LayoutProblem:
    """The same with one buffer a little larger, smaller, longer or shorter."""
    buffers = list(base.buffers)
    i = rng.randrange(len(buffers))
    old, change = buffers[i], rng.choice((-1, 1))
    size, start, end = old.size, old.lifespan.start, old.lifespan.end
    match rng.randrange(3):
        case 0:
            size = max(1, size + change)
        case 1:
            start = max(0, min(end - 1, start + change))
        case _:
            end = max(start + 1, end + change)
    buffers[i] = Buffer(old.id, size, Lifespan(start, end), old.alignment)
    return LayoutProblem(tuple(buffers))


def read_csv(path: Path, alignment: int = 1) -> LayoutProblem:
    """The interchange format of public allocators: id, lower, upper, size; half-open."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = [
            Buffer(row["id"], int(row["size"]), Lifespan(int(row["lower"]), int(row["upper"])), alignment)
            for row in csv.DictReader(file)
        ]
    return LayoutProblem(tuple(rows))
