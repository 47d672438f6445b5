"""Layers: those that ONNX writes in another way, and those that are put together from other operators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from solver.importers.onnx.network import Constant, Lowering, Site, Tensor, Unsupported, Value

__all__ = ["LOWERINGS"]

#: Input of a recurrent operator: the length of each sequence.
_LENGTHS = 4
#: Activations of recurrent layers that the cells have.
_ACTIVATIONS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"]}


def _softmax(site: Site) -> Value:
    """Softmax. Before opset 13 it flattens all axes from `axis` on."""
    x = site.tensor(0)
    axis = site.get("axis", -1 if site.opset >= 13 else 1) % x.rank
    if site.opset >= 13 or axis == x.rank - 1:
        return site.emit(site.op, x, axis=axis)
    flat = site.reshape(x, [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])
    return site.reshape(site.emit(site.op, flat, axis=1), x.shape)


def _dropout(site: Site) -> Sequence[Value]:
    """Dropout, only with a training mode that is known to be true, as ONNX defines it."""
    ratio = site.scalar(1, site.get("ratio", 0.5)) if site.opset >= 12 else site.get("ratio", 0.5)
    trains = bool(site.scalar(2, 0.0)) if site.opset >= 12 else False
    if len(site.is_read) > 1 and site.is_read[1]:
        raise Unsupported("its mask is used")
    if not trains or not ratio:
        return [site.value(0)]
    seed = site.get("seed")
    return [
        site.emit("Dropout", site.value(0), ratio=float(ratio or 0.0), seed=abs(int(seed)) if seed else None)
    ]


def _batch_normalization(site: Site) -> Sequence[Value]:
    """The walk has decided on the mode; the statistics are states, so their outputs are not needed."""
    y = site.emit(
        "BatchNormalization",
        *(site.value(i) for i in range(5)),
        epsilon=site.get("epsilon", 1e-5),
        momentum=site.get("momentum", 0.9),
        training_mode=site.get("training_mode", 0),
    )
    return [y, *(site.value(i) for i in (3, 4))][: len(site.is_read)]


def _layer_normalization(site: Site) -> Value:
    """Scale and shift that broadcast get the shape of the axes that are normalised."""
    if any(site.is_read[1:]):
        raise Unsupported("its mean or deviation is used")
    x = site.tensor(0)
    axis = site.get("axis", -1) % x.rank
    weights = [_broadcast_weight(site, i, x.shape[axis:]) if site.has(i) else None for i in (1, 2)]
    return site.emit("LayerNormalization", x, *weights, axis=axis, epsilon=site.get("epsilon", 1e-5))


def _broadcast_weight(site: Site, position: int, shape: Sequence[int]) -> Value:
    weight = site.value(position)
    if weight.shape == tuple(shape):
        return weight
    if isinstance(weight, Constant):
        return Constant(np.broadcast_to(weight.array, shape).copy())
    if math.prod(weight.shape) == math.prod(shape):
        return site.reshape(weight, shape)
    return site.emit("Expand", weight, site.integers(shape))


def _rms_normalization(site: Site) -> Value:
    x = site.tensor(0)
    axis = site.get("axis", -1) % x.rank
    scale = _broadcast_weight(site, 1, x.shape[axis:])
    return site.emit("RMSNormalization", x, scale, axis=axis, epsilon=site.get("epsilon", 1e-5))


def _group_normalization(site: Site) -> Value:
    """GroupNormalization, with a scale for each channel since opset 21 and for each group before."""
    x, groups = site.tensor(0), site.attributes["num_groups"]
    weights: list[Value] = []
    for position in (1, 2):
        weight = site.value(position)
        if weight.shape == (groups,) and x.shape[1] != groups:
            each = x.shape[1] // groups
            wide = site.emit("Expand", site.reshape(weight, [groups, 1]), site.integers([groups, each]))
            weight = site.reshape(wide, [x.shape[1]])
        weights.append(weight)
    return site.emit("GroupNormalization", x, *weights, epsilon=site.get("epsilon", 1e-5), num_groups=groups)


def _global_max_pool(site: Site) -> Value:
    x = site.tensor(0)
    return site.emit("ReduceMax", x, axes=tuple(range(2, x.rank)), keepdims=1)


def _lrn(site: Site) -> Value:
    """Local response normalisation: the mean of squares over neighbouring channels is an average pooling."""
    x, size = site.tensor(0), site.attributes["size"]
    alpha, beta, bias = site.get("alpha", 1e-4), site.get("beta", 0.75), site.get("bias", 1.0)
    n, c, *rest = x.shape
    squares = site.reshape(site.emit("Mul", x, x), [n, 1, c, math.prod(rest)])
    before, after = (size - 1) // 2, size // 2
    mean = site.emit(
        "AveragePool", squares, kernel_shape=(size, 1), pads=(before, 0, after, 0), count_include_pad=1
    )
    scaled = site.emit("Mul", site.reshape(mean, x.shape), site.number(alpha, x))
    grown = site.emit("Pow", site.emit("Add", scaled, site.number(bias, x)), site.number(beta, x))
    return site.emit("Div", x, grown)


def _mean_variance(site: Site) -> Value:
    x, axes = site.tensor(0), tuple(site.get("axes", (0, 2, 3)))
    centred = site.emit("Sub", x, site.emit("ReduceMean", x, axes=axes, keepdims=1))
    variance = site.emit("ReduceMean", site.emit("Mul", centred, centred), axes=axes, keepdims=1)
    deviation = site.emit("Add", site.emit("Sqrt", variance), site.number(1e-9, x))
    return site.emit("Div", centred, deviation)


def _recurrent(site: Site) -> Sequence[Value]:
    attributes: dict[str, Any] = dict(site.attributes)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    activations = attributes.pop("activations", None)
    if site.op == "RNN":
        names = activations or ["Tanh"] * directions
        if len(set(names)) > 1 or names[0] not in ("Tanh", "Relu", "Sigmoid"):
            raise Unsupported(f"its activations are {', '.join(names)}")
        attributes["nonlinearity"] = names[0]
    elif activations is not None and list(activations) != _ACTIVATIONS[site.op] * directions:
        raise Unsupported(f"its activations are {', '.join(activations)}")
    if attributes.pop("clip", 0.0) or attributes.pop("input_forget", 0):
        raise Unsupported("it clips, or couples the input and forget gates")
    for key in ("activation_alpha", "activation_beta"):
        attributes.pop(key, None)
    inputs = [site.inputs[i] if site.has(i) else None for i in range(len(site.inputs))]
    if len(inputs) > _LENGTHS and inputs[_LENGTHS] is not None:
        inputs[_LENGTHS] = _mask_of_lengths(site)
    count = 3 if site.op == "LSTM" else 2
    outputs = [*site.is_read, *[False] * count][:count]
    return site.emit_all(site.op, *inputs, outputs=outputs if any(outputs) else [True], **attributes)


def _mask_of_lengths(site: Site) -> Value | None:
    """The steps that belong to each sequence, [time, batch, 1]; None where all do."""
    steps, batch = site.shape(0)[:2][:: -1 if site.get("layout", 0) else 1]
    if site.shape(_LENGTHS) != (batch,):
        raise Unsupported(f"it has lengths of shape {list(site.shape(_LENGTHS))} for a batch of {batch}")
    lengths = site.known(_LENGTHS)
    if lengths is None:
        rows = site.reshape(site.value(_LENGTHS), [1, batch, 1])
        times = np.arange(steps, dtype=rows.type.dtype.numpy).reshape(steps, 1, 1)
        return site.emit("Less", Constant(times), rows)
    mask = np.arange(steps)[:, None, None] < lengths[None, :, None]
    return None if mask.all() else Constant(mask)


def _conv(site: Site) -> Value:
    attributes = {key: value for key, value in site.attributes.items() if key != "kernel_shape"}
    if attributes.get("auto_pad", "NOTSET") != "NOTSET":
        attributes.pop("pads", None)
    return site.emit(site.op, *(site.inputs[i] for i in range(len(site.inputs))), **attributes)


# ---------------------------------------------------------------------------------- random numbers, losses


def _random(site: Site) -> Value:
    """Random numbers of a shape, drawn in each iteration."""
    if site.op.endswith("Like"):
        shape: Sequence[int] = site.shape()
    else:
        shape = tuple(site.attributes["shape"])
    double = site.get("dtype", 11 if site.op.endswith("Like") and _is_double(site) else 1) == 11
    if "Normal" in site.op:
        return _normal(site, shape, double=double)
    return _uniform(site, shape, site.get("low", 0.0), site.get("high", 1.0), double=double)


def _is_double(site: Site) -> bool:
    value = site.value(0)
    dtype = value.type.dtype.numpy if isinstance(value, Tensor) else value.array.dtype
    return bool(dtype == np.float64)


def _uniform(site: Site, shape: Sequence[int], low: float, high: float, *, double: bool) -> Tensor:
    seed = int(abs(site.get("seed", 0.0)))
    return site.emit(
        "RandomUniform",
        site.integers(shape),
        low=float(low),
        high=float(high),
        seed=seed or None,
        dtype=11 if double else None,
    )


def _normal(site: Site, shape: Sequence[int], *, double: bool) -> Value:
    """Box and Muller, 1958: sqrt(-2 log u) cos(2 pi v)."""
    u = _uniform(site, shape, 2.0**-24, 1.0, double=double)
    v = _uniform(site, shape, 0.0, 2 * math.pi, double=double)
    radius = site.emit("Sqrt", site.emit("Mul", site.emit("Log", u), site.number(-2, u)))
    normal: Tensor = site.emit("Mul", radius, site.emit("Cos", v))
    scaled = site.emit("Mul", normal, site.number(site.get("scale", 1.0), normal))
    return site.emit("Add", scaled, site.number(site.get("mean", 0.0), normal))


def _bernoulli(site: Site) -> Value:
    """1 with the probability that X says."""
    x = site.tensor(0)
    drawn = _uniform(site, x.shape, 0.0, 1.0, double=_is_double(site))
    return site.cast(site.emit("Less", drawn, x), x.type.dtype)


def _cross_entropy(site: Site) -> Sequence[Value]:
    """Scores [N, C, ...] and classes [N, ...]: the classes go to the last axis.

    Classes may have weights, and one of them may be ignored: the mean is over the weights of what counts.
    Without weights the operator itself ignores a class.
    """
    x, target = site.tensor(0), site.value(1)
    if len(site.is_read) > 1 and site.is_read[1]:
        raise Unsupported("its logarithms are used")
    perm = (0, *range(2, x.rank), 1)
    scores = site.emit("Transpose", x, perm=perm) if x.rank > 2 else x
    reduction, ignored = site.get("reduction", "mean"), site.get("ignore_index")
    counts: Value | None = None
    ignore: dict[str, int] = {}
    if not site.has(2):
        ignore = {} if ignored is None else {"ignore_index": ignored}
    elif ignored is not None:
        mask = site.emit("Equal", target, site.number(ignored, site.as_tensor(target)))
        target = site.emit("Where", mask, site.number(0, site.as_tensor(target)), target)
        share: Value = site.emit("Gather", site.value(2), target)
        counts = site.emit("Where", mask, site.number(0, x), share)
    else:
        counts = site.emit("Gather", site.value(2), target)
    loss = site.emit(
        "CategoricalCrossEntropy",
        scores,
        target,
        sparse=1,
        from_logits=1,
        reduction=reduction if counts is None else "none",
        **ignore,
    )
    if counts is None:
        return [loss]
    weighed = site.emit("Mul", loss, counts)
    if reduction == "none":
        return [weighed]
    total = site.emit("ReduceSum", weighed, keepdims=0)
    return [
        total if reduction == "sum" else site.emit("Div", total, site.emit("ReduceSum", counts, keepdims=0))
    ]


LOWERINGS: Mapping[str, Lowering] = {
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "Dropout": _dropout,
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "SimplifiedLayerNormalization": _rms_normalization,
    "GroupNormalization": _group_normalization,
    "GlobalMaxPool": _global_max_pool,
    "LRN": _lrn,
    "AveragePool": lambda site: site.emit("AveragePool", site.value(0), **site.attributes),
    "MeanVarianceNormalization": _mean_variance,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "Conv": _conv,
    "ConvTranspose": _conv,
    "RandomUniform": _random,
    "RandomUniformLike": _random,
    "RandomNormal": _random,
    "RandomNormalLike": _random,
    "Bernoulli": _bernoulli,
    "SoftmaxCrossEntropyLoss": _cross_entropy,
    "NegativeLogLikelihoodLoss": _cross_entropy,
}
