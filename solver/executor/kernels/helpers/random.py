"""Random bits as a function of a counter: SplitMix64 (Steele, Lea and Flood, 2014), a block at a time.

    word[i] = mix(stream + (i + 1) * GAMMA)      64 bits: two elements of 32, as they lie in memory

A stream belongs to a seed, a name and the number of an iteration. Nothing is kept between two calls, so a
step that runs again makes the same bits, on any little-endian machine.
"""

from __future__ import annotations

import hashlib

import numpy as np

from solver.graph.types import Array

__all__ = ["fill_counters", "fill_words", "key_of", "stream_of"]

_GAMMA = 0x9E3779B97F4A7C15
_FIRST, _SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = 2**64 - 1


def key_of(seed: int, name: str) -> int:
    """The key of all random streams of `name` under `seed`."""
    digest = hashlib.sha256(name.encode()).digest()
    return _mix(_mix(seed + _GAMMA) ^ int.from_bytes(digest[:8], "little"))


def stream_of(key: int, iteration: int) -> int:
    return _mix(key + iteration * _GAMMA)


def _mix(value: int) -> int:
    """A permutation of the 64-bit integers that leaves no pattern of its argument."""
    value &= _MASK
    value = (value ^ value >> 30) * _FIRST & _MASK
    value = (value ^ value >> 27) * _SECOND & _MASK
    return value ^ value >> 31


def fill_counters(counters: Array) -> None:
    """counters[i] = (i + 1) * GAMMA modulo 2**64, by doubling what is there already; ``uint64``."""
    counters[0] = _GAMMA
    filled = 1
    while filled < counters.size:
        more = min(filled, counters.size - filled)
        np.add(counters[:more], np.uint64(filled * _GAMMA & _MASK), out=counters[filled : filled + more])
        filled += more


def fill_words(words: Array, work: Array, counters: Array, stream: int, first: int) -> None:
    """Words `first`, `first` + 1, ... of a stream; arrays are ``uint64`` of one size. Allocates nothing."""
    np.add(counters, np.uint64((stream + first * _GAMMA) & _MASK), out=words)
    for shift, factor in ((30, _FIRST), (27, _SECOND)):
        np.right_shift(words, np.uint64(shift), out=work)
        np.bitwise_xor(words, work, out=words)
        np.multiply(words, np.uint64(factor), out=words)
    np.right_shift(words, np.uint64(31), out=work)
    np.bitwise_xor(words, work, out=words)
