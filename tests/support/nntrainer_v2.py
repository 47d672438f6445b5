"""A planner that makes the mistake of nntrainer's V2 planner, and a validator that makes its pool's.

V2 places what is no weight gradient as V1 does, and the gradients, largest first, in a region above.
There, gradients share a slot if their lifespans are disjoint; but of the ways in which two of them can
overlap it knows three only:

    held   |-------|         |-------|        |-------|
    new      |---|               |-------|    |-------|      told apart from disjoint
    new    |---|   |-----------|      |---|                  taken for disjoint
                 (same start)  (around it)  (same end)       and so is one that begins before it
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from solver.layout import Deadline, Layout, LayoutProblem, Lifespan
from solver.layout.baselines import NntrainerV1

__all__ = ["accepts_by_neighbours", "overlapping_pairs", "v2"]


def v2(problem: LayoutProblem, gradients: Collection[str]) -> Layout:
    """Offsets as V2 gives them: right only as long as no two gradients overlap in a way it does not know."""
    others = [i for i, b in enumerate(problem.buffers) if b.id not in gradients]
    below = NntrainerV1().solve(LayoutProblem(tuple(problem.buffers[i] for i in others)), Deadline())
    assert below.layout is not None
    offsets = dict(zip(others, below.layout.offsets, strict=True))
    offsets |= _gradients(problem, set(range(len(problem.buffers))) - set(others), below.layout.peak)
    tops = [offsets[i] + b.size for i, b in enumerate(problem.buffers)]
    return Layout(tuple(offsets[i] for i in range(len(tops))), max(tops, default=0))


def _gradients(problem: LayoutProblem, indices: Collection[int], bottom: int) -> dict[int, int]:
    offsets: dict[int, int] = {}
    slots: list[tuple[int, list[Lifespan]]] = []
    for i in sorted(indices, key=lambda i: (-problem.buffers[i].size, i)):
        span = problem.buffers[i].lifespan
        slot = next((slot for slot in slots if not any(_overlap(held, span) for held in slot[1])), None)
        if slot is None:
            slot = (bottom, [])
            slots.append(slot)
            bottom += problem.buffers[i].size
        slot[1].append(span)
        offsets[i] = slot[0]
    return offsets


def _overlap(held: Lifespan, new: Lifespan) -> bool:
    """The mistake."""
    inside = held.start < new.start and new.end < held.end
    outlives = held.start < new.start < held.end < new.end
    return inside or outlives or held == new


def accepts_by_neighbours(problem: LayoutProblem, layout: Layout) -> bool:
    """Sort by offset and compare each buffer with the next one: what the runtime's own check amounts to."""
    placed = sorted(zip(layout.offsets, range(len(layout.offsets)), strict=True))
    return not any(
        low + problem.buffers[i].size > high
        and problem.buffers[i].lifespan.overlaps(problem.buffers[j].lifespan)
        for (low, i), (high, j) in pairwise(placed)
    )


def overlapping_pairs(problem: LayoutProblem, layout: Layout) -> set[frozenset[str]]:
    """Every pair that shares a byte at some step, by looking at every pair."""
    found = set()
    rows = list(zip(problem.buffers, layout.offsets, strict=True))
    for k, (a, low) in enumerate(rows):
        for b, high in rows[k + 1 :]:
            if low < high + b.size and high < low + a.size and a.lifespan.overlaps(b.lifespan):
                found.add(frozenset({a.id, b.id}))
    return found
