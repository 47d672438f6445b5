"""Liveness: use-def chains, lifespans, conflict sets, and the buffers they lead to."""

from solver.liveness.analyze import analyze
from solver.liveness.blocks import (
    BlockClass,
    Carry,
    Hazard,
    Ordering,
    ValueEdge,
    analyze_blocks,
    block_classes,
    block_lifespans,
    carries,
    orderings,
    predecessors,
    value_edges,
)
from solver.liveness.conflicts import conflict_pairs, conflict_sets
from solver.liveness.lifespans import lifespans
from solver.liveness.use_def import UseDefChain, use_def_chains, verify_program, verify_reordering

__all__ = [
    "BlockClass",
    "Carry",
    "Hazard",
    "Ordering",
    "UseDefChain",
    "ValueEdge",
    "analyze",
    "analyze_blocks",
    "block_classes",
    "block_lifespans",
    "carries",
    "conflict_pairs",
    "conflict_sets",
    "lifespans",
    "orderings",
    "predecessors",
    "use_def_chains",
    "value_edges",
    "verify_program",
    "verify_reordering",
]
