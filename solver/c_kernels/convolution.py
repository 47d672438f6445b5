"""Convolutions and transposed ones, over images of one or two axes, with channels last or in front."""

from __future__ import annotations

from solver.c_kernels.base import Call, CKernel, Task, only_float32, spread
from solver.graph.ops.convolution import Convolution, convolution
from solver.graph.ops.helpers.spatial import Axis
from solver.graph.ops.upsampling import transposed

__all__ = ["KERNELS"]


#: Positions of the output that are computed together where channels are in front: AP_CONV_BLOCK.
_BLOCK = 32

#: Pixels of the rows whose derivatives are summed together where channels are last: AP_CONV_BAND.
_BAND = 64

#: The axis that images of one axis lack.
_FLAT = Axis(size=1, kernel=1, stride=1, dilation=1, before=0, after=0, out=1)


def _refusal(task: Task, sizes: Convolution) -> str | None:
    window = sizes.window
    if len(window.axes) > 2:
        return f"it has {len(window.axes)} spatial axes, more than 2"
    if not only_float32((*task.node.inputs, *task.node.outputs)):
        return "its operands are not all float32"
    if any(axis.before < 0 or axis.after < 0 for axis in window.axes):
        return "it crops its images by negative pads"
    return None


def _axes(sizes: Convolution) -> tuple[Axis, Axis]:
    axes = sizes.window.axes
    return (axes[0], axes[1]) if len(axes) == 2 else (_FLAT, axes[0])


def _table(call: Call, sizes: Convolution) -> str:
    window = sizes.window
    high, wide = _axes(sizes)
    return call.table(
        "ap_conv",
        (
            window.batch, high.size, wide.size, window.channels,
            high.out, wide.out, sizes.filters,
            high.kernel, wide.kernel, high.stride, wide.stride, high.dilation, wide.dilation,
            high.before, wide.before, sizes.groups,
        ),
    )  # fmt: skip


def _has_channels_in_front(task: Task) -> bool:
    return bool(task.node.attributes["data_layout"] == "NCHW")


def _prefix(task: Task) -> str:
    return "ap_conv_nchw" if _has_channels_in_front(task) else "ap_conv"


def _block_of_taps(sizes: Convolution) -> int:
    """Elements that the taps of a block of outputs read of one group's channels."""
    return sizes.window.taps * sizes.group_channels * min(_BLOCK, spread(sizes.window.outputs))


def _is_depthwise(sizes: Convolution) -> bool:
    return sizes.groups == sizes.window.channels == sizes.filters


def _band(sizes: Convolution) -> int:
    """Elements of the rows of outputs whose derivatives are summed together."""
    high, wide = _axes(sizes)
    return max(1, min(_BAND // wide.out, high.out)) * wide.out * sizes.filters


def _is_pointwise(sizes: Convolution) -> bool:
    return sizes.window.is_pointwise and not sizes.window.is_copied


class _Convolution(CKernel):
    source = "convolution"

    def file_of(self, task: Task) -> str:
        return "convolution_nchw" if _has_channels_in_front(task) else self.source


class _Conv(_Convolution):
    """The work area has a copy of the weights or of their derivative, and a band of dZ where an activation is
    undone. With channels in front it has what a block of outputs reads, and a block of dZ.
    """

    operators = ("Conv",)

    def refusal(self, task: Task) -> str | None:
        return _refusal(task, convolution(task.node))

    def work(self, task: Task) -> int:
        sizes = convolution(task.node)
        if _has_channels_in_front(task):
            return 4 * self._blocks(task, sizes)
        weights = spread(task.node.input(1).shape)
        if task.is_forward:
            return 4 * weights
        copies = "dx1" in task.slots or ("dx0" in task.slots and _is_depthwise(sizes))
        return 4 * ((_band(sizes) if task.activates else 0) + (weights if copies else 0))

    @staticmethod
    def _blocks(task: Task, sizes: Convolution) -> int:
        reads = "dx1" in task.slots or ((task.is_forward or "dx0" in task.slots) and not _is_pointwise(sizes))
        derivatives = sizes.group_filters * min(_BLOCK, spread(sizes.window.outputs))
        undone = 0 if task.is_forward or not task.activates else derivatives
        return undone + (_block_of_taps(sizes) if reads else 0)

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        table, prefix = _table(call, convolution(task.node)), _prefix(task)
        if task.is_forward:
            slots = ", ".join(map(at, ("x0", "x1", "x2", "y0", "work")))
            return f"{prefix}_forward(&{table}, {slots});{call.activation}"
        first = f"&{table}, {task.activation}"
        statements = []
        if task.slots & {"dx1", "dx2"}:
            slots = ", ".join(map(at, ("x0", "y0", "dy0", "dx1", "dx2", "work")))
            statements.append(f"{prefix}_backward_w({first}, {slots});")
        if "dx0" in task.slots:
            slots = ", ".join(map(at, ("x1", "y0", "dy0", "dx0", "work")))
            statements.append(f"{prefix}_backward_x({first}, {slots});")
        return " ".join(statements)


class _ConvTranspose(_Convolution):
    """A convolution from Y to X, run backward. The work area has a copy of the weights, or, with channels
    in front, a block of taps.
    """

    operators = ("ConvTranspose",)

    def refusal(self, task: Task) -> str | None:
        if task.activates:
            return "it applies an activation to its output"
        return _refusal(task, transposed(task.node))

    def work(self, task: Task) -> int:
        needs = {"dx0", "dx1"} & task.slots
        if _has_channels_in_front(task):
            sizes = transposed(task.node)
            reads = "dx1" in needs or ((task.is_forward or needs) and not _is_pointwise(sizes))
            return 4 * _block_of_taps(sizes) if reads else 0
        copies = needs or _is_depthwise(transposed(task.node))
        return 4 * spread(task.node.input(1).shape) if copies else 0

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        prefix = _prefix(task)
        statements = []
        if task.is_forward:
            slots = ", ".join(map(at, ("x0", "x1", "x2", "y0", "work")))
            table = _table(call, transposed(task.node))
            return f"{prefix}_transpose_forward(&{table}, {slots});"
        if "dx2" in task.slots:
            statements.append(self._bias(call))
        if "dx1" in task.slots:
            slots = f"{at('dy0')}, 0, {at('x0')}, {at('dx1')}, 0, {at('work')}"
            table = _table(call, transposed(task.node))
            statements.append(f"{prefix}_backward_w(&{table}, AP_NONE, {slots});")
        if "dx0" in task.slots:
            slots = f"{at('dy0')}, {at('x1')}, 0, {at('dx0')}, {at('work')}"
            table = _table(call, transposed(task.node))
            statements.append(f"{prefix}_forward(&{table}, {slots});")
        return " ".join(statements)

    @staticmethod
    def _bias(call: Call) -> str:
        at, shape = call.at, call.task.node.outputs[0].shape
        if _has_channels_in_front(call.task):
            sizes = f"{shape[0]}u, {shape[1]}u, {spread(shape[2:])}u"
            return f"ap_sum_channels({sizes}, {at('dy0')}, {at('dx2')});"
        return (
            f"ap_fill({at('dx2')}, 0.0f, {shape[-1]}u);"
            f" ap_add_rows({spread(shape[:-1])}u, {shape[-1]}u, {at('dy0')}, {at('dx2')});"
        )


KERNELS = (_Conv(), _ConvTranspose())
