"""Operators that mean the same here, arithmetic put together from others, and operands that are known."""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial, reduce
from typing import Final

import numpy as np

from solver.graph import DType
from solver.importers.onnx.network import Constant, Lowering, Site, Tensor, Unsupported, Value
from solver.importers.recorder import product_of_slices

__all__ = ["LOWERINGS"]

#: Operator -> attributes that change nothing here and are left out.
_PLAIN: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(
        (
            *("Relu", "Sigmoid", "Tanh", "LeakyRelu", "Elu", "HardSigmoid", "HardSwish", "PRelu", "Gelu"),
            *("Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs", "Erf", "Sin", "Cos", "Softplus"),
            *("Asin", "Acos", "Atan", "Asinh", "Acosh", "Atanh"),
            *("Sign", "Floor", "Ceil", "Round", "IsNaN"),
            *("Add", "Sub", "Mul"),
            *("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "And", "Or", "Not"),
            *("Where", "Gather", "Transpose", "Gemm", "MatMul", "CumSum"),
            *("ReduceMean", "ReduceSum", "ReduceMax", "GlobalAveragePool"),
            *("Conv", "ConvTranspose", "AveragePool", "InstanceNormalization"),
        ),
        frozenset(),
    ),
    "Add": frozenset({"axis", "broadcast"}),
}


def _plain(site: Site) -> Value:
    left_out = _PLAIN[site.op]
    attributes = {key: value for key, value in site.attributes.items() if key not in left_out}
    return site.emit(site.op, *site.inputs, **attributes)


def _max_pool(site: Site) -> Value:
    """Quantised elements are pooled as floats, which hold them exactly."""
    if any(site.is_read[1:]):
        raise Unsupported("a further output than the first is used")
    attributes = {key: value for key, value in site.attributes.items() if key != "storage_order"}
    x, dtype = site.value(0), site.dtype()
    wide = x if dtype.is_floating else site.cast(x, DType.FLOAT32)
    return site.cast(site.emit("MaxPool", wide, **attributes), dtype)


def _reduce(site: Site) -> Value:
    """A reduction with axes as an attribute; integers are summed in double precision, exact below 2^53."""
    axes = site.axes()
    if site.get("noop_with_empty_axes", 0) and not axes:
        return site.value(0)
    x, dtype = site.value(0), site.dtype()
    if not dtype.is_floating and site.op != "ReduceMax":
        x = site.cast(x, DType.FLOAT64)
    reduced = site.emit(site.op, x, axes=None if axes is None else axes, keepdims=site.get("keepdims", 1))
    return site.cast(reduced, dtype)


#: A norm is at least this, so that zeros stay zeros.
_MIN_NORM = 1e-30


def _pow(site: Site) -> Value:
    """Squares and roots by what costs less; X to the power of 1 is X."""
    x, power = site.tensor(0), site.known(1)
    if power is not None and power.size == 1 and len(power.shape) <= x.rank:
        exponent = float(power.reshape(-1)[0])
        if exponent == 1:
            return x
        if exponent == 2:
            return site.emit("Mul", x, x)
        if exponent == 3:
            return site.emit("Mul", site.emit("Mul", x, x), x)
        if exponent == 0.5:
            return site.emit("Sqrt", x)
        if exponent == -1:
            return site.emit("Reciprocal", x)
    return site.emit("Pow", x, site.value(1))


def _clip(site: Site) -> Value:
    """Clip, with known bounds as attributes."""
    low = site.get("min", site.scalar(1)) if site.known(1) is not None or not site.has(1) else None
    high = site.get("max", site.scalar(2)) if site.known(2) is not None or not site.has(2) else None
    open_low = site.value(1) if site.has(1) and low is None else None
    open_high = site.value(2) if site.has(2) and high is None else None
    if not site.dtype().is_floating:
        return _clip_integers(site)
    return site.emit(
        "Clip", site.value(0), open_low, open_high, min=_finite_bound(low), max=_finite_bound(high)
    )


def _clip_integers(site: Site) -> Value:
    """Clip of integers, by comparisons."""
    x = site.tensor(0)
    for position, type_ in ((1, "Greater"), (2, "Less")):
        if site.has(position):
            bound = site.value(position)
            x = site.emit("Where", site.emit(type_, x, bound), x, bound)
    return x


def _finite_bound(bound: float | None) -> float | None:
    """The bound, or None for the largest float, which exporters write where there is no bound."""
    return None if bound is None or abs(bound) >= float(np.finfo(np.float32).max) else bound


