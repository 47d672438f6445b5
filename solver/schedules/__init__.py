"""Searches for schedules: the order of the steps, which of them run again, and what leaves for slower memory.

    order        another order of the steps, with a lower peak
    recompute    which steps run again, at the least cost
    paging       which values leave for slower memory, and when

    schedule     the types that these searches report in
    tables       the problem as flat arrays, for compiled code
    native       threads in which solvers of native code run

Programs come in and go out; nothing here knows a graph or a layout. What costs and bounds are is decided in
`solver.accounting`.
"""

from solver.schedules.recompute.rerun import rerun
from solver.schedules.schedule import Schedule, ScheduleProof, SearchProgress, Teller

__all__ = ["Schedule", "ScheduleProof", "SearchProgress", "Teller", "rerun"]
