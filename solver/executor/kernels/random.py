"""Random bits as a function of a counter: SplitMix64 (Steele, Lea and Flood, 2014), a block at a time.

    word[i] = mix(stream + (i + 1) * GAMMA)      64 bits: two elements of 32, as they lie in memory

A stream belongs to a seed, a name and the number of an iteration. Nothing is kept between two calls, so a
step that runs again makes the same bits, on any little-endian machine.

Uniform numbers are the high bits of these words, scaled to a range:

    float32    bits of 32 >> 8   times (high - low) / 2**24, plus low
    float64    bits of 64 >> 11  times (high - low) / 2**53, plus low
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from solver.executor.kernels.base import Call, Kernels, no_derivative
from solver.executor.kernels.helpers.blocks import Step, flat_blocks, present
from solver.graph.ops.dropout import BLOCK
from solver.graph.ops.helpers.streams import FIRST, GAMMA, MASK, SECOND, key_of, stream_of
from solver.graph.types import Array

__all__ = ["KERNELS", "fill_counters", "fill_words"]


def fill_counters(counters: Array) -> None:
    """counters[i] = (i + 1) * GAMMA modulo 2**64, by doubling what is there already; ``uint64``."""
    counters[0] = GAMMA
    filled = 1
    while filled < counters.size:
        more = min(filled, counters.size - filled)
        np.add(counters[:more], np.uint64(filled * GAMMA & MASK), out=counters[filled : filled + more])
        filled += more


def fill_words(words: Array, work: Array, counters: Array, stream: int, first: int) -> None:
    """Words `first`, `first` + 1, ... of a stream; arrays are ``uint64`` of one size. Allocates nothing."""
    np.add(counters, np.uint64((stream + first * GAMMA) & MASK), out=words)
    for shift, factor in ((30, FIRST), (27, SECOND)):
        np.right_shift(words, np.uint64(shift), out=work)
        np.bitwise_xor(words, work, out=words)
        np.multiply(words, np.uint64(factor), out=words)
    np.right_shift(words, np.uint64(31), out=work)
    np.bitwise_xor(words, work, out=words)


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
