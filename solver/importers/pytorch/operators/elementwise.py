"""Functions of elements: activations, arithmetic with PyTorch's rules for types, comparisons, random numbers.

Random numbers are drawn anew in each iteration. They are others than PyTorch would draw.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from solver.graph import AttributeValue, DType
from solver.importers.pytorch.capture import torch
from solver.importers.pytorch.context import Context, Handler, UnsupportedError, Value, and_nothing

__all__ = ["HANDLERS", "where"]

_Operand = Value | float

#: The constants of SELU (Klambauer et al., 2017).
_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _unary(type_: str, **attributes: AttributeValue) -> Handler:
    """A function that is an operator here; whole numbers become what PyTorch makes of them."""

    def handler(c: Context, x: Value, *_: object, **__: object) -> Value:
        return c.apply(type_, c.cast(x, c.result.dtype), **attributes)

    return handler


# ------------------------------------------------------------------------------------- activations


def _clip(c: Context, x: Value, low: Any = None, high: Any = None) -> Value:
    """Clips between bounds that are numbers, or tensors that broadcast."""
    if not isinstance(low, Value) and not isinstance(high, Value) and c.result.dtype.is_floating:
        bounds = {key: float(bound) for key, bound in (("min", low), ("max", high)) if bound is not None}
        return c.apply("Clip", c.cast(x, c.result.dtype), **bounds, inclusive=1)
    for bound, type_ in ((low, "Greater"), (high, "Less")):
        x = x if bound is None else _extreme(type_, c, x, bound)
    return x


def _celu(c: Context, x: Value, alpha: float = 1.0) -> Value:
    """alpha elu(X / alpha)."""
    if alpha == 1:
        return _elu(c, x)
    inner = _elu(c, c.apply("Mul", x, c.number(1 / alpha, x.dtype)))
    return c.apply("Mul", inner, c.number(alpha, x.dtype))


def _elu(c: Context, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Value:
    if input_scale != 1:
        raise UnsupportedError("ELU with a scale of its input")
    y = c.apply("Elu", x, alpha=float(alpha))
    return y if scale == 1 else c.apply("Mul", y, c.number(scale, x.dtype))


def _softplus(c: Context, x: Value, beta: float = 1, threshold: float = 20) -> Value:
    """log(1 + exp(beta X)) / beta. The threshold above which PyTorch returns X makes no difference."""
    if beta != 1:
        x = c.apply("Mul", x, c.number(beta, x.dtype))
    y = c.apply("Softplus", x)
    return y if beta == 1 else c.apply("Mul", y, c.number(1 / beta, x.dtype))


def _glu(c: Context, x: Value, axis: int = -1) -> Value:
    halves = c.many("Split", [x], ("left", "right"), axis=axis % x.rank)
    return c.apply("Mul", halves[0], c.apply("Sigmoid", halves[1]))


def _softmax(type_: str) -> Handler:
    def handler(c: Context, x: Value, axis: int, *_: object, **__: object) -> Value:
        y = c.apply(type_, c.cast(x, c.result.dtype), axis=axis)
        if type_ == "LogSoftmax":
            c.origins[y.name] = (type_, (x, axis))
        return y

    return handler


def _dropout(c: Context, x: Value, ratio: float, training: bool = True) -> Value:
    if not training or ratio == 0:
        return x
    if ratio >= 1:
        raise UnsupportedError("dropout of everything")
    return c.apply("Dropout", x, ratio=float(ratio))


def _bernoulli(c: Context, x: Value, share: float = 0.5, *_: object) -> Value:
    """Ones with this probability, zeros else: what dropout leaves of ones, made as large as it found them."""
    if not 0 < share < 1:
        return c.filled("share", round(share), c.result)
    dropped = c.apply("Dropout", c.filled("ones", 1, c.result), ratio=1 - float(share))
    return c.apply("Mul", dropped, c.number(share, c.result.dtype))


# -------------------------------------------------------------------------------------- arithmetic


def _binary(type_: str) -> Handler:
    def handler(c: Context, a: _Operand, b: _Operand, *, alpha: float = 1) -> Value:
        dtype = _numeric_result(c)
        right = c.operand(b, dtype)
        if alpha != 1:
            right = c.apply("Mul", right, c.number(alpha, dtype))
        return c.apply(type_, c.operand(a, dtype), right)

    return handler


def _numeric_result(c: Context) -> DType:
    """The type of a result of numbers; truth values are none."""
    if c.result.dtype is DType.BOOL:
        raise UnsupportedError("arithmetic on truth values")
    return c.result.dtype


def _floating_result(c: Context) -> DType:
    dtype = c.result.dtype
    if not dtype.is_floating:
        raise UnsupportedError(f"arithmetic on {dtype.value} that is not constant")
    return dtype


def _rsub(c: Context, a: _Operand, b: _Operand, alpha: float = 1) -> Value:
    if alpha != 1:
        raise UnsupportedError("subtraction with a factor")
    difference: Value = _binary("Sub")(c, b, a)
    return difference


def _div(c: Context, a: _Operand, b: _Operand, *, rounding_mode: str | None = None) -> Value:
    """Quotients of whole numbers that are rounded are taken in double precision, exact below 2^53."""
    dtype = _numeric_result(c)
    if rounding_mode is None:
        return c.apply("Div", c.operand(a, dtype), c.operand(b, dtype))
    wide = dtype if dtype.is_floating else DType.FLOAT64
    quotient = c.apply("Div", c.operand(a, wide), c.operand(b, wide))
    if rounding_mode == "floor":
        return c.cast(c.apply("Floor", quotient), dtype)
    return c.cast(_truncated(c, quotient), dtype)


def _truncated(c: Context, x: Value) -> Value:
    """Rounds towards zero."""
    return c.apply("Mul", c.apply("Sign", x), c.apply("Floor", c.apply("Abs", x)))


def _remainder(rounding_mode: str) -> Handler:
    """A less a multiple of B: the largest one below A (floor), or the nearest one towards zero (trunc)."""

    def handler(c: Context, a: _Operand, b: _Operand) -> Value:
        dtype = _numeric_result(c)
        quotient = _div(c, a, b, rounding_mode=rounding_mode)
        return c.apply("Sub", c.operand(a, dtype), c.apply("Mul", quotient, c.operand(b, dtype)))

    return handler


def _abs(c: Context, x: Value) -> Value:
    if x.dtype.is_floating:
        return c.apply("Abs", x)
    return c.apply("Where", c.apply("Less", x, c.number(0, x.dtype)), _neg(c, x), x)


def _neg(c: Context, x: Value) -> Value:
    """The negative; integers are multiplied by -1."""
    return c.apply("Neg", x) if x.dtype.is_floating else c.apply("Mul", x, c.number(-1, x.dtype))


def _pow(c: Context, a: _Operand, b: _Operand) -> Value:
    dtype = _floating_result(c)
    base = c.operand(a, dtype)
    if isinstance(b, Value):
        return c.apply("Pow", base, c.cast(b, dtype) if b.dtype.is_floating else b)
    match b:
        case 1:
            return base
        case 2:
            return c.apply("Mul", base, base)
        case 3:
            return c.apply("Mul", c.apply("Mul", base, base), base)
        case 0.5:
            return c.apply("Sqrt", base)
        case -0.5:
            return _rsqrt(c, base)
        case -1:
            return c.apply("Reciprocal", base)
    return c.apply("Pow", base, c.number(b, dtype))


def _rsqrt(c: Context, x: Value) -> Value:
    return c.apply("Reciprocal", c.apply("Sqrt", x))


def _log_of(base: float, c: Context, x: Value) -> Value:
    return c.apply("Mul", c.apply("Log", x), c.number(1 / math.log(base), x.dtype))


def _hyperbolic(type_: str) -> Handler:
    """(exp X + exp -X) / 2, or their difference: hyperbolic cosine and sine."""

    def handler(c: Context, x: Value) -> Value:
        both = c.apply(type_, c.apply("Exp", x), c.apply("Exp", c.apply("Neg", x)))
        return c.apply("Mul", both, c.number(0.5, x.dtype))

    return handler


def _addcmul(c: Context, x: Value, a: Value, b: Value, *, value: float = 1) -> Value:
    product = c.apply("Mul", a, b)
    return c.apply("Add", x, product if value == 1 else c.apply("Mul", product, c.number(value, x.dtype)))


def _lerp(c: Context, a: Value, b: Value, weight: _Operand) -> Value:
    return c.apply("Add", a, c.apply("Mul", c.apply("Sub", b, a), c.operand(weight, a.dtype)))


def _extreme(type_: str, c: Context, a: Value, b: _Operand) -> Value:
    """The greater or the less of two; where they are equal the derivative goes to the second."""
    left, right = c.operand(a, c.result.dtype), c.operand(b, c.result.dtype)
    return c.apply("Where", c.apply(type_, left, right), left, right)


# ----------------------------------------------------------------------------- comparisons, choices


def _compare(type_: str, c: Context, a: _Operand, b: _Operand) -> Value:
    """A comparison; operands of different element types are cast to the wider one."""
    dtypes = [x.dtype for x in (a, b) if isinstance(x, Value)]
    fraction = any(isinstance(x, float) and not isinstance(x, bool) for x in (a, b))
    dtype = max(dtypes, key=lambda d: (d.is_floating, d.itemsize))
    if fraction and not dtype.is_floating:
        dtype = DType.FLOAT32
    if dtype is DType.BOOL and type_ != "Equal":
        dtype = DType.UINT8
    return c.apply(type_, c.operand(a, dtype), c.operand(b, dtype))


def _logical(type_: str, c: Context, *operands: Value) -> Value:
    if any(x.dtype is not DType.BOOL for x in operands) and c.result.dtype is not DType.BOOL:
        raise UnsupportedError("bits of whole numbers")
    return c.apply(type_, *(c.cast(x, DType.BOOL) for x in operands))


def _xor(c: Context, a: Value, b: Value) -> Value:
    return c.apply("Not", _compare("Equal", c, c.cast(a, DType.BOOL), c.cast(b, DType.BOOL)))


def where(c: Context, condition: Value, a: _Operand, b: _Operand) -> Value:
    """`a` where the condition holds, `b` elsewhere."""
    dtype = c.result.dtype
    return c.apply("Where", c.cast(condition, DType.BOOL), c.operand(a, dtype), c.operand(b, dtype))


def _filled_like(number: float) -> Handler:
    """A tensor of one number, of which only type and shape are those of something else: it is constant.

    As PyTorch's tensor, so that what is made of it is computed at once.
    """

    def handler(c: Context, *_: object, **__: object) -> Any:
        type_ = c.result
        return torch().full(type_.shape, number, dtype=getattr(torch(), type_.dtype.value))

    return handler


_UNARY = {
    "relu": "Relu",
    "sigmoid": "Sigmoid",
    "tanh": "Tanh",
    "silu": "Swish",
    "hardswish": "HardSwish",
    "exp": "Exp",
    "log": "Log",
    "sqrt": "Sqrt",
    "reciprocal": "Reciprocal",
    "erf": "Erf",
    "sin": "Sin",
    "cos": "Cos",
    "sign": "Sign",
    "floor": "Floor",
    "ceil": "Ceil",
    "round": "Round",
}

_COMPARISONS = {"eq": "Equal", "gt": "Greater", "ge": "GreaterOrEqual", "lt": "Less", "le": "LessOrEqual"}

HANDLERS: dict[str, Handler] = {
    **{f"{name}.default": _unary(type_) for name, type_ in _UNARY.items()},
    "hardsigmoid.default": _unary("HardSigmoid", alpha=1 / 6, beta=0.5),
    "relu6.default": _unary("Clip", min=0.0, max=6.0),
    "hardtanh.default": lambda c, x, low=-1.0, high=1.0: c.apply("Clip", x, min=float(low), max=float(high)),
    "clamp.default": _clip,
    "clamp.Tensor": _clip,
    "clamp_min.default": _clip,
    "clamp_max.default": lambda c, x, high: _clip(c, x, None, high),
    "gelu.default": lambda c, x, *, approximate='none': c.apply("Gelu", x, approximate=approximate),
    "elu.default": _elu,
    "selu.default": lambda c, x: _elu(c, x, _SELU_ALPHA, _SELU_SCALE),
    "celu.default": _celu,
    "leaky_relu.default": lambda c, x, slope=0.01: c.apply("LeakyRelu", x, alpha=float(slope)),
    # The slope is that of the channels, axis 1.
    "prelu.default": lambda c, x, slope: c.apply(
        "PRelu", x, c.reshape(slope, (*slope.shape, *(1,) * max(0, x.rank - 2)))
    ),
    "_prelu_kernel.default": lambda c, x, slope: c.apply("PRelu", x, slope),
    "softplus.default": _softplus,
    "log_sigmoid.default": lambda c, x: c.apply("Neg", _softplus(c, c.apply("Neg", x))),
    "mish.default": lambda c, x: c.apply("Mul", x, c.apply("Tanh", _softplus(c, x))),
    "glu.default": _glu,
    "softmax.int": _softmax("Softmax"),
    "_softmax.default": _softmax("Softmax"),
    "log_softmax.int": _softmax("LogSoftmax"),
    "_log_softmax.default": _softmax("LogSoftmax"),
    "dropout.default": _dropout,
    "native_dropout.default": and_nothing(
        lambda c, x, ratio, training=True: _dropout(c, x, ratio, training is not False), 1
    ),
    "bernoulli.p": _bernoulli,
    **{f"{name}.{kind}": _binary(type_) for name, type_ in (("add", "Add"), ("sub", "Sub"), ("mul", "Mul"))
       for kind in ("Tensor", "Scalar")},
    **{f"rsub.{kind}": _rsub for kind in ("Tensor", "Scalar")},
    **{f"div.{kind}": _div for kind in ("Tensor", "Scalar", "Tensor_mode", "Scalar_mode")},
    **{f"pow.{kind}": _pow for kind in ("Tensor_Scalar", "Tensor_Tensor", "Scalar")},
    **{f"floor_divide.{kind}": partial(_div, rounding_mode="floor") for kind in ("default", "Scalar")},
    **{f"remainder.{kind}": _remainder("floor") for kind in ("Tensor", "Scalar")},
    **{f"fmod.{kind}": _remainder("trunc") for kind in ("Tensor", "Scalar")},
    "trunc.default": _truncated,
    "isnan.default": lambda c, x: c.apply("IsNaN", x),
    "abs.default": _abs,
    "neg.default": _neg,
    "rsqrt.default": _rsqrt,
    "square.default": lambda c, x: c.apply("Mul", x, x),
    "log2.default": partial(_log_of, 2),
    "log10.default": partial(_log_of, 10),
    "log1p.default": lambda c, x: c.apply("Log", c.apply("Add", x, c.number(1, x.dtype))),
    "expm1.default": lambda c, x: c.apply("Sub", c.apply("Exp", x), c.number(1, x.dtype)),
    "exp2.default": lambda c, x: _pow(c, 2.0, x),
    "erfc.default": lambda c, x: c.apply("Sub", c.number(1, x.dtype), c.apply("Erf", x)),
    "tan.default": lambda c, x: c.apply("Div", c.apply("Sin", x), c.apply("Cos", x)),
    "cosh.default": _hyperbolic("Add"),
    "sinh.default": _hyperbolic("Sub"),
    "addcmul.default": _addcmul,
    "lerp.Scalar": _lerp,
    "lerp.Tensor": _lerp,
    "maximum.default": partial(_extreme, "Greater"),
    "minimum.default": partial(_extreme, "Less"),
    **{f"{name}.{kind}": partial(_compare, type_) for name, type_ in _COMPARISONS.items()
       for kind in ("Tensor", "Scalar")},
    **dict.fromkeys(("ne.Tensor", "ne.Scalar"), lambda c, a, b: c.apply("Not", _compare("Equal", c, a, b))),
    **{f"{name}.{kind}": partial(_logical, type_) for name, type_ in (("and", "And"), ("or", "Or"))
       for name, kind in ((f"logical_{name}", "default"), (f"bitwise_{name}", "Tensor"))},
    **{f"{name}.default": partial(_logical, "Not") for name in ("logical_not", "bitwise_not")},
    "logical_xor.default": _xor,
    "bitwise_xor.Tensor": _xor,
    "where.self": where,
    "where.ScalarOther": where,
    "where.ScalarSelf": where,
    "where.Scalar": where,
    **{f"masked_fill.{kind}": lambda c, x, mask, number: where(c, mask, number, x)
       for kind in ("Scalar", "Tensor")},
    "zeros_like.default": _filled_like(0),
    "ones_like.default": _filled_like(1),
    "new_zeros.default": _filled_like(0),
    "new_ones.default": _filled_like(1),
    "full_like.default": lambda c, x, number, **_: _filled_like(number)(c),
    "new_full.default": lambda c, x, size, number, **_: _filled_like(number)(c),
}  # fmt: skip


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


HANDLERS |= {
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
