"""Memory of large arrays: pages of their own, and what the allocator keeps of freed ones.

What an allocator hands out for a large array may be what others have written and freed: all of that is in
memory, used or not, and stays there for the next one. Pages that the system hands out are not, and do not.
"""

from __future__ import annotations

import ctypes
import math
import mmap
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["give_back", "paged"]

#: Bytes from which an array has pages of its own. Small questions take less time than pages take to come.
PAGED_FROM: Final = 1 << 18


def paged(*shape: int, cleared: bool = False, of: npt.DTypeLike = np.int64) -> npt.NDArray[Any]:
    """A page of a large array is in memory once it was written to; what it holds before counts for nothing.

    `cleared`: it holds zeros. `of` is what it holds.
    """
    size = np.dtype(of).itemsize * math.prod(shape)
    if size < PAGED_FROM:
        return np.zeros(shape, of) if cleared else np.empty(shape, of)
    return np.frombuffer(mmap.mmap(-1, size), of).reshape(shape)


def give_back() -> None:
    """Returns to the system what freed arrays have left behind. Some ten microseconds a megabyte.

    Does nothing where the C library has no ``malloc_trim``: musl, macOS, Windows.
    """
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
