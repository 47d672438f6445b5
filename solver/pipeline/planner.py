"""Answers for preparations: the footprint of the program that would be planned under the same options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from solver.layout import Deadline
from solver.pipeline.options import with_capacity
from solver.plan import PlanOptions
from solver.preparations import Prepared
from solver.program import loads, regions
from solver.targets import Lowered, Target

if TYPE_CHECKING:
    from solver.preparations.rewriting import Arithmetic

__all__ = ["Planner"]


class Planner:
    """One target under given options; keeps the program that it was asked for last."""

    def __init__(self, target: Target, options: PlanOptions, deadline: Deadline) -> None:
        self._target, self._options, self._deadline = target, options, deadline
        self._last: tuple[Prepared, Lowered] | None = None

    @property
    def arithmetic(self) -> Arithmetic:
        # Most plans compute nothing, and the kernels of all operators take a while to load.
        from solver.executor.arithmetic import KernelArithmetic

        return KernelArithmetic()

    def stop(self) -> bool:
        return self._deadline.expired

    def reference(self, prepared: Prepared) -> Lowered:
        """Its reference program. What was asked for last is kept: mostly that is what is planned then."""
        asked = prepared.scratch_budget, prepared.storage
        if self._last is not None:
            last, lowered = self._last
            if last.graph is prepared.graph and (last.scratch_budget, last.storage) == asked:
                return lowered
        lowered = self._target.reference(prepared, self._options)
        self._last = prepared, lowered
        return lowered

    def footprint(self, prepared: Prepared) -> tuple[int, int, frozenset[str]]:
        lowered = self.reference(prepared)
        program = lowered.program
        for each in self._target.passes(with_capacity(self._options)):
            program = program if each.searches else each.run(program)
        placed = regions(program, lowered.holds)
        curves = loads(program, placed=placed)
        tops = [max(curve, default=0) for curve in curves]
        fullest = {
            level
            for curve, top in zip(curves, tops, strict=True)
            for level, load in enumerate(curve)
            if load == top
        }
        busy = {program.operations[s.operation].operation.id for s in program.steps if s.level in fullest}
        return sum(tops), sum(region.size for region in placed), frozenset(busy)
