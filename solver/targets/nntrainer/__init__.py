"""The nntrainer target: a pool of weights and a pool of tensors, three backward ticks a layer."""

from __future__ import annotations

from typing import ClassVar

from solver.graph import TrainableGraph
from solver.preparations import Prepared
from solver.targets.base import Capabilities, Lowered, Target, TargetOptions
from solver.targets.nntrainer.pools import ALIGNMENT, POOLS, nntrainer_orders, nntrainer_target
from solver.targets.requests import lowered

__all__ = ["ALIGNMENT", "POOLS", "Nntrainer", "TrainableGraph", "nntrainer_orders", "nntrainer_target"]


class Nntrainer(Target):
    """Its memory safety is proved under its own model; its kernels are not here."""

    name = "nntrainer"
    title = "Samsung nntrainer: weights and tensors in two pools"
    capabilities: ClassVar[Capabilities] = Capabilities()

    def reference(self, prepared: Prepared, options: TargetOptions) -> Lowered:
        return lowered(prepared.graph.name, nntrainer_target(prepared.graph, options.alignment))
