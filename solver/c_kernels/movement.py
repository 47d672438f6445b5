"""Operators that move elements, and reductions over axes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from solver.c_kernels.base import Call, CKernel, Task, number, only_float32, spread
from solver.c_kernels.elementwise import AXES, extents, steps
from solver.graph.ops.movement import padding
from solver.graph.ops.reduction import kept_shape, reduced_axes
from solver.graph.ops.selection import gathered_rows
from solver.graph.ops.slicing import cut
from solver.graph.types import DType

__all__ = ["KERNELS"]


class _Movement(CKernel):
    source = "movement"

    def refusal(self, task: Task) -> str | None:
        data = (task.node.input(0), *task.node.outputs)
        return None if only_float32(data) else "its operands are not all float32"


class _Unmoved(CKernel):
    """The same bytes in the same order."""

    operators = ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "StopGradient", "Identity")
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


def region(
    call: Call, extent: Sequence[int], source: Sequence[int], target: Sequence[int], start: int, end: int
) -> str:
    """A table of a region of this extent, with the steps of its source and target and where they begin."""

    def row(numbers: Sequence[int], lacking: int) -> list[str | int]:
        return [*[lacking] * (AXES - len(numbers)), *(f"(size_t){n}" if n < 0 else n for n in numbers)]

    members = (*row(extent, 1), *row(source, 0), *row(target, 0), start, end)
    return call.table("ap_region", members)


def strides(shape: Sequence[int]) -> list[int]:
    """Elements from one index of each axis to the next."""
    return [prod(shape[axis + 1 :]) for axis in range(len(shape))]


class _OfRegions(CKernel):
    """Operators that copy regions, and add them backward."""

    source = "region"

    def refusal(self, task: Task) -> str | None:
        rank = max(len(type_.shape) for type_ in (task.node.input(0), *task.node.outputs))
        return f"it has {rank} axes, more than {AXES}" if rank > AXES else None

    @staticmethod
    def moved(call: Call, table: str, source: str, target: str) -> str:
        type_ = call.task.node.input(0).dtype
        if type_ is DType.FLOAT32:
            return f"ap_move(&{table}, {call.at(source)}, {call.at(target)});"
        return f"ap_move_items(&{table}, {type_.itemsize}u, {call.at(source)}, {call.at(target)});"


class _Slice(_OfRegions):
    operators = ("Slice",)

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        inside, whole = node.outputs[0].shape, strides(node.input(0).shape)
        parts = [*zip(cut(node), whole, strict=True)]
        start = sum(part.start * step for part, step in parts) if spread(inside) else 0
        steps = [part.step * step for part, step in parts]
        if call.task.is_forward:
            return self.moved(call, region(call, inside, steps, strides(inside), start, 0), "x0", "y0")
        table = region(call, inside, strides(inside), steps, 0, start)
        count = spread(node.input(0).shape)
        return f"ap_fill({at('dx0')}, 0.0f, {count}u); ap_move(&{table}, {at('dy0')}, {at('dx0')});"


class _Expand(_OfRegions):
    operators = ("Expand",)

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        inside, whole = node.input(0).shape, node.outputs[0].shape
        repeated = steps(inside, whole)[AXES - len(whole) :]
        if call.task.is_forward:
            return self.moved(call, region(call, whole, repeated, strides(whole), 0, 0), "x0", "y0")
        table = region(call, whole, strides(whole), repeated, 0, 0)
        count = spread(inside)
        return f"ap_fill({at('dx0')}, 0.0f, {count}u); ap_move_add(&{table}, {at('dy0')}, {at('dx0')});"


class _Pad(_OfRegions):
    """The regions of a border are products of those of each axis: in front, inside, behind."""

    operators = ("Pad",)

    def refusal(self, task: Task) -> str | None:
        if not only_float32((task.node.input(0),)):
            return "its operand is not float32"
        return super().refusal(task)

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        inside, outside = node.input(0).shape, node.outputs[0].shape
        is_forward, mode = call.task.is_forward, node.attributes["mode"]
        written = []
        axes = [
            _repeats(mode, size, *pads, size_step, pad_step)
            for size, pads, size_step, pad_step in zip(
                inside, padding(node), strides(inside), strides(outside), strict=True
            )
        ]
        if is_forward and mode == "constant":
            value = f"{number(node.attributes['constant_value'] or 0.0)}f"
            value = f"*{at('x2')}" if node.has_input(2) else value
            written.append(f"ap_fill({at('y0')}, {value}, {spread(outside)}u);")
        elif not is_forward:
            written.append(f"ap_fill({at('dx0')}, 0.0f, {spread(inside)}u);")
        for parts in product(*axes):
            extent = [part.extent for part in parts]
            of_x, of_y = [part.x_step for part in parts], [part.y_step for part in parts]
            x, y = sum(part.x for part in parts), sum(part.y for part in parts)
            if is_forward:
                written.append(self.moved(call, region(call, extent, of_x, of_y, x, y), "x0", "y0"))
            else:
                table = region(call, extent, of_y, of_x, y, x)
                written.append(f"ap_move_add(&{table}, {at('dy0')}, {at('dx0')});")
        return " ".join(written)


class _Part(NamedTuple):
    """Along one axis: how many elements, and where they begin in X and in Y, with their steps."""

    extent: int
    x: int
    x_step: int
    y: int
    y_step: int


def _repeats(mode: str, size: int, before: int, after: int, x: int, y: int) -> list[_Part]:
    """The inner part first, then each border: x and y are the steps of the axis in X and Y."""
    behind = (before + size) * y
    parts = [_Part(size, 0, x, before * y, y)]
    if mode == "edge":
        parts += [_Part(before, 0, 0, 0, y), _Part(after, (size - 1) * x, 0, behind, y)]
    elif mode == "reflect":
        parts += [_Part(before, before * x, -x, 0, y), _Part(after, (size - 2) * x, -x, behind, y)]
    elif mode == "wrap":
        parts += [_Part(before, (size - before) * x, x, 0, y), _Part(after, 0, x, behind, y)]
    return [part for part in parts if part.extent or part is parts[0]]


class _ReduceMax(_OfRegions):
    """The work area has a float for each element of Y backward."""

    operators = ("ReduceMax",)

    def refusal(self, task: Task) -> str | None:
        if not only_float32((task.node.input(0),)):
            return "its operand is not float32"
        return super().refusal(task)

    def work(self, task: Task) -> int:
        return 0 if task.is_forward else 4 * spread(task.node.outputs[0].shape)

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        shape, kept = node.input(0).shape, kept_shape(node)
        table = region(call, shape, strides(shape), steps(kept, shape)[AXES - len(shape) :], 0, 0)
        count = spread(kept)
        if call.task.is_forward:
            return f"ap_reduce_max_forward(&{table}, {at('x0')}, {at('y0')}, {count}u);"
        slots = ", ".join(map(at, ("x0", "y0", "dy0", "dx0")))
        return f"ap_reduce_max_backward(&{table}, {slots}, {count}u, {at('work')});"


class _Cast(CKernel):
    operators = ("Cast",)
    source = "cast"

    def refusal(self, task: Task) -> str | None:
        types = (task.node.input(0).dtype, task.node.outputs[0].dtype)
        lacking = [type_.value for type_ in types if type_ not in _CASTS]
        return f"it has elements of type {lacking[0]}" if lacking else None

    def write(self, call: Call) -> str:
        node = call.task.node
        types = (_CASTS[node.input(0).dtype], _CASTS[node.outputs[0].dtype])
        source, target = ("x0", "y0") if call.task.is_forward else ("dy0", "dx0")
        if not call.task.is_forward:
            types = types[::-1]
        count = spread(node.input(0).shape)
        return f"ap_cast({count}u, {types[0]}, {call.at(source)}, {types[1]}, {call.at(target)});"


_CASTS = {
    DType.FLOAT32: "AP_FLOAT32",
    DType.INT64: "AP_INT64",
    DType.INT32: "AP_INT32",
    DType.INT8: "AP_INT8",
    DType.UINT8: "AP_UINT8",
    DType.BOOL: "AP_BOOL",
}


class _Gather(CKernel):
    """Parts along an axis."""

    operators = ("Gather",)
    source = "movement"

    def refusal(self, task: Task) -> str | None:
        return None if only_float32((task.node.input(0),)) else "its operand is not float32"

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        rows = gathered_rows(node)
        numbers = f"{rows.outer}u, {rows.size}u, {rows.inner}u, {rows.picked}u"
        indices = f"{at('x1')}, {node.input(1).dtype.itemsize}u"
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


KERNELS = (
    *(_Unmoved(), _Transpose(), _Blocks(), _Slice(), _Expand(), _Pad()),
    *(_Gather(), _Reduce(), _ReduceMax(), _Cast()),
)
