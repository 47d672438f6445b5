"""``python -m solver.compile``: compiles now what would otherwise be compiled when it is first needed.

That is the layout search and the search for schedules. ``--check`` compiles nothing: it tells whether what
was compiled before loads, for this user and from where this package is installed. Use ``python -P`` where
the working directory holds the sources of an installed package: otherwise Python takes those.
``--in-package`` keeps compiled code inside the package, as an image needs it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from solver.layout.ready import load_compiled
from solver.native import PACKAGE_CACHE, only_kept
from solver.schedules.ready import load_schedules

__all__ = ["load", "main"]


def load() -> bool:
    """Loads all compiled code into this process; returns False where nothing compiles (the log says why)."""
    return all([load_compiled(), load_schedules()])


def main(arguments: Sequence[str] | None = None) -> int:
    """Fills the cache of compiled code, or checks it; returns 1 where that fails (the log says why)."""
    parser = argparse.ArgumentParser(prog="python -m solver.compile")
    parser.add_argument("--check", action="store_true", help="load what was compiled before, compile nothing")
    parser.add_argument("--in-package", action="store_true", help="keep compiled code inside the package")
    options = parser.parse_args(arguments)
    if options.in_package:
        os.environ["NUMBA_CACHE_DIR"] = str(PACKAGE_CACHE)
    began = time.perf_counter()
    with only_kept() if options.check else nullcontext():
        if not load():
            return 1
    seconds, verb = time.perf_counter() - began, "loads" if options.check else "is compiled"
    sys.stdout.write(f"The search of {Path(__file__).parent} {verb} ({seconds:.1f} s).\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
