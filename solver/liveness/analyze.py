"""The bridge: an ordered training program becomes buffers with lifespans."""

from __future__ import annotations

from solver.liveness.lifespans import lifespans
from solver.targets import reference
from solver.targets.pools import Pool, TargetPlan, TargetStep
from solver.training.program import TrainingProgram, TrainingStep

__all__ = ["analyze"]


def analyze(program: TrainingProgram, alignment: int = reference.ALIGNMENT) -> TargetPlan:
    """Buffers and steps of the reference target, one pool. `alignment` is in bytes. Linear."""
    spans = lifespans(program)
    buffers = tuple(
        reference.buffer(operand, spans[index], alignment)
        for index, operand in program.operands.items()
        if index in spans
    )
    return TargetPlan(tuple(_step(step) for step in program.steps), (Pool(reference.POOL, buffers),))


def _step(step: TrainingStep) -> TargetStep:
    return TargetStep(
        id=str(step.index),
        kernel=step.kernel,
        uses=tuple(dict.fromkeys(map(str, step.uses))),
        defs=tuple(dict.fromkeys(map(str, step.defs))),
        scratch=tuple(str(b.operand) for b in step.scratch),
    )
