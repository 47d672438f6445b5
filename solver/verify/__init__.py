"""Checks plans without trusting their makers: a symbolic proof in the arena's bytes, and the figures.

This package knows types and operator facts. It imports no pass, no solver and no compiled code.
"""

from solver.plan.violation import Violation
from solver.verify.accesses import AccessFault, AccessRule, MemoryAccess, check_accesses
from solver.verify.cost import added_up, check_cost_bound, check_recomputation
from solver.verify.figures import check_figures
from solver.verify.names import check_labels
from solver.verify.proof import prove
from solver.verify.unchecked import UNCHECKED, is_unchecked

__all__ = [
    "UNCHECKED",
    "AccessFault",
    "AccessRule",
    "MemoryAccess",
    "Violation",
    "added_up",
    "check_accesses",
    "check_cost_bound",
    "check_figures",
    "check_labels",
    "check_recomputation",
    "is_unchecked",
    "prove",
]
