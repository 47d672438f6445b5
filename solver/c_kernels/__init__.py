"""Kernels in portable C: which steps they compute, and the calls that do.

    base           what a kernel says of itself: its operators, its work area, its call
    activation, convolution, dropout, linear, pooling, elementwise, unary, loss, movement, normalization,
    recurrent, selection
                   the kernels of one family, each beside a C file of that name in `sources`
    training       the steps that no operator has: updates, sums, copies

`sources` has C files that can be read, tested and used without this package.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from solver.c_kernels import (
    activation,
    convolution,
    dropout,
    elementwise,
    linear,
    loss,
    movement,
    normalization,
    pooling,
    recurrent,
    selection,
    training,
    unary,
)
from solver.c_kernels.base import C_TYPES, Call, CKernel, Task, table
from solver.program import Program, Step

__all__ = ["C_TYPES", "KERNELS", "SOURCES", "CKernel", "Call", "Task", "refusals", "table", "task_of"]

_FAMILIES = (
    activation, convolution, dropout, elementwise, linear, loss, movement, normalization, pooling,
    recurrent, selection, training, unary,
)  # fmt: skip

#: The kernel of each operator that has one.
KERNELS: Final[Mapping[str, CKernel]] = MappingProxyType(
    {name: kernel for family in _FAMILIES for kernel in family.KERNELS for name in kernel.operators}
)

#: The directory of the C files.
SOURCES: Final = Path(__file__).with_name("sources")


def task_of(program: Program, step: Step) -> Task:
    return Task(
        program.operations[step.operation], step.phase, frozenset(binding.slot for binding in step.bindings)
    )


def refusals(program: Program) -> Iterator[tuple[str, str]]:
    """Each step that no kernel here computes, by its label, with the reason as the end of a sentence."""
    for t, step in enumerate(program.steps):
        name, task = program.kernel(step), task_of(program, step)
        kernel = KERNELS.get(name)
        if kernel is None:
            reason: str | None = f"there is no C kernel for {name}"
        elif any(type_ and type_.storage for type_ in task.node.inputs):
            reason = "it reads stored weights"
        else:
            reason = kernel.refusal(task)
        if reason is not None:
            yield program.step_labels[t], reason