def _extreme(site: Site) -> Value:
    """Max and Min of several: the larger of two at a time, or a bound where one is a known number."""
    greater = site.op == "Max"

    def of_two(left: Value, right: Value) -> Value:
        for one, other in ((left, right), (right, left)):
            is_number = isinstance(one, Constant) and one.array.size == 1
            if is_number and isinstance(other, Tensor) and other.type.dtype.is_floating:
                assert isinstance(one, Constant)
                if one.rank <= other.rank:
                    bound = float(one.array.reshape(-1)[0])
                    return site.emit("Clip", other, **{"min" if greater else "max": bound})
        first, second = site.as_tensor(left), site.as_tensor(right)
        return site.emit("Where", site.emit("Greater" if greater else "Less", first, second), first, second)

    values: list[Value] = [site.value(i) for i in range(len(site.inputs))]
    return reduce(of_two, values)


def _sum(site: Site) -> Value:
    values: list[Value] = [site.value(i) for i in range(len(site.inputs))]
    return reduce(lambda a, b: site.emit("Add", a, b), values)


def _mean(site: Site) -> Value:
    total = site.as_tensor(_sum(site))
    return site.emit("Mul", total, site.number(1 / len(site.inputs), total))


def _softsign(site: Site) -> Value:
    x = site.tensor(0)
    return site.emit("Div", x, site.emit("Add", site.emit("Abs", x), site.number(1, x)))


def _mish(site: Site) -> Value:
    x = site.tensor(0)
    return site.emit("Mul", x, site.emit("Tanh", site.emit("Softplus", x)))


def _selu(site: Site) -> Value:
    x = site.tensor(0)
    alpha, gamma = site.get("alpha", 1.67326319217681884765625), site.get("gamma", 1.05070102214813232421875)
    return site.emit("Mul", site.emit("Elu", x, alpha=alpha), site.number(gamma, x))


def _celu(site: Site) -> Value:
    """alpha elu(x / alpha)."""
    x, alpha = site.tensor(0), site.get("alpha", 1.0)
    inner = site.emit("Elu", site.emit("Mul", x, site.number(1 / alpha, x)), alpha=1.0)
    return site.emit("Mul", inner, site.number(alpha, x))


def _thresholded(site: Site) -> Value:
    x, alpha = site.tensor(0), site.get("alpha", 1.0)
    above = site.emit("Greater", x, site.number(alpha, x))
    return site.emit("Where", above, x, site.number(0, x))


def _reduced(site: Site, x: Value, type_: str) -> Tensor:
    return site.emit(type_, x, axes=site.axes(), keepdims=site.get("keepdims", 1))


def _reduce_square(site: Site) -> Value:
    x = site.tensor(0)
    total = _reduced(site, site.emit("Mul", x, x), "ReduceSum")
    return site.emit("Sqrt", total) if site.op == "ReduceL2" else total


def _reduce_log_sum_exp(site: Site) -> Value:
    """max + log of the sum of exp(x - max), so that nothing overflows."""
    x, axes = site.tensor(0), site.axes()
    largest = site.emit("ReduceMax", x, axes=axes, keepdims=1)
    total = site.emit("ReduceSum", site.emit("Exp", site.emit("Sub", x, largest)), axes=axes, keepdims=1)
    result = site.emit("Add", site.emit("Log", total), largest)
    if site.get("keepdims", 1):
        return result
    reduced = {axis % x.rank for axis in axes} if axes else set(range(x.rank))
    return site.reshape(result, [size for i, size in enumerate(x.shape) if i not in reduced])


def _lp_normalization(site: Site) -> Value:
    x, axis = site.tensor(0), site.get("axis", -1)
    if site.get("p", 2) == 1:
        norm = site.emit("ReduceSum", site.emit("Abs", x), axes=(axis,), keepdims=1)
    else:
        norm = site.emit("Sqrt", site.emit("ReduceSum", site.emit("Mul", x, x), axes=(axis,), keepdims=1))
    return site.emit("Div", x, site.emit("Clip", norm, min=_MIN_NORM))


def _neg(site: Site) -> Value:
    if site.dtype().is_floating:
        return site.emit("Neg", site.value(0))
    x = site.tensor(0)
    return site.emit("Mul", x, site.number(-1, x))


def _cast(site: Site) -> Value:
    from solver.importers.onnx.read import ELEMENTS

    dtype = ELEMENTS.get(site.attributes["to"])
    if dtype is None:
        raise Unsupported(f"it casts to ONNX's element type {site.attributes['to']}")
    return site.cast(site.value(0), dtype)


