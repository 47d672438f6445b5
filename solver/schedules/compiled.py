"""Compiled where something compiles here, and plain Python a hundred times slower elsewhere."""

from __future__ import annotations

from functools import partial
from typing import Final

from solver.layout.compiled.jit import compiled as _compiled
from solver.layout.compiled.jit import inlined

__all__ = ["compiled", "inlined"]

compiled: Final = partial(_compiled, plain=True)
