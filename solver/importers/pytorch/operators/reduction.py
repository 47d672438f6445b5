"""Reductions along axes, and what is made of them: variance, norms, log-sum-exp, losses.

Classes of losses stand on axis 1 in PyTorch and on the last one here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from solver.graph import DType
from solver.importers.pytorch.context import Context, Handler, UnsupportedError, Value
from solver.importers.pytorch.operators.movement import element_at
from solver.importers.recorder import product_of_slices

__all__ = ["HANDLERS", "REDUCTIONS"]

#: A square of a distance is at least this, so that the slope of its root is finite.
_MIN_SQUARED_DISTANCE = 1e-30

_Axes = int | Sequence[int] | None


def _axes(x: Value, axes: _Axes) -> list[int]:
    """The axes in order, counted from the front; None and an empty list mean all axes."""
    numbers = [axes] if isinstance(axes, int) else list(axes or range(x.rank))
    return sorted(axis % x.rank for axis in numbers) if x.rank else []


def _reduce(c: Context, type_: str, x: Value, axes: _Axes, keepdims: bool) -> Value:
    reduced = _axes(x, axes)
    return c.apply(type_, x, c.integers("axes", reduced), keepdims=int(keepdims)) if reduced else x


def _reduction(type_: str) -> Handler:
    """Sums of whole numbers and counts of truths are taken in double precision, exact below 2^53."""

    def handler(c: Context, x: Value, axes: _Axes = None, keepdims: bool = False, **_: object) -> Value:
        dtype = c.result.dtype
        wide = dtype if dtype.is_floating else DType.FLOAT64
        return c.cast(_reduce(c, type_, c.cast(x, wide), axes, keepdims), dtype)

    return handler


def _greatest(c: Context, x: Value, axes: _Axes = None, keepdims: bool = False) -> Value:
    return _reduce(c, "ReduceMax", x, axes, keepdims)


def _least(c: Context, x: Value, axes: _Axes = None, keepdims: bool = False) -> Value:
    return c.apply("Neg", _reduce(c, "ReduceMax", c.apply("Neg", x), axes, keepdims))


def _arg_extreme(handler: Handler) -> Handler:
    """Index of the first extreme element, found as the one with the most elements behind it."""

    def place(c: Context, x: Value, axis: int | None = None, keepdims: bool = False) -> Value:
        shape = c.result.shape
        if axis is None:
            x, axis = c.reshape(x, (math.prod(x.shape),)), 0
        axis %= x.rank
        size = x.shape[axis]
        left = np.arange(size, 0, -1).reshape(-1, *(1,) * (x.rank - axis - 1))
        is_extreme = c.apply("Equal", x, handler(c, x, axis, True))
        counted = c.constant(f"{c.scope}.left", left.astype(np.int64))
        most = c.apply("Where", is_extreme, counted, c.number(0, DType.INT64))
        first = c.apply("ReduceMax", most, c.integers("axes", [axis]), keepdims=1)
        return c.reshape(c.apply("Sub", c.number(size, DType.INT64), first), shape)

    return place


def _extreme_and_place(handler: Handler) -> Handler:
    def both(c: Context, x: Value, axis: int, keepdims: bool = False) -> tuple[Value, Value]:
        return handler(c, x, axis, keepdims), _arg_extreme(handler)(c, x, axis, keepdims)

    return both


def _all(c: Context, x: Value, axes: _Axes = None, keepdims: bool = False) -> Value:
    lacks = c.apply("Not", c.cast(x, DType.BOOL))
    return c.apply("Not", _reduce(c, "ReduceMax", lacks, axes, keepdims))


def _product(c: Context, x: Value, axis: int | None = None, keepdims: bool = False, **_: object) -> Value:
    x = c.cast(x, c.result.dtype)
    if axis is None:
        x, axis = c.reshape(x, (math.prod(x.shape),)), 0
    axis %= x.rank
    x = product_of_slices(x, axis, x.shape[axis], c.slice, partial(c.apply, "Mul"))
    return c.reshape(x, c.result.shape)


def _variance(
    c: Context, x: Value, axes: _Axes = None, *, correction: float | None = 1, keepdim: bool = False
) -> Value:
    reduced = _axes(x, axes)
    count = math.prod(x.shape[axis] for axis in reduced)
    free = count - (1 if correction is None else correction)
    if free <= 0:
        raise UnsupportedError("the variance of a single element")
    difference = c.apply("Sub", x, _reduce(c, "ReduceMean", x, reduced, True))
    squares = _reduce(c, "ReduceMean", c.apply("Mul", difference, difference), reduced, keepdim)
    return squares if free == count else c.apply("Mul", squares, c.number(count / free, x.dtype))


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
    if order == 2:
        return c.apply("Sqrt", _reduce(c, "ReduceSum", c.apply("Mul", x, x), axes, keepdims))
    if math.isinf(order):
        return (_greatest if order > 0 else _least)(c, c.apply("Abs", x), axes, keepdims)
    if order == 0:
        raise UnsupportedError("a norm of order 0")
    powers = c.apply("Pow", c.apply("Abs", x), c.number(order, x.dtype))
    total = _reduce(c, "ReduceSum", powers, axes, keepdims)
    return c.apply("Pow", total, c.number(1 / order, x.dtype))


def _distances(c: Context, a: Value, b: Value, order: float = 2, *_: object) -> Value:
    """Distances between all rows of A and all rows of B. A distance of 0 has derivative 0."""
    pairs = [c.reshape(x, (*x.shape[:-2], *shape, x.shape[-1])) for x, shape in (
        (a, (a.shape[-2], 1)), (b, (1, b.shape[-2])))]  # fmt: skip
    difference = c.apply("Sub", *pairs)
    if order != 2:
        return _norm(c, difference, order, [-1])
    squares = _reduce(c, "ReduceSum", c.apply("Mul", difference, difference), [-1], False)
    return c.apply("Sqrt", c.apply("Clip", squares, min=_MIN_SQUARED_DISTANCE))


def _log_sum_exp(c: Context, x: Value, axes: _Axes, keepdims: bool = False) -> Value:
    """x - log softmax(x) is the same for every element: that of the largest is exact."""
    reduced = _axes(x, axes)
    if len(reduced) != 1:
        raise UnsupportedError("the logarithm of a sum of exponentials along several axes")
    logarithms = c.apply("LogSoftmax", x, axis=reduced[0])
    return _reduce(c, "ReduceMean", c.apply("Sub", x, logarithms), reduced, keepdims)


HANDLERS: dict[str, Handler] = {
    **{f"mean.{kind}": _reduction("ReduceMean") for kind in ("default", "dim")},
    **{f"sum.{kind}": _reduction("ReduceSum") for kind in ("default", "dim_IntList")},
    "amax.default": _greatest,
    "amin.default": _least,
    "max.default": _greatest,
    "max.dim": _extreme_and_place(_greatest),
    "min.default": _least,
    "min.dim": _extreme_and_place(_least),
    "argmax.default": _arg_extreme(_greatest),
    "argmin.default": _arg_extreme(_least),
    **dict.fromkeys(
        ("any.default", "any.dim", "any.dims"),
        lambda c, x, *where: _greatest(c, c.cast(x, DType.BOOL), *where),
    ),
    **{f"all.{kind}": _all for kind in ("default", "dim", "dims")},
    **{f"prod.{kind}": _product for kind in ("default", "dim_int")},
    "cumsum.default": lambda c, x, axis: c.apply(
        "CumSum", c.cast(x, c.result.dtype), c.integers("axis", [axis % x.rank])
    ),
    "var.correction": _variance,
    "std.correction": lambda c, x, axes=None, **options: c.apply("Sqrt", _variance(c, x, axes, **options)),
    "var_mean.correction": _variance_and_mean,
    "linalg_vector_norm.default": _norm,
    "logsumexp.default": _log_sum_exp,
    "_cdist_forward.default": _distances,
}


#: PyTorch's numbers of reductions.
REDUCTIONS = ("none", "mean", "sum")

#: The class that PyTorch ignores where nothing is said.
_DEFAULT_IGNORED_CLASS = -100


def _cross_entropy(
    c: Context,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: int = _DEFAULT_IGNORED_CLASS,
    label_smoothing: float = 0.0,
    *,
    class_axis: int | None = None,
) -> Value:
    """The cross entropy of classes by number, or of their probabilities.

    Classes may have weights, and one of them may be ignored: the mean is then over the weights of what
    counts. PyTorch has the classes on axis 1, a `class_axis` says another one.
    """
    dense = target.dtype.is_floating
    axis = (1 if x.rank > 1 else 0) if class_axis is None else class_axis
    weighed = not dense and weight is not None
    if weight is not None and (dense or label_smoothing):
        raise UnsupportedError("weights of classes beside probabilities or smoothed labels")
    counts: Value | None = None
    if weighed:
        target, counts = _class_weights(c, x.dtype, target, weight, ignore_index)
    loss = c.apply(
        "CategoricalCrossEntropy",
        c.last(x, axis),
        c.last(target, axis) if dense else target,
        from_logits=1,
        sparse=int(not dense),
        label_smoothing=float(label_smoothing),
        **({} if dense or weighed else {"ignore_index": ignore_index}),
        reduction="none" if weighed else REDUCTIONS[reduction],
    )
    return loss if counts is None else _weighed(c, loss, counts, reduction)


def _class_weights(
    c: Context, dtype: DType, target: Value, weight: Value | None, ignore_index: int
) -> tuple[Value, Value]:
    """Classes that are all there, and how much each of them counts: nothing, if it is to be ignored."""
    if ignore_index == _DEFAULT_IGNORED_CLASS:
        assert weight is not None, "nothing else would have to be counted"
        return target, c.apply("Gather", weight, target, axis=0)
    ignored = c.apply("Equal", target, c.number(ignore_index, target.dtype))
    target = c.apply("Where", ignored, c.number(0, target.dtype), target)
    share = c.number(1, dtype) if weight is None else c.apply("Gather", weight, target, axis=0)
    return target, c.apply("Where", ignored, c.number(0, dtype), share)


def _weighed(c: Context, loss: Value, weights: Value, reduction: int) -> Value:
    product = c.apply("Mul", loss, weights)
    if reduction == 0:
        return product
    total = _total(c, product)
    return total if reduction == 2 else c.apply("Div", total, _total(c, weights))


def _total(c: Context, x: Value) -> Value:
    return c.apply("ReduceSum", x, c.integers("axes", list(range(x.rank))), keepdims=0) if x.rank else x


def _reduced(c: Context, x: Value, reduction: int) -> Value:
    if reduction == 1 and x.rank:
        return c.apply("ReduceMean", x, c.integers("axes", list(range(x.rank))), keepdims=0)
    return _total(c, x) if reduction == 2 else x


def _negative_log_likelihood(
    c: Context,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: int = _DEFAULT_IGNORED_CLASS,
) -> Value:
    """The cross entropy, where X is a LogSoftmax over the classes; else minus the picked logarithms."""
    origin = c.origins.get(x.name)
    if origin is not None and origin[1][1] % x.rank == (1 if x.rank > 1 else 0):
        return _cross_entropy(c, origin[1][0], target, weight, reduction, ignore_index)
    counts: Value | None = None
    if weight is not None or ignore_index != _DEFAULT_IGNORED_CLASS:
        target, counts = _class_weights(c, x.dtype, target, weight, ignore_index)
    rows = c.last(x, 1 if x.rank > 1 else 0)
    index = c.reshape(target, (*target.shape, 1))
    picked = c.reshape(element_at(c, rows, rows.rank - 1, index), target.shape)
    loss = c.apply("Neg", picked)
    if counts is not None:
        return _weighed(c, loss, counts, reduction)
    return _reduced(c, loss, reduction)


def _elementwise(type_: str, **attributes: int) -> Handler:
    def handler(c: Context, x: Value, target: Value, reduction: int = 1) -> Value:
        return c.apply(type_, x, target, reduction=REDUCTIONS[reduction], **attributes)

    return handler


def _entropy(
    c: Context, x: Value, target: Value, weight: Value | None, reduction: int, *, logits: bool
) -> Value:
    loss = c.apply(
        "BinaryCrossEntropy",
        x,
        c.cast(target, x.dtype),
        from_logits=int(logits),
        **({} if logits else {"clamp": "logarithm"}),
        reduction=REDUCTIONS[reduction] if weight is None else "none",
    )
    return loss if weight is None else _reduced(c, c.apply("Mul", loss, weight), reduction)


def _of_logits(
    c: Context,
    x: Value,
    target: Value,
    weight: Value | None = None,
    positive: Value | None = None,
    reduction: int = 1,
) -> Value:
    if positive is None:
        return _entropy(c, x, target, weight, reduction, logits=True)
    loss = _balanced(c, x, c.cast(target, x.dtype), positive)
    return _reduced(c, loss if weight is None else c.apply("Mul", loss, weight), reduction)


def _balanced(c: Context, x: Value, target: Value, positive: Value) -> Value:
    """t p log(1 + exp(-X)) + (1 - t) log(1 + exp X), as precise for large X as for small ones."""
    yes = c.apply("Mul", c.apply("Mul", target, positive), c.apply("Softplus", c.apply("Neg", x)))
    rest = c.apply("Sub", c.number(1, x.dtype), target)
    return c.apply("Add", yes, c.apply("Mul", rest, c.apply("Softplus", x)))


def _huber(c: Context, x: Value, target: Value, reduction: int = 1, delta: float = 1.0) -> Value:
    return c.apply("Huber", x, target, delta=float(delta), reduction=REDUCTIONS[reduction])


def _smooth_l1(c: Context, x: Value, target: Value, reduction: int = 1, beta: float = 1.0) -> Value:
    """Huber's loss over beta."""
    if beta == 0:
        return c.apply("MeanAbsoluteError", x, target, reduction=REDUCTIONS[reduction])
    loss = _huber(c, x, target, reduction, beta)
    return loss if beta == 1 else c.apply("Mul", loss, c.number(1 / beta, x.dtype))


HANDLERS |= {
    "cross_entropy_loss.default": _cross_entropy,
    "nll_loss.default": _negative_log_likelihood,
    "nll_loss_nd.default": _negative_log_likelihood,
    "nll_loss2d.default": _negative_log_likelihood,
    "mse_loss.default": _elementwise("MeanSquaredError"),
    "l1_loss.default": _elementwise("MeanAbsoluteError"),
    "binary_cross_entropy.default": lambda c, x, target, weight=None, reduction=1: _entropy(
        c, x, target, weight, reduction, logits=False
    ),
    "binary_cross_entropy_with_logits.default": _of_logits,
    "huber_loss.default": _huber,
    "smooth_l1_loss.default": _smooth_l1,
}