def _einsum(site: Site) -> Value:
    """Products of matrices, one after the other: batch, rows and columns are told from the letters."""
    equation = site.attributes["equation"].replace(" ", "")
    terms, arrow, result = equation.partition("->")
    letters = terms.split(",")
    if len(letters) != len(site.inputs):
        raise Unsupported(f"the equation {equation!r} is not of {len(site.inputs)} operands")
    letters, result = _spelt_out(site, letters, result if arrow else _implied(terms))
    if any(len(set(term)) != len(term) for term in (*letters, result)):
        raise Unsupported(f"the equation {equation!r} repeats a letter")
    product = _summed(site, site.value(0), letters[0], "".join((*letters[1:], result)))
    for k, term in enumerate(letters[1:], 1):
        kept = "".join((*letters[k + 1 :], result))
        product = _product(site, product, _summed(site, site.value(k), term, product[1] + kept), kept)
    return _permuted(site, product[0], [product[1].index(letter) for letter in result])


_Lettered = tuple[Value, str]


def _summed(site: Site, x: Value, letters: str, still_read: str) -> _Lettered:
    """The operand summed over the axes whose letters no later term reads."""
    axes = tuple(i for i, letter in enumerate(letters) if letter not in still_read)
    if not axes:
        return x, letters
    kept = "".join(letter for letter in letters if letter in still_read)
    return site.emit("ReduceSum", x, axes=axes, keepdims=0), kept


def _implied(terms: str) -> str:
    """The result of an equation without an arrow: the letters that occur once, in alphabetical order."""
    dots = "..." if "..." in terms else ""
    return dots + "".join(sorted(c for c in set(terms) if c.isalpha() and terms.count(c) == 1))


def _spelt_out(site: Site, letters: Sequence[str], result: str) -> tuple[list[str], str]:
    """The terms with unused letters in place of dots; operands share the last of these letters."""
    free = [c for c in string.ascii_letters if not any(c in term for term in (*letters, result))]
    counts = [len(site.shape(i)) - len(term) + 3 if "..." in term else 0 for i, term in enumerate(letters)]
    most = max(counts)
    if min(counts) < 0 or most > len(free):
        raise Unsupported("its equation has more letters than an operand has axes")
    dots = "".join(free[:most])
    spelt = [term.replace("...", dots[most - count :]) for term, count in zip(letters, counts, strict=True)]
    if any(len(term) != len(site.shape(i)) for i, term in enumerate(spelt)):
        raise Unsupported("its equation has not one letter for each axis")
    return spelt, result.replace("...", dots)


def _permuted(site: Site, x: Value, order: Sequence[int]) -> Value:
    if list(order) == sorted(order):
        return x
    return site.emit("Transpose", x, perm=tuple(order))


def _product(site: Site, left: _Lettered, right: _Lettered, still_read: str) -> _Lettered:
    """The product of two operands, summed over letters that nothing behind it reads."""
    (a, ours), (b, theirs) = left, right
    sizes = {
        **dict(zip(ours, site.as_tensor(a).shape, strict=True)),
        **dict(zip(theirs, site.as_tensor(b).shape, strict=True)),
    }
    batch = [letter for letter in ours if letter in theirs and letter in still_read]
    inner = [letter for letter in ours if letter in theirs and letter not in still_read]
    rows = [letter for letter in ours if letter not in theirs]
    columns = [letter for letter in theirs if letter not in ours]
    order_out = "".join(batch + rows + columns)

    def moved(x: Value, letters: str, groups: Sequence[list[str]], shape: Sequence[int]) -> Tensor:
        order = [letters.index(letter) for group in groups for letter in group]
        return site.reshape(_permuted(site, x, order), shape)

    def size(group: list[str]) -> int:
        return math.prod(sizes[letter] for letter in group)

    outer = [sizes[letter] for letter in batch]
    if not inner:
        wide = [*outer, *(sizes[letter] for letter in rows), *(1 for _ in columns)]
        tall = [*outer, *(1 for _ in rows), *(sizes[letter] for letter in columns)]
        return site.emit(
            "Mul", moved(a, ours, [batch, rows], wide), moved(b, theirs, [batch, columns], tall)
        ), order_out
    one = moved(a, ours, [batch, rows, inner], [*outer, size(rows), size(inner)])
    other = moved(b, theirs, [batch, inner, columns], [*outer, size(inner), size(columns)])
    return site.reshape(site.emit("MatMul", one, other), [sizes[letter] for letter in order_out]), order_out


