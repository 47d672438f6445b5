"""Activations: operators that compute each element by itself."""

from __future__ import annotations

from solver.c_kernels.base import Call, FloatKernel, number, spread

__all__ = ["KERNELS"]


class _Activation(FloatKernel):
    source = "activation"


class _OfOutput(_Activation):
    """The derivative needs Y alone."""

    operators = ("Relu", "Sigmoid", "Tanh")

    def write(self, call: Call) -> str:
        at, count = call.at, spread(call.task.node.outputs[0].shape)
        name = f"ap_{call.task.node.operation.type.lower()}"
        if call.task.is_forward:
            return f"{name}_forward({at('x0')}, {at('y0')}, {count}u);"
        return f"{name}_backward({at('y0')}, {at('dy0')}, {at('dx0')}, {count}u);"


class _Gelu(_Activation):
    operators = ("Gelu",)

    def write(self, call: Call) -> str:
        at, count = call.at, spread(call.task.node.outputs[0].shape)
        exact = int(call.task.node.attributes["approximate"] == "none")
        if call.task.is_forward:
            return f"ap_gelu_forward({exact}, {at('x0')}, {at('y0')}, {count}u);"
        return f"ap_gelu_backward({exact}, {at('x0')}, {at('dy0')}, {at('dx0')}, {count}u);"


class _Clip(_Activation):
    """Bounds are attributes or operands. With `inclusive`, the slope at the bounds is 1: that reads X."""

    operators = ("Clip",)

    def write(self, call: Call) -> str:
        at, node = call.at, call.task.node
        count = spread(node.outputs[0].shape)
        bounds = []
        for position, key, none in ((1, "min", "-AP_INFINITY"), (2, "max", "AP_INFINITY")):
            bound = node.attributes[key]
            literal = none if bound is None else f"{number(bound)}f"
            bounds.append(f"*{at(f'x{position}')}" if node.has_input(position) else literal)
        if call.task.is_forward:
            return f"ap_clip_forward({at('x0')}, {at('y0')}, {count}u, {', '.join(bounds)});"
        name, reads = ("ap_clip_backward", "y0")
        if node.attributes.get("inclusive"):
            name, reads = ("ap_clamp_backward", "x0")
        return f"{name}({at(reads)}, {at('dy0')}, {at('dx0')}, {count}u, {', '.join(bounds)});"


KERNELS = (_OfOutput(), _Gelu(), _Clip())
