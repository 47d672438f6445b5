"""Checks plans without trusting their makers: a symbolic proof in the arena's bytes, and the figures.

This package knows types and operator facts. It imports no pass, no solver and no compiled code.
"""

from solver.plan.violation import Violation
from solver.verify.accesses import AccessFault, AccessRule, MemoryAccess, check_accesses
from solver.verify.figures import check_figures
from solver.verify.proof import prove

__all__ = [
    "AccessFault",
    "AccessRule",
    "MemoryAccess",
    "Violation",
    "check_accesses",
    "check_figures",
    "prove",
]
