"""Convolutions and transposed ones, over images with channels last."""

from __future__ import annotations

from solver.c_kernels.base import Call, CKernel, Task, only_float32, spread
from solver.graph.ops.convolution import Convolution, convolution
from solver.graph.ops.upsampling import transposed

__all__ = ["KERNELS"]


def _refusal(task: Task, sizes: Convolution) -> str | None:
    window = sizes.window
    if task.node.attributes["data_layout"] != "NHWC":
        return "its images have their channels in front (NCHW)"
    if len(window.axes) != 2:
        return f"it has {len(window.axes)} spatial axes, not 2"
    if not only_float32((*task.node.inputs, *task.node.outputs)):
        return "its operands are not all float32"
    if any(axis.before < 0 or axis.after < 0 for axis in window.axes):
        return "it crops its images by negative pads"
    return None


def _table(call: Call, sizes: Convolution) -> str:
    window = sizes.window
    high, wide = window.axes
    return call.table(
        "ap_conv",
        (
            window.batch, high.size, wide.size, window.channels,
            high.out, wide.out, sizes.filters,
            high.kernel, wide.kernel, high.stride, wide.stride, high.dilation, wide.dilation,
            high.before, wide.before, sizes.groups,
        ),
    )  # fmt: skip


def _written(*statements: str) -> str:
    return " ".join(statement for statement in statements if statement)


class _Conv(CKernel):
    """The work area has a copy of the weights (forward) or of their derivative, and a row of dZ where an
    activation is undone.
    """

    operators = ("Conv",)
    source = "convolution"

    def refusal(self, task: Task) -> str | None:
        return _refusal(task, convolution(task.node))

    def work(self, task: Task) -> int:
        weights = spread(task.node.input(1).shape)
        if task.is_forward:
            return 4 * weights
        row = spread(task.node.outputs[0].shape[2:]) if task.activates else 0
        return 4 * (row + (weights if "dx1" in task.slots else 0))

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        first = f"&{_table(call, convolution(task.node))}, {task.activation}"
        if task.is_forward:
            read = ", ".join(map(at, ("x0", "x1", "x2")))
            return f"ap_conv_forward({first}, {read}, {at('y0')}, {at('work')});"
        weights = data = ""
        if task.slots & {"dx1", "dx2"}:
            slots = ", ".join(map(at, ("x0", "y0", "dy0", "dx1", "dx2", "work")))
            weights = f"ap_conv_backward_w({first}, {slots});"
        if "dx0" in task.slots:
            slots = ", ".join(map(at, ("x1", "y0", "dy0", "dx0", "work")))
            data = f"ap_conv_backward_x({first}, {slots});"
        return _written(weights, data)


class _ConvTranspose(CKernel):
    """A convolution from Y to X, run backward. The work area has a copy of the weights."""

    operators = ("ConvTranspose",)
    source = "convolution"

    def refusal(self, task: Task) -> str | None:
        if task.activates:
            return "it applies an activation to its output"
        return _refusal(task, transposed(task.node))

    def work(self, task: Task) -> int:
        needs = {"dx0", "dx1"} & task.slots
        return 4 * spread(task.node.input(1).shape) if needs else 0

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        table = _table(call, transposed(task.node))
        if task.is_forward:
            return f"ap_conv_transpose_forward(&{table}, {at('x0')}, {at('x1')}, {at('x2')}, {at('y0')});"
        shape = task.node.outputs[0].shape
        bias = weights = data = ""
        if "dx2" in task.slots:
            bias = (
                f"ap_fill({at('dx2')}, 0.0f, {shape[-1]}u);"
                f" ap_add_rows({spread(shape[:-1])}u, {shape[-1]}u, {at('dy0')}, {at('dx2')});"
            )
        if "dx1" in task.slots:
            slots = f"{at('dy0')}, 0, {at('x0')}, {at('dx1')}, 0, {at('work')}"
            weights = f"ap_conv_backward_w(&{table}, AP_NONE, {slots});"
        if "dx0" in task.slots:
            slots = f"{at('dy0')}, {at('x1')}, 0, {at('dx0')}, {at('work')}"
            data = f"ap_conv_forward(&{table}, AP_NONE, {slots});"
        return _written(bias, weights, data)


KERNELS = (_Conv(), _ConvTranspose())
