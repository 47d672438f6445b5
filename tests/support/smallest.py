"""The smallest arena of a tiny layout problem, by trying every place: an oracle without any of our code."""

from __future__ import annotations

from solver.layout import LayoutProblem

__all__ = ["smallest"]


def smallest(problem: LayoutProblem, unit: int = 1) -> int | None:
    """The least peak over all layouts whose offsets are multiples of `unit`; None where there is none.

    The capacity is left aside. Exponential in the buffers: for five or six of a few units each.
    """
    buffers = [buffer for buffer in problem.buffers if buffer.size]
    room = sum(buffer.size + buffer.alignment for buffer in buffers)
    top = room + max([0, *(r.high for r in problem.reserved), *(b.offset or 0 for b in buffers)])
    best: int | None = None

    def place(index: int, placed: list[tuple[int, int]], peak: int) -> None:
        nonlocal best
        if best is not None and peak >= best:
            return
        if index == len(buffers):
            best = peak
            return
        buffer = buffers[index]
        offsets = range(0, top + 1, unit) if buffer.offset is None else (buffer.offset,)
        for offset in offsets:
            end = offset + buffer.size
            if offset % buffer.alignment or any(
                offset < range_.high and range_.low < end for range_ in problem.reserved
            ):
                continue
            if all(
                end <= at or until <= offset or not buffer.lifespan.overlaps(other.lifespan)
                for other, (at, until) in zip(buffers, placed, strict=False)
            ):
                place(index + 1, [*placed, (offset, end)], max(peak, end))

    place(0, [], 0)
    return best
