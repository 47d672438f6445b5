"""Functions of one operand: those of a calculator, gates and one-sided activations."""

from __future__ import annotations

from solver.c_kernels.base import Call, CKernel, Task, number, only_float32, spread

__all__ = ["KERNELS"]

_KINDS = {
    "Exp": "AP_EXP",
    "Log": "AP_LOG",
    "Sqrt": "AP_SQRT",
    "Reciprocal": "AP_RECIPROCAL",
    "Neg": "AP_NEG",
    "Abs": "AP_ABS",
    "Erf": "AP_ERF",
    "Softplus": "AP_SOFTPLUS",
    "LeakyRelu": "AP_LEAKY_RELU",
    "Elu": "AP_ELU",
    "HardSigmoid": "AP_HARD_SIGMOID",
    "HardSwish": "AP_HARD_SWISH",
    "Swish": "AP_SWISH",
}


class _Unary(CKernel):
    """Backward reads x or y, as the operator says; Neg reads neither."""

    operators = tuple(_KINDS)
    source = "unary"

    def refusal(self, task: Task) -> str | None:
        return None if only_float32(task.node.inputs) else "its operand is not float32"

    def write(self, call: Call) -> str:
        node, at = call.task.node, call.at
        numbers = [number(float(node.attributes.get(name, 0.0))) for name in ("alpha", "beta")]
        first = (
            f"{_KINDS[node.operation.type]}, {spread(node.outputs[0].shape)}u, {numbers[0]}f, {numbers[1]}f"
        )
        if call.task.is_forward:
            return f"ap_unary_forward({first}, {at('x0')}, {at('y0')});"
        reads = "x0" if "x0" in call.task.slots else "y0"
        return f"ap_unary_backward({first}, {at(reads)}, {at('dy0')}, {at('dx0')});"


KERNELS = (_Unary(),)
