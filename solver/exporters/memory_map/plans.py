"""The memory maps of a plan: an SVG for each arena."""

from __future__ import annotations

from collections.abc import Iterator

from solver.exporters.memory_map.draw import draw
from solver.exporters.memory_map.svg import to_svg
from solver.layout import Buffer, Hole, Layout, LayoutProblem
from solver.plan import PlanView

__all__ = ["plan_svgs"]


def plan_svgs(plan: PlanView) -> Iterator[str]:
    """The picture of each arena that holds something, as an SVG element. O(n log n) for n buffers."""
    for arena in plan.arenas:
        if not arena.buffers:
            continue
        buffers = tuple(
            Buffer(b.id, b.size, b.lifespan, b.alignment, holes=tuple(map(Hole, b.lent)))
            for b in arena.buffers
        )
        layout = Layout(tuple(b.offset for b in arena.buffers), arena.size)
        scene = draw(
            LayoutProblem(buffers),
            layout,
            title=f"{plan.graph}: {arena.name}, {arena.size:,} bytes",
            about=f"{len(buffers):,} buffers, {plan.duration:,} steps",
            lower_bound=arena.certificate.lower_bound,
        )
        yield to_svg(scene).decode()
