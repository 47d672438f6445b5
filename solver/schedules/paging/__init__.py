"""What leaves for slower memory and when it is back, so that the fast one keeps its bytes.

gaps         when values are not touched, and what is there in any case
cover        which gaps are paged: few bytes moved; loads NumPy, so it is imported where it runs
model        the integer program, in CP-SAT
homes        which slower memory holds what; loads NumPy, too
timetable    on which levels transfers run
transfers    from the gaps to a program with copies
clocks       how long an iteration takes, with one transfer at a time on a channel
"""

from solver.schedules.paging.clocks import Traffic, elapsed, is_copy, least_elapsed, level_costs, traffic
from solver.schedules.paging.gaps import Gap, GapKind, PagingProblem, paging_problem
from solver.schedules.paging.timetable import Timetable, Transfer, timetable
from solver.schedules.paging.transfers import in_tiers, slow_lives, with_transfers

__all__ = [
    "Gap",
    "GapKind",
    "PagingProblem",
    "Timetable",
    "Traffic",
    "Transfer",
    "elapsed",
    "in_tiers",
    "is_copy",
    "least_elapsed",
    "level_costs",
    "paging_problem",
    "slow_lives",
    "timetable",
    "traffic",
    "with_transfers",
]