def _reduce_prod(site: Site) -> Value:
    x = site.tensor(0)
    axes = sorted({axis % x.rank for axis in site.axes() or range(x.rank)})
    for axis in axes:
        x = product_of_slices(x, axis, x.shape[axis], site.cut, partial(site.emit, "Mul"))
    if site.get("keepdims", 1):
        return x
    return site.reshape(x, [size for i, size in enumerate(x.shape) if i not in axes])


def _arg_extreme(site: Site) -> Value:
    """The place of the largest; of equal ones the first, or the last: the first from the other end."""
    x, axis = site.tensor(0), site.get("axis", 0) % len(site.shape())
    last, size = site.get("select_last_index", 0), x.shape[axis]
    if last:
        x = site.emit("Slice", x, *(site.integers([n]) for n in (-1, -size - 1, axis, -1)))
    place = site.emit("ArgTopK", x, k=1, axis=axis, largest=int(site.op == "ArgMax"))
    if last:
        place = site.emit("Sub", site.number(size - 1, place), place)
    if site.get("keepdims", 1):
        return place
    return site.reshape(place, [size for i, size in enumerate(place.shape) if i != axis])


def _div(site: Site) -> Value:
    """Quotients of whole numbers are taken in double precision, exact below 2^53, and cut off."""
    x = site.tensor(0)
    if x.type.dtype.is_floating:
        return site.emit("Div", x, site.value(1))
    return site.cast(_truncated(site, _quotient(site)), x.type.dtype)


def _quotient(site: Site) -> Tensor:
    dtype = site.dtype()
    wide = dtype if dtype.is_floating else DType.FLOAT64
    return site.emit("Div", site.cast(site.value(0), wide), site.cast(site.value(1), wide))


def _truncated(site: Site, x: Tensor) -> Tensor:
    """Rounds towards zero."""
    return site.emit("Mul", site.emit("Sign", x), site.emit("Floor", site.emit("Abs", x)))


def _mod(site: Site) -> Value:
    """The remainder, with the sign of the divisor or, for fmod, of the dividend."""
    quotient = _quotient(site)
    whole = _truncated(site, quotient) if site.get("fmod", 0) else site.emit("Floor", quotient)
    multiple = site.emit("Mul", site.cast(whole, site.dtype()), site.value(1))
    return site.emit("Sub", site.value(0), multiple)


def _hyperbolic(site: Site) -> Value:
    """(exp x + exp -x) / 2, or their difference: hyperbolic cosine and sine."""
    x = site.tensor(0)
    both = site.emit(
        "Add" if site.op == "Cosh" else "Sub", site.emit("Exp", x), site.emit("Exp", site.emit("Neg", x))
    )
    return site.emit("Mul", both, site.number(0.5, both))


def _is_inf(site: Site) -> Value:
    """Beyond the largest number; NaN is not."""
    x = site.tensor(0)
    largest = site.number(float(np.finfo(x.type.dtype.numpy).max), x)
    above, below = site.get("detect_positive", 1), site.get("detect_negative", 1)
    if above and below:
        return site.emit("Greater", site.emit("Abs", x), largest)
    if not above and not below:
        return Constant(np.zeros(x.shape, np.bool_))
    return site.emit("Greater", x if above else site.emit("Neg", x), largest)


def _hardmax(site: Site) -> Value:
    """1 for the first of the largest, 0 for all others. Before opset 13 all axes from `axis` on are one."""
    x = site.tensor(0)
    axis = site.get("axis", -1 if site.opset >= 13 else 1) % x.rank
    shape = x.shape
    if site.opset < 13:
        x = site.reshape(x, [math.prod(shape[:axis]), math.prod(shape[axis:])])
        axis = 1
    place = site.emit("ArgTopK", x, k=1, axis=axis, largest=1)
    along = [1] * x.rank
    along[axis] = x.shape[axis]
    hot = site.emit("Equal", Constant(np.arange(x.shape[axis], dtype=np.int64).reshape(along)), place)
    return site.reshape(site.emit("Where", hot, site.number(1, x), site.number(0, x)), shape)


