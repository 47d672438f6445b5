"""Operators that compute each element by itself."""

from __future__ import annotations

from collections.abc import Sequence

from solver.c_kernels.base import Call, CKernel, Task, number, only_float32, spread

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


class _Float32(CKernel):
    source = "elementwise"

    def refusal(self, task: Task) -> str | None:
        if not only_float32((*task.node.inputs, *task.node.outputs)):
            return "its operands are not all float32"
        return None


class _Pair(_Float32):
    """The work area has dZ where an activation is undone."""

    operators = tuple(_KINDS)

    def refusal(self, task: Task) -> str | None:
        if len(task.node.outputs[0].shape) > AXES:
            return f"it has more than {AXES} axes"
        return super().refusal(task)

    def work(self, task: Task) -> int:
        return 0 if task.is_forward or not task.activates else 4 * spread(task.node.outputs[0].shape)

    def write(self, call: Call) -> str:
        task, at, node = call.task, call.at, call.task.node
        out = node.outputs[0].shape
        a, b = node.input(0).shape, node.input(1).shape
        table = call.table("ap_pairs", (*extents(out), *steps(a, out), *steps(b, out)))
        kind = _KINDS[node.operation.type]
        if task.is_forward:
            return (
                f"ap_pair_forward({kind}, {task.activation}, &{table}, {at('x0')}, {at('x1')}, {at('y0')});"
            )
        return (
            f"ap_pair_backward({kind}, {task.activation}, &{table}, {at('x0')}, {at('x1')}, {at('y0')},"
            f" {at('dy0')}, {at('dx0')}, {spread(a)}u, {at('dx1')}, {spread(b)}u, {at('work')});"
        )


class _Relu(_Float32):
    operators = ("Relu",)

    def write(self, call: Call) -> str:
        at, count = call.at, spread(call.task.node.outputs[0].shape)
        if call.task.is_forward:
            return f"ap_relu_forward({at('x0')}, {at('y0')}, {count}u);"
        return f"ap_relu_backward({at('y0')}, {at('dy0')}, {at('dx0')}, {count}u);"


class _Function(_Float32):
    operators = ("Sigmoid", "Tanh")

    def write(self, call: Call) -> str:
        at, count = call.at, spread(call.task.node.outputs[0].shape)
        name = f"AP_{call.task.node.operation.type.upper()}"
        if call.task.is_forward:
            return f"ap_function_forward({name}, {at('x0')}, {at('y0')}, {count}u);"
        return f"ap_function_backward({name}, {at('y0')}, {at('dy0')}, {at('dx0')}, {count}u);"


class _Gelu(_Float32):
    operators = ("Gelu",)

    def write(self, call: Call) -> str:
        at, count = call.at, spread(call.task.node.outputs[0].shape)
        exact = int(call.task.node.attributes["approximate"] == "none")
        if call.task.is_forward:
            return f"ap_gelu_forward({exact}, {at('x0')}, {at('y0')}, {count}u);"
        return f"ap_gelu_backward({exact}, {at('x0')}, {at('dy0')}, {at('dx0')}, {count}u);"


class _Clip(_Float32):
    """Bounds are attributes or operands. With `inclusive`, the slope at the bounds is 1: that reads X."""

    operators = ("Clip",)

    def write(self, call: Call) -> str:
        at, node = call.at, call.task.node
        count = spread(node.outputs[0].shape)
        bounds = []
        for position, key, none in ((1, "min", "-AP_INFINITY"), (2, "max", "AP_INFINITY")):
            bound = node.attributes[key]
            literal = none if bound is None else f"{number(bound)}f"
            bounds.append(f"*{at(f'x{position}')}" if node.has_input(position) else literal)
        if call.task.is_forward:
            return f"ap_clip_forward({at('x0')}, {at('y0')}, {count}u, {', '.join(bounds)});"
        name, reads = ("ap_clip_backward", "y0")
        if node.attributes.get("inclusive"):
            name, reads = ("ap_clamp_backward", "x0")
        return f"{name}({at(reads)}, {at('dy0')}, {at('dx0')}, {count}u, {', '.join(bounds)});"


KERNELS = (_Pair(), _Relu(), _Function(), _Gelu(), _Clip())
