"""``python -m solver.compile``: compiles now what would otherwise be compiled when it is first needed.

That is the layout search and the search for schedules, in two processes. ``--check`` compiles nothing: it
tells whether what was compiled before loads, for this user and from where this package is installed. Use
``python -P`` where the working directory holds the sources of an installed package: otherwise Python takes
those. ``--in-package`` keeps compiled code inside the package, as an image needs it.
"""

from __future__ import annotations

import argparse
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.native import PACKAGE_CACHE, compiling_after, runs_compiled, writable

__all__ = ["load", "main"]

_log = logging.getLogger(__name__)

#: The remedy where this user cannot keep compiled code.
_NOWHERE: Final = (
    "who installs the package runs python -m solver.compile --in-package,"
    " or NUMBA_CACHE_DIR names a directory that can be written"
)

#: Two steps, one value: enough to call each compiled function, with arguments of the types that it is for.
_SMALLEST: Final = ScheduleProblem(
    steps=("write", "read"),
    reads=((), (0,)),
    writes=((0,), ()),
    updates=((), ()),
    scratch=(0, 0),
    scratch_again=(0, 0),
    cost=(1, 1),
    until=(2, -1),
    values=("value",),
    size=(1,),
    fed=(False,),
    kept=(False,),
    maker=(0,),
    together=(0,),
    fixed=0,
)


def load(*, compiles: bool = True, smallest_first: bool = True) -> bool:
    """Loads all compiled code into this process, and (`compiles`) compiles what is not on disk.

    Returns False where something does not load or compile (the log says why). A search that compiles in the
    middle hears no deadline meanwhile, so nothing compiled is called with other types than here.
    """
    if compiles and not writable():
        _log.warning("No directory can be written to keep compiled code: set NUMBA_CACHE_DIR.")
        compiles = False
    parts = _PARTS if smallest_first else _PARTS[::-1]
    with compiling_after(0 if compiles else math.inf):
        return all(part() for part in parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Fills the cache of compiled code, or checks it; returns 1 where that fails (the log says why)."""
    parser = argparse.ArgumentParser(prog="python -m solver.compile")
    parser.add_argument("--check", action="store_true", help="load what was compiled before, compile nothing")
    parser.add_argument("--in-package", action="store_true", help="keep compiled code inside the package")
    parser.add_argument("--beside", action="store_true", help=argparse.SUPPRESS)  # see solver.native
    options = parser.parse_args(arguments)
    if options.in_package:  # what lies in the cache of this user helps no other one
        os.environ["NUMBA_CACHE_DIR"] = str(PACKAGE_CACHE)
        for name in ("XDG_CACHE_HOME", "HOME"):
            os.environ.pop(name, None)
        if not options.check and not writable():
            sys.stderr.write(f"{PACKAGE_CACHE} cannot be written: run this as who installs the package.\n")
            return 1
    if options.beside and hasattr(os, "nice"):
        os.nice(10)
    began = time.perf_counter()
    if options.check and not load(compiles=False):
        remedy = "run python -m solver.compile" if writable() else _NOWHERE
        sys.stderr.write(f"The search was not compiled before: {remedy}\n")
        return 1
    if not options.check and not load(smallest_first=options.beside):
        return 1
    seconds, verb = time.perf_counter() - began, "loads" if options.check else "is compiled"
    sys.stdout.write(f"The search of {Path(__file__).parent} {verb} ({seconds:.1f} s).\n")
    return 0


def _sweep() -> bool:
    from solver.layout.check.sweep import is_compiled

    return is_compiled()


def _placing() -> bool:
    from solver.layout.greedy.index import placing_is_compiled

    return placing_is_compiled(compiles=True)


def _search() -> bool:
    from solver.layout.exact.feasibility import search_is_compiled

    return search_is_compiled()


def _repair() -> bool:
    from solver.schedules.recompute.kernel import simulate
    from solver.schedules.recompute.simulate import Simulator

    simulator = Simulator(_SMALLEST)
    simulator.repair(simulator.start(), 0, 1, Deadline())
    return runs_compiled(simulate)


def _order() -> bool:
    from solver.schedules.order.order_kernel import walk
    from solver.schedules.order.search import Orders

    orders = Orders(_SMALLEST, (frozenset(), frozenset({0})))
    orders.walk((0, 1), 0, 1, target=0, hot=1, seed=0, deadline=Deadline())
    return runs_compiled(walk)


def _sequences() -> bool:
    from solver.schedules.recompute.sequence_kernel import walk
    from solver.schedules.recompute.sequences import Sequences

    sequences = Sequences(_SMALLEST)
    sequences.measure((0, 1))
    sequences.walk((0, 1), 1, 1, seed=0, hot=1, weight=1, deadline=Deadline())
    return runs_compiled(walk)


#: Each loads, or compiles, kernels and returns whether they run compiled. The fastest to compile comes first.
_PARTS: Final[tuple[Callable[[], bool], ...]] = (_sweep, _repair, _order, _sequences, _placing, _search)

if __name__ == "__main__":
    raise SystemExit(main())
