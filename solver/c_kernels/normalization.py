"""Normalisation over a batch, over the last axes of each row, and over groups of channels."""

from __future__ import annotations

from solver.c_kernels.base import Call, FloatKernel, Task, number, spread
from solver.graph.ops import lookup
from solver.graph.ops.batch_normalization import channels_of
from solver.graph.ops.normalization import Normalisation

__all__ = ["KERNELS"]


class _BatchNormalization(FloatKernel):
    """Where channels are last, the work area has sums of each: one forward, four backward."""

    operators = ("BatchNormalization",)
    source = "normalization"

    def file_of(self, task: Task) -> str:
        return "normalization_nchw" if _has_planes(task) else self.source

    def work(self, task: Task) -> int:
        if not task.node.attributes["training_mode"] or _has_planes(task):
            return 0
        return (4 if task.is_forward else 16) * int(task.node.input(0).shape[-1])

    def write(self, call: Call) -> str:
        task, at, attributes = call.task, call.at, call.task.node.attributes
        mode = "" if attributes["training_mode"] else "_frozen"
        direction = "forward" if task.is_forward else "backward"
        slots = ["x0", "x1", "x2", "x3", "x4", "y0", "mean", "inverse_deviation"]
        if mode:
            slots = slots[:6]
        if not task.is_forward:
            statistics = ("x3", "x4") if mode else ("mean", "inverse_deviation")
            slots = ["x0", "x1", *statistics, "dy0", "dx0", "dx1", "dx2"]
        if _has_planes(task):
            places = ", ".join(map(at, slots))
            return f"ap_batchnorm_nchw{mode}_{direction}(&{_planes(call)}, {places});"
        if not mode:
            slots.append("work")
        shape = task.node.input(0).shape
        numbers = [f"{spread(shape[:-1])}u", f"{shape[-1]}u"]
        if mode or task.is_forward:
            numbers.append(f"{number(attributes['epsilon'])}f")
        if not mode and task.is_forward:
            numbers += [f"{number(each)}f" for each in _shares(task)]
        return f"ap_batchnorm{mode}_{direction}({', '.join((*numbers, *map(at, slots)))});"


def _has_planes(task: Task) -> bool:
    """Whether a channel has positions of its own."""
    return task.node.attributes["data_layout"] == "NCHW" and len(task.node.input(0).shape) > 2


def _shares(task: Task) -> tuple[float, float]:
    """The momentum of running statistics, and the share of a batch's biased variance in the new one."""
    momentum = float(task.node.attributes["momentum"])
    count = channels_of(task.node).count
    is_corrected = task.node.attributes.get("unbiased") and count > 1
    return momentum, (1 - momentum) * (count / (count - 1) if is_corrected else 1)


def _planes(call: Call) -> str:
    shape = call.task.node.input(0).shape
    numbers = (float(call.task.node.attributes["epsilon"]), *_shares(call.task))
    literals = [f"{number(each)}f" for each in numbers]
    return call.table("ap_planes", (shape[0], shape[1], spread(shape[2:]), *literals))


class _LayerNormalization(FloatKernel):
    operators = ("LayerNormalization",)
    source = "normalization"

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        shape = task.node.input(0).shape
        axis = task.node.attributes["axis"] % len(shape)
        size = f"{spread(shape[:axis])}u, {spread(shape[axis:])}u"
        if task.is_forward:
            epsilon = number(task.node.attributes["epsilon"])
            return (
                f"ap_layernorm_forward({size}, {epsilon}f, {at('x0')}, {at('x1')}, {at('x2')}, {at('y0')},"
                f" {at('mean')}, {at('inverse_deviation')});"
            )
        return (
            f"ap_layernorm_backward({size}, {at('x0')}, {at('x1')}, {at('mean')}, {at('inverse_deviation')},"
            f" {at('dy0')}, {at('dx0')}, {at('dx1')}, {at('dx2')});"
        )


class _Groups(FloatKernel):
    """Rows with steps of their own: groups of channels, and rows that keep their mean."""

    operators = ("GroupNormalization", "InstanceNormalization", "RMSNormalization")
    source = "group_normalization"

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        operator = lookup(task.node.operation.type)
        assert isinstance(operator, Normalisation)
        rows = operator.rows(task.node)
        example = rows.groups * rows.size
        if rows.channels_last or rows.positions == 1:
            steps = (rows.channels, rows.positions, rows.groups * rows.channels, rows.channels, 1, 0)
        else:
            steps = (rows.size, rows.channels, rows.positions, rows.positions, 1, 1)
        epsilon = f"{number(task.node.attributes['epsilon'])}f"
        members = (rows.outer, example, rows.groups, *steps, int(operator.centred), epsilon)
        slots = ["x0", "x1", "x2", "y0", "mean", "inverse_deviation"]
        if not task.is_forward:
            slots = ["x0", "x1", "mean", "inverse_deviation", "dy0", "dx0", "dx1", "dx2"]
        direction = "forward" if task.is_forward else "backward"
        return f"ap_groupnorm_{direction}(&{call.table('ap_groups', members)}, {', '.join(map(at, slots))});"


KERNELS = (_BatchNormalization(), _LayerNormalization(), _Groups())
