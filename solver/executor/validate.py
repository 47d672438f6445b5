"""The proof by training: the plan's steps in its arena, and the reference's with memory of their own.

Before the run the arena is poison, and a region's bytes are poisoned again when its life ends.
After every step the loss, every parameter, every optimizer variable and every output must agree
bit for bit with a run of the reference program in which each tensor has memory of its own, at the same
address modulo 64 (SIMD reductions may round differently elsewhere), one step after the other.

    in the arena    [ persistent | transient ]      train, infer, infer, evaluate, train, ...
    on their own    train [w][x]   infer [w][x]     persistent values are handed on

Entry points run in a random order. Between two runs everything is poisoned but the persistent values. Each
reference has memory of its own, and gets the persistent values from the one that ran before.
"""

from __future__ import annotations

import contextlib
import os
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import Final

import numpy as np

from solver.arguments import checks_arguments
from solver.errors import ArenaplanError
from solver.executor.batches import synthetic_batch
from solver.executor.blocks import StepsRunner
from solver.executor.memory import BASE_ALIGNMENT, on_their_own
from solver.executor.paging_file import PagingFile
from solver.executor.proved import (
    EntryProgram,
    KernelSet,
    Runnable,
    entry_programs,
    inline_data,
    program_at,
    reference_program,
)
from solver.executor.run import Runner
from solver.executor.runs import Runs, check_paging_file, open_paging_file, prepared, write_batch
from solver.graph import Array, DType, TrainableGraph
from solver.plan import Deployment, Plan
from solver.program import EntryKind, Program
from solver.reports.validation import StepReport, ValidationReport, Violation

__all__ = ["LOSS_BOUND", "UPDATED_BOUND", "StepReport", "ValidationReport", "validate"]

#: How far C's results may be from NumPy's, as a ratio, where both begin with the same weights. Both add the
#: same terms in other orders: sums of n float32 differ by about sqrt(n) * 6e-8, 1e-5 for the longest sums of
#: the gallery. A wrong kernel is off by far more.
LOSS_BOUND: Final = 1e-4

#: The same after an update of NumPy's own. A last bit decides the sign of a gradient that is nearly 0, and
#: with it the direction of Adam's first step: 3e-3 in MobileNet v1 at batch 2.
UPDATED_BOUND: Final = 1e-2

#: Updates after which NumPy's run begins again with C's weights: left alone, last bits of a deep network with
#: batch normalisation become another training within five steps.
_UPDATES_TOGETHER: Final = 2

#: Below it, a loss is the difference of larger numbers, and the bound is one of these.
_LEAST_LOSS: Final = 0.01


@checks_arguments
def validate(
    graph: Runnable | Mapping[str, Runnable],
    plan: Plan | Deployment,
    *,
    steps: int = 5,
    seed: int = 0,
    on_step: Callable[[StepReport], None] | None = None,
    run_wrong_plans: bool = False,
    paging_file: str | os.PathLike[str] | None = None,
    kernels: KernelSet = "numpy",
) -> ValidationReport:
    """Prove `plan`, then train `graph` in its arena for `steps` steps on synthetic batches.

    An explicit program comes with its functions, as a traced step does. Its pure operations run twice in the
    reference; PlanError is raised for one that then leaves other bits. A plan with entry points takes the
    graph of each by name; each runs `steps` times, in an order that is drawn from `seed`.

    A plan for ranges of sizes is proved again at every size at which it says that it was; beside `steps`
    steps of the largest size there is one at each of at most `steps` others, in an order that is drawn from
    `seed`.

    A plan with violations is not run unless `run_wrong_plans` (its values still have to lie
    inside their spaces). Raises PlanError when graph and plan do not belong together. Memory: the
    spaces, plus every tensor once more for the reference run. Where gradients accumulate a step is a
    micro-batch, and they are numbered so that the last one applies them, however few there are. With a
    `paging_file`, a path that does not exist yet, all memories but the first lie in that file, and the
    report counts what is read from it and written to it.

    With ``kernels="c"`` both runs are compiled C, and NumPy's kernels run beside them, from C's weights every
    second update: losses may differ from theirs by `LOSS_BOUND` in the first of two, by `UPDATED_BOUND` in
    the second, as a ratio. So may the outputs of inferences and evaluations, to their largest element.
    """
    check_paging_file(kernels, paging_file)
    programs, violations = entry_programs(graph, plan, kernels)
    violations = violations or tuple(_violations_at_sizes(programs))
    if violations and not (run_wrong_plans and programs):
        return ValidationReport((), violations, False, 0, plan.arena_bytes)
    file = open_paging_file(plan, paging_file)
    with contextlib.nullcontext() if file is None else file:
        reports, compared = _trained(programs, plan, file, steps, seed, on_step, kernels)
    identical = not violations and all(report.identical for report in reports)
    moved = (0, 0) if file is None else (file.moved_in, file.moved_out)
    return ValidationReport(tuple(reports), violations, identical, compared, plan.arena_bytes, *moved)


