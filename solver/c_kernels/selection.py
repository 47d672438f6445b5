"""Choices and comparisons: operators of two or three operands that repeat along axes."""

from __future__ import annotations

from collections.abc import Sequence

from solver.c_kernels.base import Call, CKernel, Task, only_float32, spread
from solver.c_kernels.elementwise import AXES, extents, steps
from solver.graph.types import DType

__all__ = ["KERNELS"]

_KINDS = {
    "Equal": "AP_EQUAL",
    "Greater": "AP_GREATER",
    "GreaterOrEqual": "AP_GREATER_OR_EQUAL",
    "Less": "AP_LESS",
    "LessOrEqual": "AP_LESS_OR_EQUAL",
    "And": "AP_AND",
    "Or": "AP_OR",
}

_FUNCTIONS = {
    DType.FLOAT32: "ap_compare",
    DType.INT32: "ap_compare_int32",
    DType.INT64: "ap_compare_int64",
    DType.UINT8: "ap_compare_uint8",
    DType.BOOL: "ap_compare_uint8",
}


class _Broadcast(CKernel):
    source = "broadcast"

    def refusal(self, task: Task) -> str | None:
        if len(task.node.outputs[0].shape) > AXES:
            return f"it has more than {AXES} axes"
        return None


def _operands(call: Call, shapes: Sequence[Sequence[int]]) -> str:
    """A table of the steps of up to three operands."""
    out = call.task.node.outputs[0].shape
    rows = [number for shape in shapes for number in steps(shape, out)]
    lacking = [0] * (3 * AXES - len(rows))
    return call.table("ap_operands", (*extents(out), *rows, *lacking))


class _Where(_Broadcast):
    operators = ("Where",)

    def refusal(self, task: Task) -> str | None:
        data = (task.node.input(1), task.node.input(2))
        return super().refusal(task) if only_float32(data) else "its operands are not all float32"

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        shapes = [node.input(i).shape for i in range(3)]
        table = _operands(call, shapes)
        if call.task.is_forward:
            return f"ap_where_forward(&{table}, {', '.join(map(at, ('x0', 'x1', 'x2', 'y0')))});"
        results = ", ".join(f"{at(f'dx{i}')}, {spread(shapes[i])}u" for i in (1, 2))
        return f"ap_where_backward(&{table}, {at('x0')}, {at('dy0')}, {results});"


class _Compare(_Broadcast):
    operators = tuple(_KINDS)

    def refusal(self, task: Task) -> str | None:
        type_ = task.node.input(0).dtype
        return super().refusal(task) if type_ in _FUNCTIONS else f"its operands are {type_.value}"

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        table = _operands(call, [node.input(i).shape for i in range(2)])
        kind, function = _KINDS[node.operation.type], _FUNCTIONS[node.input(0).dtype]
        return f"{function}({kind}, &{table}, {at('x0')}, {at('x1')}, {at('y0')});"


class _Test(CKernel):
    operators = ("Not", "IsNaN")
    source = "broadcast"

    def refusal(self, task: Task) -> str | None:
        if task.node.operation.type == "IsNaN" and not only_float32((task.node.input(0),)):
            return "its operand is not float32"
        return None

    def write(self, call: Call) -> str:
        name = {"Not": "ap_not", "IsNaN": "ap_is_nan"}[call.task.node.operation.type]
        return f"{name}({spread(call.task.node.input(0).shape)}u, {call.at('x0')}, {call.at('y0')});"


class _PRelu(_Broadcast):
    operators = ("PRelu",)

    def refusal(self, task: Task) -> str | None:
        types = (*task.node.inputs, *task.node.outputs)
        return super().refusal(task) if only_float32(types) else "its operands are not all float32"

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        shapes = [node.input(i).shape for i in range(2)]
        table = _operands(call, shapes)
        if call.task.is_forward:
            return f"ap_prelu_forward(&{table}, {at('x0')}, {at('x1')}, {at('y0')});"
        slots = ", ".join(map(at, ("x0", "x1", "dy0", "dx0", "dx1")))
        return f"ap_prelu_backward(&{table}, {slots}, {spread(shapes[1])}u);"


class _Pow(_Broadcast):
    operators = ("Pow",)

    def refusal(self, task: Task) -> str | None:
        if not only_float32((task.node.input(0), *task.node.outputs)):
            return "its base is not float32"
        type_ = task.node.input(1).dtype
        if type_ not in (DType.FLOAT32, DType.INT32, DType.INT64):
            return f"its exponents are {type_.value}"
        return super().refusal(task)

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        shapes = [node.input(i).shape for i in range(2)]
        table, type_ = _operands(call, shapes), node.input(1).dtype
        bytes_ = 0 if type_ is DType.FLOAT32 else type_.itemsize
        if call.task.is_forward:
            return f"ap_pow_forward(&{table}, {at('x0')}, {at('x1')}, {bytes_}u, {at('y0')});"
        results = ", ".join(f"{at(f'dx{i}')}, {spread(shapes[i])}u" for i in range(2))
        operands = f"{at('x0')}, {at('x1')}, {bytes_}u, {at('y0')}, {at('dy0')}"
        return f"ap_pow_backward(&{table}, {operands}, {results});"


KERNELS = (_Where(), _Compare(), _Test(), _PRelu(), _Pow())
