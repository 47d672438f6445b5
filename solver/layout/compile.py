"""``python -m solver.layout.compile``: compiles now what would otherwise be compiled at the first solve.

``--check`` compiles nothing: it tells whether what was compiled before loads, for this user and from where
this package is installed. Use ``python -P`` where the working directory holds the sources of an installed
package: otherwise Python takes those. ``--libraries`` is for images: compile for any processor
(``NUMBA_CPU_NAME=generic NUMBA_CPU_FEATURES=``), and neither numba nor llvmlite is needed to run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path

from solver.layout.compiled.jit import keep_libraries, only_kept
from solver.layout.ready import load_compiled

__all__ = ["main"]


def main(
    arguments: Sequence[str] | None = None,
    load: Callable[[], bool] = load_compiled,
    name: str = "solver.layout.compile",
) -> int:
    """Fills the cache of compiled code, or checks it; 1 where that fails (the log says why)."""
    parser = argparse.ArgumentParser(prog=f"python -m {name}")
    parser.add_argument("--check", action="store_true", help="load what was compiled before, compile nothing")
    parser.add_argument(
        "--libraries",
        action="store_true",
        help="keep shared libraries too, which run where neither numba nor llvmlite is; needs ld",
    )
    options = parser.parse_args(arguments)
    check = options.check
    began = time.perf_counter()
    with only_kept() if check else nullcontext():
        if not load():
            return 1
    if options.libraries:
        keep_libraries()
    seconds, place = time.perf_counter() - began, Path(__file__).parent
    verb = "loads" if check else "is compiled"
    sys.stdout.write(f"The layout search in {place} {verb} ({seconds:.1f} s).\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
