"""Normalisation. Batch norm keeps the flag that its module has: statistics of the batch, or given ones."""

from __future__ import annotations

import math
from collections.abc import Sequence

from solver.graph import Initializer, Role, TensorType
from solver.importers.pytorch.context import Context, Handler, UnsupportedError
from solver.importers.pytorch.recorder import Value

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
    """PyTorch's momentum is the share of the new; its running variance is n / (n - 1) times ours."""
    type_ = TensorType((x.shape[1],), x.dtype)
    scale = scale or c.filled("scale", 1, type_)
    shift = shift or c.filled("shift", 0, type_)
    if mean is None or variance is None:
        # Nobody asks for the running statistics; the operation keeps some anyway.
        scope = c.recorder.scope
        mean = c.recorder.declare(f"{scope}.mean", Role.STATE, type_, Initializer("zeros"))
        variance = c.recorder.declare(f"{scope}.variance", Role.STATE, type_, Initializer("ones"))
        training = True
    elif training:
        count = math.prod(x.shape) // x.shape[1]
        mean, variance = c.updated(mean), c.updated(variance)
        if count > 1:
            c.layouts[variance.name] = count / (count - 1)
    return c.apply(
        "BatchNormalization",
        x,
        *(scale, shift, mean, variance),
        epsilon=float(epsilon),
        momentum=1 - float(momentum),
        training_mode=int(training),
    )


def _native_batch_norm(c: Context, *arguments: object) -> tuple[Value, None, None, None, None]:
    return _batch_norm(c, *arguments), None, None, None, None  # type: ignore[arg-type]


def _without_statistics(
    c: Context,
    x: Value,
    scale: Value | None,
    shift: Value | None,
    training: bool,
    momentum: float,
    epsilon: float,
) -> tuple[Value, None, None]:
    return _batch_norm(c, x, scale, shift, None, None, training, momentum, epsilon), None, None


def _given_statistics(
    c: Context,
    x: Value,
    scale: Value | None,
    shift: Value | None,
    mean: Value,
    variance: Value,
    momentum: float,
    epsilon: float,
) -> tuple[Value, None, None]:
    return _batch_norm(c, x, scale, shift, mean, variance, False, momentum, epsilon), None, None


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


def _native_layer_norm(c: Context, *arguments: object) -> tuple[Value, None, None]:
    return _layer_norm(c, *arguments), None, None  # type: ignore[arg-type]


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


def _native_group_norm(
    c: Context,
    x: Value,
    scale: Value | None,
    shift: Value | None,
    batch: int,
    channels: int,
    positions: int,
    groups: int,
    epsilon: float,
) -> tuple[Value, None, None]:
    return _group_norm(c, x, groups, scale, shift, epsilon), None, None


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
    "_native_batch_norm_legit_functional.default": _native_batch_norm,
    "_native_batch_norm_legit.no_stats": _without_statistics,
    "_native_batch_norm_legit_no_training.default": _given_statistics,
    "layer_norm.default": _layer_norm,
    "native_layer_norm.default": _native_layer_norm,
    "rms_norm.default": _rms_norm,
    "group_norm.default": _group_norm,
    "native_group_norm.default": _native_group_norm,
    "instance_norm.default": _instance_norm,
}
