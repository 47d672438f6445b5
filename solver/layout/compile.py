"""``python -m solver.layout.compile``: compiles now what would otherwise be compiled at the first solve.

``--check`` compiles nothing: it tells whether what was compiled before loads, for this user and from where
this package is installed. Use ``python -P`` where the working directory holds the sources of an installed
package: otherwise Python takes those.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

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
    check = parser.parse_args(arguments).check
    began = time.perf_counter()
    with _nothing_compiled() if check else nullcontext():
        if not load():
            return 1
    seconds, place = time.perf_counter() - began, Path(__file__).parent
    verb = "loads" if check else "is compiled"
    sys.stdout.write(f"The layout search in {place} {verb} ({seconds:.1f} s).\n")
    return 0


def _nothing_compiled() -> AbstractContextManager[Any]:
    """Turns the need to compile into a failure, at once: the compiler would take a minute or two."""
    try:
        from numba.core import event
    except ImportError:
        return nullcontext()  # nothing compiles here, which `load_compiled` will say

    class Refusal(event.Listener):
        def on_start(self, event: Any) -> None:
            raise RuntimeError(f"{event.data['dispatcher'].py_func.__name__} was not compiled before")

        def on_end(self, event: Any) -> None:
            """Never reached."""

    found: AbstractContextManager[Any] = event.install_listener("numba:compile", Refusal())
    return found


if __name__ == "__main__":
    raise SystemExit(main())
