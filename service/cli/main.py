"""The entry point: the script ``arenaplan``, and ``python -m service.cli``."""

from __future__ import annotations

import gc
import sys

from service.cli.fast_path import read_fast

__all__ = ["main"]


def main() -> None:
    """Run the command line and exit; never a traceback for what a caller can cause."""
    solve = read_fast(sys.argv[1:])
    if solve is not None:
        # A process that lives for one answer: looking for garbage while it loads, and once more when it ends,
        # takes a fifth of its time and finds nothing worth having.
        gc.disable()
        try:
            solve.run()
        finally:
            gc.freeze()
        return
    from service.cli.commands import app

    app()
