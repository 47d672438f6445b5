"""Operators that move elements, and reductions over axes."""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from solver.c_kernels.base import Call, CKernel, Task, only_float32, spread
from solver.c_kernels.elementwise import AXES, extents
from solver.graph.ops.movement import padding
from solver.graph.ops.reduction import reduced_axes
from solver.graph.types import DType

__all__ = ["KERNELS"]


class _Movement(CKernel):
    source = "movement"

    def refusal(self, task: Task) -> str | None:
        data = (task.node.input(0), *task.node.outputs)
        return None if only_float32(data) else "its operands are not all float32"


class _Unmoved(CKernel):
    """The same bytes in the same order."""

    operators = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity")
    source = "product"

    def write(self, call: Call) -> str:
        source, target = ("x0", "y0") if call.task.is_forward else ("dy0", "dx0")
        return f"ap_copy({call.at(target)}, {call.at(source)}, {call.task.node.outputs[0].nbytes}u);"


class _Transpose(_Movement):
    operators = ("Transpose",)

    def refusal(self, task: Task) -> str | None:
        rank = len(task.node.input(0).shape)
        return f"it has {rank} axes, more than {AXES}" if rank > AXES else super().refusal(task)

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        shape = task.node.input(0).shape
        order = tuple(task.node.attributes["perm"] or range(len(shape))[::-1])
        if not task.is_forward:
            shape = tuple(shape[axis] for axis in order)
            order = tuple(order.index(axis) for axis in range(len(order)))
        step = [prod(shape[axis + 1 :]) for axis in order]
        table = call.table(
            "ap_steps",
            (*extents([shape[axis] for axis in order]), *[0] * (AXES - len(step)), *step),
        )
        source, target = ("x0", "y0") if task.is_forward else ("dy0", "dx0")
        return f"ap_transpose(&{table}, {at(source)}, {at(target)});"


class _Blocks(_Movement):
    """One operand along an axis is made of several: those of Split, and of Concat the other way round."""

    operators = ("Split", "Concat")

    def write(self, call: Call) -> str:
        node, is_split = call.task.node, call.task.node.operation.type == "Split"
        parts = node.outputs if is_split else [node.input(i) for i in range(len(node.inputs))]
        whole = node.input(0) if is_split else node.outputs[0]
        axis = node.attributes["axis"] % len(whole.shape)
        outer, inner = spread(whole.shape[:axis]), spread(whole.shape[axis + 1 :])
        takes = is_split == call.task.is_forward
        one, many = ("x0", "y") if is_split else ("y0", "x")
        if not call.task.is_forward:
            one, many = f"d{one}", f"d{many}"
        written, start = [], 0
        for k, part in enumerate(parts):
            size = part.shape[axis]
            place = call.at(f"{many}{k}")
            if place != "0":
                table = call.table("ap_block", (outer, whole.shape[axis], start, size, inner))
                ends = (call.at(one), place) if takes else (place, call.at(one))
                written.append(f"ap_{'take' if takes else 'put'}_block(&{table}, {', '.join(ends)});")
            elif not takes:
                table = call.table("ap_block", (outer, whole.shape[axis], start, size, inner))
                written.append(f"ap_zero_block(&{table}, {call.at(one)});")
            start += size
        return " ".join(written)


class _Pad(_Movement):
    """A border of zeros."""

    operators = ("Pad",)

    def refusal(self, task: Task) -> str | None:
        node = task.node
        if node.attributes["mode"] != "constant" or node.attributes["constant_value"] or node.has_input(2):
            return "its border is not of zeros"
        if any(min(pair) < 0 for pair in padding(node)):
            return "it crops by negative pads"
        if len(node.input(0).shape) > AXES:
            return f"it has more than {AXES} axes"
        return super().refusal(task)

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        inside, outside = node.input(0).shape, node.outputs[0].shape
        step = [prod(outside[axis + 1 :]) for axis in range(len(outside))]
        start = sum(pair[0] * each for pair, each in zip(padding(node), step, strict=True))
        table = call.table("ap_steps", (*extents(inside), *[0] * (AXES - len(step)), *step))
        if call.task.is_forward:
            return (
                f"ap_fill({at('y0')}, 0.0f, {spread(outside)}u);"
                f" ap_spread(&{table}, {at('x0')}, {at('y0')} + {start}u);"
            )
        return f"ap_transpose(&{table}, {at('dy0')} + {start}u, {at('dx0')});"


class _Gather(CKernel):
    """Rows along the first axis."""

    operators = ("Gather",)
    source = "movement"

    def refusal(self, task: Task) -> str | None:
        if not only_float32((task.node.input(0),)):
            return "its operand is not float32"
        if task.node.attributes["axis"] % len(task.node.input(0).shape):
            return "it takes parts of another axis than the first"
        if task.node.input(1).dtype not in (DType.INT32, DType.INT64):
            return f"its indices are {task.node.input(1).dtype.value}"
        return None

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        rows, *rest = node.input(0).shape
        index = node.input(1)
        numbers = f"{rows}u, {spread(rest)}u, {spread(index.shape)}u"
        indices = f"{at('x1')}, {index.dtype.itemsize}u"
        if call.task.is_forward:
            return f"ap_gather_forward({numbers}, {at('x0')}, {indices}, {at('y0')});"
        return f"ap_gather_backward({numbers}, {indices}, {at('dy0')}, {at('dx0')});"


class _Reduce(_Movement):
    operators = ("ReduceMean", "ReduceSum", "GlobalAveragePool")

    def refusal(self, task: Task) -> str | None:
        rank = len(task.node.input(0).shape)
        return f"it has {rank} axes, more than {AXES}" if rank > AXES else super().refusal(task)

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        shape, kind = node.input(0).shape, node.operation.type
        axes: Collection[int]
        if kind == "GlobalAveragePool":
            axes = (
                range(1, len(shape) - 1) if node.attributes["data_layout"] == "NHWC" else range(2, len(shape))
            )
        else:
            axes = reduced_axes(node)
        step, row = 1, [0] * len(shape)
        for axis in reversed(range(len(shape))):
            if axis not in axes:
                row[axis], step = step, step * shape[axis]
        table = call.table("ap_steps", (*extents(shape), *[0] * (AXES - len(row)), *row))
        count = spread(shape[axis] for axis in axes)
        scale = f"1.0f / {count}.0f" if kind != "ReduceSum" and count else "1.0f"
        if call.task.is_forward:
            left = spread(node.outputs[0].shape)
            return f"ap_reduce_forward(&{table}, {scale}, {at('x0')}, {at('y0')}, {left}u);"
        return f"ap_reduce_backward(&{table}, {scale}, {at('dy0')}, {at('dx0')});"


KERNELS = (_Unmoved(), _Transpose(), _Blocks(), _Pad(), _Gather(), _Reduce())
