"""The order in which Apache SINGA would run a graph, and what of it is in place."""

from __future__ import annotations

from functools import partial

from solver.graph import Graph
from solver.graph.nodes import graph_nodes
from solver.liveness.use_def import verify_program
from solver.schedule.in_place import share_in_place
from solver.schedule.order import updates_when_legal
from solver.targets.singa import Sharing, as_singa, shares, unfused
from solver.training import TrainingProgram, derive

__all__ = ["singa_program"]


def singa_program(graph: Graph, level: Sharing = Sharing.DERIVATIVES_OF_SUMS) -> TrainingProgram:
    """The operations of the singa target, each update as soon as its gradient is there; verified."""
    graph = unfused(graph)
    nodes = graph_nodes(graph)
    program = updates_when_legal(as_singa(derive(graph, nodes), nodes, level))
    verify_program(program)
    return share_in_place(program, nodes, partial(shares, level))
