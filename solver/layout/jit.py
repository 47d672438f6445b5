"""The one place that imports numba: a typed decorator for functions that are compiled once.

Compiled code is kept in ``__pycache__`` beside the sources, or under ``NUMBA_CACHE_DIR`` where that is
set or the sources cannot be written. Import this module only where compiled code is about to run: it
costs a quarter of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

__all__ = ["compiled", "inlined"]

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compiled, cached on disk, and running without the interpreter's lock."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))


def inlined(function: Function) -> Function:
    """A part of a compiled function: put in place, because handing over thirty arrays costs more."""
    return cast(Function, numba.njit(cache=True, nogil=True, forceinline=True)(function))
