"""Compiled functions, each loaded when it is first called: from disk without numba, or else by numba.

    Kernel("module", "name", example)     `example` makes arguments of the types that it is called with

Machine code takes arrays as one block of numbers, and integers and fractions as they are (`native`). So a
kernel takes arrays, named tuples of arrays, integers and floats, and returns an integer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from solver.layout.compiled import native

__all__ = ["Bound", "Kernel"]

#: A function whose arrays are bound.
Bound = Callable[..., int]


class Kernel:
    """One function. Loading raises what `UNCOMPILED` names where nothing compiles here, each time."""

    def __init__(self, module: str, name: str, example: Callable[[], tuple[Any, ...]]) -> None:
        self._module, self._name, self._example = module, name, example
        self._lock = threading.Lock()
        self._bind: Callable[..., Bound] | None = None

    def __call__(self, *arguments: Any) -> int:
        arrays, scalars = native.parted(arguments)
        return self.bind(*arrays)(*scalars)

    def bind(self, *arrays: Any) -> Bound:
        """The function of the integers and floats alone, for these arrays, which stay where they are."""
        with self._lock:
            if self._bind is None:
                self._bind = native.load(self._name) or self._compiled()
        return self._bind(*arrays)

    def _compiled(self) -> Callable[..., Bound]:
        """Compiles it now, and keeps it; as numba has it where machine code alone is of no use."""
        from solver.layout.compiled.emit import announce, machine_code

        function, example = getattr(import_module(self._module), self._name), self._example()
        announce(function)
        try:
            made = machine_code(function, example)
            native.keep(self._name, made)
            return native.link(made)
        except (AttributeError, ImportError, OSError, RuntimeError, TypeError, ValueError):
            is_scalar = [native.scalar(argument) for argument in example]
            return partial(_called, function, is_scalar)


def _called(function: Callable[..., int], is_scalar: list[bool], *arrays: Any) -> Bound:
    def call(*scalars: float) -> int:
        one, other = iter(arrays), iter(scalars)
        return function(*(next(other) if scalar else next(one) for scalar in is_scalar))

    return call
