"""Orders and ranks of very many whole numbers, in a tenth of the time that sorting their positions takes."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["in_order", "ranks"]

#: Positions from which packing pays.
PACKED_FROM: Final = 512

#: Bits of what is packed: all but the sign.
BITS: Final = 63

#: Values for each number up to which a table of all values is the quickest way to rank them.
DENSE: Final = 4


def in_order(*keys: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Positions by the first key, of equal ones by the next, in the end as they are: a stable sort.

    Whole numbers that fit 63 bits together with the position are packed into one and sorted, 16 bytes each;
    anything else is for `numpy.lexsort`.
    """
    count = len(keys[0])
    index = count.bit_length()
    if count < PACKED_FROM or any(key.dtype.kind != "i" for key in keys):
        return np.lexsort(keys[::-1])
    lows = [int(key.min()) for key in keys]
    bits = [(int(key.max()) - low).bit_length() for key, low in zip(keys, lows, strict=True)]
    if sum(bits) + index > BITS:
        return np.lexsort(keys[::-1])
    packed = np.zeros(count, np.int64)
    for key, low, width in zip(keys, lows, bits, strict=True):
        packed <<= width
        packed += key
        packed -= low
    packed <<= index
    packed += np.arange(count)
    packed.sort()
    packed &= (1 << index) - 1
    return packed


def ranks(*columns: npt.NDArray[np.int64]) -> list[npt.NDArray[np.int64]]:
    """For each value its rank among those of all columns, from 0; equal ones share it.

    O(n) where no value exceeds `DENSE` times their number, else a sort. At least one value, none negative.
    """
    count, most = sum(map(len, columns)), max(int(column.max()) for column in columns)
    if most <= DENSE * count:
        met = np.zeros(most + 1, bool)
        for column in columns:
            met[column] = True
        rank = np.cumsum(met, dtype=np.int64) - 1
        return [rank[column] for column in columns]
    everything = np.concatenate(columns)
    order = in_order(everything)
    everything = everything[order]
    rank_of = np.empty(count, np.int64)
    rank_of[order] = np.cumsum(np.diff(everything, prepend=everything[:1]) != 0)
    return np.split(rank_of, np.cumsum([len(column) for column in columns[:-1]]))
