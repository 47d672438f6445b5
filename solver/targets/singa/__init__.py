"""The singa target: the operations that Apache SINGA buffers, and what of them is in place."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from solver.graph import TrainableGraph
from solver.graph.nodes import graph_nodes
from solver.passes import Order, Pass
from solver.passes.aliases import define_in_place
from solver.preparations import Prepared
from solver.program import Program, check_program
from solver.targets.base import Capabilities, Lowered, Target, TargetOptions, aligned
from solver.targets.singa.convert import ALIGNMENT, Sharing, as_singa, shares, unfused
from solver.training import derive

__all__ = ["ALIGNMENT", "Sharing", "Singa", "SingaRelu", "singa_program", "unfused"]


@dataclass(frozen=True, slots=True)
class _InPlace(Pass):
    """The pairs that SINGA defines in place at a level of sharing."""

    name: ClassVar[str] = "aliases"
    level: Sharing

    def run(self, program: Program) -> Program:
        return define_in_place(program, partial(shares, self.level))


class Singa(Target):
    """Each update as soon as its gradient is there. Workspaces of kernels are left out."""

    name = "singa"
    title = "Apache SINGA: blocks allocated at first use and recycled after the last"
    capabilities: ClassVar[Capabilities] = Capabilities(in_place=True)
    #: What is defined in place unless the options ask for everything.
    level: ClassVar[Sharing] = Sharing.DERIVATIVES_OF_SUMS

    def reference(self, prepared: Prepared, options: TargetOptions) -> Lowered:
        return aligned(_reference(prepared.graph, self._level(options)), options.alignment or ALIGNMENT)

    def passes(self, options: TargetOptions) -> tuple[Pass, ...]:
        return Order(), _InPlace(self._level(options))

    def _level(self, options: TargetOptions) -> Sharing:
        return Sharing.ALL if options.in_place else self.level


class SingaRelu(Singa):
    """The level between: derivatives of sums are handed on, and Relu overwrites its input."""

    name = "singa-relu"
    title = "Apache SINGA with Relu in place"
    capabilities: ClassVar[Capabilities] = Capabilities()
    level = Sharing.RELU


def _reference(graph: TrainableGraph, level: Sharing) -> Program:
    graph = unfused(graph)
    nodes = graph_nodes(graph)
    program = as_singa(derive(graph, nodes), graph, level)
    check_program(program)
    return program


def singa_program(graph: TrainableGraph, level: Sharing = Sharing.DERIVATIVES_OF_SUMS) -> Program:
    """The operations of the target in their order, with what is in place at a level."""
    return _InPlace(level).run(Order().run(_reference(graph, level)))