def _lp_pool(site: Site) -> Value:
    """The root of a sum of powers: a mean over the whole window, times its size."""
    x, p = site.tensor(0), site.get("p", 2)
    size = math.prod(site.attributes.get("kernel_shape", x.shape[2:]))
    powers = site.emit("Mul", x, x) if p == 2 else site.emit("Pow", site.emit("Abs", x), site.number(p, x))
    if site.op == "GlobalLpPool":
        mean = site.emit("ReduceMean", powers, axes=tuple(range(2, x.rank)), keepdims=1)
    else:
        attributes = {key: value for key, value in site.attributes.items() if key != "p"}
        mean = site.emit("AveragePool", powers, count_include_pad=1, **attributes)
    total = site.emit("Mul", mean, site.number(size, mean))
    return site.emit("Sqrt", total) if p == 2 else site.emit("Pow", total, site.number(1 / p, total))


def _transform(site: Site) -> Value:
    """The discrete Fourier transform as products with cosines and sines; the last axis has both parts."""
    x = site.tensor(0)
    position = site.get("axis", 1) if site.opset < 20 else int(site.scalar(2, -2.0) or 0)
    axis = position % x.rank
    onesided, inverse = site.get("onesided", 0), site.get("inverse", 0)
    moved = [*(i for i in range(x.rank - 1) if i != axis), x.rank - 1, axis]
    if onesided and inverse:
        return _real_from_half(site, x, axis, moved)
    length = int(site.scalar(1, float(x.shape[axis])) or 0)
    if length != x.shape[axis]:
        raise Unsupported(f"its length is {length}, and the axis has {x.shape[axis]}")
    count = length // 2 + 1 if onesided else length
    angles = np.outer(np.arange(length), np.arange(count)) % length * (2 * math.pi / length)
    sign, scale = (1, 1 / length) if inverse else (-1, 1)
    waves = [scale * np.cos(angles), sign * scale * np.sin(angles)]
    rows = _permuted(site, x, moved)
    cosines, sines = (Constant(np.asarray(wave, x.type.dtype.numpy)) for wave in waves)
    by_cosine, by_sine = site.emit("MatMul", rows, cosines), site.emit("MatMul", rows, sines)
    if x.shape[-1] == 1:
        joined = site.emit("Concat", by_cosine, by_sine, axis=x.rank - 2)
    else:
        parts = [site.cut(each, x.rank - 2, k, k + 1) for each in (by_cosine, by_sine) for k in (0, 1)]
        real = site.emit("Sub", parts[0], parts[3])
        imaginary = site.emit("Add", parts[1], parts[2])
        joined = site.emit("Concat", real, imaginary, axis=x.rank - 2)
    return _permuted(site, joined, [moved.index(i) for i in range(x.rank)])


def _real_from_half(site: Site, x: Tensor, axis: int, moved: Sequence[int]) -> Value:
    """The real signal whose transform has these values, and their conjugates in the other half."""
    count = x.shape[axis]
    length = int(site.scalar(1, 2.0 * (count - 1)) or 0)
    if count != length // 2 + 1:
        raise Unsupported(f"its length is {length}, and it has {count} values")
    angles = np.outer(np.arange(count), np.arange(length)) % length * (2 * math.pi / length)
    weights = np.full((count, 1), 2 / length)
    weights[0] = 1 / length
    if length % 2 == 0:
        weights[-1] = 1 / length
    waves = [weights * np.cos(angles), -weights * np.sin(angles)]
    rows = _permuted(site, x, moved)
    parts = [
        site.emit(
            "MatMul", site.cut(rows, x.rank - 2, k, k + 1), Constant(np.asarray(wave, x.type.dtype.numpy))
        )
        for k, wave in enumerate(waves)
    ]
    return _permuted(site, site.emit("Add", *parts), [moved.index(i) for i in range(x.rank)])


def _short_time_transform(site: Site) -> Value:
    """Transforms of frames of the signal, which overlap, under a window."""
    x, step = site.tensor(0), int(site.scalar(1) or 0)
    if x.rank == 2:
        x = site.reshape(x, [*x.shape, 1])
    window = site.value(2) if site.has(2) else None
    length = int(site.scalar(3) or 0) if site.has(3) else window.shape[0] if window else 0
    count = 1 + (x.shape[1] - length) // step
    places = np.arange(count).reshape(-1, 1) * step + np.arange(length)
    frames = site.emit("Gather", x, Constant(places.astype(np.int64)), axis=1)
    if window is not None:
        frames = site.emit("Mul", frames, site.reshape(window, [length, 1]))
    inputs = [frames, None, Constant(np.asarray(2, np.int64))]
    attributes = {"onesided": site.get("onesided", 1)}
    return _transform(replace(site, opset=20, inputs=inputs, attributes=attributes))


