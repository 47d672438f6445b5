"""What running steps at the same time brings and costs, from the plan alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from solver.layout.model.problem import Lifespan
from solver.plan.plan import Plan, PlannedBuffer
from solver.plan.report import live_curve

__all__ = ["WaveReport", "wave_report"]


@dataclass(frozen=True, slots=True)
class WaveReport:
    """`steps` steps run in `count` waves, at most `widest` of them at the same time.

    `sequential_bytes` are live at once when one worker runs the same steps in the same order. What the
    arenas take beyond that is the price of running them side by side.
    """

    workers: int
    steps: int
    count: int
    widest: int
    sequential_bytes: int


def wave_report(plan: Plan) -> WaveReport:
    """Linear. For one worker every step is a wave of its own."""
    widths = Counter(plan.times)
    steps, touches = len(plan.steps), _touches(plan)
    loads = (
        max(live_curve(_one_by_one(arena.buffers, plan.times, touches), steps), default=0)
        for arena in plan.arenas
    )
    return WaveReport(plan.options.workers, steps, len(widths), max(widths.values(), default=0), sum(loads))


def _touches(plan: Plan) -> dict[str, list[int]]:
    """The steps that touch each operand, by position; -1 stands before them all where a value was there."""
    found: dict[str, list[int]] = {}
    for t, step in enumerate(plan.steps):
        for name in step.uses:
            found.setdefault(name, [-1]).append(t)
        for name in (*step.defs, *step.scratch):
            found.setdefault(name, []).append(t)
    return found


def _one_by_one(
    buffers: Iterable[PlannedBuffer], times: tuple[int, ...], touches: Mapping[str, list[int]]
) -> Iterator[PlannedBuffer]:
    """The buffers with lifespans that count steps, from the first touch instead of the first wave."""
    for buffer in buffers:
        touched = [t for operand in buffer.operands for t in touches.get(operand.id, ())] or [-1]
        end = len(times) if buffer.lifetime.outlives_iteration else max(touched) + 1
        yield replace(buffer, lifespan=Lifespan(max(min(touched), 0), end))
