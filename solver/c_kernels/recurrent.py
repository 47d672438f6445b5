"""Cells of recurrent networks: one step of a sequence."""

from __future__ import annotations

from solver.c_kernels.base import Call, CKernel, Task, only_float32

__all__ = ["KERNELS"]


class _LSTMCell(CKernel):
    """The work area has the derivatives of the gates."""

    operators = ("LSTMCell",)
    source = "recurrent"

    def refusal(self, task: Task) -> str | None:
        if not only_float32((*task.node.inputs, *task.node.outputs)):
            return "its operands are not all float32"
        if len(task.node.inputs) > 6 and any(task.node.inputs[6:]):
            return "it has peepholes, or sequences of different lengths"
        return None

    def work(self, task: Task) -> int:
        if task.is_forward:
            return 0
        batch, hidden = task.node.input(0).shape[-2], task.node.input(4).shape[-1]
        return 16 * batch * hidden

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        x, hidden = task.node.input(0).shape, task.node.input(4).shape[-1]
        biases = task.node.input(5).shape[-1] // (4 * hidden) if task.node.has_input(5) else 0
        table = call.table("ap_lstm", (x[-2], x[-1], hidden, biases))
        if task.is_forward:
            read = ("x0", "x1", "x2", "x3", "x4", "x5", "y0", "y1", "gates")
            return f"ap_lstm_forward(&{table}, {', '.join(map(at, read))});"
        slots = (
            "x0", "x1", "x2", "x3", "x4", "y1", "gates", "dy0", "dy1",
            "dx0", "dx1", "dx2", "dx3", "dx4", "dx5", "work",
        )  # fmt: skip
        return f"ap_lstm_backward(&{table}, {', '.join(map(at, slots))});"


KERNELS = (_LSTMCell(),)
