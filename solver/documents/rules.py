"""Constants that follow from a rule, as graph documents spell them: causal masks, positions.

Graphs hold the elements of every constant; only documents hold the rule in their place. A document says

    band    `value` where lower <= column - row <= upper, `other` elsewhere; a bound that is left out is none.
            Rows and columns are counted along the two `axes`, the last two if they are left out.
    iota    value + step * k, with k counted along the one of `axes`, the last one if it is left out.

Along all other axes the elements repeat. A rule is written only where it gives the very bytes back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from solver.graph.types import Array, DType, TensorType

__all__ = ["LARGEST_RULE", "LARGEST_RULES", "RULES", "rule_bytes", "rule_of"]

RULES: Final = ("band", "iota")

#: Bytes that one constant by rule may have, and all of a document: a small document must not fill a memory.
LARGEST_RULE: Final = 2**28
LARGEST_RULES: Final = 2**29
#: Smaller constants are written out.
_SMALLEST: Final = 256


def rule_bytes(rule: Mapping[str, Any], type_: TensorType) -> bytes:
    """The elements that a rule stands for, little-endian in C order. The axes must be axes of the shape.

    Linear in the bytes.
    """
    shape, dtype = type_.shape, type_.dtype.numpy
    if rule["kind"] == "iota":
        (axis,) = rule.get("axes") or (len(shape) - 1,)
        elements = _ends(rule["value"], rule["step"], shape[axis], type_.dtype)
        own = {axis: shape[axis]}
    else:
        row, column = rule.get("axes") or (len(shape) - 2, len(shape) - 1)
        lower, upper = rule.get("lower"), rule.get("upper")
        distance = np.arange(shape[column]) - np.arange(shape[row])[:, np.newaxis]
        inside = np.ones(distance.shape, np.bool_)
        if lower is not None:
            inside &= distance >= lower
        if upper is not None:
            inside &= distance <= upper
        values = _elements([rule["value"], rule["other"]], type_.dtype)
        elements = np.where(inside, values[0], values[1])
        if row > column:
            elements = elements.T
        own = {row: shape[row], column: shape[column]}
    alone = elements.reshape([own.get(axis, 1) for axis in range(len(shape))])
    return np.ascontiguousarray(np.broadcast_to(alone, shape), dtype.newbyteorder("<")).tobytes()


def _elements(values: Any, dtype: DType) -> Array:
    """Numbers as elements: whole ones exactly, others rounded once."""
    with np.errstate(all="ignore"):
        if dtype.is_floating:
            return np.asarray(values, np.float64).astype(dtype.numpy)
        return np.asarray([int(value) for value in values]).astype(dtype.numpy)


def _ends(start: float, step: float, count: int, dtype: DType) -> Array:
    with np.errstate(all="ignore"):
        if dtype.is_floating:
            return np.asarray(start + step * np.arange(count), np.float64).astype(dtype.numpy)
        return (int(start) + int(step) * np.arange(count)).astype(dtype.numpy)


def rule_of(data: bytes, type_: TensorType) -> dict[str, Any] | None:
    """The rule that gives these bytes and no others, None where there is none. Linear in the bytes."""
    if not _SMALLEST <= len(data) <= LARGEST_RULE or len(data) != type_.nbytes:
        return None
    array = np.frombuffer(data, type_.dtype.numpy.newbyteorder("<")).reshape(type_.shape)
    bits = array.view(f"<u{type_.dtype.itemsize}")
    axes = []
    for axis, size in enumerate(type_.shape):
        first = bits[(slice(None),) * axis + (slice(1),)]
        if size > 1 and (bits == first).all():
            bits, array = first, array[(slice(None),) * axis + (slice(1),)]
        elif size > 1:
            axes.append(axis)
    rule = None
    if len(axes) == 1 and type_.dtype is not DType.BOOL:
        rule = _iota(array.reshape(-1))
    elif len(axes) == 2:
        sizes = [type_.shape[axis] for axis in axes]
        rule = _band(array.reshape(sizes), bits.reshape(sizes))
    if rule is None:
        return None
    if axes != list(range(len(type_.shape)))[-len(axes) :]:
        rule["axes"] = axes
    return rule if rule_bytes(rule, type_) == data else None


def _iota(row: Array) -> dict[str, Any] | None:
    first, second = (number.item() for number in row[:2])
    if not np.isfinite([first, second]).all():
        return None
    return {"kind": "iota", "value": float(first), "step": float(second - first)}


def _band(elements: Array, bits: Array) -> dict[str, Any] | None:
    corner = bits == bits[0, 0]
    if corner.all() or len(np.unique(bits[~corner])) != 1:
        return None
    rows, columns = elements.shape
    distance = np.arange(columns) - np.arange(rows)[:, np.newaxis]
    for inside in (corner, ~corner):
        lower, upper = int(distance[inside].min()), int(distance[inside].max())
        if (inside == ((distance >= lower) & (distance <= upper))).all():
            found = {
                "kind": "band",
                "value": float(elements[inside][0]),
                "other": float(elements[~inside][0]),
            }
            bounds = {"lower": (lower, 1 - rows), "upper": (upper, columns - 1)}
            return found | {key: bound for key, (bound, end) in bounds.items() if bound != end}
    return None
