"""Normalisation. Batch norm keeps the flag that its module has: statistics of the batch, or given ones."""

from __future__ import annotations

from collections.abc import Sequence

from solver.graph import TensorType
from solver.importers.pytorch.context import Context, Handler, UnsupportedError, Value, and_nothing

__all__ = ["HANDLERS"]


def _batch_norm(
    c: Context,
    x: Value,
    scale: Value | None,
    shift: Value | None,
    mean: Value | None,
    variance: Value | None,
    training: bool,
    momentum: float,
    epsilon: float,
    *_: object,
) -> Value:
    """Batch normalisation. PyTorch's momentum is 1 less ours, and its running variance is unbiased."""
    type_ = TensorType((x.shape[1],), x.dtype)
    scale = scale or c.filled("scale", 1, type_)
    shift = shift or c.filled("shift", 0, type_)
    if mean is None or variance is None:
        return c.apply("BatchNormalization", x, scale, shift, epsilon=float(epsilon), training_mode=1)
    if training:
        mean, variance = c.updated(mean), c.updated(variance)
    return c.apply(
        "BatchNormalization",
        x,
        *(scale, shift, mean, variance),
        epsilon=float(epsilon),
        momentum=1 - float(momentum),
        training_mode=int(training),
        **({"unbiased": 1} if training else {}),
    )


def _layer_norm(
    c: Context,
    x: Value,
    shape: Sequence[int],
    scale: Value | None = None,
    shift: Value | None = None,
    epsilon: float = 1e-5,
    *_: object,
) -> Value:
    type_ = TensorType(tuple(shape), x.dtype)
    inputs = [x, scale or c.filled("scale", 1, type_), *([shift] if shift else [])]
    return c.apply("LayerNormalization", *inputs, axis=-len(shape), epsilon=float(epsilon))


def _rms_norm(
    c: Context, x: Value, shape: Sequence[int], scale: Value | None = None, epsilon: float | None = None
) -> Value:
    """X over the root of the mean of its squares; without an epsilon PyTorch takes that of the type."""
    if epsilon is None:
        epsilon = 2.0**-23 if x.dtype.itemsize == 4 else 2.0**-52
    scale = scale or c.filled("scale", 1, TensorType(tuple(shape), x.dtype))
    return c.apply("RMSNormalization", x, scale, axis=-len(shape), epsilon=float(epsilon))


def _group_norm(
    c: Context,
    x: Value,
    groups: int,
    scale: Value | None = None,
    shift: Value | None = None,
    epsilon: float = 1e-5,
    *_: object,
) -> Value:
    type_ = TensorType((x.shape[1],), x.dtype)
    inputs = [x, scale or c.filled("scale", 1, type_), shift or c.filled("shift", 0, type_)]
    return c.apply("GroupNormalization", *inputs, num_groups=groups, epsilon=float(epsilon))


def _instance_norm(
    c: Context,
    x: Value,
    scale: Value | None,
    shift: Value | None,
    mean: Value | None,
    variance: Value | None,
    use_input_statistics: bool,
    momentum: float,
    epsilon: float,
    *_: object,
) -> Value:
    if mean is not None or not use_input_statistics:
        raise UnsupportedError("instance norm with running statistics")
    type_ = TensorType((x.shape[1],), x.dtype)
    inputs = [x, scale or c.filled("scale", 1, type_), shift or c.filled("shift", 0, type_)]
    return c.apply("InstanceNormalization", *inputs, epsilon=float(epsilon))


HANDLERS: dict[str, Handler] = {
    "batch_norm.default": _batch_norm,
    "_native_batch_norm_legit_functional.default": and_nothing(_batch_norm, 4),
    "_native_batch_norm_legit.no_stats": and_nothing(
        lambda c, x, scale, shift, *rest: _batch_norm(c, x, scale, shift, None, None, *rest), 2
    ),
    "_native_batch_norm_legit_no_training.default": and_nothing(
        lambda c, x, scale, shift, mean, variance, momentum, epsilon: _batch_norm(
            c, x, scale, shift, mean, variance, False, momentum, epsilon
        ),
        2,
    ),
    "layer_norm.default": _layer_norm,
    "native_layer_norm.default": and_nothing(_layer_norm, 2),
    "rms_norm.default": _rms_norm,
    "group_norm.default": _group_norm,
    "native_group_norm.default": and_nothing(
        lambda c, x, scale, shift, batch, channels, positions, groups, epsilon: _group_norm(
            c, x, groups, scale, shift, epsilon
        ),
        2,
    ),
    "instance_norm.default": _instance_norm,
}
