"""From a graph to a verified program in its execution order."""

from __future__ import annotations

from solver.errors import OptionsError
from solver.graph import Graph
from solver.graph.nodes import graph_nodes
from solver.liveness.use_def import verify_program, verify_reordering
from solver.schedule.in_place import share_in_place
from solver.schedule.order import UPDATE_MODES, updates_when_legal
from solver.schedule.singa import singa_program
from solver.schedule.waves import MAX_WORKERS, blocks_in_waves, in_waves
from solver.training import UPDATE, TrainingProgram, derive

__all__ = ["MAX_WORKERS", "UPDATE_MODES", "blocks_in_waves", "singa_program", "training_program"]


def training_program(
    graph: Graph, *, scratch_budget: int, update: str, workers: int = 1, in_place: bool = False
) -> TrainingProgram:
    """Derive, order, group into waves for several workers, and verify. Deterministic.

    With `in_place` operands are defined in the memory of others where that is safe
    (`solver.schedule.in_place`). `scratch_budget` is in bytes a step. Raises OptionsError for an unknown
    update mode or a number of workers out of range, and a GraphError when a check on the program fails.
    """
    if update not in UPDATE_MODES:
        raise OptionsError(
            f"Unknown update mode {update!r}.",
            remedy=f"Choose one of {list(UPDATE_MODES)}.",
            path=("update",),
        )
    if scratch_budget < 1:
        raise OptionsError(
            f"A scratch budget of {scratch_budget} bytes is not positive.",
            remedy="Give at least 1 byte; a step takes one example at a time however small it is.",
            path=("scratch_budget",),
        )
    nodes = graph_nodes(graph, scratch_budget)
    program = derive(graph, nodes)
    verify_program(program)
    stage = next((t for t, step in enumerate(program.steps) if step.kernel == UPDATE), 0)
    if update != "end":
        ordered = updates_when_legal(program)
        verify_program(ordered)
        verify_reordering(program, ordered)
        program, stage = ordered, 0
    program = in_waves(program, workers, stage=stage)
    return share_in_place(program, nodes) if in_place else program
