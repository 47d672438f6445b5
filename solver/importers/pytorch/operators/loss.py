"""Losses. Classes stand on axis 1 in PyTorch and on the last one here."""

from __future__ import annotations

from solver.graph import DType
from solver.importers.pytorch.context import Context, Handler, UnsupportedError, Value
from solver.importers.pytorch.operators.selection import element_at

__all__ = ["HANDLERS", "REDUCTIONS"]

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


HANDLERS: dict[str, Handler] = {
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
