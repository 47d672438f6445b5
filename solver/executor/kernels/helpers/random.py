"""Random bits as a function of a counter: SplitMix64 (Steele, Lea and Flood, 2014), a block at a time.

    word[i] = mix(stream + (i + 1) * GAMMA)      64 bits: two elements of 32, as they lie in memory

A stream belongs to a seed, a name and the number of an iteration. Nothing is kept between two calls, so a
step that runs again makes the same bits, on any little-endian machine.
"""

from __future__ import annotations

import numpy as np

from solver.graph.ops.helpers.streams import FIRST, GAMMA, MASK, SECOND
from solver.graph.types import Array

__all__ = ["fill_counters", "fill_words"]


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
