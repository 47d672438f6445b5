"""The bridge: an ordered training program becomes buffers with lifespans."""

from __future__ import annotations

from solver.liveness.lifespans import lifespans
from solver.targets import reference
from solver.targets.pools import Pool, TargetPlan, TargetStep
from solver.targets.sharing import together
from solver.training.program import TrainingProgram, TrainingStep

__all__ = ["analyze"]


def analyze(program: TrainingProgram, alignment: int = reference.ALIGNMENT) -> TargetPlan:
    """Buffers and steps of the reference target, one pool. `alignment` is in bytes. Linear.

    Lifespans count steps, or waves where the program has waves. Operands that share memory share a buffer.
    """
    spans = lifespans(program)
    buffers = (
        reference.buffer(operand, spans[index], alignment)
        for index, operand in program.operands.items()
        if index in spans
    )
    shares = {str(i): (str(share.source), share.view) for i, share in program.shares.items()}
    waves = program.waves or (None,) * len(program.steps)
    steps = tuple(_step(step, wave) for step, wave in zip(program.steps, waves, strict=True))
    return TargetPlan(steps, (Pool(reference.POOL, together(buffers, shares)),))


def _step(step: TrainingStep, wave: int | None) -> TargetStep:
    return TargetStep(
        id=str(step.index),
        kernel=step.kernel,
        uses=tuple(dict.fromkeys(map(str, step.uses))),
        defs=tuple(dict.fromkeys(map(str, step.defs))),
        scratch=tuple(str(b.operand) for b in step.scratch),
        wave=wave,
    )
