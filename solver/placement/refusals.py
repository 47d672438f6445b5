"""Refusals that layouts of one memory and of several have in common."""

from __future__ import annotations

from typing import Final

from solver.errors import OptionsError

__all__ = ["MOST_NAMED", "no_layout"]

#: Buffers named in an error that a capacity is too small; the report would be as long as the problem.
MOST_NAMED: Final = 100


def no_layout(solver: str, *, in_time: bool) -> OptionsError:
    """The solver has no layout, and nothing says that there is none: not a question of capacity."""
    if in_time:
        return OptionsError(
            f"The solver {solver!r} found no layout of this problem.",
            remedy='It may not take pins or alignments: use "portfolio".',
            path=("solver",),
        )
    return OptionsError(
        f"Time ran out before the solver {solver!r} had a layout.",
        remedy='Give more time, or use "portfolio", which always has one.',
        path=("deadline_seconds",),
    )
