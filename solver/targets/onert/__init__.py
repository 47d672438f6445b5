"""The onert target: Samsung ONE's training runtime, its seven pools and their planners."""

from __future__ import annotations

from typing import ClassVar

from solver.graph import TrainableGraph
from solver.preparations import Prepared
from solver.targets.base import Capabilities, Lowered, Target, TargetOptions
from solver.targets.onert.pools import (
    ALIGNMENT,
    POOLS,
    Management,
    essential_backward_order,
    onert_pools,
    onert_target,
)
from solver.targets.requests import lowered

__all__ = [
    "ALIGNMENT",
    "POOLS",
    "Management",
    "Onert",
    "TrainableGraph",
    "essential_backward_order",
    "onert_pools",
    "onert_target",
]


class Onert(Target):
    """Its memory safety is proved under its own model; its kernels are not here."""

    name = "onert"
    title = "Samsung ONE: seven pools, 16-byte alignment"
    capabilities: ClassVar[Capabilities] = Capabilities()

    def reference(self, prepared: Prepared, options: TargetOptions) -> Lowered:
        return lowered(prepared.graph.name, onert_target(prepared.graph, options.alignment))
