"""Execution order: where each update stands.

An update may follow its gradient at once when no later step reads the weight's old value. That
frees the gradient early: with all updates at the end, every gradient lives to the end.
"""

from __future__ import annotations

from solver.training import ACCUMULATE, UPDATE, TrainingProgram, TrainingStep

__all__ = ["UPDATE_MODES", "updates_when_legal"]

#: ``immediate``: as early as every reader allows; ``end``: after the whole backward pass.
UPDATE_MODES = ("immediate", "end")


def updates_when_legal(program: TrainingProgram) -> TrainingProgram:
    """Move each update behind the last other step that touches one of its operands. Linear.

    Tied weights thus wait for all their readers and all their partial gradients.
    """
    updates = [step for step in program.steps if step.kernel == UPDATE]
    others = [step for step in program.steps if step.kernel != UPDATE]
    last = {operand: t for t, step in enumerate(others) for operand in step.touched()}
    after: dict[int, list[TrainingStep]] = {}
    for update in updates:
        ready = max(last.get(operand, -1) for operand in (*update.uses, *update.defs))
        while ready + 1 < len(others) and others[ready + 1].kernel == ACCUMULATE:
            ready += 1  # a partial is freed first: it lives over two neighbouring steps and no longer
        after.setdefault(ready, []).append(update)
    steps = [*after.get(-1, [])]
    for t, step in enumerate(others):
        steps += [step, *after.get(t, [])]
    return TrainingProgram(program.operands, tuple(steps))
