"""Tables of interpolation along one axis: which inputs an output looks at, and how much they weigh."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from solver.graph.ops.resizing import ResizedAxis
from solver.graph.types import Array

__all__ = ["Table", "interpolation"]


@dataclass(frozen=True, slots=True)
class Table:
    """Inputs that each output is interpolated from, and their weights: [taps, outputs], for `size` inputs.

    An output that has fewer taps than others has weights of 0.
    """

    index: Array
    weights: Array
    size: int

    @property
    def taps(self) -> list[tuple[Array, Array | None]]:
        """(index, weights as a column) of each tap; no weights where all are 1."""
        columns = [None if np.all(weights == 1) else weights[:, None] for weights in self.weights]
        return list(zip(self.index, columns, strict=True))

    def part(self, outputs: slice) -> Table:
        """The table of some of the outputs."""
        return Table(self.index[:, outputs], self.weights[:, outputs], self.size)

    def transposed(self) -> Table:
        """The table that takes derivatives of the outputs to those of the inputs."""
        weights, count = self.weights.T.reshape(-1), self.index.shape[1]
        inputs, outputs = self.index.T.reshape(-1), np.repeat(np.arange(count), len(self.index))
        used = np.flatnonzero(weights)
        used = used[np.argsort(inputs[used], kind="stable")]
        readers = np.bincount(inputs[used], minlength=self.size)
        first = np.repeat(np.cumsum(readers) - readers, readers)
        places = np.arange(used.size) - first, inputs[used]
        table = Table(
            np.zeros((int(readers.max()), self.size), np.intp),
            np.zeros((int(readers.max()), self.size), weights.dtype),
            count,
        )
        table.index[places], table.weights[places] = outputs[used], weights[used]
        return table


def interpolation(axis: ResizedAxis, attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> Table:
    """The table of an axis, after ONNX."""
    x = _coordinates(axis, attributes["coordinate_transformation_mode"])
    if attributes["mode"] == "nearest":
        taps, weights = _nearest(x, attributes["nearest_mode"])[None], np.ones((1, axis.out))
    else:
        taps, weights = _filtered(x, axis, attributes)
        if attributes["exclude_outside"]:
            weights = weights * ((taps >= 0) & (taps < axis.size))
            weights /= weights.sum(axis=0)
    return Table(np.clip(taps, 0, axis.size - 1).astype(np.intp), weights.astype(dtype), axis.size)


def _coordinates(axis: ResizedAxis, mode: str) -> Array:
    """Position of each output on the input's axis; positions are the centres of elements."""
    y = np.arange(axis.out, dtype=np.float64)
    width = axis.scale * axis.size
    if mode == "asymmetric":
        return np.asarray(y / axis.scale)
    if mode == "align_corners":
        return np.asarray(y * ((axis.size - 1) / (width - 1))) if width != 1 else np.zeros(axis.out)
    if mode == "pytorch_half_pixel" and axis.out == 1:
        return np.zeros(1)
    x = (y + 0.5) / axis.scale - 0.5
    if mode == "half_pixel_symmetric":
        x += axis.size / 2 * (1 - axis.out / width)
    return np.asarray(x)


def _nearest(x: Array, mode: str) -> Array:
    if mode == "floor":
        return np.asarray(np.floor(x))
    if mode == "ceil":
        return np.asarray(np.ceil(x))
    return np.asarray(np.ceil(x - 0.5) if mode == "round_prefer_floor" else np.floor(x + 0.5))


def _filtered(x: Array, axis: ResizedAxis, attributes: Mapping[str, Any]) -> tuple[Array, Array]:
    """Taps on both sides, weighed by a filter that anti-aliasing makes as wide as the outputs lie apart."""
    is_linear, antialias = attributes["mode"] == "linear", attributes["antialias"]
    shrink = min(axis.scale, 1.0) if antialias else 1.0
    reach = math.ceil((1 if is_linear else 2) / shrink)
    taps = np.floor(x) + np.arange(1 - reach, reach + 1)[:, None]
    distance = np.abs(taps - x) * shrink
    weights = np.maximum(1 - distance, 0) if is_linear else _cubic(distance, attributes["cubic_coeff_a"])
    if antialias:
        weights /= weights.sum(axis=0)
    return taps, weights


def _cubic(distance: Array, a: float) -> Array:
    """Keys' convolution kernel (1981)."""
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))