def _trained(
    programs: Sequence[EntryProgram],
    plan: Plan | Deployment,
    file: PagingFile | None,
    steps: int,
    seed: int,
    on_step: Callable[[StepReport], None] | None,
    kernels: KernelSet,
) -> tuple[list[StepReport], int]:
    """A report on each run, and how many tensors are compared."""
    with closing(Runs(programs, plan, file, poison=True, kernels=kernels)) as runs:
        alone = {program.name: _Alone(program, kernels) for program in programs}
        beside = _Beside(programs) if kernels == "c" else None
        several, state = len(programs) > 1, dict[str, Array]()
        for program in programs if several else ():
            state |= alone[program.name].contents(program.begins)
        order = [runs.at(program.name) for program in programs for _ in range(steps)]
        others = _other_sizes(programs[0], steps, seed)
        order += [runs.at(programs[0].name, sizes) for sizes in others]
        random.Random(seed).shuffle(order)
        for counter in runs.counts:
            count = sum(runs.counter[at.program.name] == counter for at in order)
            runs.counts[counter] = -count % runs.programs[counter].plan.program.period
        reports = []
        for step, at in enumerate(order, 1):
            program, planned = at.program, at.runner
            planned_size = planned is runs.runners[program.name]
            reference = alone[program.name] if planned_size else _Alone(program, kernels)
            if isinstance(planned, StepsRunner):
                batch = planned.synthetic(seed, step)
            else:
                batch = synthetic_batch(program.graph, seed, step)
            runs.poison()
            write_batch(program, planned, batch)
            runs.run(program.name, at)
            reference.run(batch, state, planned.iteration)
            if several or others:
                state |= reference.contents(program.persistent if several else _carried(program))
            report = _compare(step, program.graph, planned, reference.runner)
            if beside is not None:
                report = beside.compared(report, program, planned, batch)
                beside.begin_again(reference)
            size = ", ".join(f"{name} {size}" for name, size in program.graph.sizes.items()) if others else ""
            reports.append(replace(report, entry=program.name if several else "", size=size))
            if on_step:
                on_step(reports[-1])
        persistent = len(programs[0].persistent)
        return reports, persistent + sum(len(each.runner.kept()) - persistent for each in alone.values())


def _other_sizes(program: EntryProgram, most: int, seed: int) -> list[dict[str, int]]:
    """Sizes at which the plan was proved, beside the largest: at most so many, drawn from a seed."""
    served = program.plan.planned_sizes
    if served is None or program.graph.resizable is None:
        return []
    others = [sizes for sizes in served.proved if sizes != served.most]
    drawn = random.Random(seed).sample(others, min(most, len(others)))
    return [dict(zip(served.names, sizes, strict=True)) for sizes in drawn]


def _violations_at_sizes(programs: Sequence[EntryProgram]) -> Iterator[Violation]:
    """The violations at every size at which a plan says that it was proved."""
    for program in programs:
        served = program.plan.planned_sizes
        for sizes in served.proved if served is not None else ():
            there = dict(zip(served.names, sizes, strict=True)) if served is not None else {}
            try:
                program_at(program, there)
            except ArenaplanError as error:
                yield Violation("range", (), error.message)


def _carried(program: EntryProgram) -> list[str]:
    """The persistent values that a step may change: their types do not depend on the size."""
    carried = {entry.reference for entry in program.reference.entry if entry.kind is EntryKind.CARRIED}
    return [name for name, number in program.persistent.items() if number in carried]


