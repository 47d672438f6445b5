"""Lifespans: the steps, or waves of steps, during which an operand's bytes must stay put."""

from __future__ import annotations

from solver.layout import Lifespan
from solver.training.program import Lifetime, TrainingOperandIndex, TrainingProgram

__all__ = ["lifespans"]


def lifespans(program: TrainingProgram) -> dict[TrainingOperandIndex, Lifespan]:
    """Half-open lifespan of every operand that some step touches, in the program's unit of time. Linear.

    The unit is a step, or a wave: what two steps of one wave touch then lives at the same time.

    | lifetime | lifespan |
    |---|---|
    | MAX | the whole iteration: it carries over to the next one |
    | EPOCH | first touch to the end: the caller reads it after the last step |
    | ITERATION | first touch to last touch; from step 0 where the caller writes it |
    | FORWARD_FUNCTION, BACKWARD_FUNCTION | its one step, or the wave of it |
    """
    first: dict[TrainingOperandIndex, int] = {}
    last: dict[TrainingOperandIndex, int] = {}
    for t, step in zip(program.times, program.steps, strict=True):
        for index in step.touched():
            first.setdefault(index, t)
            last[index] = t
    end = program.duration
    found = {}
    for index, start in first.items():
        operand = program.operands[index]
        if operand.is_defined_by_caller:
            start = 0
        stop = end if operand.lifetime in (Lifetime.MAX, Lifetime.EPOCH) else last[index] + 1
        found[index] = Lifespan(start, stop)
    return found
