"""Reductions along axes, and what is made of them: variance, norms, log-sum-exp."""

from __future__ import annotations

import math
from collections.abc import Sequence

from solver.importers.pytorch.context import Context, Handler, UnsupportedError
from solver.importers.pytorch.recorder import Value

__all__ = ["HANDLERS"]

_Axes = int | Sequence[int] | None


def _axes(x: Value, axes: _Axes) -> list[int]:
    """None and nothing mean all of them."""
    given = [axes] if isinstance(axes, int) else list(axes or range(x.rank))
    return sorted(axis % x.rank for axis in given) if x.rank else []


def _reduce(c: Context, type_: str, x: Value, axes: _Axes, keepdims: bool) -> Value:
    found = _axes(x, axes)
    return c.apply(type_, x, c.integers("axes", found), keepdims=int(keepdims)) if found else x


def _reduction(type_: str) -> Handler:
    def handler(c: Context, x: Value, axes: _Axes = None, keepdims: bool = False, **_: object) -> Value:
        if not c.result.dtype.is_floating and type_ != "ReduceMax":
            raise UnsupportedError(f"sums of {c.result.dtype.value} that are not constant")
        return _reduce(c, type_, c.cast(x, c.result.dtype), axes, keepdims)

    return handler


def _least(c: Context, x: Value, axes: _Axes = None, keepdims: bool = False) -> Value:
    return c.apply("Neg", _reduce(c, "ReduceMax", c.apply("Neg", x), axes, keepdims))


def _extreme_and_place(handler: Handler) -> Handler:
    def both(c: Context, x: Value, axis: int, keepdims: bool = False) -> tuple[Value, None]:
        return handler(c, x, axis, keepdims), None

    return both


def _variance(
    c: Context, x: Value, axes: _Axes = None, *, correction: float | None = 1, keepdim: bool = False
) -> Value:
    found = _axes(x, axes)
    count = math.prod(x.shape[axis] for axis in found)
    free = count - (1 if correction is None else correction)
    if free <= 0:
        raise UnsupportedError("the variance of a single element")
    difference = c.apply("Sub", x, _reduce(c, "ReduceMean", x, found, True))
    squares = _reduce(c, "ReduceMean", c.apply("Mul", difference, difference), found, keepdim)
    return squares if free == count else c.apply("Mul", squares, c.number(count / free, x.dtype))


def _deviation(c: Context, x: Value, axes: _Axes = None, **options: object) -> Value:
    return c.apply("Sqrt", _variance(c, x, axes, **options))  # type: ignore[arg-type]


def _variance_and_mean(
    c: Context, x: Value, axes: _Axes = None, *, correction: float | None = 1, keepdim: bool = False
) -> tuple[Value, Value]:
    mean = _reduce(c, "ReduceMean", x, axes, keepdim)
    return _variance(c, x, axes, correction=correction, keepdim=keepdim), mean


def _norm(
    c: Context, x: Value, order: float = 2, axes: _Axes = None, keepdims: bool = False, **_: object
) -> Value:
    if order == 1:
        return _reduce(c, "ReduceSum", c.apply("Abs", x), axes, keepdims)
    if order != 2:
        raise UnsupportedError(f"a norm of order {order}")
    return c.apply("Sqrt", _reduce(c, "ReduceSum", c.apply("Mul", x, x), axes, keepdims))


def _log_sum_exp(c: Context, x: Value, axes: _Axes, keepdims: bool = False) -> Value:
    """x - log softmax(x) is the same for every element: that of the largest is exact."""
    found = _axes(x, axes)
    if len(found) != 1:
        raise UnsupportedError("the logarithm of a sum of exponentials along several axes")
    logarithms = c.apply("LogSoftmax", x, axis=found[0])
    return _reduce(c, "ReduceMean", c.apply("Sub", x, logarithms), found, keepdims)


HANDLERS: dict[str, Handler] = {
    **{f"mean.{kind}": _reduction("ReduceMean") for kind in ("default", "dim")},
    **{f"sum.{kind}": _reduction("ReduceSum") for kind in ("default", "dim_IntList")},
    "amax.default": _reduction("ReduceMax"),
    "amin.default": _least,
    "max.default": _reduction("ReduceMax"),
    "max.dim": _extreme_and_place(_reduction("ReduceMax")),
    "min.default": _least,
    "min.dim": _extreme_and_place(_least),
    "var.correction": _variance,
    "std.correction": _deviation,
    "var_mean.correction": _variance_and_mean,
    "linalg_vector_norm.default": _norm,
    "logsumexp.default": _log_sum_exp,
}
