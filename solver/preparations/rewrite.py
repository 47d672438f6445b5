"""The preparation `rewrite`: equivalent operations in the place of others, where no arena grows for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from solver.graph import TrainableGraph
from solver.preparations.base import Planner, Preparation, Prepared
from solver.program import Record

__all__ = ["Rewrite"]


@dataclass(frozen=True, slots=True)
class Rewrite(Preparation):
    """Whether the graph may be rewritten; results may then round differently."""

    name: ClassVar[str] = "rewrite"

    rewrite: bool = False

    def run(self, prepared: Prepared, planner: Planner) -> Prepared:
        if not self.rewrite:
            return prepared
        # Rules and their engine are loaded for the plans that ask for them.
        from solver.preparations.rewriting import Footprint, rewrite

        def cost(candidate: TrainableGraph) -> Footprint:
            return Footprint(*planner.footprint(replace(prepared, graph=candidate)))

        result = rewrite(prepared.graph, planner.arithmetic, cost, stop=planner.stop)
        earlier = prepared.replacements
        # Groups are counted on: those of another preparation are replayed before these.
        applied = (*earlier, *(replace(one, group=one.group + len(earlier)) for one in result.applied))
        facts = {
            "replacements": len(applied),
            "bound_before": applied[0].bytes_before if applied else 0,
            "bound_after": applied[-1].bytes_after if applied else 0,
        }
        return replace(
            prepared,
            graph=result.graph,
            replacements=applied,
            complete=prepared.complete and result.complete,
            records=(*prepared.records, Record(self.name, facts)),
        )
