"""Compiled code into this process before a solve has to wait for it."""

from __future__ import annotations

import numpy as np

from solver.layout.exact.feasibility import search_is_compiled
from solver.layout.greedy.index import placing_is_compiled
from solver.native import runs_compiled

__all__ = ["load_compiled"]


def load_compiled() -> bool:
    """All of it: from disk at once, or compiled now, which takes half a minute.

    False where nothing compiles here. What is called here, and with arguments of the types that it is called
    with here, is all that ever runs compiled: what is compiled in the middle of a solve hears no deadline.
    """
    return all([search_is_compiled(), placing_is_compiled(), _sweep_loaded()])


def _sweep_loaded() -> bool:
    from solver.layout.check.sweep import disjoint, sweep

    zero, one = np.zeros(1, np.int64), np.ones(1, np.int64)
    disjoint(zero, one, zero, one)
    return runs_compiled(sweep)
