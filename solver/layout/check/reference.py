"""The reference check of layouts: each rule by its definition. This file is what is trusted.

It compares every two buffers, in quadratic time, without arrays, sorting or compiled code. The fast check
(`solver.layout.check.fast`) reports the same violations; tests compare the two on 100,000 layouts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import combinations

from solver.layout.model.problem import Buffer, Layout, LayoutProblem

__all__ = ["Violation", "held", "violations"]


@dataclass(frozen=True, slots=True)
class Violation:
    """`rule` is count, offset, alignment, pin, reserved, overlap, peak or capacity; `buffers` are ids."""

    rule: str
    buffers: tuple[str, ...]
    detail: str


def violations(
    problem: LayoutProblem, layout: Layout, pairs: Iterable[tuple[int, int]] | None = None
) -> Iterator[Violation]:
    """Every rule that the layout breaks. The problem must have passed `check_problem`.

    `pairs` are the buffers, by number, that are compared; None compares every two, in O(n^2).
    """
    buffers, offsets = problem.buffers, layout.offsets
    if len(offsets) != len(buffers):
        yield Violation("count", (), f"{len(offsets):,} offsets for {len(buffers):,} buffers")
        return
    for buffer, offset in zip(buffers, offsets, strict=True):
        if type(offset) is not int or offset < 0:
            yield Violation("offset", (buffer.id,), f"offset {offset!r} is not a whole number of bytes")
        elif offset % buffer.alignment:
            yield Violation("alignment", (buffer.id,), f"offset {offset}, alignment {buffer.alignment}")
        if buffer.offset is not None and offset != buffer.offset:
            yield Violation("pin", (buffer.id,), f"offset {offset}, pinned at {buffer.offset}")
        for reserved in problem.reserved:
            if buffer.size and offset < reserved.high and reserved.low < offset + buffer.size:
                detail = f"offset {offset}, bytes [{reserved.low}, {reserved.high}) are reserved"
                yield Violation("reserved", (buffer.id,), detail)
    for i, j in combinations(range(len(buffers)), 2) if pairs is None else pairs:
        yield from _shared(buffers[i], offsets[i], buffers[j], offsets[j])
    tops = [b.size and offset + b.size for b, offset in zip(buffers, offsets, strict=True)]
    if layout.peak != max(tops, default=0):
        yield Violation("peak", (), f"peak {layout.peak:,} stated, {max(tops, default=0):,} needed")
    for buffer, top in zip(buffers, tops, strict=True):
        if problem.capacity is not None and top > problem.capacity:
            detail = f"ends at {top:,}, the capacity is {problem.capacity:,}"
            yield Violation("capacity", (buffer.id,), detail)


def _shared(a: Buffer, at_a: int, b: Buffer, at_b: int) -> Iterator[Violation]:
    """Each stretch of steps in which both hold the same bytes; the buffer that is born first comes first."""
    if b.lifespan.start < a.lifespan.start:
        a, at_a, b, at_b = b, at_b, a, at_a
    for start_a, end_a, low_a, high_a in held(a):
        for start_b, end_b, low_b, high_b in held(b):
            start, end = max(start_a, start_b), min(end_a, end_b)
            low, high = max(at_a + low_a, at_b + low_b), min(at_a + high_a, at_b + high_b)
            if start < end and low < high:
                detail = f"both hold bytes [{low}, {high}) during steps [{start}, {end})"
                yield Violation("overlap", (a.id, b.id), detail)


def held(buffer: Buffer) -> Iterator[tuple[int, int, int, int]]:
    """Stretches of the lifespan, first step and one past the last, and the bytes [low, high) held in each.

    Inside a hole these are the bytes of the hole, elsewhere all. A stretch may be empty.
    """
    begin = buffer.lifespan.start
    for hole in buffer.holes:
        yield begin, hole.lifespan.start, 0, buffer.size
        yield hole.lifespan.start, hole.lifespan.end, hole.low, hole.high
        begin = hole.lifespan.end
    yield begin, buffer.lifespan.end, 0, buffer.size
