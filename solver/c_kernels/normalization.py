"""Normalisation over a batch, with channels last, and over the last axes of each row."""

from __future__ import annotations

from solver.c_kernels.base import Call, CKernel, Task, number, only_float32, spread

__all__ = ["KERNELS"]


class _BatchNormalization(CKernel):
    """The work area has two sums a channel."""

    operators = ("BatchNormalization",)
    source = "normalization"

    def refusal(self, task: Task) -> str | None:
        if not only_float32((*task.node.inputs, *task.node.outputs)):
            return "its operands are not all float32"
        if task.node.attributes["data_layout"] != "NHWC" and len(task.node.input(0).shape) > 2:
            return "its images have their channels in front (NCHW)"
        return None

    def work(self, task: Task) -> int:
        trains = task.node.attributes["training_mode"]
        return 0 if task.is_forward or not trains else 8 * task.node.input(0).shape[-1]

    def write(self, call: Call) -> str:
        task, at, attributes = call.task, call.at, call.task.node.attributes
        shape = task.node.input(0).shape
        size = f"{spread(shape[:-1])}u, {shape[-1]}u"
        epsilon = f"{number(attributes['epsilon'])}f"
        if attributes["training_mode"] and task.is_forward:
            return (
                f"ap_batchnorm_forward({size}, {epsilon}, {number(attributes['momentum'])}f, {at('x0')},"
                f" {at('x1')}, {at('x2')}, {at('x3')}, {at('x4')}, {at('y0')}, {at('mean')},"
                f" {at('inverse_deviation')});"
            )
        if attributes["training_mode"]:
            return (
                f"ap_batchnorm_backward({size}, {at('x0')}, {at('x1')}, {at('mean')},"
                f" {at('inverse_deviation')}, {at('dy0')}, {at('dx0')}, {at('dx1')}, {at('dx2')},"
                f" {at('work')});"
            )
        if task.is_forward:
            return (
                f"ap_batchnorm_frozen_forward({size}, {epsilon}, {at('x0')}, {at('x1')}, {at('x2')},"
                f" {at('x3')}, {at('x4')}, {at('y0')});"
            )
        return (
            f"ap_batchnorm_frozen_backward({size}, {epsilon}, {at('x0')}, {at('x1')}, {at('x3')}, {at('x4')},"
            f" {at('dy0')}, {at('dx0')}, {at('dx1')}, {at('dx2')});"
        )


class _LayerNormalization(CKernel):
    operators = ("LayerNormalization",)
    source = "normalization"

    def refusal(self, task: Task) -> str | None:
        if not only_float32((*task.node.inputs, *task.node.outputs)):
            return "its operands are not all float32"
        return None

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


KERNELS = (_BatchNormalization(), _LayerNormalization())
