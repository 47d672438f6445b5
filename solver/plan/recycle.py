"""When memory is taken and given back: lazy allocation and automatic recycling, in Apache SINGA's words.

An arena is allocated once; within it a buffer takes its bytes at its first touch and gives them back
after its last. This is the order in which that happens, for runtimes that allocate one by one, for
tests, and for people who want to see where the memory goes.
"""

from __future__ import annotations

from dataclasses import dataclass

from solver.plan.report import live_curve
from solver.plan.views import PlanView

__all__ = ["RecycledStep", "Recycling", "recycling"]


@dataclass(frozen=True, slots=True)
class RecycledStep:
    """One step: buffers first touched by it, buffers free after it, bytes live while it runs.

    Or the steps of one level, for which `id` has the ids of all.
    """

    id: str
    allocated: tuple[str, ...]
    freed: tuple[str, ...]
    live_bytes: int


@dataclass(frozen=True, slots=True)
class Recycling:
    """`before`: buffers that hold a value when the iteration begins. `kept`: those that survive it."""

    before: tuple[str, ...]
    kept: tuple[str, ...]
    steps: tuple[RecycledStep, ...]


def recycling(plan: PlanView) -> Recycling:
    """The order of allocation and recycling that a plan's lifespans stand for. Linear.

    Each buffer is allocated once, `before` or at a step, and is freed at a step or `kept`. What is live
    at the last step counts as kept if the plan says so by its lifetime; anything else is freed there.
    Of a plan that is wrong, what lives beyond the last step lives to it.
    """
    count = plan.duration
    buffers = [buffer for _, buffer in plan.buffers()]
    defined = _defined_first(plan)
    born: list[list[str]] = [[] for _ in range(count)]
    dead: list[list[str]] = [[] for _ in range(count)]
    before: list[str] = []
    kept: list[str] = []
    for buffer in buffers:
        start, end = (min(t, count - 1) for t in (buffer.lifespan.start, buffer.lifespan.end - 1))
        stays = buffer.lifetime.outlives_iteration or not count
        (born[start] if buffer.id in defined else before).append(buffer.id)
        (kept if stays else dead[end]).append(buffer.id)
    live = live_curve(buffers, count)
    steps = (
        RecycledStep(id_, tuple(born[t]), tuple(dead[t]), live[t]) for t, id_ in enumerate(plan.level_ids())
    )
    return Recycling(tuple(before), tuple(kept), tuple(steps))


def _defined_first(plan: PlanView) -> set[str]:
    """Buffers whose first touch writes them without reading: nothing was in them before."""
    first: dict[str, bool] = {}
    for step in plan.steps:
        for name in step.uses:
            first.setdefault(name, False)
        for name in (*step.defs, *step.scratch):
            first.setdefault(name, True)
    return {name for name, inside in first.items() if inside}
