"""Operators that mean here what they mean in ONNX: the attributes go over as they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from solver.graph import DType
from solver.importers.onnx.lowering.base import Lowering, Site, Unsupported
from solver.importers.onnx.network import Value

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


LOWERINGS: Mapping[str, Lowering] = {
    **dict.fromkeys(_PLAIN, _plain),
    "MaxPool": _max_pool,
    "Swish": lambda site: site.emit("Swish", site.value(0), alpha=site.get("alpha", 1.0)),
    **dict.fromkeys(("ReduceMean", "ReduceSum", "ReduceMax"), _reduce),
}
