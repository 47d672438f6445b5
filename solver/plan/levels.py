"""The gain and the cost of steps that run at the same time, from the plan alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from solver.layout import Lifespan
from solver.plan.report import live_curve
from solver.plan.views import PlannedBuffer, PlanView
from solver.program import UPDATE, dependencies, list_schedule

__all__ = ["LevelReport", "level_report"]


@dataclass(frozen=True, slots=True)
class LevelReport:
    """`steps` steps run on `count` concurrency levels, at most `widest` of them at the same time.

    `sequential_bytes` are live at once when the same steps run one after the other in the same order. What
    the arenas take beyond that is the price of running them side by side. If none waited to keep a capacity,
    they would run on `unbounded` levels; with tiers that is `count`, as copies set the pace.
    """

    parallelism: int
    steps: int
    count: int
    widest: int
    sequential_bytes: int
    unbounded: int


def level_report(plan: PlanView) -> LevelReport:
    """As `list_schedule`. Where steps run one after the other, each has a level of its own."""
    widths = Counter(plan.times)
    steps, touches = len(plan.steps), _touches(plan)
    loads = (
        max(live_curve(_one_by_one(arena.buffers, plan.times, touches), steps), default=0)
        for arena in plan.arenas
    )
    return LevelReport(
        parallelism=plan.options.parallelism,
        steps=steps,
        count=len(widths),
        widest=max(widths.values(), default=0),
        sequential_bytes=sum(loads),
        unbounded=min(len(widths), _unbounded(plan)),
    )


def _unbounded(plan: PlanView) -> int:
    """The levels that dependencies alone ask for, with updates at the end behind all others."""
    if plan.options.tiers:
        return plan.duration
    before, stage = dependencies((step.uses, step.defs) for step in plan.steps), 0
    if plan.options.update == "end":
        stage = next((t for t, step in enumerate(plan.steps) if step.kernel == UPDATE), 0)
    late = [frozenset(s - stage for s in earlier if s >= stage) for earlier in before[stage:]]
    return sum(1 for part in (before[:stage], late) for _ in list_schedule(part, plan.options.parallelism))


def _touches(plan: PlanView) -> dict[str, list[int]]:
    """The positions of the steps that touch each value; -1 in front where it holds something at the start."""
    touches: dict[str, list[int]] = {}
    for t, step in enumerate(plan.steps):
        for name in step.uses:
            touches.setdefault(name, [-1]).append(t)
        for name in (*step.defs, *step.scratch):
            touches.setdefault(name, []).append(t)
    return touches


def _one_by_one(
    buffers: Iterable[PlannedBuffer], times: tuple[int, ...], touches: Mapping[str, list[int]]
) -> Iterator[PlannedBuffer]:
    """The buffers with lifespans that count steps, from the first touch instead of the first level."""
    for buffer in buffers:
        touched = [t for value in buffer.values for t in touches.get(value.id, ())] or [-1]
        end = len(times) if buffer.lifetime.outlives_iteration else max(touched) + 1
        yield replace(buffer, lifespan=Lifespan(max(min(touched), 0), end))
