"""Loads the compiled code of the search for schedules before a search has to wait for it."""

from __future__ import annotations

from solver.accounting.problem import ScheduleProblem
from solver.layout import Deadline
from solver.native import runs_compiled

__all__ = ["load_schedules"]

#: Two steps, one value: enough to call everything that runs compiled, with the types that it is called with.
_SMALLEST = ScheduleProblem(
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
    given=(False,),
    kept=(False,),
    maker=(0,),
    together=(0,),
    fixed=0,
)


def load_schedules() -> bool:
    """Load all of it: from disk at once, or compiled now, which takes half a minute.

    Returns whether compiled code runs; where nothing compiles, the same functions run as plain Python.
    """
    from solver.schedules.order.orders import Orders
    from solver.schedules.recompute.kernel import simulate
    from solver.schedules.recompute.sequences import Sequences
    from solver.schedules.recompute.simulate import Simulator

    simulator = Simulator(_SMALLEST)
    simulator.repair(simulator.start(), 0, 1, Deadline())
    sequences = Sequences(_SMALLEST)
    sequences.measure((0, 1))
    sequences.walk((0, 1), 1, 1, seed=0, hot=1, weight=1, deadline=Deadline())
    Orders(_SMALLEST, (frozenset(), frozenset({0}))).walk(
        (0, 1), 0, 1, target=0, hot=1, seed=0, deadline=Deadline()
    )
    return runs_compiled(simulate)
