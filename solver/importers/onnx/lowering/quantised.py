"""Quantised operators: dequantise, compute, quantise.

Sums of products of integers are computed in floats that hold them exactly: in float32 where no sum can reach
2^24, else in float64. Results are y = saturate(round(sum / s) + zero point), with halves to the even number
and s = y_scale / (x_scale * w_scale) in the type of the sum.

    DequantizeLinear QuantizeLinear             as they are
    ConvInteger MatMulInteger                   sums as int32
    QLinearConv QLinearMatMul QGemm             sums, then quantised
    MatMulIntegerToFloat DynamicQuantizeMatMul  sums, then scaled
    QLinearAdd QLinearConcat QLinearSigmoid ... on floats between a dequantisation and a quantisation
    MatMulNBits                                 a product with the weight as floats
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from solver.graph import Array, DType
from solver.importers.narrowed import Origin
from solver.importers.onnx.network import Constant, Lowering, Site, Tensor, Unsupported, Value

__all__ = ["LOWERINGS", "SCALES"]

#: Whole numbers below this are exact in float32.
_FLOAT32_EXACT_BELOW = 2**24
#: Inputs of a quantised operator at most: those of a QLinearConcat of 99 tensors.
_MAX_INPUTS = 300
#: The largest distance of a quantised element from its zero point.
_MAX_ZERO_DISTANCE = 255


def _optional(site: Site, position: int) -> Value | None:
    return site.value(position) if site.has(position) else None


def _float(site: Site, x: Value, scale: Value, zero: Value | None, axis: int = 1) -> Tensor:
    """Quantised elements as floats of the scale's type."""
    return site.emit("DequantizeLinear", x, scale, zero, axis=axis)


def _quantised(site: Site, x: Tensor, scale: Value, zero: Value | None, like: DType, axis: int = 1) -> Tensor:
    """Floats as elements of the zero point's type, or of the type `like`."""
    asked = None if zero is not None else 3 if like is DType.INT8 else 2
    return site.emit("QuantizeLinear", x, scale, zero, axis=axis, output_dtype=asked)


def _sums_type(site: Site, weight: int, zero: int, terms: int, bias: Value | None = None) -> DType:
    """The type in which sums of `terms` products are exact; a weight that is known bounds them closer."""
    largest = terms * _MAX_ZERO_DISTANCE * _MAX_ZERO_DISTANCE
    values = site.known(weight)
    if values is not None and values.size:
        offsets = site.known(zero) if site.has(zero) else np.zeros((), np.int64)
        if offsets is not None:
            distance = sum(int(np.abs(each.astype(np.int64)).max()) for each in (values, offsets))
            largest = terms * _MAX_ZERO_DISTANCE * min(distance, _MAX_ZERO_DISTANCE)
    if isinstance(bias, Constant):
        largest += int(np.abs(bias.array.astype(np.int64)).max(initial=0))
    elif bias is not None:
        largest = _FLOAT32_EXACT_BELOW
    return DType.FLOAT32 if largest < _FLOAT32_EXACT_BELOW else DType.FLOAT64


def _centred(site: Site, position: int, zero: int, dtype: DType, axis: int = 1) -> Tensor:
    """Elements less their zero point, as floats."""
    shape = site.shape(zero) if site.has(zero) else ()
    one = Constant(np.ones(shape, dtype.numpy))
    return _float(site, site.value(position), one, _optional(site, zero), axis)


_WINDOW = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


def _convolved(site: Site, x: int, x_zero: int, w: int, w_zero: int, bias: int | None = None) -> Tensor:
    """Sums of a convolution, with the bias, in floats."""
    added = _optional(site, bias) if bias is not None else None
    shape = site.shape(w)
    dtype = _sums_type(site, w, w_zero, int(np.prod(shape[1:])), added)
    data, weight = _centred(site, x, x_zero, dtype), _centred(site, w, w_zero, dtype, axis=0)
    attributes: dict[str, Any] = {key: site.attributes[key] for key in _WINDOW if key in site.attributes}
    return site.emit("Conv", data, weight, None if added is None else site.cast(added, dtype), **attributes)


