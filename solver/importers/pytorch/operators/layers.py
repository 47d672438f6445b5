"""Layers: convolutions, products and attention, normalisation, pooling and interpolation, recurrence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from solver.graph import AttributeValue, DType, TensorType
from solver.importers.pytorch.context import Context, Gates, Handler, UnsupportedError, Value, and_nothing
from solver.importers.pytorch.operators.elementwise import HANDLERS as ELEMENTWISE

__all__ = ["HANDLERS", "affine", "listed"]


def listed(sizes: int | Sequence[int], rank: int) -> tuple[int, ...]:
    """A number for each spatial axis; one number, or a list of one, stands for all."""
    values = (sizes,) if isinstance(sizes, int) else tuple(sizes)
    return values * rank if len(values) == 1 else values


def _batched(c: Context, x: Value, weight: Value) -> Value:
    """The images with a batch axis, of size 1 if they have none."""
    return c.reshape(x, (1, *x.shape)) if x.rank == weight.rank - 1 else x


def _conv(
    c: Context,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: str | int | Sequence[int] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int = 1,
) -> Value:
    rank = weight.rank - 2
    dilations = listed(dilation, rank)
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilations, weight.shape[2:], strict=True)]
        pads = (*(t // 2 for t in totals), *(t - t // 2 for t in totals))
    else:
        pads = (0,) * 2 * rank if isinstance(padding, str) else listed(padding, rank) * 2
    y = c.apply(
        "Conv",
        _batched(c, x, weight),
        weight,
        *([bias] if bias else []),
        kernel_shape=weight.shape[2:],
        strides=listed(stride, rank),
        dilations=dilations,
        pads=pads,
        group=groups,
    )
    return y if x.rank == weight.rank else c.reshape(y, y.shape[1:])


def _transposed(
    c: Context,
    x: Value,
    weight: Value,
    bias: Value | None = None,
    stride: int | Sequence[int] = 1,
    padding: int | Sequence[int] = 0,
    output_padding: int | Sequence[int] = 0,
    groups: int = 1,
    dilation: int | Sequence[int] = 1,
) -> Value:
    rank = weight.rank - 2
    attributes: dict[str, AttributeValue] = {
        "kernel_shape": weight.shape[2:],
        "strides": listed(stride, rank),
        "dilations": listed(dilation, rank),
        "pads": listed(padding, rank) * 2,
        "output_padding": listed(output_padding, rank),
        "group": groups,
    }
    y = c.apply("ConvTranspose", _batched(c, x, weight), weight, *([bias] if bias else []), **attributes)
    return y if x.rank == weight.rank else c.reshape(y, y.shape[1:])


def _convolution(
    c: Context,
    x: Value,
    weight: Value,
    bias: Value | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Value:
    if transposed:
        return _transposed(c, x, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv(c, x, weight, bias, stride, padding, dilation, groups)


HANDLERS: dict[str, Handler] = {
    **{f"conv{n}d.{kind}": _conv for n in (1, 2, 3) for kind in ("default", "padding")},
    "conv_transpose1d.default": _transposed,
    "conv_transpose2d.input": _transposed,
    "conv_transpose3d.input": _transposed,
    "convolution.default": _convolution,
}


def affine(c: Context, x: Value, weight: Value, bias: Value | None = None) -> Value:
    """X W' + b over the last axis; the axes before it are rows of one product."""
    flat = c.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    y = c.apply("Gemm", flat, weight, *([bias] if bias else []), transB=1)
    return c.reshape(y, (*x.shape[:-1], weight.shape[0]))


def _matmul(c: Context, a: Value, b: Value) -> Value:
    return c.apply("MatMul", a, b)


def _baddbmm(c: Context, bias: Value, a: Value, b: Value, *, beta: float = 1, alpha: float = 1) -> Value:
    product = c.apply("MatMul", a, b)
    if alpha != 1:
        product = c.apply("Mul", product, c.number(alpha, a.dtype))
    if beta == 0:
        return product
    return c.apply("Add", product, bias if beta == 1 else c.apply("Mul", bias, c.number(beta, a.dtype)))


