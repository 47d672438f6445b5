"""Losses and softmax."""

from __future__ import annotations

from solver.c_kernels.base import Call, CKernel, Task, number, only_float32, spread
from solver.graph.ops.loss import PROBABILITY_EPSILON

__all__ = ["KERNELS"]


class _Softmax(CKernel):
    operators = ("Softmax", "LogSoftmax")
    source = "loss"

    def refusal(self, task: Task) -> str | None:
        return None if only_float32(task.node.inputs) else "its operand is not float32"

    def write(self, call: Call) -> str:
        at, shape = call.at, call.task.node.outputs[0].shape
        axis = call.task.node.attributes["axis"] % len(shape)
        table = call.table("ap_rows", (spread(shape[:axis]), shape[axis], spread(shape[axis + 1 :])))
        name = {"Softmax": "ap_softmax", "LogSoftmax": "ap_log_softmax"}[call.task.node.operation.type]
        if call.task.is_forward:
            return f"{name}_forward(&{table}, {at('x0')}, {at('y0')});"
        return f"{name}_backward(&{table}, {at('y0')}, {at('dy0')}, {at('dx0')});"


class _Loss(CKernel):
    def refusal(self, task: Task) -> str | None:
        if not only_float32((task.node.input(0), *task.node.outputs)):
            return "its operands are not float32"
        return None

    @staticmethod
    def is_for_each(task: Task) -> bool:
        """Whether losses are not reduced."""
        return bool(task.node.attributes["reduction"] == "none")


class _Classes(_Loss):
    operators = ("CategoricalCrossEntropy", "KLDivergence")
    source = "loss"

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        table = self._table(call)
        diverges = task.node.operation.type == "KLDivergence"
        if task.is_forward:
            name = "ap_divergence_forward" if diverges else "ap_cross_entropy_forward"
            return f"{name}(&{table}, {at('x0')}, {at('x1')}, {at('y0')});"
        statements = []
        if "dx0" in task.slots:
            slots = ", ".join(map(at, ("x0", "x1", "dy0", "dx0")))
            statements.append(f"ap_cross_entropy_backward(&{table}, {slots});")
        if "dx1" in task.slots:
            labels = f"{at('x1')}, " if diverges else ""
            name = "ap_divergence_by_label" if diverges else "ap_cross_entropy_by_label"
            statements.append(f"{name}(&{table}, {at('x0')}, {labels}{at('dy0')}, {at('dx1')});")
        return " ".join(statements)

    def _table(self, call: Call) -> str:
        node = call.task.node
        attributes, shape = node.attributes, node.input(0).shape
        ignored = attributes.get("ignore_index")
        label_bytes = node.input(1).dtype.itemsize if attributes.get("sparse") else 0
        members = (
            spread(shape[:-1]), shape[-1], label_bytes,
            int(attributes["from_logits"]), int(attributes["reduction"] == "mean"),
            int(self.is_for_each(call.task)), int(ignored is not None), ignored or 0,
            f"{number(attributes.get('label_smoothing', 0.0))}f",
            f"{number(attributes.get('epsilon', PROBABILITY_EPSILON))}f",
        )  # fmt: skip
        return call.table("ap_classes", members)


class _Elements(_Loss):
    operators = ("MeanSquaredError", "MeanAbsoluteError", "Huber", "BinaryCrossEntropy")
    source = "elementwise_loss"

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        attributes, kind = task.node.attributes, task.node.operation.type
        parameter = attributes["delta"] if kind == "Huber" else PROBABILITY_EPSILON
        count, scale = spread(task.node.input(0).shape), self._scale(task)
        members = (count, int(self.is_for_each(task)), scale, f"{number(parameter)}f")
        table = call.table("ap_elements", members)
        name = {
            "MeanSquaredError": "ap_squared_error",
            "MeanAbsoluteError": "ap_absolute_error",
            "Huber": "ap_huber",
            "BinaryCrossEntropy": "ap_binary_cross_entropy",
        }[kind]
        if attributes.get("from_logits"):
            name += "_logits"
        elif attributes.get("clamp") == "logarithm":
            name += "_clamped"
        if task.is_forward:
            return f"{name}_forward(&{table}, {at('x0')}, {at('x1')}, {at('y0')});"
        slots = ", ".join(map(at, ("x0", "x1", "dy0", "dx0", "dx1")))
        return f"{name}_backward(&{table}, {slots});"

    @staticmethod
    def _scale(task: Task) -> str:
        """The factor of the sum. The mean of no elements is NaN: 0 times infinity."""
        shape, reduction = task.node.input(0).shape, task.node.attributes["reduction"]
        if reduction not in ("mean", "sum_of_means"):
            return "1.0f"
        if reduction == "sum_of_means" and not shape[0]:
            return "1.0f"
        count = spread(shape[1:]) if reduction == "sum_of_means" else spread(shape)
        return f"1.0f / {count}.0f" if count else "AP_INFINITY"


KERNELS = (_Softmax(), _Classes(), _Elements())
