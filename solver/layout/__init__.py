"""Buffers in, offsets out: `solve` is the one door, the rest are its types and tools."""

from solver.layout.certificate import Certificate
from solver.layout.check import Violation, check_problem, find_violations
from solver.layout.door import SOLVERS, solve
from solver.layout.load import LowerBound, live_at, max_load
from solver.layout.options import Progress, Rules, SolveOptions
from solver.layout.placed import LayoutOptions, PlacedBuffers
from solver.layout.problem import (
    MAX_BYTES,
    Buffer,
    Deadline,
    Layout,
    LayoutSolver,
    Lifespan,
    Outcome,
    Problem,
    Proof,
    Status,
)

__all__ = [
    "MAX_BYTES",
    "SOLVERS",
    "Buffer",
    "Certificate",
    "Deadline",
    "Layout",
    "LayoutOptions",
    "LayoutSolver",
    "Lifespan",
    "LowerBound",
    "Outcome",
    "PlacedBuffers",
    "Problem",
    "Progress",
    "Proof",
    "Rules",
    "SolveOptions",
    "Status",
    "Violation",
    "check_problem",
    "find_violations",
    "live_at",
    "max_load",
    "solve",
]
