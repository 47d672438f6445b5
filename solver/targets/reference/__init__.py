"""The reference target: what this project's own kernels need, in one arena."""

from __future__ import annotations

from typing import ClassVar

from solver.graph import DType, TrainableGraph
from solver.graph.nodes import graph_nodes
from solver.passes import Pass, chosen
from solver.preparations import Prepared
from solver.program import check_program
from solver.targets.base import Capabilities, Lowered, Target, TargetOptions, aligned
from solver.training import derive, with_storage

__all__ = ["ALIGNMENT", "Reference", "TrainableGraph"]

#: A cache line, and the widest vector register of today's CPUs (AVX-512).
ALIGNMENT = 64


class Reference(Target):
    """Weights, activations, derivatives, optimizer state and scratch share one arena."""

    name = "reference"
    title = "the project's own kernels: one arena, 64-byte alignment"
    capabilities: ClassVar[Capabilities] = Capabilities(
        trains=True,
        update=True,
        in_place=True,
        sub_ranges=True,
        parallelism=True,
        rewrite=True,
        recompute=True,
        order=True,
        paging=True,
        storage=True,
        stored=True,
        scratch=True,
    )

    def reference(self, prepared: Prepared, options: TargetOptions) -> Lowered:
        program = derive(prepared.graph, graph_nodes(prepared.graph, prepared.scratch_budget))
        if prepared.storage is not None:
            program = with_storage(program, DType(prepared.storage))
        check_program(program)
        return aligned(program, options.alignment or ALIGNMENT)

    def passes(self, options: TargetOptions) -> tuple[Pass, ...]:
        return chosen(options)
