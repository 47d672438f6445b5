"""Kernels of functions of one operand: a function by blocks, and dX = dY times a factor by blocks.

dX is written last in each block, so it may share memory with dY. A function that never reads X after
it began to write Y may have both in one place as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from solver.errors import InternalError
from solver.executor.kernels.base import Call, Kernels, no_derivative
from solver.executor.kernels.helpers.blocks import Step, bound, flat_blocks, present, with_small_buffers
from solver.graph.ops import lookup
from solver.graph.ops.helpers.elementwise import Elementwise
from solver.graph.types import Array

__all__ = ["Function", "Maker", "elementwise", "fixed", "forward_only"]

#: (source, out, *scratch) -> None. Forward the source is X and out is Y, backward out is the factor.
Function = Callable[..., None]

#: From the attributes of an operation to its function.
Maker = Callable[[Mapping[str, Any]], Function]


def fixed(function: Function) -> Maker:
    """The maker of a function that no attribute changes."""

    def make(attributes: Mapping[str, Any]) -> Function:
        return function

    return make


def elementwise(forward: Maker, derivative: Maker) -> Kernels:
    """Kernels of an `Elementwise` operator; `derivative` writes dY/dX of what the operator says it reads."""

    def prepare_forward(call: Call) -> Step:
        x, y = present(call.x[0], call.y[0])
        scratch = _scratch(call, _operator(call).forward_blocks(call.node))
        function = forward(call.attributes)
        parts = [(*views, *(s[: views[0].size] for s in scratch)) for views in flat_blocks(x, y)]

        def run() -> None:
            for part in parts:
                function(*part)

        return run

    def prepare_backward(call: Call) -> Step:
        source, dy, dx = present(_source(call), call.dy[0], call.dx[0])
        scratch = _scratch(call, _operator(call).backward_blocks(call.node))
        function = derivative(call.attributes)
        parts = [
            (dy_part, dx_part, (read, *(s[: read.size] for s in scratch)))
            for read, dy_part, dx_part in flat_blocks(source, dy, dx)
        ]

        def run() -> None:
            for dy_part, dx_part, arguments in parts:
                function(*arguments)
                np.multiply(dy_part, arguments[1], out=dx_part)

        return run

    return Kernels(prepare_forward, prepare_backward)


def forward_only(function: np.ufunc) -> Kernels:
    """Kernels of a function of NumPy that has no derivative."""

    def prepare(call: Call) -> Step:
        operands, (y,) = present(*call.x), present(call.y[0])
        return with_small_buffers(bound(function, *operands, out=y))

    return Kernels(prepare, no_derivative)


def _operator(call: Call) -> Elementwise:
    operator = lookup(call.node.operation.type)
    if not isinstance(operator, Elementwise):
        raise InternalError(f"Operator {operator.name!r} is not a function of one operand.")
    return operator


def _source(call: Call) -> Array | None:
    return call.x[0] if _operator(call).reads_input(call.node) else call.y[0]


def _scratch(call: Call, names: tuple[str, ...]) -> list[Array]:
    return [call.scratch[name] for name in names]
