"""Buffers in, offsets out: `solve` is the one entry point, the rest are its types and tools.

The rooms, from the bottom to the top; each knows those above it in this list alone:

    model       what is asked and answered; a problem as arrays; what is decided before any search
    kernels     compiled: the skyline search, an index of free space, lists of pieces
    bounds      how small can an arena be, and what may be claimed of a layout
    check       is it a problem, is it a layout of it; shares no code with solvers
    greedy      placing in an order, with holes and without; local search among orders
    structures  problems of a special structure, each with its theorem
    exact       the skyline search asked once, and up to the optimum; a large problem made coarse; CP-SAT
    baselines   the planners of other systems
    portfolio   the default solver: which stage runs when
    api         the way in: preconditions, a solver, postconditions
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from solver.late import loaded_late
from solver.layout.bounds import LowerBound, above_reserved, live_at, max_load
from solver.layout.check import Violation, check_problem, find_violations
from solver.layout.model.options import Progress, Rules, SolveOptions
from solver.layout.model.pieces import Piece, in_pieces, pieces
from solver.layout.model.placed import (
    Alignment,
    Certificate,
    LayoutOptions,
    Pin,
    PlacedBuffers,
    PlacedHomes,
    PlacedMemory,
)
from solver.layout.model.problem import (
    MAX_BYTES,
    Buffer,
    Deadline,
    Hole,
    Layout,
    LayoutProblem,
    LayoutSolver,
    Lifespan,
    Outcome,
    Proof,
    Reserved,
    Status,
)

if TYPE_CHECKING:
    from solver.layout.api import SOLVERS, solve

__all__ = [
    "MAX_BYTES",
    "SOLVERS",
    "Alignment",
    "Buffer",
    "Certificate",
    "Deadline",
    "Hole",
    "Layout",
    "LayoutOptions",
    "LayoutProblem",
    "LayoutSolver",
    "Lifespan",
    "LowerBound",
    "Outcome",
    "Piece",
    "Pin",
    "PlacedBuffers",
    "PlacedHomes",
    "PlacedMemory",
    "Progress",
    "Proof",
    "Reserved",
    "Rules",
    "SolveOptions",
    "Status",
    "Violation",
    "above_reserved",
    "check_problem",
    "find_violations",
    "in_pieces",
    "live_at",
    "max_load",
    "pieces",
    "solve",
]

#: What loads solvers and compiled code: only when it is asked for, so that a program that needs the
#: types alone, as a checker of plans does, loads none of them.
__getattr__ = loaded_late(__name__, {"api": "SOLVERS solve"})
