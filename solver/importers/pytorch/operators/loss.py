"""Losses. Classes stand on axis 1 in PyTorch and on the last one here."""

from __future__ import annotations

from solver.importers.pytorch.context import Context, Handler, UnsupportedError
from solver.importers.pytorch.recorder import Value

__all__ = ["HANDLERS", "REDUCTIONS"]

#: PyTorch's numbers of reductions.
REDUCTIONS = ("none", "mean", "sum")


def _cross_entropy(
    c: Context,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Value:
    """Of classes by number or of their probabilities. Targets that are to be ignored are not offered."""
    if weight is not None:
        raise UnsupportedError("weights of classes")
    if ignore_index >= 0:
        raise UnsupportedError("a class that is ignored")
    dense = target.dtype.is_floating
    axis = 1 if x.rank > 1 else 0
    return c.apply(
        "CategoricalCrossEntropy",
        c.last(x, axis),
        c.last(target, axis) if dense else target,
        from_logits=1,
        sparse=int(not dense),
        label_smoothing=float(label_smoothing),
        reduction=REDUCTIONS[reduction],
    )


def _negative_log_likelihood(
    c: Context,
    x: Value,
    target: Value,
    weight: Value | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
) -> Value:
    """Of what a LogSoftmax over the classes gives: the two together are the cross-entropy of its input."""
    found = c.origins.get(x.name)
    if found is None or found[1][1] % x.rank != (1 if x.rank > 1 else 0):
        raise UnsupportedError("a likelihood of what is not log_softmax over the classes")
    return _cross_entropy(c, found[1][0], target, weight, reduction, ignore_index)


def _elementwise(type_: str, **attributes: int) -> Handler:
    def handler(c: Context, x: Value, target: Value, reduction: int = 1) -> Value:
        return c.apply(type_, x, target, reduction=REDUCTIONS[reduction], **attributes)

    return handler


def _binary_cross_entropy(logits: bool) -> Handler:
    def handler(
        c: Context, x: Value, target: Value, weight: Value | None = None, *rest: object, **named: object
    ) -> Value:
        *more, reduction = rest or (1,)
        if weight is not None or any(x is not None for x in more) or named.get("pos_weight") is not None:
            raise UnsupportedError("weights of examples or of classes")
        return c.apply(
            "BinaryCrossEntropy",
            x,
            c.cast(target, x.dtype),
            from_logits=int(logits),
            reduction=REDUCTIONS[int(reduction)],  # type: ignore[call-overload]
        )

    return handler


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
    "binary_cross_entropy.default": _binary_cross_entropy(False),
    "binary_cross_entropy_with_logits.default": _binary_cross_entropy(True),
    "huber_loss.default": _huber,
    "smooth_l1_loss.default": _smooth_l1,
}
