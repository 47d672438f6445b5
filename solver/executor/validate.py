"""The proof by training: the same steps in the planned arena and with memory of their own.

Before the run the arena is poison, and a buffer's bytes are poisoned again when its lifespan ends.
After every step the loss, every parameter, every optimizer variable and every output must agree
bit for bit with a reference run in which each tensor has memory of its own, at the same address
modulo 64 (SIMD reductions may round differently elsewhere). The reference run has one worker, whatever
the plan has.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

import numpy as np

from solver.executor.batches import synthetic_batch
from solver.executor.memory import in_arenas, on_their_own
from solver.executor.replayed import rewritten
from solver.executor.run import Runner
from solver.executor.trainer import feed, program_of, sequential_program
from solver.graph.types import Graph
from solver.plan import Plan, StepReport, ValidationReport, verify

__all__ = ["StepReport", "ValidationReport", "validate"]


def validate(
    graph: Graph,
    plan: Plan,
    *,
    steps: int = 5,
    seed: int = 0,
    on_step: Callable[[StepReport], None] | None = None,
    run_wrong_plans: bool = False,
) -> ValidationReport:
    """Verify `plan`, then train `graph` in its arena for `steps` steps on synthetic batches.

    A plan with violations is not run unless `run_wrong_plans` (its buffers still have to lie
    inside their arena). Raises PlanError when graph and plan do not belong together. Memory: the
    arena, plus every tensor once more for the reference run. Where gradients accumulate a step is a
    micro-batch, and they are numbered so that the last one applies them, however few there are.
    """
    violations = verify(plan)
    if violations and not run_wrong_plans:
        return ValidationReport((), violations, False, 0, plan.arena_bytes)
    subject, budget = rewritten(graph, plan), plan.options.scratch_budget
    program = program_of(subject, plan)
    planned = Runner(subject, program, in_arenas(plan.arenas), scratch_budget=budget, poison=True)
    alone = on_their_own(buffer for _, buffer in plan.buffers())
    reference = Runner(subject, sequential_program(subject, plan), alone, scratch_budget=budget)
    planned.iteration = reference.iteration = -steps % graph.training.accumulate
    reports = []
    with closing(planned):
        for step in range(1, steps + 1):
            batch = synthetic_batch(graph, seed, step)
            for runner in (planned, reference):
                feed(runner, batch)
                runner.run()
            reports.append(_compare(step, planned, reference))
            if on_step:
                on_step(reports[-1])
    identical = not violations and all(report.identical for report in reports)
    return ValidationReport(
        tuple(reports), violations, identical, len(reference.persistent()), plan.arena_bytes
    )


def _compare(step: int, planned: Runner, reference: Runner) -> StepReport:
    theirs = reference.persistent()
    differing = tuple(
        name for name, raw in planned.persistent().items() if not np.array_equal(raw, theirs[name])
    )
    loss, reference_loss = (float(runner.value(runner.graph.loss)) for runner in (planned, reference))
    return StepReport(step, loss, reference_loss, not differing, differing)
