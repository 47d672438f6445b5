"""First values of parameters and constants, repeatable from their seeds alone."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from solver.errors import GraphError, PlanError
from solver.graph.packing import check_packable, packed_values
from solver.graph.types import Array, FileRange, Initializer, Operand, RowRange, TensorType

__all__ = ["forget_whole_values", "initial_value", "stored_values", "whole_name"]


def initial_value(operand: Operand) -> Array:
    """A new array with the operand's first value; of a stored one its packed bytes (`packed_values`).

    Without an initializer a parameter of rank 2 or more is he_normal, seeded by its name, and anything
    else zeros. Raises GraphError for an unknown initializer, StorageError for values that cannot be packed.
    """
    initializer, stored = operand.first, operand.type.storage is not None
    if initializer.rows is not None:
        return _rows(operand, initializer, initializer.rows)
    data = initializer.data
    if initializer.file is not None:
        data = stored_values(operand.id, initializer.file, operand.type.nbytes)
    if data is not None and stored:
        return packed_values(operand.id, data, operand.type)
    if data is not None:
        return np.frombuffer(data, operand.dtype.numpy).reshape(operand.shape)
    if initializer.kind not in _SCHEMES:
        raise GraphError(
            f"Operand {operand.id!r} has the unknown initializer {initializer.kind!r}.",
            remedy=f"Choose one of {', '.join(sorted(_SCHEMES))}, or give inline values.",
        )
    values = _SCHEMES[initializer.kind](initializer, operand.type).astype(operand.dtype.numpy)
    if not stored:
        return values
    check_packable(operand.id, operand.type)
    return packed_values(operand.id, values.tobytes(), operand.type)


def _rows(operand: Operand, initializer: Initializer, rows: RowRange) -> Array:
    """Rows of the first value of a larger operand; packed rows are in front, whatever their axis is."""
    shape, count = list(operand.shape), operand.shape[rows.axis]
    shape[rows.axis] = rows.whole
    type_ = replace(operand.type, shape=tuple(shape))
    # One name for all tiles: the whole value is then made once.
    value = _whole(Operand(whole_name(operand.id), type_, operand.role, replace(initializer, rows=None)))
    axis = rows.axis if operand.type.storage is None else 0
    return value[(*[slice(None)] * axis, slice(rows.start, rows.start + count))]


def whole_name(tile: str) -> str:
    """The name of the weight that a tile, or a copy of one, has rows of."""
    return tile.rpartition(".tile")[0]


@lru_cache(maxsize=1)
def _whole(operand: Operand) -> Array:
    """Kept, as tiles of one weight are asked for one behind the other; `forget_whole_values` drops it."""
    return initial_value(operand)


def forget_whole_values() -> None:
    """Let go of the value whose rows were asked for last."""
    _whole.cache_clear()


def stored_values(name: str, place: FileRange, size: int) -> bytes:
    """The bytes of an operand's values in a file, `size` of them where the file range does not say how many.

    Raises PlanError where they are not there.
    """
    size = size if place.nbytes is None else place.nbytes
    if not place.path:
        raise PlanError(
            f"The first values of {name!r} lie in a file that was not sent.",
            remedy="Train where the file is, or import the model without weights.",
        )
    try:
        if not Path(place.path).is_file():
            raise FileNotFoundError(place.path)
        with Path(place.path).open("rb") as stream:
            stream.seek(place.offset)
            data = stream.read(size)
    except (OSError, ValueError) as error:
        raise PlanError(
            f"The first values of {name!r} lie in {place.path!r:.200}, which cannot be read:"
            f" {getattr(error, 'strerror', None) or 'it is not a file'}.",
            remedy="Put the file there, or import the model again.",
        ) from None
    if len(data) != size or hashlib.sha256(data).hexdigest() != place.sha256:
        raise PlanError(
            f"{place.path!r:.200} does not hold the first values of {name!r} any more.",
            remedy="Put the file back that was imported, or import the model again.",
        )
    return data


def fans(shape: tuple[int, ...]) -> tuple[int, int]:
    """Fan in and fan out where axis 0 counts outputs, as in Conv and in Gemm with transB."""
    if len(shape) < 2:
        return max(1, math.prod(shape)), max(1, math.prod(shape))
    return max(1, math.prod(shape[1:])), max(1, shape[0] * math.prod(shape[2:]))


def _normal(initializer: Initializer, type_: TensorType, scale: float) -> Array:
    return np.random.default_rng(initializer.seed).standard_normal(type_.shape) * scale


def _uniform(initializer: Initializer, type_: TensorType, scale: float) -> Array:
    return np.random.default_rng(initializer.seed).uniform(-scale, scale, type_.shape)


_SCHEMES: dict[str, Callable[[Initializer, TensorType], Array]] = {
    "zeros": lambda i, t: np.zeros(t.shape),
    "ones": lambda i, t: np.ones(t.shape),
    "constant": lambda i, t: np.full(t.shape, i.value),
    "normal": lambda i, t: _normal(i, t, i.scale),
    "uniform": lambda i, t: _uniform(i, t, i.scale),
    # He et al. 2015 and Glorot & Bengio 2010.
    "he_normal": lambda i, t: _normal(i, t, math.sqrt(2.0 / fans(t.shape)[0])),
    "glorot_uniform": lambda i, t: _uniform(i, t, math.sqrt(6.0 / sum(fans(t.shape)))),
}
