"""Dropout: the same elements as in NumPy's kernels."""

from __future__ import annotations

from solver.c_kernels.base import Call, CKernel, Task, number, only_float32, spread
from solver.graph.ops.helpers.streams import key_of

__all__ = ["KERNELS"]


class _Dropout(CKernel):
    operators = ("Dropout",)
    source = "dropout"

    def refusal(self, task: Task) -> str | None:
        return None if only_float32(task.node.inputs) else "its operand is not float32"

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        count, ratio = spread(node.outputs[0].shape), float(node.attributes["ratio"])
        source, target = ("x0", "y0") if call.task.is_forward else ("dy0", "dx0")
        if not ratio:
            return f"ap_copy({at(target)}, {at(source)}, {node.outputs[0].nbytes}u);"
        key = key_of(node.attributes["seed"], node.operation.id)
        threshold = min(round(ratio * 2**32), 2**32 - 1)
        return (
            f"ap_dropout({count}u, UINT64_C({key:#x}), {call.iteration}, {threshold}u,"
            f" {number(1 / (1 - ratio))}f, {at(source)}, {at(target)});"
        )


KERNELS = (_Dropout(),)
