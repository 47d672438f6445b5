"""Pooling over images of one or two axes. Channels in front are as many images of one channel each."""

from __future__ import annotations

from solver.c_kernels.base import Call, CKernel, Task, only_float32
from solver.graph.ops.helpers.spatial import Axis
from solver.graph.ops.pooling import ARG_MAX, pool_window

__all__ = ["KERNELS"]

#: Taps that have a number of their own in one byte, beside 0.
_MOST_TAPS = 255


#: The axis that images of one axis lack.
_FLAT = Axis(size=1, kernel=1, stride=1, dilation=1, before=0, after=0, out=1)


def _table(call: Call, *, counts_padding: bool) -> str:
    window = pool_window(call.task.node)
    high, wide = window.axes if len(window.axes) == 2 else (_FLAT, window.axes[0])
    images, channels = window.batch, window.channels
    if window.layout == "NCHW":
        images, channels = images * channels, 1
    return call.table(
        "ap_pool",
        (
            images, high.size, wide.size, channels, high.out, wide.out,
            high.kernel, wide.kernel, high.stride, wide.stride, high.dilation, wide.dilation,
            high.before, wide.before, int(counts_padding), high.after, wide.after,
        ),
    )  # fmt: skip


class _Pool(CKernel):
    source = "pooling"

    def refusal(self, task: Task) -> str | None:
        window = pool_window(task.node)
        if len(window.axes) > 2:
            return f"it has {len(window.axes)} spatial axes, more than 2"
        if not only_float32((task.node.input(0), task.node.outputs[0])):
            return "its operands are not float32"
        if any(axis.before < 0 for axis in window.axes):
            return "it crops its images by negative pads"
        return None


class _MaxPool(_Pool):
    operators = ("MaxPool",)

    def refusal(self, task: Task) -> str | None:
        if len(task.node.outputs) > 1:
            return "it has a second output"
        if pool_window(task.node).taps >= _MOST_TAPS:
            return (
                f"its window has {pool_window(task.node).taps} elements; fewer than {_MOST_TAPS} are possible"
            )
        return super().refusal(task)

    def write(self, call: Call) -> str:
        table, at = _table(call, counts_padding=False), call.at
        if call.task.is_forward:
            return f"ap_maxpool_forward(&{table}, {at('x0')}, {at('y0')}, {at(ARG_MAX)});"
        return f"ap_maxpool_backward(&{table}, {at(ARG_MAX)}, {at('dy0')}, {at('dx0')});"


class _AveragePool(_Pool):
    operators = ("AveragePool",)

    def write(self, call: Call) -> str:
        table = _table(call, counts_padding=bool(call.task.node.attributes["count_include_pad"]))
        at = call.at
        if call.task.is_forward:
            return f"ap_meanpool_forward(&{table}, {at('x0')}, {at('y0')});"
        return f"ap_meanpool_backward(&{table}, {at('dy0')}, {at('dx0')});"


KERNELS = (_MaxPool(), _AveragePool())