def _multiplied(site: Site, a: int, a_zero: int, b: int, b_zero: int) -> Tensor:
    """Sums of a product of matrices, in floats. Zero points of `a` are for rows, those of `b` for columns."""
    left, right = site.shape(a), site.shape(b)
    dtype = _sums_type(site, b, b_zero, left[-1])
    rows = _centred(site, a, a_zero, dtype, axis=max(0, len(left) - 2))
    return site.emit("MatMul", rows, _centred(site, b, b_zero, dtype, axis=len(right) - 1))


def _quotient_of_scales(site: Site, left: int, right: int, result: int, dtype: DType) -> Value:
    """y_scale / (x_scale * w_scale) of three inputs."""
    known = [site.known(position) for position in (left, right, result)]
    if all(values is not None for values in known):
        one, other, divided = (np.asarray(values, np.float64) for values in known)
        with np.errstate(all="ignore"):  # scales of damaged files may be 0
            quotient = np.asarray(divided / (one * other), dtype.numpy)
        return Constant(quotient.reshape(()) if quotient.size == 1 else quotient)
    product = site.emit("Mul", site.cast(site.value(left), dtype), site.cast(site.value(right), dtype))
    return site.emit("Div", site.cast(site.value(result), dtype), product)


def _qlinear_conv(site: Site) -> Value:
    sums = _convolved(site, 0, 2, 3, 5, bias=8)
    scale = _quotient_of_scales(site, 1, 4, 6, sums.type.dtype)
    return _quantised(site, sums, scale, _optional(site, 7), site.dtype(0))


def _qlinear_matmul(site: Site) -> Value:
    sums = _multiplied(site, 0, 2, 3, 5)
    scale = _quotient_of_scales(site, 1, 4, 6, sums.type.dtype)
    return _quantised(site, sums, scale, _optional(site, 7), site.dtype(0), axis=max(0, sums.rank - 1))


def _matmul_to_float(site: Site) -> Value:
    """com.microsoft: A, B, scale of A, scale of B, zero points of both, bias."""
    return _scaled_sums(site, _multiplied(site, 0, 4, 1, 5), site.value(2), site.value(3), _optional(site, 6))


def _scaled_sums(site: Site, sums: Tensor, left: Value, right: Value, bias: Value | None) -> Tensor:
    dtype = site.as_tensor(left).type.dtype
    scaled = site.emit("Mul", site.cast(sums, dtype), site.emit("Mul", left, right))
    return scaled if bias is None else site.emit("Add", scaled, bias)


def _qgemm(site: Site) -> Value:
    """com.microsoft: A, scale, zero point, B, scale, zero point, C (int32), scale and zero point of Y."""
    if site.get("alpha", 1.0) != 1.0:
        raise Unsupported(f"alpha is {site.attributes['alpha']}")
    added = _optional(site, 6)
    left, right = site.shape(0), site.shape(3)
    turned, columns = site.get("transA", 0), site.get("transB", 0)
    dtype = _sums_type(site, 3, 5, left[0] if turned else left[1], added)
    data = _centred(site, 0, 2, dtype)
    weight = _centred(site, 3, 5, dtype, axis=0 if columns else len(right) - 1)
    bias = None if added is None else site.cast(added, dtype)
    sums = site.emit("Gemm", data, weight, bias, transA=turned, transB=columns)
    if not site.has(7):
        return _scaled_sums(site, sums, site.value(1), site.value(4), None)
    scale = _quotient_of_scales(site, 1, 4, 7, dtype)
    return _quantised(site, sums, scale, _optional(site, 8), site.dtype(0))


