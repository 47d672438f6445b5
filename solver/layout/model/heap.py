"""What an allocator keeps of freed arrays is in memory, and the next ones may come on top of it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

__all__ = ["give_back"]


def give_back() -> None:
    """Returns to the system what freed arrays have left behind. Some ten microseconds a megabyte.

    Does nothing where the C library has no ``malloc_trim``.
    """
    _trim()(0)


@cache
def _trim() -> Callable[[int], Any]:
    try:
        trim: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return bool
    return trim
