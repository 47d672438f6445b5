"""What the parts of the proof share: addresses of all spaces on one line, and how steps are named."""

from __future__ import annotations

from solver.plan import Plan
from solver.program import RESIDUE

__all__ = ["Line", "step_name"]


class Line:
    """All spaces one behind the other on one line of addresses: places are then plain ranges."""

    def __init__(self, plan: Plan) -> None:
        program = plan.program
        base = [0]
        for size in plan.sizes:
            base.append(base[-1] + max(size, 0) + RESIDUE)
        self.low = [
            base[value.space] + offset for value, offset in zip(program.values, plan.offsets, strict=True)
        ]
        self.high = [low + value.type.nbytes for low, value in zip(self.low, program.values, strict=True)]


def step_name(plan: Plan, t: int) -> str:
    return f"Step {plan.program.step_labels[t]!r}"