class _Alone:
    """The reference of one program, each value in memory of its own, with these `residues` of addresses; by
    default those of the plan.
    """

    def __init__(
        self, program: EntryProgram, kernels: KernelSet = "numpy", residues: Sequence[int] | None = None
    ) -> None:
        self.program = program
        reference = program.reference
        if kernels == "c":
            from solver.executor.c_backend import in_c_apart

            self.runner: Runner = in_c_apart(program.plan, reference, inline_data(program.subject))
        else:
            memory = on_their_own(reference, residues or _residues(reference, program.plan))
            self.runner = prepared(program, reference, memory)

    def contents(self, names: Iterable[str]) -> dict[str, Array]:
        """Copies of persistent values, ``uint8[nbytes]``."""
        return {name: self.runner.raw(self.program.persistent[name]).copy() for name in names}

    def run(self, batch: Mapping[str, Array], state: Mapping[str, Array], iteration: int) -> None:
        """One run, of this number, that begins with these persistent values."""
        for name in state.keys() & self.program.persistent.keys():
            np.copyto(self.runner.raw(self.program.persistent[name]), state[name])
        write_batch(self.program, self.runner, batch)
        self.runner.iteration = iteration - 1
        self.runner.run()


class _Beside:
    """The same runs with NumPy's kernels, each value in memory of its own."""

    def __init__(self, programs: Sequence[EntryProgram]) -> None:
        self._period = max(program.plan.program.period for program in programs)
        self._runs = 0  # since both had the same weights
        self._alone: dict[str, _Alone] = {}
        self._state: dict[str, Array] = {}
        for program in map(_in_numpy, programs):
            self._alone[program.name] = _Alone(program, residues=[0] * len(program.reference.values))
            begins = program.begins if len(programs) > 1 else _carried(program)
            self._state |= self._alone[program.name].contents(begins)

    def compared(
        self, report: StepReport, program: EntryProgram, planned: Runner, batch: Mapping[str, Array]
    ) -> StepReport:
        """The report, in which results differ that are further from NumPy's than they may be."""
        alone = self._alone[program.name]
        if alone.program.graph is not program.graph:  # another size
            there = _in_numpy(program)
            alone = _Alone(there, residues=[0] * len(there.reference.values))
        alone.run(batch, self._state, planned.iteration)
        self._state |= alone.contents(_carried(alone.program))
        differing = []
        for name in _results(program):
            ours, theirs = planned.value(name), alone.runner.value(name)
            largest = np.abs(theirs[np.isfinite(theirs)]).max(initial=_LEAST_LOSS)
            bound = (LOSS_BOUND if self._runs < self._period else UPDATED_BOUND) * largest
            with np.errstate(invalid="ignore"):
                near = (
                    (ours == theirs) | (np.abs(ours - theirs) <= bound) | (np.isnan(ours) & np.isnan(theirs))
                )
            if not near.all():
                off = int(np.argmin(near))
                differing.append(
                    f"{name}, which is {ours.flat[off]:.9g}, and {theirs.flat[off]:.9g} with NumPy's kernels"
                )
        if not differing:
            return report
        return replace(report, identical=False, differing=(*report.differing, *differing))

    def begin_again(self, ours: _Alone) -> None:
        """Take what C has after this run, once enough updates were compared."""
        self._runs += 1
        if self._runs >= _UPDATES_TOGETHER * self._period:
            self._state |= ours.contents(ours.program.persistent)
            self._runs = 0


def _in_numpy(program: EntryProgram) -> EntryProgram:
    """The program with the reference of NumPy's kernels, and the persistent values that are its own."""
    plan = replace(program.plan, options=replace(program.plan.options, target="reference"))
    reference = reference_program(program.subject, plan)
    label = {name: program.reference.values[program.persistent[name]].label for name in program.own}
    persistent = {name: reference.by_label[label[name]] for name in program.own}
    return replace(program, plan=plan, reference=reference, persistent=persistent)


def _results(program: EntryProgram) -> list[str]:
    """The loss, and the outputs in floats of a program that trains nothing."""
    graph = program.graph
    outputs = (
        []
        if program.purpose == "train"
        else [o for o in graph.outputs if graph.operands[o].dtype is DType.FLOAT32]
    )
    return outputs if graph.loss is None else [graph.loss, *outputs]


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
