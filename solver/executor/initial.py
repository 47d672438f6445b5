"""First values of parameters and constants, repeatable from their seeds alone."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable

import numpy as np

from solver.errors import GraphError
from solver.graph.types import Array, Initializer, Operand, Role, TensorType

__all__ = ["initial_value"]


def initial_value(operand: Operand) -> Array:
    """A new array with the operand's first value.

    Without an initializer a parameter of rank 2 or more is he_normal, seeded by its name, and anything
    else zeros. Raises GraphError for an unknown initializer.
    """
    initializer = operand.initializer or _default(operand)
    if initializer.data is not None:
        return np.frombuffer(initializer.data, operand.dtype.numpy).reshape(operand.shape)
    if initializer.kind not in _SCHEMES:
        raise GraphError(
            f"Operand {operand.id!r} has the unknown initializer {initializer.kind!r}.",
            remedy=f"Choose one of {sorted(_SCHEMES)} or inline values.",
        )
    return _SCHEMES[initializer.kind](initializer, operand.type).astype(operand.dtype.numpy)


def _default(operand: Operand) -> Initializer:
    drawn = operand.role is Role.PARAMETER and len(operand.shape) > 1
    kind = "he_normal" if drawn else "zeros"
    return Initializer(kind, seed=zlib.crc32(operand.id.encode()))


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Fan in and fan out where axis 0 counts outputs, as in Conv and in Gemm with transB."""
    if len(shape) < 2:
        return max(1, math.prod(shape)), max(1, math.prod(shape))
    return math.prod(shape[1:]), shape[0] * math.prod(shape[2:])


def _normal(initializer: Initializer, type_: TensorType, scale: float) -> Array:
    return np.random.default_rng(initializer.seed).standard_normal(type_.shape) * scale


def _uniform(initializer: Initializer, type_: TensorType, scale: float) -> Array:
    return np.random.default_rng(initializer.seed).uniform(-scale, scale, type_.shape)


_SCHEMES: dict[str, Callable[[Initializer, TensorType], Array]] = {
    "zeros": lambda i, t: np.zeros(t.shape),
    "ones": lambda i, t: np.ones(t.shape),
    "constant": lambda i, t: np.full(t.shape, i.value),
    "normal": lambda i, t: _normal(i, t, i.scale),
    "uniform": lambda i, t: _uniform(i, t, i.scale),
    # He et al. 2015 and Glorot & Bengio 2010.
    "he_normal": lambda i, t: _normal(i, t, math.sqrt(2.0 / fans(t.shape)[0])),
    "glorot_uniform": lambda i, t: _uniform(i, t, math.sqrt(6.0 / sum(fans(t.shape)))),
}
