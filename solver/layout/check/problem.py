"""Is this a layout problem? The check of its buffers, each by itself; of the load; and of the pins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np

from solver.errors import ProblemError
from solver.layout.check.fast import meeting, rectangles
from solver.layout.check.reference import held
from solver.layout.model.instance import FREE, Instance, arrays_kept
from solver.layout.model.problem import MAX_BYTES, Buffer, Hole, LayoutProblem

__all__ = ["check_holes", "check_problem"]


def check_problem(problem: LayoutProblem) -> None:
    """Raise `ProblemError` naming the first buffer that no layout solver can take. O(n log n).

    A buffer larger than the capacity is not an error: the answer to such a problem is infeasible.
    """
    buffers = problem.buffers
    if problem.capacity is not None and (not _is_int(problem.capacity) or problem.capacity < 0):
        raise ProblemError(
            f"The capacity {problem.capacity!r} is not a whole number of bytes.",
            remedy="Give zero or more bytes, or leave it out.",
            path=("capacity",),
        )
    seen: set[str] = set()
    for index, buffer in enumerate(buffers):
        if buffer.id in seen:
            raise _bad(index, buffer, "has the id of another buffer", "Give every buffer its own id.", "id")
        seen.add(buffer.id)
    with arrays_kept(problem):
        for index in _suspects(problem):
            _check_buffer(index, buffers[index])
        if Instance.in_steps(problem) is None:
            _check_load(buffers)
    _check_pins(buffers)
    _check_reserved(problem)


def _suspects(problem: LayoutProblem) -> Iterable[int]:
    """Numbers of the buffers that arrays do not show to be right."""
    steps = Instance.in_steps(problem)
    if steps is None:
        return range(len(problem.buffers))
    begin, stop, low, high, owner = steps.holes.T
    lent, lifetime = np.zeros(len(steps), np.int64), steps.end - steps.start
    np.add.at(lent, owner, np.where(low == high, stop - begin, 0))
    wrong = (lifetime <= 0) | (steps.alignment & (steps.alignment - 1) != 0)
    wrong |= ((steps.offset != FREE) & (steps.offset % steps.alignment != 0)) | (lent >= lifetime)
    misplaced = (begin < steps.before_holes()) | (stop <= begin) | (stop > steps.end[owner])
    wrong[owner[misplaced | (low > high) | (high > steps.exact[owner])]] = True
    suspects: list[int] = np.flatnonzero(wrong).tolist()
    return suspects


def _is_int(value: object) -> bool:
    return type(value) is int


def _bad(index: int, buffer: Buffer, what: str, remedy: str, field: str) -> ProblemError:
    return ProblemError(f"Buffer {buffer.id!r} {what}.", remedy=remedy, path=("buffers", index, field))


def _check_buffer(index: int, buffer: Buffer) -> None:
    size, span, alignment = buffer.size, buffer.lifespan, buffer.alignment
    if not _is_int(size) or not 0 <= size <= MAX_BYTES:
        raise _bad(index, buffer, f"has size {size!r}", "A size is 0 to 2**63 - 1 bytes.", "size")
    if not _is_int(span.start) or not _is_int(span.end) or span.start < 0 or span.end > MAX_BYTES:
        what = f"has lifespan [{span.start!r}, {span.end!r})"
        raise _bad(index, buffer, what, "Steps are whole numbers from 0 to 2**63 - 1.", "lifespan")
    if span.end <= span.start:
        what = f"has the empty lifespan [{span.start}, {span.end})"
        raise _bad(index, buffer, what, "A lifespan ends after its start.", "lifespan")
    if not _is_int(alignment) or alignment < 1 or alignment & (alignment - 1):
        what = f"has alignment {alignment!r}"
        raise _bad(index, buffer, what, "An alignment is a power of two.", "alignment")
    if buffer.offset is not None:
        _check_pin(index, buffer, buffer.offset)
    check_holes(index, buffer)


def check_holes(index: int, buffer: Buffer) -> None:
    """Raise `ProblemError` for holes that do not lie in the lifespan, in order, or that leave no byte."""
    span, before, empty = buffer.lifespan, buffer.lifespan.start, 0
    for hole in buffer.holes:
        _check_hole(index, buffer, hole, before)
        before = hole.lifespan.end
        empty += before - hole.lifespan.start if hole.low == hole.high else 0
    if buffer.size and empty == span.end - span.start:
        what = f"holds no bytes at any step of its lifespan [{span.start}, {span.end})"
        raise _bad(index, buffer, what, "Remove the buffer, or shorten its gaps.", "gaps")


def _check_hole(index: int, buffer: Buffer, hole: Hole, before: int) -> None:
    """Inside the lifespan, from step `before` on, and its bytes inside the buffer."""
    span = hole.lifespan
    what = f"has the hole [{span.start!r}, {span.end!r})"
    if not _is_int(span.start) or not _is_int(span.end):
        raise _bad(index, buffer, what, "Steps are whole numbers.", "gaps")
    if span.end <= span.start:
        raise _bad(index, buffer, what, "It ends after its start.", "gaps")
    life = buffer.lifespan
    if span.start < life.start or span.end > life.end:
        raise _bad(index, buffer, what, f"It lies inside the lifespan [{life.start}, {life.end}).", "gaps")
    if span.start < before:
        remedy = f"Holes lie apart and in order of time; the one before ends at {before}."
        raise _bad(index, buffer, what, remedy, "gaps")
    what += f", which holds bytes [{hole.low!r}, {hole.high!r}) of {buffer.size}"
    if not _is_int(hole.low) or not _is_int(hole.high):
        raise _bad(index, buffer, what, "Bytes are whole numbers.", "gaps")
    if not 0 <= hole.low <= hole.high <= buffer.size:
        raise _bad(index, buffer, what, "They lie inside the buffer; none where the two are equal.", "gaps")


def _check_pin(index: int, buffer: Buffer, offset: int) -> None:
    if not _is_int(offset) or offset < 0:
        raise _bad(index, buffer, f"is pinned at {offset!r}", "An offset is 0 or more bytes.", "offset")
    if offset % buffer.alignment:
        what = f"is pinned at {offset}, not a multiple of its alignment {buffer.alignment}"
        raise _bad(index, buffer, what, "Pin it at an aligned offset.", "offset")


def _check_load(buffers: Sequence[Buffer]) -> None:
    """The bytes that live at any one step, and the end of each pin, fit 63 bits."""
    for index, buffer in enumerate(buffers):
        if buffer.size and buffer.offset is not None and buffer.offset + buffer.size > MAX_BYTES:
            what = f"is pinned at {buffer.offset} and ends beyond 2**63 - 1 bytes"
            raise _bad(index, buffer, what, "No runtime addresses that much; pin it lower.", "offset")
    rows = [(i, *stretch) for i, buffer in enumerate(buffers) for stretch in held(buffer)]
    events = [(start, 1, i, high - low) for i, start, end, low, high in rows if start < end]
    events += [(end, 0, i, low - high) for i, start, end, low, high in rows if start < end]
    load = 0
    for step, _, index, change in sorted(events):
        load += change
        if load > MAX_BYTES:
            what = f"brings the bytes live at step {step} beyond 2**63 - 1"
            remedy = "No runtime addresses that much; check the sizes."
            raise _bad(index, buffers[index], what, remedy, "size")


def _check_reserved(problem: LayoutProblem) -> None:
    """Reserved ranges hold bytes, share none with each other and none with a pinned buffer. O(n r)."""
    path = ("reserved",)
    for index, range_ in enumerate(problem.reserved):
        shown = f"The reserved range {range_.low}..{range_.high}"
        if not _is_int(range_.low) or not _is_int(range_.high):
            raise ProblemError(f"{shown} is not of whole numbers.", remedy="Give bytes.", path=(*path, index))
        if not 0 <= range_.low < range_.high <= MAX_BYTES:
            remedy = "Write its first byte, then the first byte behind it, as 0..8192."
            raise ProblemError(f"{shown} has no bytes of an arena.", remedy=remedy, path=(*path, index))
    for before, after in pairwise(sorted(problem.reserved)):
        if after.low < before.high:
            raise ProblemError(
                f"The reserved ranges {before.low}..{before.high} and {after.low}..{after.high} overlap.",
                remedy=f"Reserve {before.low}..{max(before.high, after.high)} in their place.",
                path=path,
            )
    for index, buffer in enumerate(problem.buffers):
        for range_ in problem.reserved if buffer.offset is not None and buffer.size else ():
            assert buffer.offset is not None
            if buffer.offset < range_.high and range_.low < buffer.offset + buffer.size:
                what = f"is pinned at {buffer.offset}, in the reserved range {range_.low}..{range_.high}"
                raise _bad(index, buffer, what, "Pin it elsewhere, or reserve less.", "offset")


def _check_pins(buffers: Sequence[Buffer]) -> None:
    pinned = [(index, b, b.offset) for index, b in enumerate(buffers) if b.offset is not None]
    rows = rectangles(LayoutProblem(tuple(b for _, b, _ in pinned)), [offset for _, _, offset in pinned])
    for one, other in meeting(rows):
        (_, first, _), (index, buffer, _) = (pinned[k] for k in sorted((rows[4][one], rows[4][other])))
        what = f"is pinned where buffer {first.id!r} is pinned at the same time"
        raise _bad(index, buffer, what, "Pin one of the two elsewhere.", "offset")
