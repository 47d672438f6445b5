"""Constant folding of integers: the sizes that operators compute from shapes, which a plan must know.

Exporters write out how a Reshape finds its shape: SHAPE, STRIDED_SLICE, PACK. With the shapes of the batch
that is planned these are constants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

from solver.graph.types import Array
from solver.importers.circle.read import ModelOperator

__all__ = ["FOLDED", "SEVERAL", "fold", "fold_several", "slices"]

#: More elements than these are weights, and not the sizes of something.
_MAX_FOLDED_ELEMENTS: Final = 4096


def fold(operator: ModelOperator, values: Sequence[Array | None]) -> Array | None:
    """The only output of an operator whose inputs are constants, None where it cannot be worked out here.

    `values` are the inputs, None for those that are left out. Raises ValueError and IndexError for values
    that the operator cannot take.
    """
    if operator.code not in FOLDED or sum(v.size for v in values if v is not None) > _MAX_FOLDED_ELEMENTS:
        return None
    return FOLDED[operator.code](operator, values)


def fold_several(operator: ModelOperator, values: Sequence[Array | None]) -> list[Array]:
    """The outputs of an operator of `SEVERAL`, one after the other; raises as `fold` does."""
    return SEVERAL[operator.code](operator, _present(values))


def slices(operator: ModelOperator, rank: int, numbers: Sequence[Array]) -> tuple[slice | int | None, ...]:
    """The index of a STRIDED_SLICE as NumPy writes it: a range, one element of an axis, None for a new axis.

    `numbers` are begin, end and strides. Axes under an ellipsis, and axes without numbers, are taken whole.
    """
    begin, end, strides = (n.astype(np.int64).tolist() for n in numbers)

    def marked(mask: str, place: int) -> bool:
        return bool(operator.integer(mask, 0) >> place & 1)

    parts: list[slice | int | None] = []
    new = sum(marked("NewAxisMask", k) and not marked("EllipsisMask", k) for k in range(len(begin)))
    for k, (first, last, step) in enumerate(zip(begin, end, strides, strict=True)):
        if marked("EllipsisMask", k):
            parts += [slice(None)] * (rank - (len(begin) - 1 - new))
        elif marked("NewAxisMask", k):
            parts.append(None)
        elif marked("ShrinkAxisMask", k):
            parts.append(first)
        else:
            start = None if marked("BeginMask", k) else first
            parts.append(slice(start, None if marked("EndMask", k) else last, step))
    parts += [slice(None)] * (rank - sum(part is not None for part in parts))
    return tuple(parts)


def _present(values: Sequence[Array | None]) -> list[Array]:
    return [value for value in values if value is not None]


def _strided_slice(operator: ModelOperator, values: Sequence[Array | None]) -> Array:
    x, *numbers = _present(values)
    return np.asarray(x[slices(operator, x.ndim, numbers)])


def _gather(operator: ModelOperator, values: Sequence[Array | None]) -> Array:
    x, indices = _present(values)
    return np.asarray(np.take(x, indices, axis=operator.integer("Axis", 0)))


def _reduce_prod(operator: ModelOperator, values: Sequence[Array | None]) -> Array:
    x, axes = _present(values)
    keep = bool(operator.options.get("KeepDims"))
    return np.asarray(np.prod(x, axis=tuple(axes.ravel().tolist()), keepdims=keep, dtype=x.dtype))


def _range(_: ModelOperator, values: Sequence[Array | None]) -> Array:
    first, last, step = (value.item() for value in _present(values))
    if step == 0 or abs((last - first) / step) > _MAX_FOLDED_ELEMENTS:
        raise ValueError("has too many elements")
    return np.arange(first, last, step, dtype=_present(values)[0].dtype)


def _filled(_: ModelOperator, values: Sequence[Array | None]) -> Array:
    sizes, value = _present(values)
    if math.prod(sizes.ravel().tolist()) > _MAX_FOLDED_ELEMENTS:
        raise ValueError("has too many elements")
    return np.full(sizes.ravel().tolist(), value)


def _binary(function: Callable[[Array, Array], Array]) -> Callable[..., Array]:
    def folded(_: ModelOperator, values: Sequence[Array | None]) -> Array:
        a, b = _present(values)
        return np.asarray(function(a, b), dtype=a.dtype)

    return folded


def _unary(function: Callable[[Array], Array]) -> Callable[..., Array]:
    return lambda _, values: function(_present(values)[0])


def _split(operator: ModelOperator, values: Sequence[Array]) -> list[Array]:
    axis, x = values
    return np.split(x, len(operator.outputs), int(axis.item()))


def _split_v(_: ModelOperator, values: Sequence[Array]) -> list[Array]:
    x, sizes, axis = values
    return np.split(x, np.cumsum(sizes)[:-1].tolist(), int(axis.item()))


#: By operator of several outputs: what it makes of constants.
SEVERAL: Final[Mapping[str, Callable[[ModelOperator, Sequence[Array]], list[Array]]]] = {
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "UNPACK": lambda operator, values: list(np.moveaxis(values[0], operator.integer("Axis", 0), 0)),
}

#: By operator: what it makes of constants.
FOLDED: Final[Mapping[str, Callable[[ModelOperator, Sequence[Array | None]], Array]]] = {
    "ADD": _binary(np.add),
    "CAST": _unary(np.asarray),
    "CONCATENATION": lambda operator, values: np.concatenate(
        _present(values), axis=operator.integer("Axis", 0)
    ),
    "EXPAND_DIMS": lambda _, values: np.expand_dims(_present(values)[0], int(_present(values)[1].item())),
    "FILL": _filled,
    "FLOOR_DIV": _binary(np.floor_divide),
    "GATHER": _gather,
    "MAXIMUM": _binary(np.maximum),
    "MINIMUM": _binary(np.minimum),
    "MUL": _binary(np.multiply),
    "PACK": lambda operator, values: np.stack(_present(values), axis=operator.integer("Axis", 0)),
    "RANGE": _range,
    "REDUCE_PROD": _reduce_prod,
    "RESHAPE": lambda _, values: _present(values)[0].reshape(_present(values)[1].tolist()),
    "SQUEEZE": _unary(np.squeeze),
    "STRIDED_SLICE": _strided_slice,
    "SUB": _binary(np.subtract),
}
