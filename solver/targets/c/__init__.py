"""The target `c`: what this project's kernels in portable C need, in one arena.

A step has the operands of the reference target's, and one work area in the place of its scratch. Levels run
one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from solver.c_kernels import KERNELS, refusals, task_of
from solver.errors import OptionsError
from solver.graph import DType
from solver.graph.nodes import graph_nodes
from solver.graph.types import TensorType
from solver.names import counted
from solver.passes import Pass, chosen
from solver.preparations import Prepared
from solver.program import Access, Binding, Kind, Program, Step, Value, check_program, touching
from solver.targets.base import Capabilities, Lowered, Target, TargetOptions, aligned
from solver.targets.reference import ALIGNMENT
from solver.training import derive

__all__ = ["C"]

#: The name of a step's work area, as a slot.
WORK = "work"


class C(Target):
    """Training in C11, on any machine with IEEE 754 arithmetic."""

    name = "c"
    title = "this project's kernels in portable C: one arena, 64-byte alignment"
    capabilities: ClassVar[Capabilities] = Capabilities(
        trains=True,
        update=True,
        in_place=True,
        sub_ranges=True,
        recompute=True,
        order=True,
        paging=True,
    )

    def reference(self, prepared: Prepared, options: TargetOptions) -> Lowered:
        """As `Target.reference`; names all operations without a kernel at once."""
        program = derive(prepared.graph, graph_nodes(prepared.graph, prepared.scratch_budget))
        lacking = [*refusals(program)]
        if lacking:
            shown = "; ".join(f"{step}: {reason}" for step, reason in lacking[:5])
            more = f"; and {len(lacking) - 5:,} more" if len(lacking) > 5 else ""
            raise OptionsError(
                f"The target 'c' has no kernel for {counted(len(lacking), 'step')}: {shown}{more}.",
                remedy="Plan for the target 'reference', or use the operators that"
                " `arenaplan operators --target c` lists.",
                path=("target",),
            )
        program = _with_work_areas(program)
        check_program(program)
        return aligned(program, options.alignment or ALIGNMENT)

    def passes(self, options: TargetOptions) -> tuple[Pass, ...]:
        return chosen(options)


def _with_work_areas(program: Program) -> Program:
    """The program with one work area for each step that needs one, in the place of all scratch. Linear."""
    values: list[Value] = [*program.values]
    steps: list[Step] = []
    for step in program.steps:
        kept: Sequence[Binding] = [b for b in step.bindings if b.access is not Access.SCRATCH]
        task = task_of(program, replace(step, bindings=tuple(kept)))
        nbytes = KERNELS[program.kernel(step)].work(task)
        if nbytes:
            name = program.operations[step.operation].operation.id
            part = f".{step.part}" if step.part else ""
            label = f"{name}@{step.phase.word}{part}.{WORK}"
            type_ = TensorType((nbytes // 4,), DType.FLOAT32)
            values.append(Value(label, type_, Kind.SCRATCH, name))
            kept = [*kept, Binding(WORK, len(values) - 1, Access.SCRATCH)]
        steps.append(replace(step, bindings=tuple(kept)))
    return touching(replace(program, values=tuple(values), steps=tuple(steps)))