def _also_of_integers(lowering: Lowering, operands: int = 1, wide: DType = DType.FLOAT64) -> Lowering:
    """Extends a lowering of floats to integers, by double precision, which is exact below 2^53."""

    def lowered(site: Site) -> Value | Sequence[Value]:
        dtype = site.dtype()
        if dtype.is_floating:
            return lowering(site)
        inputs = [
            site.cast(value, wide) if value is not None and k < operands else value
            for k, value in enumerate(site.inputs)
        ]
        result = lowering(replace(site, inputs=inputs))
        if isinstance(result, Tensor | Constant):
            return site.cast(result, dtype)
        first, *rest = result if isinstance(result, Sequence) else (result,)
        return [site.cast(first, dtype), *rest]

    return lowered


def _unchanged(site: Site) -> Value:
    return site.emit(site.op, *site.inputs, **site.attributes)


def _cumulative_product(site: Site) -> Value:
    """Running products: step k multiplies by the element 2^k places before (Hillis and Steele, 1986)."""
    x, axis = site.tensor(0), int(site.constant(1, "the axis").reshape(-1)[0]) % len(site.shape())
    size, reverse = x.shape[axis], site.get("reverse", 0)

    def moved(value: Tensor, places: int) -> Value:
        """The elements `places` further along, behind ones."""
        shape = [places if i == axis else length for i, length in enumerate(x.shape)]
        ones = Constant(np.ones(shape, x.type.dtype.numpy))
        if places >= size:
            return Constant(np.ones(x.shape, x.type.dtype.numpy))
        kept = site.cut(value, axis, places if reverse else 0, size if reverse else size - places)
        return site.emit("Concat", *((kept, ones) if reverse else (ones, kept)), axis=axis)

    product = site.as_tensor(moved(x, 1)) if site.get("exclusive", 0) else x
    places = 1
    while places < size:
        product = site.emit("Mul", product, moved(product, places))
        places *= 2
    return product


LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(_PLAIN, _plain),
    "MaxPool": _max_pool,
    "Swish": lambda site: site.emit("Swish", site.value(0), alpha=site.get("alpha", 1.0)),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax"), _reduce),
    "CumProd": _also_of_integers(_cumulative_product),
    "Abs": _also_of_integers(_unchanged),
    "Sign": _also_of_integers(_unchanged),
    "Relu": _also_of_integers(_unchanged),
    "MatMul": _also_of_integers(_unchanged, operands=2),
    "IsInf": _is_inf,
    "Hardmax": _hardmax,
    "LpPool": _lp_pool,
    "GlobalLpPool": _lp_pool,
    "DFT": _transform,
    "STFT": _short_time_transform,
    "Pow": _also_of_integers(_pow, operands=2),
    "Clip": _clip,
    "Max": _extreme,
    "Min": _extreme,
    "Sum": _sum,
    "Mean": _mean,
    "Softsign": _softsign,
    "Mish": _mish,
    "Selu": _selu,
    "Celu": _celu,
    "ThresholdedRelu": _thresholded,
    "Xor": lambda site: site.emit("Not", site.emit("Equal", site.value(0), site.value(1))),
    "Tan": lambda site: site.emit("Div", site.emit("Sin", site.value(0)), site.emit("Cos", site.value(0))),
    "Neg": _neg,
    "ReduceL1": _also_of_integers(lambda site: _reduced(site, site.emit("Abs", site.value(0)), "ReduceSum")),
    "ReduceL2": _also_of_integers(_reduce_square),
    "ReduceSumSquare": _also_of_integers(_reduce_square),
    # The smallest is the largest with the other sign.
    "ReduceMin": _also_of_integers(
        lambda site: site.emit("Neg", _reduced(site, site.emit("Neg", site.value(0)), "ReduceMax"))
    ),
    "ReduceLogSum": lambda site: site.emit("Log", _reduced(site, site.value(0), "ReduceSum")),
    "ReduceLogSumExp": _reduce_log_sum_exp,
    "LpNormalization": _lp_normalization,
    "Cast": _cast,
    "CastLike": lambda site: site.cast(site.value(0), site.dtype(1)),
    # Of truth values and integers as well.
    "Equal": lambda site: site.emit("Equal", site.value(0), site.value(1)),
    "Einsum": _einsum,
    "ReduceProd": _reduce_prod,
    "ArgMax": _arg_extreme,
    "ArgMin": _arg_extreme,
    "Div": _div,
    "Mod": _mod,
    "Sinh": _hyperbolic,
    "Cosh": _hyperbolic,
}
