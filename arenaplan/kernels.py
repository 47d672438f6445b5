"""Kernels of other frameworks in the planned arena."""

from __future__ import annotations

import numpy as np

from solver.arguments import checks_arguments
from solver.executor import BlockRunner
from solver.importers.traced import TracedStep
from solver.pipeline import plan_requested
from solver.plan import PlanOptions, RequestedOptions

__all__ = ["runner"]


@checks_arguments
def runner(step: TracedStep, options: PlanOptions | None = None) -> BlockRunner:
    """The framework's kernels in the planned arena, which begins with the values of the trace.

    Write what is fed by `TracedStep.feed`, or to `BlockRunner.block`, before each `run`; `TracedStep.read`
    gives what the function returned.
    Raises what planning raises.
    """
    requested = RequestedOptions() if options is None else RequestedOptions(options, automatic=False)
    block_runner = BlockRunner(step.program, plan_requested(step.program, requested), step.functions)
    for name, values in step.values.items():
        if name in step.program.blocks:
            flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            block_runner.block(name).reshape(-1).view(np.uint8)[:] = flat
    return block_runner
