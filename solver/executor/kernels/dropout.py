"""Kernels of Dropout: the same mask forward and backward, made anew a block at a time.

    bits < ratio * 2**32  ->  dropped: 1 or 0  ->  words: 0 or all ones  ->  y = x / (1 - ratio) AND words

An AND on the bits of the floats is several times as fast as a copy with a condition, and an element that is
dropped is 0 whatever it was, infinite or no number.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels
from solver.executor.kernels.helpers.blocks import Step, bound, flat_blocks, present
from solver.executor.kernels.random import fill_counters, fill_words
from solver.graph.ops.dropout import BLOCK
from solver.graph.ops.helpers.streams import key_of, stream_of
from solver.graph.types import Array

__all__ = ["KERNELS"]


def _masked(call: Call, source: Array, target: Array) -> Step:
    ratio = float(call.attributes["ratio"])
    if not ratio:
        return bound(np.copyto, target, source)
    key = key_of(call.attributes["seed"], call.node.operation.id)
    counters, bits, work = (call.scratch[name].view(np.uint64) for name in ("counters", "bits", "work"))
    threshold, factor = np.uint32(min(round(ratio * 2**32), 2**32 - 1)), 1 / (1 - ratio)
    dropped, words, halved = call.scratch["dropped"], call.scratch["words"], bits.view(np.uint32)
    blocks = [
        (part, into, into.view(words.dtype), dropped[: part.size], words[: part.size], halved[: part.size])
        for part, into in flat_blocks(source, target, size=BLOCK)
    ]

    def run() -> None:
        stream = stream_of(key, call.iteration())
        fill_counters(counters)
        for i, (part, into, integers, drop, word, bit) in enumerate(blocks):
            fill_words(bits, work, counters, stream, i * BLOCK // 2)
            np.less(bit, threshold, out=drop)
            np.copyto(word, drop)
            np.subtract(word, 1, out=word)
            np.multiply(part, factor, out=into)
            np.bitwise_and(integers, word, out=integers)

    return run


KERNELS: Mapping[str, Kernels] = {
    "Dropout": Kernels(
        lambda call: _masked(call, *present(call.x[0], call.y[0])),
        lambda call: _masked(call, *present(call.dy[0], call.dx[0])),
    )
}
