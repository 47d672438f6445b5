"""The kernel of random numbers: bits of a counter, a block at a time, scaled to a range.

float32    bits of 32 >> 8   times (high - low) / 2**24, plus low
float64    bits of 64 >> 11  times (high - low) / 2**53, plus low
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels, no_derivative
from solver.executor.kernels.helpers.blocks import Step, flat_blocks, present
from solver.executor.kernels.helpers.random import fill_counters, fill_words
from solver.graph.ops.dropout import BLOCK
from solver.graph.ops.helpers.streams import key_of, stream_of

__all__ = ["KERNELS"]


def _forward(call: Call) -> Step:
    (y,) = present(call.y[0])
    low, high = float(call.attributes["low"]), float(call.attributes["high"])
    key = key_of(call.attributes["seed"], call.node.operation.id)
    counters, bits, work = (call.scratch[name].view(np.uint64) for name in ("counters", "bits", "work"))
    wide = y.dtype == np.float64
    words = bits if wide else bits.view(np.uint32)
    shift, factor = (11, (high - low) / 2**53) if wide else (8, (high - low) / 2**24)
    blocks = [(part, words[: part.size]) for (part,) in flat_blocks(y, size=BLOCK)]
    step = BLOCK if wide else BLOCK // 2

    def run() -> None:
        stream = stream_of(key, call.iteration())
        fill_counters(counters)
        for i, (part, word) in enumerate(blocks):
            fill_words(bits, work, counters, stream, i * step)
            np.right_shift(word, shift, out=word)
            np.copyto(part, word, casting="unsafe")  # exact: no more bits than the mantissa has
            np.multiply(part, factor, out=part)
            np.add(part, low, out=part)

    return run


KERNELS: Mapping[str, Kernels] = {"RandomUniform": Kernels(_forward, no_derivative)}
