"""``python -m solver.compile``: compiles now what would otherwise be compiled when it is first needed.

That is the layout search and the search for schedules. ``--check`` compiles nothing: it tells whether what
was compiled before loads, for this user and from where this package is installed. Use ``python -P`` where
the working directory holds the sources of an installed package: otherwise Python takes those.
"""

from __future__ import annotations

from collections.abc import Sequence

from solver.layout.compile import main as compile_by
from solver.layout.ready import load_compiled
from solver.schedules.ready import load_schedules

__all__ = ["load", "main"]


def load() -> bool:
    """All compiled code into this process; False where nothing compiles here (the log says why)."""
    return all([load_compiled(), load_schedules()])


def main(arguments: Sequence[str] | None = None) -> int:
    """Fills the cache of compiled code, or checks it; 1 where that fails (the log says why)."""
    return compile_by(arguments, load=load, name="solver.compile")


if __name__ == "__main__":
    raise SystemExit(main())
