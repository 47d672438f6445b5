"""``python -m solver.layout.compile``: compiles now what would otherwise be compiled at the first solve."""

from __future__ import annotations

import sys
import time

from solver.layout.ready import load_compiled

__all__ = ["main"]


def main() -> int:
    """Fills the cache of compiled code; 1 where nothing can be compiled (the log says why)."""
    began = time.perf_counter()
    if not load_compiled():
        return 1
    sys.stdout.write(f"The layout search is compiled ({time.perf_counter() - began:.1f} s).\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
