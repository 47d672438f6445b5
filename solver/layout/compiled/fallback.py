"""Says once that nothing can be compiled here, wherever that is noticed first."""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["UNCOMPILED", "WarnOnce", "warn_uncompiled"]

#: What goes wrong where code cannot be compiled, or kept: no numba, no LLVM, no place to write to.
UNCOMPILED: Final = (ImportError, OSError, RuntimeError)  # numba's own errors are of the first and the last


class WarnOnce:
    """Logs one warning in its life, with the first reason."""

    def __init__(self) -> None:
        self._warned = False

    def __call__(self, reason: object) -> None:
        if not self._warned:
            self._warned = True
            logger = logging.getLogger(__name__)
            logger.warning("Layouts are made without compiled code, which is slow: %s", reason)


#: The one of this process.
warn_uncompiled: Final = WarnOnce()
