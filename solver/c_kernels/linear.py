"""Dense layers and products of matrices."""

from __future__ import annotations

from solver.c_kernels.base import Call, CKernel, Task, number, only_float32, spread

__all__ = ["KERNELS"]


class _Gemm(CKernel):
    """The work area has dZ where an activation is undone or alpha is not 1."""

    operators = ("Gemm",)
    source = "linear"

    def refusal(self, task: Task) -> str | None:
        if not only_float32((*task.node.inputs, *task.node.outputs)):
            return "its operands are not all float32"
        return None

    def work(self, task: Task) -> int:
        scales = task.node.attributes["alpha"] != 1.0
        return (
            0 if task.is_forward or not (task.activates or scales) else 4 * spread(task.node.outputs[0].shape)
        )

    def write(self, call: Call) -> str:
        task, at, node = call.task, call.at, call.task.node
        x, attributes = node.input(0).shape, node.attributes
        rows, columns = node.outputs[0].shape
        inputs = x[0] if attributes["transA"] else x[1]
        bias = node.input(2).shape if node.has_input(2) else ()
        bias = (1,) * (2 - len(bias)) + bias
        table = call.table(
            "ap_dense",
            (rows, inputs, columns, int(attributes["transB"]), int(attributes["transA"]), *bias),
        )
        alpha, beta = (f"{number(attributes[name])}f" for name in ("alpha", "beta"))
        if task.is_forward:
            added = at("x2") if attributes["beta"] else "0"
            return (
                f"ap_dense_forward(&{table}, {alpha}, {beta}, {at('x0')}, {at('x1')},"
                f" {added}, {at('y0')});{call.activation}"
            )
        return (
            f"ap_dense_backward(&{table}, {task.activation}, {alpha}, {beta}, {at('x0')}, {at('x1')},"
            f" {at('y0')}, {at('dy0')}, {at('dx0')}, {at('dx1')}, {at('dx2')}, {at('work')});"
        )


class _MatMul(CKernel):
    """Matrices of equal number on both sides, or one that is multiplied by all of the others."""

    operators = ("MatMul",)
    source = "linear"

    def refusal(self, task: Task) -> str | None:
        a, b = task.node.input(0).shape, task.node.input(1).shape
        if not only_float32((*task.node.inputs, *task.node.outputs)):
            return "its operands are not all float32"
        if min(len(a), len(b)) < 2:
            return "one of its operands is a vector"
        if spread(a[:-2]) > 1 and spread(b[:-2]) > 1 and _front(a) != _front(b):
            return f"it broadcasts matrices of {list(a[:-2])} with {list(b[:-2])}"
        return None

    def work(self, task: Task) -> int:
        return 0 if task.is_forward or not task.activates else 4 * spread(task.node.outputs[0].shape)

    def write(self, call: Call) -> str:
        task, at = call.task, call.at
        a, b = task.node.input(0).shape, task.node.input(1).shape
        of_a, of_b = spread(a[:-2]), spread(b[:-2])
        count, rows = max(of_a, of_b), a[-2]
        if of_b == 1:  # all rows of the left side are one matrix
            count, rows = 1, of_a * a[-2]
        table = call.table(
            "ap_matrices",
            (
                count, rows, a[-1], b[-1],
                spread(a[-2:]) if of_a > 1 and count > 1 else 0,
                spread(b[-2:]) if of_b > 1 else 0,
            ),
        )  # fmt: skip
        if task.is_forward:
            return f"ap_matmul_forward(&{table}, {at('x0')}, {at('x1')}, {at('y0')});{call.activation}"
        return (
            f"ap_matmul_backward(&{table}, {task.activation}, {at('x0')}, {at('x1')}, {at('y0')},"
            f" {at('dy0')}, {at('dx0')}, {at('dx1')}, {at('work')});"
        )


def _front(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers of matrices along each axis, without ones in front."""
    front = shape[:-2]
    while front and front[0] == 1:
        front = front[1:]
    return front


KERNELS = (_Gemm(), _MatMul())
