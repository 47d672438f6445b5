"""A partitioner of `torch.compile` that keeps a budget of bytes, at the least cost of what runs again.

    joint graph ──► scheduling problem ──► cheapest schedule ──► forward and backward graph ──► their bytes
                                                ▲                                                    │
                                                └────── a smaller budget, while these exceed it ─────┘

The search does not know which bytes a fusing compiler saves, so the bytes of the two graphs are counted after
it (`solver.pytorch_steps.held`).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from solver.accounting import floor
from solver.documents import read_size
from solver.errors import CapacityError, OptionsError
from solver.importers.pytorch.capture import torch as framework
from solver.layout import Deadline
from solver.pytorch_steps.joint import JointGraph
from solver.schedules import Schedule
from solver.version import producer

__all__ = ["Budget", "Partition", "as_partitioner"]

#: If fused loops save bytes: each next budget of the search is smaller by 1/50 at least.
_STEP = 50


@dataclass(frozen=True, slots=True)
class Partition:
    """The memory and the work of a forward and a backward pass; sizes in bytes.

    `planned_bytes` are held at once, at most; `saved_bytes` of them wait between the two passes. Of `calls`
    in the two graphs `repeated_calls` are further runs, with `repeated_flops` floating-point operations.
    """

    planned_bytes: int
    saved_bytes: int
    calls: int
    repeated_calls: int
    repeated_flops: int


class Budget:
    """A partitioner of `torch.compile`; `partitions` has the figures of each graph that it split, in order.

    A graph that PyTorch takes from its cache on disk is not split again, and has no figures. `options` are
    those of `torch.compile` with which inductor holds the planned bytes.
    """

    def __init__(self, budget: int) -> None:
        self.bytes = budget
        self.partitions: list[Partition] = []

    @property
    def options(self) -> dict[str, Any]:
        """This partitioner, and buffers that are freed behind their last reader.

        By default inductor keeps a freed buffer for a later tensor of its size, up to a peak that it
        estimates without loops which write over their operands: that exceeds the plan.
        """
        return {"custom_partitioner_fn": self, "allow_buffer_reuse": False}

    def __call__(
        self, module: Any, inputs: Sequence[Any], *, num_fwd_outputs: int, compiler: str = "", **_: Any
    ) -> tuple[Any, Any]:
        """The graphs of the forward and the backward pass; `compiler` is inductor, or one without loops.

        Raises DocumentError for symbolic shapes, CapacityError where nothing was found that fits. Warns where
        inductor keeps freed buffers.
        """
        del inputs  # the graph knows their shapes
        fused = compiler == "inductor"
        if fused and _keeps_freed_buffers():
            warnings.warn(
                "inductor keeps freed buffers for later tensors, and may hold a tenth more than the budget."
                " Compile with torch.compile(module, options=budget.options).",
                stacklevel=2,
            )
        joint = JointGraph(module, num_fwd_outputs, fused=fused)
        reached = _in_budget(joint, self.bytes)
        self.partitions.append(reached.figures)
        return reached.forward, reached.backward

    def uuid(self) -> str:
        """The key by which PyTorch caches compiled graphs: the version and the budget."""
        return f"{producer()}, budget {self.bytes}"

    def __deepcopy__(self, memo: dict[int, Any]) -> Budget:
        """The same object: PyTorch copies the options of a compilation, and figures go to the caller's."""
        del memo
        return self


def _keeps_freed_buffers() -> bool:
    """Whether inductor, as it is configured for this compilation, reuses buffers later on."""
    from torch._inductor import config

    return bool(config.allow_buffer_reuse)


def as_partitioner(size: int | str) -> Budget:
    """The budget of `size` bytes, as a custom partitioner of inductor."""
    framework()
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    try:
        budget = read_size(size) if isinstance(size, str) else size
    except ValueError as error:
        raise OptionsError(
            f"{size!r:.100} is no budget.", remedy=f"{error}.".capitalize(), path=("size",)
        ) from None
    if budget <= 0:
        raise OptionsError(
            f"A budget of {budget:,} bytes holds nothing.",
            remedy='Give the bytes that a forward and a backward pass may hold, as "300 MB".',
            path=("size",),
        )
    CustomPartitionerFn.register(Budget)
    return Budget(budget)


@dataclass(frozen=True, slots=True)
class _Reached:
    """A schedule, its forward and backward graph, and their figures."""

    schedule: Schedule
    forward: Any
    backward: Any
    figures: Partition

    @property
    def peak(self) -> int:
        return self.figures.planned_bytes


def _in_budget(joint: JointGraph, budget: int) -> _Reached:
    """The partition that runs the least again, of those within the budget that the search reaches.

    Raises CapacityError where none was found.
    """
    from solver.schedules.recompute.least import least_peak

    problem = joint.problem
    search = _Search(joint)
    start = search.at(2**62)
    if start.peak <= budget:
        return start
    reached, within = start, budget + start.schedule.peak - start.peak
    while reached.peak > budget and within > 0:
        reached = search.at(within)
        over = reached.peak - budget
        if within <= budget or not reached.schedule.fits:
            break
        within = max(budget, min(within - over, within - within // _STEP))
    if reached.peak > budget:
        lowest = floor(problem)
        least = least_peak(search.at, start, lowest.bytes - 1, Deadline(), enough=budget)
        reached = min(reached, least, key=lambda each: each.peak)
    if reached.peak > budget:
        raise CapacityError(
            f"The forward and the backward pass of {len(problem.steps):,} calls were found to hold"
            f" {reached.peak:,} bytes at once at least, with everything made again that helps; the budget is"
            f" {budget:,}.",
            remedy=f"Raise the budget to {reached.peak:,} bytes, or reduce the batch.",
            required=reached.peak,
            available=budget,
            live_at_peak=[],
            path=("budget",),
        )
    return reached


class _Search:
    """Searches of one joint graph, for several budgets."""

    def __init__(self, joint: JointGraph) -> None:
        self.joint = joint

    def at(self, budget: int, before: Schedule | None = None, share: float = 1.0) -> _Reached:
        """See `cheapest`."""
        from solver.schedules.recompute.search import cheapest  # numba and OR-Tools

        joint = self.joint
        schedule = cheapest(joint.problem, budget, before=before, share=share)
        sequence = joint.needed(schedule.sequence)
        forward, backward = joint.parts(sequence)
        peak, saved = joint.peak_bytes(forward, backward)
        figures = Partition(peak, saved, *joint.repeated(sequence))
        return _Reached(schedule, forward, backward, figures)
