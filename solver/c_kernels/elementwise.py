"""Arithmetic of two operands, element by element."""

from __future__ import annotations

from collections.abc import Sequence

from solver.c_kernels.base import Call, CKernel, Task, only_float32, spread

__all__ = ["AXES", "KERNELS", "steps"]

#: Axes of arrays that kernels walk over element by element.
AXES = 6

_KINDS = {"Add": "AP_ADDITION", "Sub": "AP_SUBTRACTION", "Mul": "AP_MULTIPLICATION", "Div": "AP_DIVISION"}


def steps(shape: Sequence[int], out: Sequence[int]) -> list[int]:
    """Elements from one index of each of `AXES` axes of `out` to the next; 0 where the operand repeats."""
    shape = [1] * (len(out) - len(shape)) + [*shape]
    step, row = 1, []
    for size, there in zip(reversed(shape), reversed(out), strict=True):
        row.append(step if size == there or size > 1 else 0)
        step *= size
    row = [0 if size == 1 else each for each, size in zip(row, reversed(shape), strict=True)]
    return [0] * (AXES - len(row)) + row[::-1]


def extents(out: Sequence[int]) -> list[int]:
    return [1] * (AXES - len(out)) + [*out]


class _Pair(CKernel):
    """The work area has dZ where an activation is undone."""

    operators = tuple(_KINDS)
    source = "elementwise"

    def refusal(self, task: Task) -> str | None:
        if len(task.node.outputs[0].shape) > AXES:
            return f"it has more than {AXES} axes"
        if not only_float32((*task.node.inputs, *task.node.outputs)):
            return "its operands are not all float32"
        return None

    def work(self, task: Task) -> int:
        return 0 if task.is_forward or not task.activates else 4 * spread(task.node.outputs[0].shape)

    def write(self, call: Call) -> str:
        task, at, node = call.task, call.at, call.task.node
        out = node.outputs[0].shape
        a, b = node.input(0).shape, node.input(1).shape
        table = call.table("ap_pairs", (*extents(out), *steps(a, out), *steps(b, out)))
        kind = _KINDS[node.operation.type]
        if task.is_forward:
            return f"ap_pair_forward({kind}, &{table}, {at('x0')}, {at('x1')}, {at('y0')});{call.activation}"
        return (
            f"ap_pair_backward({kind}, {task.activation}, &{table}, {at('x0')}, {at('x1')}, {at('y0')},"
            f" {at('dy0')}, {at('dx0')}, {spread(a)}u, {at('dx1')}, {spread(b)}u, {at('work')});"
        )


KERNELS = (_Pair(),)
