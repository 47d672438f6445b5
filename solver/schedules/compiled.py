"""Compiled where something compiles here, and plain Python a hundred times slower elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from solver.layout.compiled.fallback import UNCOMPILED, warn_uncompiled

__all__ = ["compiled", "inlined"]

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Compiled; the function itself where nothing compiles here, or what is compiled cannot be kept."""
    try:
        from solver.layout.compiled.jit import compiled as decorated

        return decorated(function)
    except UNCOMPILED as error:
        warn_uncompiled(error)
        return function


def inlined(function: Function) -> Function:
    """A part of compiled functions; the function itself where nothing compiles here."""
    try:
        from solver.layout.compiled.jit import inlined as decorated

        return decorated(function)
    except UNCOMPILED as error:
        warn_uncompiled(error)
        return function
