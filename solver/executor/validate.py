"""The proof by training: the plan's steps in its arena, and the reference's with memory of their own.

Before the run the arena is poison, and a region's bytes are poisoned again when its life ends.
After every step the loss, every parameter, every optimizer variable and every output must agree
bit for bit with a run of the reference program in which each tensor has memory of its own, at the same
address modulo 64 (SIMD reductions may round differently elsewhere), one step after the other.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

import numpy as np

from solver.arguments import checks_arguments
from solver.executor.arithmetic import rewritten
from solver.executor.batches import synthetic_batch
from solver.executor.memory import BASE_ALIGNMENT, in_spaces, on_their_own
from solver.executor.paging_file import PagingFile
from solver.executor.run import Runner
from solver.executor.trainer import (
    check_plan,
    feed,
    inline_data,
    open_paging_file,
    reference_program,
)
from solver.graph import TrainableGraph, graph_digest
from solver.plan import Plan, StepReport, ValidationReport, Violation
from solver.program import Program

__all__ = ["StepReport", "ValidationReport", "validate"]


@checks_arguments
def validate(
    graph: TrainableGraph,
    plan: Plan,
    *,
    steps: int = 5,
    seed: int = 0,
    on_step: Callable[[StepReport], None] | None = None,
    run_wrong_plans: bool = False,
    paging_file: str | os.PathLike[str] | None = None,
) -> ValidationReport:
    """Prove `plan`, then train `graph` in its arena for `steps` steps on synthetic batches.

    A plan with violations is not run unless `run_wrong_plans` (its values still have to lie
    inside their spaces). Raises PlanError when graph and plan do not belong together. Memory: the
    spaces, plus every tensor once more for the reference run. Where gradients accumulate a step is a
    micro-batch, and they are numbered so that the last one applies them, however few there are. With a
    `paging_file`, a path that does not exist yet, all memories but the first lie in that file, and the
    report counts what is read from it and written to it.
    """
    subject = rewritten(graph, plan)
    reference = reference_program(subject, plan)
    violations = check_plan(reference, plan, graph_digest(graph))
    if violations and not run_wrong_plans:
        return ValidationReport((), violations, False, 0, plan.arena_bytes)
    data = inline_data(subject)
    file = open_paging_file(plan, paging_file)
    with contextlib.nullcontext() if file is None else file:
        return _trained(graph, plan, reference, data, violations, file, steps, seed, on_step)


def _trained(
    graph: TrainableGraph,
    plan: Plan,
    reference: Program,
    data: Mapping[str, bytes],
    violations: Sequence[Violation],
    file: PagingFile | None,
    steps: int,
    seed: int,
    on_step: Callable[[StepReport], None] | None,
) -> ValidationReport:
    planned = Runner(plan.program, in_spaces(plan, file), data, poison=True)
    alone = Runner(reference, on_their_own(reference, _residues(reference, plan)), data)
    planned.iteration = alone.iteration = -steps % reference.period
    reports = []
    with closing(planned):
        for step in range(1, steps + 1):
            batch = synthetic_batch(graph, seed, step)
            for runner in (planned, alone):
                feed(graph, runner, batch)
                runner.run()
            reports.append(_compare(step, graph, planned, alone))
            if on_step:
                on_step(reports[-1])
    identical = not violations and all(report.identical for report in reports)
    return ValidationReport(
        tuple(reports),
        tuple(violations),
        identical,
        len(alone.kept()),
        plan.arena_bytes,
        file.moved_in if file else 0,
        file.moved_out if file else 0,
    )


def _residues(reference: Program, plan: Plan) -> list[int]:
    """Address of each value of the reference in the plan, modulo the base alignment."""
    residues = [0] * len(reference.values)
    for step in reversed(plan.program.steps):
        if step.reference is not None:
            bindings = reference.steps[step.reference].bindings
            for ours, theirs in zip(step.bindings, bindings, strict=True):
                residues[theirs.value] = plan.offsets[ours.value] % BASE_ALIGNMENT
    return residues


def _compare(step: int, graph: TrainableGraph, planned: Runner, alone: Runner) -> StepReport:
    theirs = alone.kept()
    differing = tuple(
        alone.program.values[value].label
        for value, raw in sorted(planned.kept().items())
        if not np.array_equal(raw, theirs[value])
    )
    name = graph.loss
    loss, reference_loss = (None if name is None else float(run.value(name)) for run in (planned, alone))
    return StepReport(step, loss, reference_loss, not differing, differing)
