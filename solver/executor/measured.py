"""Seconds that each step takes on this machine, for plans that decide by time."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from statistics import median_low

from solver.errors import PlanError
from solver.executor.arithmetic import rewritten
from solver.executor.batches import synthetic_batch
from solver.executor.memory import in_spaces
from solver.executor.proved import check_plan, inline_data, reference_program
from solver.executor.run import Runner
from solver.executor.runs import feed
from solver.graph import TrainableGraph, graph_digest
from solver.plan import Plan
from solver.program import Costs

__all__ = ["measured_costs"]


def measured_costs(
    graph: TrainableGraph,
    plan: Plan,
    *,
    repeats: int = 5,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Costs:
    """The median of what each step of `plan` takes in `repeats` iterations, after one that is not counted.

    `plan` is of the graph under the options to plan with later, in one memory and with nothing side by side:
    later plans have the same steps. Batches are synthetic. BLAS may use threads of its own unless
    ``OPENBLAS_NUM_THREADS=1`` was set before NumPy was loaded. Raises PlanError for a plan that is wrong, of
    another graph, or with steps that run again, at the same time, or copy.
    """
    subject = rewritten(graph, plan)
    reference = reference_program(subject, plan)
    program = plan.program
    if any(program.runs) or program.duration != len(program.steps) or len(program.spaces) != 1:
        raise PlanError(
            "Steps are timed one by one, and the plan repeats some, runs some at the same time, or pages.",
            remedy="Plan without recompute, parallelism and tiers to measure.",
        )
    violations = check_plan(reference, plan, graph_digest(graph))
    if violations:
        raise PlanError(f"The plan is wrong: {violations[0].detail}", remedy="Plan again.")
    runner = Runner(program, in_spaces(plan), inline_data(subject))
    times = []
    for k in range(repeats + 1):
        runner.iteration = program.period - 1  # what is due only at times runs in each
        feed(graph, runner, synthetic_batch(graph, 0, k + 1))
        times.append(runner.timed(clock))
    costs = {
        label: max(1, median_low(run[t] for run in times[1:])) for t, label in enumerate(program.step_labels)
    }
    return Costs(
        tuple((label, costs[label]) for label in reference.step_labels),
        f"measured on {platform.machine()}, median of {repeats}",
    )
