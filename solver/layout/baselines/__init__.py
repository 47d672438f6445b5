"""What shipping runtimes do, as solvers to compare with. Each follows the published algorithm, ties included.

| name | runtime | how it places |
|---|---|---|
| bump, nntrainer-basic | onert, nntrainer (Basic) | never reuses a byte |
| first-fit | onert (Samsung ONE) | first free block, in the order of requests |
| wic | onert, its default | first free block, by descending size |
| nntrainer-v1 | nntrainer, its default | a stack by birth; reuses expired slots of exactly the same size |
| nntrainer-v3 | nntrainer | first free block, in order of birth |
| tflm-greedy | TensorFlow Lite Micro | first free block, by descending size, later requests first |
| executorch-greedy | ExecuTorch (exir) | objects that buffers share, by descending size |
| best-fit | caching allocators | tightest free block, in order of birth |
| skyline | XLA and Chainer (Sekiyama et al., 2018) | lowest plateau, longest life first |

None of the runtimes knows mixed alignments or pins. Here sizes are padded to the largest alignment where
offsets are sums of sizes, and what cannot work around pins places everything above them.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final

import numpy as np

from solver.layout.bounds import max_load, pinned_top, settle
from solver.layout.greedy.placement import place
from solver.layout.greedy.skyline import lowest_plateau
from solver.layout.model.instance import FREE, Instance, Integers, layout_of, round_up
from solver.layout.model.problem import MAX_BYTES, Deadline, Layout, LayoutProblem, LayoutSolver, Outcome

__all__ = [
    "ANSWERED",
    "BASELINES",
    "WIC",
    "BestFit",
    "Bump",
    "ExecutorchGreedy",
    "FirstFit",
    "NntrainerBasic",
    "NntrainerV1",
    "NntrainerV3",
    "Skyline",
    "TflmGreedy",
]


class Bump:
    """Never reuses a byte: one buffer after the other, above whatever is pinned."""

    name = "bump"

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        offsets, peak = [], pinned_top(problem)
        for buffer in problem.buffers:
            offset = round_up(peak, buffer.alignment) if buffer.offset is None else buffer.offset
            offsets.append(offset)
            peak = max(peak, offset + buffer.size)
        return settle(problem, Layout(tuple(offsets), peak), max_load(problem), self.name, began)


class NntrainerBasic(Bump):
    name = "nntrainer-basic"


class _InOrder:
    """First fit in a fixed order of buffers; pinned ones first."""

    name: ClassVar[str]

    #: Whether a buffer takes the tightest free block, not the lowest.
    best_fit: ClassVar[bool] = False

    def order(self, instance: Instance, problem: LayoutProblem) -> Integers:
        """Positions of the buffers, in the order in which they are placed: by default, that of requests."""
        return np.arange(len(instance))

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        instance = Instance.of(problem)
        offsets, _ = place(instance, self.order(instance, problem), best_fit=self.best_fit)
        return settle(problem, layout_of(instance, offsets), max_load(problem), self.name, began)


class FirstFit(_InOrder):
    """The first free block that is large enough, in the order of requests, that of the problem."""

    name = "first-fit"


class WIC(_InOrder):
    """Weighted interval colouring: first fit by descending size, ties in the order of requests."""

    name = "wic"

    def order(self, instance: Instance, problem: LayoutProblem) -> Integers:
        return np.argsort(-instance.size, kind="stable")


class NntrainerV3(_InOrder):
    """First fit by birth, then by death, then in the order of requests."""

    name = "nntrainer-v3"

    def order(self, instance: Instance, problem: LayoutProblem) -> Integers:
        return _by_birth(problem)


class TflmGreedy(_InOrder):
    """First fit by descending size; among equals the latest first, as its list is filled from the tail."""

    name = "tflm-greedy"

    def order(self, instance: Instance, problem: LayoutProblem) -> Integers:
        return np.lexsort((-np.arange(len(instance)), -instance.size))


class BestFit(_InOrder):
    """The tightest free block, by birth: what an allocator without foresight can do at best."""

    name = "best-fit"

    best_fit = True

    def order(self, instance: Instance, problem: LayoutProblem) -> Integers:
        return _by_birth(problem)


def _by_birth(problem: LayoutProblem) -> Integers:
    spans = [(b.lifespan.start, b.lifespan.end, i) for i, b in enumerate(problem.buffers)]
    return np.array([i for _, _, i in sorted(spans)], dtype=np.int64)


class _AbovePins(ABC):
    """Planners that know no pins: all else goes above the pins. Sizes are padded to the largest alignment.

    More than `ANSWERED` buffers have no layout where the deadline passes first.
    """

    name: ClassVar[str]

    @abstractmethod
    def offsets(self, padded: Instance, problem: LayoutProblem, deadline: Deadline) -> Integers | None:
        """Offsets from 0 for every buffer; None when the deadline passes first."""

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        instance, bound, layout = Instance.of(problem), max_load(problem), None
        alignment = int(instance.alignment.max(initial=1))
        free = np.flatnonzero(instance.offset == FREE)
        padded = replace(instance, size=instance.size + -instance.size % alignment).subset(free)
        until = Deadline() if len(free) <= ANSWERED else deadline
        found = self.offsets(padded, LayoutProblem(tuple(problem.buffers[i] for i in free)), until)
        if found is not None:
            offsets = instance.offset.copy()
            offsets[free] = found + round_up(pinned_top(problem), alignment)
            layout = layout_of(instance, offsets)
        return settle(problem, layout, bound, self.name, began, deterministic=found is not None)


class NntrainerV1(_AbovePins):
    """A stack by birth. Expired slots are popped at its top; a buried one is reused by an equal size only.

    O(n * live buffers).
    """

    name = "nntrainer-v1"

    def offsets(self, padded: Instance, problem: LayoutProblem, deadline: Deadline) -> Integers | None:
        offsets = np.zeros(len(padded), dtype=np.int64)
        stack: list[int] = []
        size, spans = padded.size.tolist(), [b.lifespan for b in problem.buffers]
        for count, i in enumerate(_by_birth(problem).tolist()):
            if count % POLL == 0 and deadline.expired:
                return None
            while stack and spans[stack[-1]].end <= spans[i].start:
                stack.pop()
            slots = range(len(stack) - 1, -1, -1)
            same = (k for k in slots if size[stack[k]] == size[i] and spans[stack[k]].end <= spans[i].start)
            slot = next(same, len(stack))
            if slot < len(stack):
                offsets[i] = offsets[stack[slot]]
            elif stack:
                offsets[i] = offsets[stack[-1]] + size[stack[-1]]
            stack[slot : slot + 1] = [i]
        return offsets


@dataclass(slots=True)
class _Shared:
    """An object that buffers share; never resized. `held`: birth, death and top of each, from its bottom."""

    bottom: int
    size: int
    held: list[tuple[int, int, int]] = field(default_factory=list)

    def above(self, start: int, end: int) -> int:
        """Height of the highest top among those alive with [start, end); 0 if there is none."""
        return max((top for born, dead, top in self.held if start < dead and born < end), default=0)


class ExecutorchGreedy(_AbovePins):
    """By descending size (the last request first among equals), each into an object it may share.

    The first object free throughout its life takes it at the bottom; else the first with room above all that
    live with it; else it becomes an object itself, above all others. O(n**2).
    """

    name = "executorch-greedy"

    def offsets(self, padded: Instance, problem: LayoutProblem, deadline: Deadline) -> Integers | None:
        offsets = np.zeros(len(padded), dtype=np.int64)
        objects: list[_Shared] = []
        top = 0
        for count, i in enumerate(np.lexsort((-np.arange(len(padded)), -padded.size)).tolist()):
            if count % POLL == 0 and deadline.expired:
                return None
            span, size = problem.buffers[i].lifespan, int(padded.size[i])
            chosen, height = _shareable(objects, span.start, span.end, size)
            if chosen is None:
                chosen = _Shared(top, size)
                objects.append(chosen)
                top += size
            chosen.held.append((span.start, span.end, height + size))
            offsets[i] = chosen.bottom + height
        return offsets


def _shareable(objects: list[_Shared], start: int, end: int, size: int) -> tuple[_Shared | None, int]:
    above: tuple[_Shared | None, int] = (None, 0)
    for shared in objects:
        height = shared.above(start, end)
        if height == 0:
            return shared, 0
        if above[0] is None and height + size <= shared.size:
            above = (shared, height)
    return above


class Skyline(_AbovePins):
    """The lowest plateau takes the longest-lived buffer that lives inside it. O(n * sections)."""

    name = "skyline"

    def offsets(self, padded: Instance, problem: LayoutProblem, deadline: Deadline) -> Integers | None:
        return None if deadline.expired else lowest_plateau(padded, "lifetime", MAX_BYTES, deadline)


#: Placements between two looks at the deadline.
POLL: Final = 64

#: Buffers up to which those that know no pins finish whatever the deadline says: a tenth of a second at most.
ANSWERED: Final = 500

BASELINES: Final[tuple[LayoutSolver, ...]] = (
    Bump(),
    FirstFit(),
    WIC(),
    NntrainerBasic(),
    NntrainerV1(),
    NntrainerV3(),
    TflmGreedy(),
    ExecutorchGreedy(),
    BestFit(),
    Skyline(),
)