def _dynamic_matmul(site: Site) -> Value:
    """com.microsoft: A is quantised by its own range; B, its scale and zero point, bias."""
    x = site.tensor(0)
    data, scale, zero = _dynamically(site, x)
    inner = Site(site.op, site.name, site.opset, {}, [data, site.value(1), zero, _optional(site, 3)], [True],
                 site.network, site.written)  # fmt: skip
    sums = _multiplied(inner, 0, 2, 1, 3)
    site.written = inner.written
    return _scaled_sums(site, sums, scale, site.value(2), _optional(site, 4))


def _dynamically(site: Site, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """uint8 elements, scale and zero point by the range of X, which is made to contain 0.

    The range has no derivative either: one through the scale alone would not be that of the elements.
    """
    still, zero = site.emit("StopGradient", x), site.number(0, x)
    high, low = (_largest(site, still), site.emit("Neg", _largest(site, site.emit("Neg", still))))
    high, low = (
        site.emit("Where", site.emit(type_, bound, zero), bound, zero)
        for type_, bound in (("Greater", high), ("Less", low))
    )
    width = site.emit("Sub", high, low)
    scale = site.emit("Div", width, site.number(_MAX_ZERO_DISTANCE, x))
    scale = site.emit("Where", site.emit("Equal", scale, zero), site.number(1, x), scale)
    start = site.emit("Round", site.emit("Div", site.emit("Neg", low), scale))
    point = site.cast(site.emit("Clip", start, min=0.0, max=float(_MAX_ZERO_DISTANCE)), DType.UINT8)
    return site.emit("QuantizeLinear", x, scale, point), scale, point


def _largest(site: Site, x: Tensor) -> Tensor:
    return site.emit("ReduceMax", x, axes=tuple(range(x.rank)), keepdims=0) if x.rank else x


def _of_floats(operands: int, compute: Callable[[Site, Sequence[Tensor]], Tensor]) -> Lowering:
    """com.microsoft: `operands` times a tensor, its scale and zero point; then those of the result."""

    def lowering(site: Site) -> Value:
        floats = [
            _float(site, site.value(3 * k), site.value(3 * k + 1), _optional(site, 3 * k + 2))
            for k in range(operands)
        ]
        result = compute(site, floats)
        return _quantised(
            site, result, site.value(3 * operands), _optional(site, 3 * operands + 1), site.dtype(0)
        )

    return lowering


def _qlinear_concat(site: Site) -> Value:
    """com.microsoft: scale and zero point of the result, then those of each tensor behind it."""
    floats = [
        _float(site, site.value(k), site.value(k + 1), _optional(site, k + 2))
        for k in range(2, len(site.inputs), 3)
    ]
    joined = site.emit("Concat", *floats, axis=site.attributes["axis"])
    return _quantised(site, joined, site.value(0), _optional(site, 1), site.dtype(2))


def _pooled(site: Site, floats: Sequence[Tensor]) -> Tensor:
    if site.get("channels_last", 0):
        raise Unsupported("its channels are last")
    attributes = {key: value for key, value in site.attributes.items() if key != "channels_last"}
    return site.emit(site.op.removeprefix("QLinear"), floats[0], **attributes)


def _unary(type_: str, **defaults: Any) -> Lowering:
    def compute(site: Site, floats: Sequence[Tensor]) -> Tensor:
        return site.emit(type_, *floats, **{key: site.get(key, value) for key, value in defaults.items()})

    return _of_floats(1, compute)


def _softmax(site: Site) -> Value:
    x = _float(site, site.value(0), site.value(1), _optional(site, 2))
    axis = site.get("axis", -1)
    if site.get("opset", 13) < 13 and axis % x.rank != x.rank - 1:
        raise Unsupported("its axis is not the last one")
    shares = site.emit("Softmax", x, axis=axis)
    return _quantised(site, shares, site.value(3), _optional(site, 4), site.dtype(0))


def _matmul_nbits(site: Site) -> Value:
    """A product with a weight of 2, 4 or 8 bits an element, which becomes floats on import.

    ONNX Runtime's MatMulNBits: the weight [N, blocks, bytes] has the K elements of a row in blocks of
    `block_size`, the first one of each byte in its low bits; a scale, and maybe a zero point, for each block.
    """
    bits, size = int(site.get("bits", 4)), int(site.get("block_size", 0))
    rows, length = int(site.get("N", 0)), int(site.get("K", 0))
    blocks = -(-length // size) if size > 0 else 0
    packed = site.constant(1, "the weight")
    if bits not in (2, 4, 8) or packed.dtype != np.uint8 or packed.size * 8 != rows * blocks * size * bits:
        raise Unsupported(f"its weight is {packed.dtype}{list(packed.shape)} of {bits} bits an element")
    if site.has(4):
        raise Unsupported("its weight is in groups of an order of their own (g_idx)")
    scales = site.constant(2, "the scales").reshape(rows, blocks, 1)
    zero: Array | int = 2 ** (bits - 1)
    if site.has(3):
        zeros = site.constant(3, "the zero points")
        if zeros.dtype == np.uint8:
            zeros = _unpacked(zeros.reshape(rows, -1), bits)[:, :blocks]
        zero = zeros.reshape(rows, blocks, 1)
    elements = _unpacked(packed.reshape(rows, -1), bits).reshape(rows, blocks, size)
    weight = ((elements.astype(scales.dtype) - zero) * scales).reshape(rows, -1)[:, :length]
    parents = [value.origin for value in site.inputs[1:4] if isinstance(value, Constant) and value.origin]
    known = Constant(
        np.ascontiguousarray(weight.T, scales.dtype), f"{site.name}.weight", Origin(parents=tuple(parents))
    )
    product = site.emit("MatMul", site.value(0), known)
    return site.emit("Add", product, site.value(5)) if site.has(5) else product


def _unpacked(rows: Array, bits: int) -> Array:
    """Elements of `bits` bits, as many of them from each byte as it holds."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    elements: Array = (rows[..., np.newaxis] >> shifts) & (2**bits - 1)
    return elements.reshape(len(rows), -1)


LOWERINGS: Mapping[str, Lowering] = {
    "DequantizeLinear": lambda site: site.emit("DequantizeLinear", *site.inputs, **site.attributes),
    "QuantizeLinear": lambda site: site.emit("QuantizeLinear", *site.inputs, **site.attributes),
    "DynamicQuantizeLinear": lambda site: _dynamically(site, site.tensor(0)),
    "ConvInteger": lambda site: site.cast(_convolved(site, 0, 2, 1, 3), DType.INT32),
    "MatMulInteger": lambda site: site.cast(_multiplied(site, 0, 2, 1, 3), DType.INT32),
    "QLinearConv": _qlinear_conv,
    "QLinearMatMul": _qlinear_matmul,
    "QGemm": _qgemm,
    "MatMulIntegerToFloat": _matmul_to_float,
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "MatMulNBits": _matmul_nbits,
    "QLinearAdd": _of_floats(2, lambda site, floats: site.emit("Add", *floats)),
    "QLinearMul": _of_floats(2, lambda site, floats: site.emit("Mul", *floats)),
    "QLinearConcat": _qlinear_concat,
    "QLinearSoftmax": _softmax,
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearLeakyRelu": _unary("LeakyRelu", alpha=0.01),
    "QLinearAveragePool": _of_floats(1, _pooled),
    "QLinearGlobalAveragePool": _of_floats(1, _pooled),
}

#: Operator -> positions of scales, which are no weights.
SCALES: Mapping[str, frozenset[int]] = {
    **{type_: frozenset(range(_MAX_INPUTS)) for type_ in LOWERINGS if type_.startswith("Q")},
    **dict.fromkeys(("QuantizeLinear", "DequantizeLinear"), frozenset({1})),
    "MatMulIntegerToFloat": frozenset({2, 3}),
    "DynamicQuantizeMatMul": frozenset({2}),
    "MatMulNBits": frozenset({2, 3}),
}
