"""Says once that nothing can be compiled here, wherever that is noticed first."""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["UNCOMPILED", "warn_uncompiled"]

#: What goes wrong where code cannot be compiled, or kept: no numba, no LLVM, no place to write to.
UNCOMPILED: Final = (ImportError, OSError, RuntimeError)  # numba's own errors are of the first and the last

_said: list[str] = []


def warn_uncompiled(reason: object) -> None:
    """One warning in a process, with the first reason."""
    if not _said:
        _said.append(str(reason))
        logger = logging.getLogger(__name__)
        logger.warning("Layouts are made without compiled code, which is slow: %s", reason)