def _trilinear(
    c: Context,
    a: Value,
    b: Value,
    d: Value,
    expand_a: Sequence[int],
    expand_b: Sequence[int],
    expand_d: Sequence[int],
    summed: Sequence[int],
    *_: object,
) -> Value:
    """The product of three tensors, each with axes of size 1 at its places, summed along axes."""
    raised = []
    for x, places in ((a, expand_a), (b, expand_b), (d, expand_d)):
        shape = list(x.shape)
        for place in sorted(places):
            shape.insert(place, 1)
        raised.append(c.reshape(x, shape))
    product = c.apply("Mul", c.apply("Mul", raised[0], raised[1]), raised[2])
    return c.apply("ReduceSum", product, c.integers("axes", list(summed)), keepdims=0)


def _attention(
    c: Context,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Value:
    """softmax(Q K' scale + mask) V; what a mask forbids is minus infinity before the softmax."""
    if enable_gqa and key.shape[-3] != query.shape[-3]:
        key, value = (_repeated(c, x, query.shape[-3] // x.shape[-3]) for x in (key, value))
    dtype = query.dtype
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scaled = c.apply("Mul", query, c.number(factor, dtype))
    axes = list(range(key.rank))
    axes[-2:] = axes[:-3:-1]
    scores = c.apply("MatMul", scaled, c.transpose(key, axes))
    if is_causal:
        forbidden = np.triu(np.full(scores.shape[-2:], -np.inf, dtype.numpy), 1)
        scores = c.apply("Add", scores, c.constant(f"{c.scope}.causal", forbidden))
    elif mask is not None and mask.dtype is DType.BOOL:
        scores = c.apply("Where", mask, scores, c.number(-np.inf, dtype))
    elif mask is not None:
        scores = c.apply("Add", scores, c.cast(mask, dtype))
    weights = c.apply("Softmax", scores, axis=-1)
    return c.apply("MatMul", ELEMENTWISE["dropout.default"](c, weights, dropout), value)


def _repeated(c: Context, x: Value, count: int) -> Value:
    """The heads, each repeated `count` times in a row."""
    *batch, heads, length, size = x.shape
    apart = c.reshape(x, (*batch, heads, 1, length, size))
    wide = c.apply("Expand", apart, c.integers("heads", (*batch, heads, count, length, size)))
    return c.reshape(wide, (*batch, heads * count, length, size))


HANDLERS |= {
    "linear.default": affine,
    "addmm.default": lambda c, bias, a, b, *, beta=1, alpha=1: c.apply(
        "Gemm", a, b, bias, alpha=float(alpha), beta=float(beta)
    ),
    "mm.default": _matmul,
    "bmm.default": _matmul,
    "mv.default": _matmul,
    "dot.default": _matmul,
    "matmul.default": _matmul,
    "baddbmm.default": _baddbmm,
    "_trilinear.default": _trilinear,
    "scaled_dot_product_attention.default": _attention,
}


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


HANDLERS |= {
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


_Sizes = int | Sequence[int]


def _pool(c: Context, type_: str, rank: int, x: Value, **attributes: AttributeValue) -> Value:
    """Pools images, with a batch axis or without one."""
    batched = c.reshape(x, (1, *x.shape)) if x.rank == rank + 1 else x
    y = c.apply(type_, batched, **attributes)
    return c.reshape(y, y.shape[1:]) if x.rank == rank + 1 else y


def _max(rank: int) -> Handler:
    def handler(
        c: Context,
        x: Value,
        kernel: _Sizes,
        stride: _Sizes = (),
        padding: _Sizes = 0,
        dilation: _Sizes = 1,
        ceil_mode: bool = False,
    ) -> Value:
        kernel = listed(kernel, rank)
        return _pool(
            c,
            "MaxPool",
            rank,
            x,
            kernel_shape=kernel,
            strides=listed(stride or kernel, rank),
            pads=listed(padding, rank) * 2,
            dilations=listed(dilation, rank),
            ceil_mode=int(ceil_mode),
        )

    return handler


def _average(rank: int) -> Handler:
    def handler(
        c: Context,
        x: Value,
        kernel: _Sizes,
        stride: _Sizes = (),
        padding: _Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Value:
        kernel = listed(kernel, rank)
        if divisor_override is not None and ceil_mode:
            raise UnsupportedError("a divisor of its own, and windows that are cut off")
        y = _pool(
            c,
            "AveragePool",
            rank,
            x,
            kernel_shape=kernel,
            strides=listed(stride or kernel, rank),
            pads=listed(padding, rank) * 2,
            ceil_mode=int(ceil_mode),
            count_include_pad=int(count_include_pad or divisor_override is not None),
        )
        if divisor_override is None:
            return y
        return c.apply("Mul", y, c.number(math.prod(kernel) / divisor_override, y.dtype))

    return handler


def _adaptive(type_: str, rank: int) -> Handler:
    """Windows of one size, side by side: that is what it comes to where the sizes divide."""

    def handler(c: Context, x: Value, output_sizes: _Sizes) -> Value:
        sizes = x.shape[-rank:]
        outs = c.result.shape[-rank:]
        if type_ == "AveragePool" and all(out == 1 for out in outs):
            axes = c.integers("axes", list(range(x.rank - rank, x.rank)))
            return c.apply("ReduceMean", x, axes, keepdims=1)
        if any(size % out for size, out in zip(sizes, outs, strict=True)):
            for axis, out in enumerate(outs, x.rank - rank):
                x = _uneven(c, type_, x, axis, out)
            return x
        kernel = tuple(size // out for size, out in zip(sizes, outs, strict=True))
        return _pool(c, type_, rank, x, kernel_shape=kernel, strides=kernel)

    return handler


def _uneven(c: Context, type_: str, x: Value, axis: int, out: int) -> Value:
    """Windows along one axis, from floor(k size / out) to before ceil((k + 1) size / out).

    Means are a product with a constant matrix. Of maxima, windows that are shorter than others have their
    last element twice, which adds nothing.
    """
    size = x.shape[axis]
    if size == out:
        return x
    starts = np.arange(out) * size // out
    ends = -(-np.arange(1, out + 1) * size // out)
    if type_ == "AveragePool":
        inside = (np.arange(size)[:, None] >= starts) & (np.arange(size)[:, None] < ends)
        means = (inside / (ends - starts)).astype(x.dtype.numpy)
        product = c.apply("MatMul", c.last(x, axis), c.constant(f"{c.scope}.means", means))
        order = list(range(x.rank - 1))
        order.insert(axis, x.rank - 1)
        return c.transpose(product, order)
    places = np.minimum(starts[:, None] + np.arange(max(ends - starts)), ends[:, None] - 1)
    windows = c.constant(f"{c.scope}.windows", places.astype(np.int64))
    taken = c.apply("Gather", x, windows, axis=axis)
    return c.apply("ReduceMax", taken, c.integers("axes", [axis + 1]), keepdims=0)


def _resize(c: Context, x: Value, scales: Sequence[float] | None, mode: str, coordinates: str) -> Value:
    """Resizes by the factors, which need not be whole, or without them to the size that PyTorch states."""
    if scales is not None:
        factors = np.array([1, 1, *scales], np.float32)
        inputs = [x, None, c.constant(f"{c.scope}.scales", factors)]
    else:
        inputs = [x, None, None, c.integers("sizes", c.result.shape)]
    return c.apply(
        "Resize", *inputs, mode=mode, coordinate_transformation_mode=coordinates, nearest_mode="floor"
    )


def _interpolated(
    mode: str,
    c: Context,
    x: Value,
    sizes: Sequence[int] | None,
    align_corners: bool,
    scales: Sequence[float] | None = None,
) -> Value:
    return _resize(c, x, scales, mode, "align_corners" if align_corners else "pytorch_half_pixel")


HANDLERS |= {
    **dict.fromkeys(
        [f"upsample_nearest{n}d.vec" for n in (1, 2, 3)],
        lambda c, x, sizes, scales=None: _resize(c, x, scales, "nearest", "asymmetric"),
    ),
    "upsample_linear1d.vec": partial(_interpolated, "linear"),
    "upsample_bilinear2d.vec": partial(_interpolated, "linear"),
    "upsample_trilinear3d.vec": partial(_interpolated, "linear"),
    "upsample_bicubic2d.vec": partial(_interpolated, "cubic"),
}
for _n in (1, 2, 3):
    HANDLERS |= {
        f"max_pool{_n}d.default": _max(_n),
        f"max_pool{_n}d_with_indices.default": and_nothing(_max(_n), 1),
        f"avg_pool{_n}d.default": _average(_n),
        f"adaptive_avg_pool{_n}d.default": _adaptive("AveragePool", _n),
        f"_adaptive_avg_pool{_n}d.default": _adaptive("AveragePool", _n),
        f"adaptive_max_pool{_n}d.default": and_nothing(_adaptive("MaxPool", _n), 1),
    }


#: PyTorch's blocks of rows are i f g o (LSTM) and r z n (GRU), ONNX's i o f c and z r h: weights lie here in
#: ONNX's order, and are brought into it and back when they are loaded and read.
_ORDERS = {"LSTM": Gates((0, 3, 1, 2)), "GRU": Gates((1, 0, 2))}


def _layers(
    c: Context,
    type_: str,
    x: Value,
    states: Sequence[Value],
    weights: Sequence[Value],
    has_biases: bool,
    layers: int,
    dropout: float,
    training: bool,
    bidirectional: bool,
    batch_first: bool,
    **attributes: AttributeValue,
) -> tuple[Value, list[list[Value]]]:
    """The output of the last layer, and the last states: for each kind one a layer and direction."""
    if x.rank != 3:
        raise UnsupportedError("sequences without a batch")
    directions = ("forward", "reverse") if bidirectional else ("forward",)
    each = 4 if has_biases else 2
    if len(weights) != each * layers * len(directions):
        raise UnsupportedError("a projection of the hidden state")
    lasts: list[list[Value]] = [[] for _ in states]
    scope = c.scope
    for layer in range(layers):
        parts = []
        for d, direction in enumerate(directions):
            number = layer * len(directions) + d
            c.scope = f"{scope}.l{layer}" + (".reverse" if d else "")
            w, r, *biases = weights[number * each : (number + 1) * each]
            if type_ in _ORDERS:
                c.layouts |= {operand.name: _ORDERS[type_] for operand in (w, r, *biases)}
            b = c.apply("Concat", *biases, axis=0) if biases else None
            # An initial state of zeros is what a sequence begins with anyway.
            first = [_initial(c, state, number, batch_first) for state in states]
            outputs = ("Y", "Y_h", "Y_c")[: 1 + len(states)]
            y, *last = c.many(
                type_,
                [x, w, r, b, None, *first],
                outputs,
                direction=direction,
                layout=int(batch_first),
                **attributes,
            )
            parts.append(_without_directions(c, y, batch_first))
            for kind, value in zip(lasts, last, strict=True):
                kind.append(_without_directions(c, value, batch_first, state=True))
        c.scope = scope
        x = parts[0] if len(parts) == 1 else c.apply("Concat", *parts, axis=2)
        if dropout and training and layer < layers - 1:
            x = ELEMENTWISE["dropout.default"](c, x, dropout, training)
    return x, lasts


def _initial(c: Context, state: Value, number: int, batch_first: bool) -> Value | None:
    """[1, batch, hidden] of one layer and direction; [batch, 1, hidden] where the batch comes first."""
    if state.constant is not None and not state.constant.any():
        return None
    piece = c.slice(state, 0, number, number + 1) if state.shape[0] > 1 else state
    return c.reshape(piece, (state.shape[1], 1, state.shape[2])) if batch_first else piece


def _without_directions(c: Context, y: Value, batch_first: bool, *, state: bool = False) -> Value:
    """The axis of directions, which has one position, left out."""
    axis = (1 if batch_first else 0) if state else (2 if batch_first else 1)
    return c.reshape(y, (*y.shape[:axis], *y.shape[axis + 1 :]))


def _stacked(c: Context, lasts: Sequence[Value]) -> Value:
    raised = [c.reshape(x, (1, *x.shape)) for x in lasts]
    return raised[0] if len(raised) == 1 else c.apply("Concat", *raised, axis=0)


def _recurrent(type_: str, **attributes: AttributeValue) -> Handler:
    def handler(
        c: Context, x: Value, states: Value | Sequence[Value], weights: Sequence[Value], *rest: object
    ) -> tuple[Value, ...]:
        several = [states] if isinstance(states, Value) else states
        y, lasts = _layers(c, type_, x, several, weights, *rest, **attributes)  # type: ignore[arg-type]  # PyTorch's arguments by position
        return (y, *(_stacked(c, last) for last in lasts))

    return handler


HANDLERS |= {
    "lstm.input": _recurrent("LSTM"),
    "gru.input": _recurrent("GRU", linear_before_reset=1),
    "rnn_tanh.input": _recurrent("RNN"),
    "rnn_relu.input": _recurrent("RNN", nonlinearity="Relu"),
}
