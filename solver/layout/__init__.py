"""Buffers in, offsets out: `solve` is the one door, the rest are its types and tools.

In reading order:

    problem, options, outcome             what is asked and answered
    pieces, check, load, columns, sweep   is it a layout, how small can one be; share no code with solvers
    instance, reduce, crowd               sections of time; what is decided before any search
    greedy, skyline, index*, large        placing in an order: plain, and at scale with an index of free space
    skyline_survey, _choice, _kernel,     the compiled search: the picture, who goes first, depth first,
      _parts, _table, _blame, _board        decomposition, memory of what was refuted, explanations, arrays
    priorities, decider, ladder           orders; one question to two seeds; many questions to the optimum
    coarse                                a large problem made small for search
    skyline_search, branch_and_bound      the same search in Python
    search, cp_sat, baselines             local search, CP-SAT, the planners of other systems
    gaps                                  lifespans with gaps
    portfolio, door                       what is tried in which order; the way in
    jit, plain, compile, ready            compiled code on disk, and what happens without
    certificate, placed                   a layout with its proof, as a document holds it
"""

from solver.layout.certificate import Certificate
from solver.layout.check import Violation, check_problem, find_violations
from solver.layout.door import SOLVERS, solve
from solver.layout.load import LowerBound, live_at, max_load
from solver.layout.options import Progress, Rules, SolveOptions
from solver.layout.pieces import Piece, in_pieces, pieces
from solver.layout.placed import LayoutOptions, PlacedBuffers
from solver.layout.problem import (
    MAX_BYTES,
    Buffer,
    Deadline,
    Gap,
    Layout,
    LayoutSolver,
    Lifespan,
    Outcome,
    Problem,
    Proof,
    Status,
)
from solver.layout.ready import load_compiled

__all__ = [
    "MAX_BYTES",
    "SOLVERS",
    "Buffer",
    "Certificate",
    "Deadline",
    "Gap",
    "Layout",
    "LayoutOptions",
    "LayoutSolver",
    "Lifespan",
    "LowerBound",
    "Outcome",
    "Piece",
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
    "in_pieces",
    "live_at",
    "load_compiled",
    "max_load",
    "pieces",
    "solve",
]
