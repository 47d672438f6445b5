"""Losses and softmax."""

from __future__ import annotations

from solver.c_kernels.base import Call, CKernel, Task, number, only_float32, spread
from solver.graph.ops.loss import PROBABILITY_EPSILON
from solver.graph.types import DType

__all__ = ["KERNELS"]


class _Softmax(CKernel):
    operators = ("Softmax",)
    source = "loss"

    def refusal(self, task: Task) -> str | None:
        return None if only_float32(task.node.inputs) else "its operand is not float32"

    def write(self, call: Call) -> str:
        at, shape = call.at, call.task.node.outputs[0].shape
        axis = call.task.node.attributes["axis"] % len(shape)
        table = call.table("ap_rows", (spread(shape[:axis]), shape[axis], spread(shape[axis + 1 :])))
        if call.task.is_forward:
            return f"ap_softmax_forward(&{table}, {at('x0')}, {at('y0')});"
        return f"ap_softmax_backward(&{table}, {at('y0')}, {at('dy0')}, {at('dx0')});"


class _Loss(CKernel):
    source = "loss"

    def refusal(self, task: Task) -> str | None:
        attributes = task.node.attributes
        if attributes["reduction"] == "none":
            return "it does not reduce its losses"
        if attributes.get("clamp", "probability") != "probability" and not attributes["from_logits"]:
            return "it bounds logarithms and not probabilities"
        if attributes.get("ignore_index") is not None:
            return "it ignores some labels"
        if not only_float32((task.node.input(0), *task.node.outputs)):
            return "its operands are not float32"
        return None

    @staticmethod
    def scale(task: Task, rows: int) -> str:
        mean = task.node.attributes["reduction"] == "mean"
        return f"1.0f / {rows}.0f" if mean else "1.0f"

    @staticmethod
    def source_of(task: Task) -> str:
        return "AP_LOGITS" if task.node.attributes["from_logits"] else "AP_PROBABILITIES"


class _CategoricalCrossEntropy(_Loss):
    operators = ("CategoricalCrossEntropy",)

    def refusal(self, task: Task) -> str | None:
        if "dx1" in task.slots:
            return "the derivative of its labels is needed"
        label = task.node.input(1).dtype
        if label not in (DType.FLOAT32, DType.INT32, DType.INT64):
            return f"its labels are {label.value}"
        return super().refusal(task)

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        attributes, shape = task.node.attributes, task.node.input(0).shape
        rows, classes = spread(shape[:-1]), shape[-1]
        sparse = bool(attributes.get("sparse", 0))
        dense, index = ("0", at("x1")) if sparse else (at("x1"), "0")
        numbers = (
            f"{self.source_of(task)}, {rows}u, {classes}u, {self.scale(task, rows)},"
            f" {number(attributes.get('label_smoothing', 0.0))}f,"
            f" {number(attributes.get('epsilon', PROBABILITY_EPSILON))}f"
        )
        labels = f"{dense}, {index}, {task.node.input(1).dtype.itemsize}u"
        if task.is_forward:
            return f"ap_cross_entropy_forward({numbers}, {at('x0')}, {labels}, {at('y0')});"
        return f"ap_cross_entropy_backward({numbers}, {at('x0')}, {labels}, {at('dy0')}, {at('dx0')});"


class _MeanSquaredError(_Loss):
    operators = ("MeanSquaredError",)

    def refusal(self, task: Task) -> str | None:
        if task.node.input(0) != task.node.input(1):
            return "its operands have different types"
        return super().refusal(task)

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        count = spread(task.node.input(0).shape)
        examples = task.node.input(0).shape[:1]
        parts = count // spread(examples) if spread(examples) else 0
        is_summed = task.node.attributes["reduction"] == "sum_of_means"
        scale = f"1.0f / {parts}.0f" if is_summed and parts else self.scale(task, count)
        numbers = f"{count}u, {scale}, {at('x0')}, {at('x1')}"
        if task.is_forward:
            return f"ap_squared_error_forward({numbers}, {at('y0')});"
        return f"ap_squared_error_backward({numbers}, {at('dy0')}, {at('dx0')}, {at('dx1')});"


class _BinaryCrossEntropy(_Loss):
    operators = ("BinaryCrossEntropy",)

    def refusal(self, task: Task) -> str | None:
        if "dx1" in task.slots:
            return "the derivative of its labels is needed"
        if task.node.input(0) != task.node.input(1):
            return "its operands have different types"
        return super().refusal(task)

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        count = spread(task.node.input(0).shape)
        epsilon = number(task.node.attributes.get("epsilon", PROBABILITY_EPSILON))
        numbers = (
            f"{self.source_of(task)}, {count}u, {self.scale(task, count)}, {epsilon}f, {at('x0')}, {at('x1')}"
        )
        if task.is_forward:
            return f"ap_binary_cross_entropy_forward({numbers}, {at('y0')});"
        return f"ap_binary_cross_entropy_backward({numbers}, {at('dy0')}, {at('dx0')});"


KERNELS = (_Softmax(), _CategoricalCrossEntropy(), _MeanSquaredError(), _BinaryCrossEntropy())
