"""Cells of recurrent networks: one step of a sequence."""

from __future__ import annotations

from solver.c_kernels.base import ACTIVATION, Call, FloatKernel, Task
from solver.graph.ops.recurrent import PEEPHOLES, cell

__all__ = ["KERNELS"]


class _Cell(FloatKernel):
    source = "recurrent"
    #: Floats of the work area backward, for each hidden unit of each example.
    floats: int

    def work(self, task: Task) -> int:
        sizes = cell(task.node)
        return 0 if task.is_forward else 4 * self.floats * sizes.batch * sizes.hidden

    @staticmethod
    def table(call: Call) -> str:
        sizes = cell(call.task.node)
        bias = call.task.node.input(sizes.b) if call.task.node.has_input(sizes.b) else None
        biases = 0 if bias is None or not sizes.rows else bias.elements // sizes.rows
        return call.table("ap_cell", (sizes.batch, sizes.inputs, sizes.hidden, biases))


class _LSTMCell(_Cell):
    operators = ("LSTMCell",)
    floats = 4

    def write(self, call: Call) -> str:
        at, table = call.at, self.table(call)
        peepholes = f"x{PEEPHOLES}"
        if call.task.is_forward:
            read = ("x0", "x1", "x2", "x3", "x4", "x5", peepholes, "y0", "y1", "gates")
            return f"ap_lstm_forward(&{table}, {', '.join(map(at, read))});"
        slots = (
            "x0", "x1", "x2", "x3", "x4", peepholes, "y1", "gates", "dy0", "dy1",
            "dx0", "dx1", "dx2", "dx3", "dx4", "dx5", f"d{peepholes}", "work",
        )  # fmt: skip
        return f"ap_lstm_backward(&{table}, {', '.join(map(at, slots))});"


class _GRUCell(_Cell):
    """Forward the work area has reset times state, unless the reset is behind the product."""

    operators = ("GRUCell",)
    floats = 4

    def work(self, task: Task) -> int:
        sizes = cell(task.node)
        if task.is_forward and "x1" in task.slots and not task.node.attributes["linear_before_reset"]:
            return 4 * sizes.batch * sizes.hidden
        return super().work(task)

    def write(self, call: Call) -> str:
        at, table = call.at, self.table(call)
        if call.task.is_forward:
            read = ("x0", "x1", "x2", "x3", "x4", "y0", "gates", "product", "work")
            return f"ap_gru_forward(&{table}, {', '.join(map(at, read))});"
        slots = (
            "x0", "x1", "x2", "x3", "gates", "product", "dy0", "dx0", "dx1", "dx2", "dx3", "dx4", "work",
        )  # fmt: skip
        return f"ap_gru_backward(&{table}, {', '.join(map(at, slots))});"


class _RNNCell(_Cell):
    operators = ("RNNCell",)
    floats = 1

    def write(self, call: Call) -> str:
        at = call.at
        activation = ACTIVATION[call.task.node.attributes["nonlinearity"]]
        if call.task.is_forward:
            read = ", ".join(map(at, ("x0", "x1", "x2", "x3", "x4")))
            return f"ap_rnn_forward(&{self.table(call)}, {read}, {at('y0')});{call.activated(activation)}"
        first = f"&{self.table(call)}, {activation}"
        slots = ("x0", "x1", "x2", "x3", "y0", "dy0", "dx0", "dx1", "dx2", "dx3", "dx4", "work")
        return f"ap_rnn_backward({first}, {', '.join(map(at, slots))});"


KERNELS = (_LSTMCell(), _GRUCell(), _RNNCell())
