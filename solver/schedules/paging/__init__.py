"""Which values leave for slower memory, and when they are back, so that fast memory keeps within its bytes.

    cover        which gaps are paged: few bytes moved; loads NumPy, so it is imported where it runs
    homes        which slower memory holds each value; loads NumPy, too
    transfers    from the gaps to a program with copies, and the levels on which these run

The gaps, and how long an iteration takes, are facts about a program: `solver.accounting`.
"""

from solver.schedules.paging.transfers import (
    Timetable,
    Transfer,
    in_tiers,
    slow_lives,
    timetable,
    with_transfers,
)

__all__ = ["Timetable", "Transfer", "in_tiers", "slow_lives", "timetable", "with_transfers"]
