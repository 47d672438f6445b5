"""Streams of random bits: which one belongs to an operation, and to an iteration.

    key    = mix(mix(seed + GAMMA) XOR the first 64 bits of the SHA-256 of the name)
    stream = mix(key + iteration * GAMMA)

`mix` and GAMMA are those of SplitMix64 (Steele, Lea and Flood, 2014). Kernels make the words of a stream.
"""

from __future__ import annotations

import hashlib
from typing import Final

__all__ = ["FIRST", "GAMMA", "MASK", "SECOND", "key_of", "stream_of"]

GAMMA: Final = 0x9E3779B97F4A7C15
FIRST: Final = 0xBF58476D1CE4E5B9
SECOND: Final = 0x94D049BB133111EB
MASK: Final = 2**64 - 1


def key_of(seed: int, name: str) -> int:
    """The key of all random streams of `name` under `seed`."""
    digest = hashlib.sha256(name.encode()).digest()
    return _mix(_mix(seed + GAMMA) ^ int.from_bytes(digest[:8], "little"))


def stream_of(key: int, iteration: int) -> int:
    return _mix(key + iteration * GAMMA)


def _mix(value: int) -> int:
    """A permutation of the 64-bit integers that leaves no pattern of its argument."""
    value &= MASK
    value = (value ^ value >> 30) * FIRST & MASK
    value = (value ^ value >> 27) * SECOND & MASK
    return value ^ value >> 31
