"""Lower bounds: no arena is smaller than what is live at one step; and the claims that a layout allows."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Final

import numpy as np

from solver.layout.model.instance import Instance, Integers, round_up
from solver.layout.model.pieces import in_pieces
from solver.layout.model.problem import Buffer, Layout, LayoutProblem, Outcome, Proof, Reserved, Status
from solver.layout.model.sorting import in_order

__all__ = [
    "LowerBound",
    "above_reserved",
    "aligned_load",
    "exact_max_load",
    "live_at",
    "max_load",
    "pinned_top",
    "settle",
]


#: Buffers from which arrays take less time.
ARRAYS_FROM: Final = 64

#: Steps of which each is looked at by itself, a pass over the arrays.
CLOSE_STEPS: Final = 64

#: Steps for each buffer up to which adding up step by step takes a tenth of the time of sorts.
STEPS_PER_BUFFER: Final = 4


@dataclass(frozen=True, slots=True)
class LowerBound:
    """`bytes` that every layout needs, and the earliest step that needs them."""

    bytes: int
    witness_step: int | None


def live_at(problem: LayoutProblem, step: int) -> tuple[Buffer, ...]:
    """The buffers whose lifespan covers `step`, in the order of the problem; of holes, what is held then."""
    return tuple(b for b in in_pieces(problem).buffers if b.lifespan.start <= step < b.lifespan.end)


def pinned_top(problem: LayoutProblem) -> int:
    """The highest byte (exclusive) that a pin claims; 0 without pins. A lower bound by itself."""
    return max((b.offset + b.size for b in problem.buffers if b.offset is not None), default=0)


def above_reserved(load: int, reserved: Iterable[Reserved]) -> int:
    """The smallest top below which `load` bytes are left between the reserved ranges, which share no byte."""
    top = load
    for range_ in sorted(reserved):
        if range_.low >= top:
            break
        top += range_.high - range_.low
    return top


def aligned_load(problem: LayoutProblem) -> int:
    """A lower bound from buffers of larger alignments: for every alignment A of the problem the load of those
    that lie at multiples of A, each with its size rounded up to A, but for the topmost one.

    0 where all have the smallest alignment. O(n log n) for each further alignment.
    """
    alignments = sorted({buffer.alignment for buffer in problem.buffers})
    subsets = (tuple(b for b in problem.buffers if b.alignment >= least) for least in alignments[1:])
    return max((exact_max_load(in_pieces(LayoutProblem(some))).bytes for some in subsets), default=0)


def max_load(problem: LayoutProblem) -> LowerBound:
    """Largest load over all steps in exact integers, O(n log n); ``(0, None)`` without buffers.

    Offsets are multiples of the smallest alignment, the granule. A buffer above a live one
    thus starts at or beyond that buffer's size rounded up to the granule; only the topmost one
    need not be padded, and in the best case it is the one with the most padding. So the load of a
    step is the sum of the rounded sizes less the largest padding among the live buffers. It grows
    with every birth (rounded size less any growth of that padding is positive), hence it is enough
    to look right after each birth, and the first to attain the maximum is at the earliest step.

    With holes it is the load of the pieces: what is held inside of holes counts, padding of pieces only where
    all of them begin at multiples of the granule. Reserved bytes below the load are added to it, from granule
    to granule: padding may reach into a range, up to the first multiple of the granule.
    """
    bound = _max_load(problem)
    if not problem.reserved:
        return bound
    granule = min((buffer.alignment for buffer in problem.buffers), default=1)
    ranges = [Reserved(round_up(r.low, granule), round_up(r.high, granule)) for r in problem.reserved]
    return replace(bound, bytes=above_reserved(bound.bytes, ranges))


def _max_load(problem: LayoutProblem) -> LowerBound:
    if len(problem.buffers) >= ARRAYS_FROM:
        instance = Instance.in_steps(problem)
        bound = None if instance is None else _in_arrays(instance.alone())
        if bound is not None:
            return bound
    return exact_max_load(in_pieces(problem))


def _in_arrays(instance: Instance) -> LowerBound | None:
    """The same from arrays, in some passes. None where padding leaves more than `CLOSE_STEPS` to look at.

    The load less some padding is largest at one of the steps whose load is within a granule of the largest.
    """
    steps = instance.sections
    now, load = _by_step(instance) if steps <= STEPS_PER_BUFFER * len(instance) else _by_birth(instance)
    most, padding = int(load.argmax()), instance.size - instance.exact
    if not padding.any():
        return LowerBound(int(load[most]), int(now[most])) if load[most] else LowerBound(0, None)
    close = np.flatnonzero(load > load[most] - instance.alignment.min())
    if len(close) > CLOSE_STEPS:
        return None
    best = LowerBound(0, None)
    for at in close.tolist():
        live = (instance.start <= now[at]) & (instance.end > now[at])
        needed = int(load[at]) - int(padding[live].max())
        # Among births of one step the last one counts: only there is all that is live added up.
        if needed > best.bytes and (at + 1 == len(now) or now[at + 1] != now[at]):
            best = LowerBound(needed, int(now[at]))
    return best


def _by_step(instance: Instance) -> tuple[Integers, Integers]:
    """Steps at which something is born, and the load of each. O(n + steps)."""
    births = np.zeros(instance.sections, bool)
    births[instance.start] = True
    now = np.flatnonzero(births)
    return now, instance.load()[now]


def _by_birth(instance: Instance) -> tuple[Integers, Integers]:
    """The step of each birth, and the load right after it. O(n log n), whatever the steps are."""
    by_start, by_end = in_order(instance.start), in_order(instance.end)
    now = instance.start[by_start]
    dead = np.concatenate(([0], np.cumsum(instance.size[by_end])))
    died = instance.end[by_end].searchsorted(now, side="right")
    load: Integers = np.cumsum(instance.size[by_start]) - dead[died]
    return now, load


def exact_max_load(problem: LayoutProblem) -> LowerBound:
    """In Python integers of any size."""
    granule = min((buffer.alignment for buffer in problem.buffers), default=1)
    dying: list[tuple[int, int]] = []
    padding: list[tuple[int, int]] = [(0, -1)]
    load, best, witness = 0, 0, None
    for buffer in sorted(problem.buffers, key=lambda b: b.lifespan.start):
        now, end = buffer.lifespan.start, buffer.lifespan.end
        while dying and dying[0][0] <= now:
            load -= heappop(dying)[1]
        while padding[0][0] < 0 and padding[0][1] <= now:
            heappop(padding)
        pad = -buffer.size % granule
        load += buffer.size + pad
        heappush(dying, (end, buffer.size + pad))
        if pad:
            heappush(padding, (-pad, end))
        if load + padding[0][0] > best:
            best, witness = load + padding[0][0], now
    return LowerBound(best, witness)


def settle(
    problem: LayoutProblem,
    layout: Layout | None,
    bound: LowerBound,
    solver: str,
    began: float,
    *,
    proved: int = 0,
    deterministic: bool = True,
) -> Outcome:
    """The strongest true claim about `layout`.

    `proved` is a lower bound in bytes that a complete search has established (0: none); `began` is
    a `time.perf_counter` reading. A peak that equals what a pin alone claims is proved by `SOLVER`:
    it cannot be found by adding up live bytes.
    """
    best = max(bound.bytes, proved, pinned_top(problem))
    status, proof = Status.UNKNOWN, None
    if layout is not None:
        status = Status.OPTIMAL if layout.peak <= best else Status.FEASIBLE
        if status is Status.OPTIMAL:
            proof = Proof.MAX_LOAD if layout.peak <= bound.bytes else Proof.SOLVER
    return Outcome(
        status=status,
        layout=layout,
        lower_bound=best,
        witness_step=bound.witness_step,
        proof=proof,
        solver=solver,
        seconds=time.perf_counter() - began,
        deterministic=deterministic,
    )
