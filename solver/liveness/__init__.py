"""Liveness: use-def chains, lifespans, conflict sets, and the buffers they lead to."""

from solver.liveness.analyze import analyze
from solver.liveness.conflicts import conflict_pairs, conflict_sets
from solver.liveness.lifespans import lifespans
from solver.liveness.use_def import UseDefChain, use_def_chains, verify_program, verify_reordering

__all__ = [
    "UseDefChain",
    "analyze",
    "conflict_pairs",
    "conflict_sets",
    "lifespans",
    "use_def_chains",
    "verify_program",
    "verify_reordering",
]
