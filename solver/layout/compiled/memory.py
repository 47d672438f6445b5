"""Arrays whose pages are resident only once written, and are given back as soon as the array is deleted.

What an allocator hands out for a large array may be what others have written and freed: all of that is in
memory, used or not, and stays there for the next one. Pages that the system hands out are not, and do not.
"""

from __future__ import annotations

import math
import mmap
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["paged"]

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
