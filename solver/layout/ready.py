"""Compiled code into this process before anybody waits for it."""

from __future__ import annotations

from solver.layout.decider import compiled_search
from solver.layout.index import kernel

__all__ = ["load_compiled"]


def load_compiled() -> bool:
    """From disk at once, or compiled now, which takes half a minute; False where nothing compiles here."""
    return all([compiled_search() is not None, kernel() is not None])
