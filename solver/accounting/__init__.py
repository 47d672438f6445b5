"""Facts about a program that need no search: costs, bounds on the peak, gaps between touches, and clocks.

    costs      nanoseconds and floating-point operations of each step: a roofline, or as measured
    clocks     nanoseconds of an iteration with its copies, one transfer at a time on a channel
    problem    what steps read and write, and which of them may run again, as numbers
    bounds     how small the peak can be in any order, without recomputation and with any
    homes      nanoseconds of accesses to memories, by the home of each value, and a bound on them
    gaps       when values are not touched, so that they may leave for slower memory

The searches (`solver.schedules`) and the proof (`solver.verify`) both read these, so that they mean the same.
Nothing here is compiled, and nothing decides.
"""

from solver.accounting.bounds import PeakBound, floor, order_bound, shareable
from solver.accounting.clocks import (
    Traffic,
    busy_with,
    elapsed,
    home_figures,
    is_copy,
    least_elapsed,
    level_costs,
    traffic,
)
from solver.accounting.costs import flops_of, roofline, step_costs
from solver.accounting.gaps import Gap, GapKind, PagingProblem, paging_problem
from solver.accounting.homes import (
    HomeItem,
    HomeProblem,
    added_up_homes,
    as_one_memory,
    home_problem,
    in_memories,
    level_accesses,
    places_of,
)
from solver.accounting.problem import ScheduleProblem, schedule_problem

__all__ = [
    "Gap",
    "GapKind",
    "HomeItem",
    "HomeProblem",
    "PagingProblem",
    "PeakBound",
    "ScheduleProblem",
    "Traffic",
    "added_up_homes",
    "as_one_memory",
    "busy_with",
    "elapsed",
    "floor",
    "flops_of",
    "home_figures",
    "home_problem",
    "in_memories",
    "is_copy",
    "least_elapsed",
    "level_accesses",
    "level_costs",
    "order_bound",
    "paging_problem",
    "places_of",
    "roofline",
    "schedule_problem",
    "shareable",
    "step_costs",
    "traffic",
]
