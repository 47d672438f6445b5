"""Is this a problem, and is this a layout of it? Shares no code with the solvers.

reference    each rule by its definition, quadratic: what is trusted
fast         the same answer for a million buffers, in arrays; sweep is its compiled part
problem      what a problem must be, before any solver sees it
"""

from solver.layout.check.fast import find_violations, is_sound
from solver.layout.check.problem import check_holes, check_problem
from solver.layout.check.reference import Violation

__all__ = ["Violation", "check_holes", "check_problem", "find_violations", "is_sound"]
