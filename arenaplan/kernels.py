"""Kernels of other frameworks in the planned arena."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from arenaplan.choices import PlanChoices, planned, shows
from solver.arguments import checks_arguments
from solver.executor import BlockRunner
from solver.importers.traced import TracedStep
from solver.plan import PlanOptions

__all__ = ["runner"]


@shows(PlanChoices)
@checks_arguments
def runner(
    step: TracedStep, options: PlanOptions | None = None, **choices: Unpack[PlanChoices]
) -> BlockRunner:
    """The framework's kernels in the planned arena, which begins with the values of the trace.

    Write what is fed by `TracedStep.feed`, or to `BlockRunner.block`, before each `run`; `TracedStep.read`
    gives what the function returned. `options` and `choices` are those of `arenaplan.plan`.
    Raises what planning raises.
    """
    block_runner = BlockRunner(step.program, planned(step.program, options, choices), step.functions)
    for name, values in step.values.items():
        if name in step.program.blocks:
            flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            block_runner.block(name).reshape(-1).view(np.uint8)[:] = flat
    return block_runner
