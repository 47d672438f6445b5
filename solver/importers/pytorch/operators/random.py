"""Random numbers, drawn anew in each iteration. They are others than PyTorch would draw."""

from __future__ import annotations

import math
from typing import Any

from solver.graph import DType
from solver.importers.pytorch.context import Context, Handler, Value

__all__ = ["HANDLERS"]


def _uniform(c: Context, low: float = 0.0, high: float = 1.0) -> Value:
    """Uniform numbers of the result's shape and element type."""
    type_ = c.result
    shape = c.integers("shape", type_.shape)
    dtype = 11 if type_.dtype is DType.FLOAT64 else 1
    drawn = c.apply("RandomUniform", shape, low=float(low), high=float(high), dtype=dtype)
    return c.cast(drawn, type_.dtype)


def _normal(c: Context, mean: float = 0.0, deviation: float = 1.0) -> Value:
    """Box and Muller, 1958: sqrt(-2 log u) cos(2 pi v)."""
    u, v = _uniform(c, 2.0**-24), _uniform(c, 0.0, 2 * math.pi)
    radius = c.apply("Sqrt", c.apply("Mul", c.apply("Log", u), c.number(-2, u.dtype)))
    drawn = c.apply("Mul", radius, c.apply("Cos", v))
    if deviation != 1:
        drawn = c.apply("Mul", drawn, c.number(deviation, drawn.dtype))
    return drawn if mean == 0 else c.apply("Add", drawn, c.number(mean, drawn.dtype))


def _of_shape(draw: Any) -> Handler:
    """Shape and type of the draw are those of the result; the arguments only repeat them."""
    return lambda c, *_, **__: draw(c)


HANDLERS: dict[str, Handler] = {
    **{f"{name}.default": _of_shape(_uniform) for name in ("rand", "rand_like")},
    **{f"{name}.default": _of_shape(_normal) for name in ("randn", "randn_like")},
    "uniform.default": lambda c, x, low=0.0, high=1.0, **_: _uniform(c, low, high),
    "normal_functional.default": lambda c, x, mean=0.0, deviation=1.0, **_: _normal(c, mean, deviation),
    "exponential.default": lambda c, x, rate=1.0, **_: c.apply(
        "Mul", c.apply("Log", _uniform(c, 2.0**-24)), c.number(-1 / rate, c.result.dtype)
    ),
    # Ones with the probability that X says.
    "bernoulli.default": lambda c, x, **_: c.cast(c.apply("Less", _uniform(c), x), c.result.dtype),
}
