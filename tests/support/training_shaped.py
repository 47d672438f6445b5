"""Layout problems with the shape of one training step, made from a seed; a million buffers in seconds.

A network of blocks: chains, residual blocks whose skips cross several layers, branches side by side,
and encoder-decoder skips from the first layers to the last. Forward, loss, then three backward steps
a layer (gradient, derivative, apply)::

    step             0 ...... layers | layers ......................... 4 * layers
    weight, momentum |==============================================================|
    activation           |=================================|        nested, but for inner ones that are
    recomputed           |==|                          |====|       dropped and made again in backward
    skip                   |=====|   crosses layers
    skip's derivative                              |======|         waits for its branch to come back
    derivative                                       |==|           from one layer to the one before
    gradient                                         |=|            applied at once, or, where its norm
    clipped gradient                                 |==============|   is clipped, kept to the end
    scratch               ||                          ||            one step, up to nine times as large

What makes it harder than one chain: lifespans that cross instead of nesting, sizes from tens of bytes
to tens of mebibytes on one time line, and gradients that pile up while the activations go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout import Buffer, LayoutProblem, Lifespan

__all__ = ["Columns", "training_columns", "training_shaped"]

_Integers: TypeAlias = npt.NDArray[np.int64]

#: How many buffers a layer has on average; measured.
_PER_LAYER = 10.9

_ELEMENT_BYTES = 4


@dataclass(frozen=True, slots=True)
class Columns:
    """The same problem as arrays: one row a buffer, in the order in which a program would ask for them."""

    size: _Integers
    start: _Integers
    end: _Integers
    alignment: int

    def problem(self, capacity: int | None = None) -> LayoutProblem:
        rows = zip(self.size.tolist(), self.start.tolist(), self.end.tolist(), strict=True)
        return LayoutProblem(
            tuple(Buffer(f"b{i}", z, Lifespan(s, e), self.alignment) for i, (z, s, e) in enumerate(rows)),
            capacity,
        )


class _Network:
    """Draws per layer, and the rows made so far."""

    def __init__(self, seed: int, layers: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.layers, self.steps = layers, 4 * layers
        self.layer = np.arange(layers)
        self.back = layers + 3 * (layers - 1 - self.layer)
        self.rows: list[tuple[_Integers, _Integers, _Integers]] = []
        self._shapes()

    def chance(self, probability: float) -> npt.NDArray[np.bool_]:
        return self.draw.random(self.layers) < probability

    def _shapes(self) -> None:
        """Elements of an activation and of a weight, drifting along the layers like a real network's."""
        draw, layers = self.draw, self.layers
        stage = np.cumsum(draw.random(layers) < 5 / layers)
        activation = 2.0 ** (22 - stage % 6) * draw.choice((1, 1, 1, 0.25, 4, 6), layers)
        weight = 2.0 ** (10 + 2 * (stage % 6)) * draw.choice((1, 9, 9, 4), layers)
        ragged = draw.uniform(0.7, 1.3, layers)
        self.activation = np.maximum(16, activation / 16 * np.where(self.chance(0.3), ragged, 1))
        self.weight = np.maximum(16, weight / 16 * np.where(self.chance(0.3), ragged, 1))

    def add(
        self,
        where: npt.NDArray[np.bool_],
        elements: npt.NDArray[np.float64] | npt.NDArray[np.int64],
        start: _Integers | int,
        end: _Integers | int,
    ) -> None:
        shape = (self.layers,)
        columns = (np.broadcast_to(c, shape)[where].astype(np.int64) for c in (elements, start, end))
        size, first, last = columns
        last = np.minimum(np.maximum(last, first + 1), self.steps)
        self.rows.append((np.maximum(1, size) * _ELEMENT_BYTES, first, last))

    def values(self) -> None:
        layer, back, every = self.layer, self.back, self.chance(2)
        recomputed = self.chance(0.25)
        self.add(~recomputed, self.activation, layer, back + 2)
        self.add(recomputed, self.activation, layer, layer + 2)
        self.add(
            recomputed, self.activation, np.maximum(self.layers, back - self.draw.integers(1, 9)), back + 2
        )
        self.add(every, self.activation, np.maximum(back - 2, self.layers), back + 2)
        self.add(self.chance(0.3), self.activation / 4, layer, back + 1)
        self.add(every, self.draw.integers(8, 1024, self.layers), layer, back + 2)

    def skips(self) -> None:
        layer, back = self.layer, self.back
        span = self.draw.geometric(0.25, self.layers) + 1
        residual = self.chance(0.35)
        self.add(residual, self.activation, layer, layer + span)
        self.add(residual, self.activation, np.maximum(back - 3 * span, self.layers), back + 2)
        decoder = self.chance(0.04) & (layer < self.layers // 2)
        self.add(decoder, self.activation, layer, self.layers - layer)
        self.add(decoder, self.activation, self.layers + 3 * layer, back + 2)
        for _ in range(2):
            branch = self.chance(0.2)
            self.add(
                branch, self.activation * self.draw.choice((0.25, 0.5, 1), self.layers), layer, layer + span
            )

    def parameters(self) -> None:
        back = self.back
        trainable = self.chance(0.8)
        bias = self.draw.integers(8, 2048, self.layers)
        clipped = self.chance(0.15)
        for elements in (self.weight, bias):
            self.add(trainable, elements, 0, self.steps)
            self.add(trainable, elements, 0, self.steps)
            self.add(trainable & ~clipped, elements, back, back + 3)
            self.add(trainable & clipped, elements, back, self.steps)

    def scratch(self) -> None:
        layer, back = self.layer, self.back
        for step in (layer, back, back + 1):
            factor = self.draw.choice((0.1, 0.5, 1, 2, 9), self.layers)
            self.add(self.chance(0.5), self.activation * factor, step, step + 1)


def training_columns(seed: int, *, buffers: int = 700, alignment: int = 64) -> Columns:
    """About `buffers` buffers whose sizes are multiples of `alignment`, by birth. O(n log n)."""
    network = _Network(seed, max(2, round(buffers / _PER_LAYER)))
    network.values()
    network.skips()
    network.parameters()
    network.scratch()
    size, start, end = (np.concatenate(column) for column in zip(*network.rows, strict=True))
    size = -(-size // alignment) * alignment
    order = np.argsort(start, kind="stable")
    return Columns(size[order], start[order], end[order], alignment)


def training_shaped(seed: int, *, buffers: int = 700, alignment: int = 64) -> LayoutProblem:
    """The same as a problem."""
    return training_columns(seed, buffers=buffers, alignment=alignment).problem()
