"""Training inside a planned arena, for callers who bring their own data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np

from solver.errors import PlanError
from solver.executor.initial import initial_value
from solver.executor.memory import Memory, check_plan, in_arenas
from solver.executor.replayed import rewritten
from solver.executor.run import Runner
from solver.graph.types import Array, Graph, Role
from solver.plan import Plan, PlanOptions
from solver.schedule import training_program
from solver.training import Lifetime, TrainingOperandIndex, TrainingProgram, TrainingStep

__all__ = ["Trainer", "feed", "program_of", "sequential_program"]


def program_of(graph: Graph, plan: Plan) -> TrainingProgram:
    """The program of a graph, rewritten as `plan` says.

    Raises PlanError when graph and plan do not belong together.
    """
    if plan.options.target != "reference":
        raise PlanError(
            f"A plan for target {plan.options.target!r} describes another runtime's memory.",
            remedy="Plan with target 'reference' to train here.",
        )
    program = _program(graph, plan.options)
    operands = [operand for _, buffer in plan.buffers() for operand in buffer.operands]
    theirs = {o.id: (o.shape, o.dtype) for o in operands}
    touched = {i for step in program.steps for i in step.touched()}
    ours = {str(i): (program.operands[i].type.shape, program.operands[i].type.dtype.value) for i in touched}
    if theirs != ours:
        culprit = min(name for name in {*theirs, *ours} if theirs.get(name) != ours.get(name))
        raise PlanError(
            f"Plan and graph do not belong together: buffer {culprit!r} is"
            f" {theirs.get(culprit, 'missing')} in the plan and {ours.get(culprit, 'missing')} in the graph.",
            remedy="Plan this graph again, with the batch that the plan was made for.",
        )
    shared = {o.id: (o.source, o.view) for o in operands if o.source is not None}
    if shared != {str(i): (str(share.source), share.view) for i, share in program.shares.items()}:
        raise PlanError(
            "The plan defines other operands in place than the graph's operators can.",
            remedy="Plan this graph again with this version.",
        )
    if [(s.id, *map(sorted, (s.uses, s.defs, s.scratch))) for s in plan.steps] != [
        _key(s) for s in program.steps
    ] or plan.times != tuple(program.times):
        raise PlanError(
            "The plan's steps are not those of the graph.", remedy="Plan this graph again with this version."
        )
    return program


def sequential_program(graph: Graph, plan: Plan) -> TrainingProgram:
    """The same steps one after the other, in the order that one worker would have, nothing in place."""
    return _program(graph, replace(plan.options, workers=1, in_place=False))


def _program(graph: Graph, options: PlanOptions) -> TrainingProgram:
    return training_program(
        graph,
        scratch_budget=options.scratch_budget,
        update=options.update,
        workers=options.workers,
        in_place=options.in_place,
    )


def _key(step: TrainingStep) -> tuple[object, ...]:
    names = (set(map(str, step.uses)), set(map(str, step.defs)), {str(b.operand) for b in step.scratch})
    return (str(step.index), *map(sorted, names))


class Trainer:
    """Trains `graph` inside the arena of `plan`, from the graph's initial values.

    The arena is allocated once; a step allocates nothing of tensor size. A plan for several workers
    trains on so many threads: close the trainer, or use it in a ``with``. Raises PlanError when the
    plan is wrong (see `solver.plan.verify`) or belongs to another graph.
    """

    def __init__(self, graph: Graph, plan: Plan) -> None:
        check_plan(plan)
        self._setup(graph, plan, in_arenas(plan.arenas))

    def _setup(self, graph: Graph, plan: Plan, memory: Memory) -> None:
        self.graph = graph
        subject = rewritten(graph, plan)
        self.runner = Runner(
            subject, program_of(subject, plan), memory, scratch_budget=plan.options.scratch_budget
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the threads of a plan for several workers; what was trained can still be read."""
        self.runner.close()

    def step(self, batch: Mapping[str, Array]) -> float:
        """One training iteration on `batch` (an array for each input and label). Returns the loss.

        Where gradients accumulate, `batch` is a micro-batch, and the last one of each update changes weights.
        Raises PlanError when an array is missing or has another shape or an incompatible dtype.
        """
        feed(self.runner, batch)
        self.runner.run()
        return float(self.runner.value(self.graph.loss))

    def read(self, name: str) -> Array:
        """Copy of a parameter, an output or the loss, as it stands after the last step.

        Raises PlanError for operands whose memory is reused within the step.
        """
        operand = self.runner.program.operands.get(TrainingOperandIndex(name))
        given = self.graph.operands.get(name)
        if operand is None and given is not None and given.role in (Role.PARAMETER, Role.STATE):
            return initial_value(given).copy()  # no step reads it, so it has no memory and never changes
        if operand is None or operand.lifetime not in (Lifetime.MAX, Lifetime.EPOCH):
            raise PlanError(
                f"{name!r} does not outlive the training step.",
                remedy="Name it in the graph's `outputs` before planning.",
            )
        return self.runner.value(name).copy()


def feed(runner: Runner, batch: Mapping[str, Array]) -> None:
    """Write a batch into the input and label buffers."""
    for operand in runner.graph.operands.values():
        if operand.role not in (Role.INPUT, Role.LABEL):
            continue
        array = batch.get(operand.id)
        if array is None or array.shape != operand.shape:
            found = "missing" if array is None else f"of shape {list(array.shape)}"
            raise PlanError(
                f"The batch's {operand.id!r} is {found}; the graph takes {operand.type}.",
                remedy="Give an array of exactly this shape for every input and label.",
            )
        if not np.can_cast(array.dtype, operand.dtype.numpy, "same_kind"):
            raise PlanError(
                f"The batch's {operand.id!r} is {array.dtype}; the graph takes {operand.type}.",
                remedy="Convert it first.",
            )
        np.copyto(runner.value(operand.id), array, casting="same_kind")
