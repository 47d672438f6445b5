"""Layout problems with the shape of one training step, made from a seed.

step        0 ........ layers-1 | layers ........ 2*layers-1
weight      |=============================================|     whole run, with optimizer state
activation       |=====================================|        forward to its backward: nested
branch                |=========|   skips some layers           |====|  and its derivative back
scratch              ||                                ||       one step
derivative                                          |==|        one backward step to the next
gradient                                               ||       one step, then applied
"""

from __future__ import annotations

import random

from solver.layout import Buffer, Lifespan, Problem

__all__ = ["training_shaped"]

_ELEMENT_BYTES = 4


class _Maker:
    def __init__(self, seed: int, layers: int, alignment: int) -> None:
        self._random = random.Random(seed)
        self._layers, self._alignment = layers, alignment
        self.buffers: list[Buffer] = []

    def add(self, kind: str, elements: int, start: int, end: int) -> None:
        size = -(-elements * _ELEMENT_BYTES // self._alignment) * self._alignment
        span = Lifespan(start, max(start + 1, min(end, 2 * self._layers)))
        self.buffers.append(Buffer(f"{kind}.{len(self.buffers)}", size, span, self._alignment))

    def layer(self, i: int, elements: int, weights: int, branch: bool) -> None:
        draw, back = self._random, 2 * self._layers - 1 - i
        self.add("activation", elements, i, back + 1)
        self.add("derivative", elements, back - 1 if i < self._layers - 1 else back, back + 1)
        for _ in range(draw.choice((1, 2, 3))):
            self.add("weight", weights, 0, 2 * self._layers)
        if weights > 1:
            self.add("gradient", weights, back, back + 1)
            self.add("bias gradient", draw.randint(1, 512), back, back + 1)
        if draw.random() < 0.6:
            self.add("forward scratch", elements * draw.choice((1, 2, 9)) // 2, i, i + 1)
        if draw.random() < 0.6:
            self.add("backward scratch", elements * draw.choice((1, 2, 9)) // 2, back, back + 1)
        if branch:
            span = draw.randint(2, 6)
            self.add("branch", elements, i, i + span)
            self.add("branch derivative", elements, max(self._layers, back + 1 - span), back + 1)
        if draw.random() < 0.3:
            self.add("arg-max", elements // 4 + 1, i, back + 1)

    def network(self) -> None:
        draw, elements, weights = self._random, 8 * 112 * 112 * 16, 16 * 3 * 9
        for i in range(self._layers):
            if draw.random() < 0.15:
                elements = max(1000, elements // 2)
                weights = min(2_000_000, weights * 4)
            jitter = draw.choice((1, 1, 1, 2, 6))
            branch = draw.random() < 0.2
            self.layer(i, elements * jitter, weights if draw.random() < 0.7 else 1, branch)


def training_shaped(seed: int, *, buffers: int = 700, alignment: int = 64) -> Problem:
    """About `buffers` buffers whose sizes are multiples of `alignment`."""
    maker = _Maker(seed, max(2, buffers * 2 // 15), alignment)
    maker.network()
    return Problem(tuple(maker.buffers))
