"""The one place, beside `emit`, that imports numba: typed decorators for functions that are compiled once.

Compiled code is kept in ``__pycache__`` beside the sources, as bytecode is, or under ``NUMBA_CACHE_DIR``
where that is set. A cache that cannot be written is still read, as in an image that is filled when it
is built (`python -m solver.compile`). What is kept holds for one state of all compiled sources:
numba by itself looks at the file of a function, not at what it calls.

Import this module only where compiled code is about to run: it costs a seventh of a second.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core.caching import (
    FunctionCache,
    InTreeCacheLocator,
    UserProvidedCacheLocator,
    UserWideCacheLocator,
)

from solver.layout.compiled.stamp import stamp

__all__ = ["compiled", "inlined"]

Function = TypeVar("Function", bound=Callable[..., object])


class _Stamped:
    """Recompiles where `stamp` has changed."""

    def get_source_stamp(self) -> Any:
        return stamp()


class _Readable:
    """Takes a directory that cannot be written, if something is there."""

    def ensure_cache_path(self) -> None:
        try:
            super().ensure_cache_path()  # type: ignore[misc] # numba's locator comes after this class
        except OSError:
            if not any(Path(cast(Any, self).get_cache_path()).glob("*.nbi")):
                raise


class Given(_Stamped, _Readable, UserProvidedCacheLocator):
    """NUMBA_CACHE_DIR."""


class Beside(_Stamped, _Readable, InTreeCacheLocator):
    """``__pycache__`` beside the sources."""


class Home(_Stamped, _Readable, UserWideCacheLocator):
    """The user's cache directory, where the sources cannot be written."""


class _Kept(FunctionCache):
    """Loads what is kept without making the compiler ready, which would take four times as long."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """None where nothing is kept; then the compiler is needed, and made ready.

        What is kept names its types by module and class. Where sources have moved or renamed one, it cannot
        even be read to see that it is out of date; it is thrown away.
        """
        with self._guard_against_spurious_io_errors():
            try:
                found = cast(Any, self)._load_overload(sig, target_context)
            except (AttributeError, ImportError):
                cast(Any, self).flush()
                found = None
        return cast(Any, super()).load_overload(sig, target_context) if found is None else found


def _decorated(function: Function, **options: bool) -> Function:
    """No lock of the interpreter, no reference counts, no exceptions: what runs here allocates nothing,
    raises nothing and divides by nothing that can be zero.
    """
    config, njit = cast(Any, numba.config), cast(Any, numba.njit)
    before = config.CACHE_LOCATOR_CLASSES
    config.CACHE_LOCATOR_CLASSES = ",".join(f"{__name__}.{kind.__name__}" for kind in (Given, Beside, Home))
    try:
        dispatcher = njit(nogil=True, _nrt=False, error_model="numpy", **options)(function)
        dispatcher._cache = cast(Any, _Kept)(function)
        return cast(Function, dispatcher)
    finally:
        config.CACHE_LOCATOR_CLASSES = before


def compiled(function: Function) -> Function:
    """Compiled when first called, cached on disk, running beside other threads."""
    return _decorated(function)


def inlined(function: Function) -> Function:
    """A part of compiled functions: put in place, because handing over thirty arrays costs more."""
    return _decorated(function, forceinline=True)
