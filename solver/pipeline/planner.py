"""Answers for preparations: the footprint of the program that would be planned under the same options."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from solver.layout import Deadline
from solver.pipeline.options import with_capacity
from solver.plan import PlanOptions
from solver.preparations import Prepared
from solver.program import Value, holding, loads, regions
from solver.targets import Lowered, Target

if TYPE_CHECKING:
    from solver.preparations.rewriting import Arithmetic

__all__ = ["Derived", "Planner"]

#: The input of derivation, as far as it decides the reference program, and that program.
Derived = tuple[tuple[int, str | None, bool], Prepared, Lowered]


class Planner:
    """One target under given options; keeps the reference program that was derived last.

    `derived` holds that program, in a list that planners of one graph under several options share.
    Programs hold the values `held`, of other programs in the same memory.
    """

    def __init__(
        self,
        target: Target,
        options: PlanOptions,
        deadline: Deadline,
        derived: list[Derived] | None = None,
        held: tuple[Value, ...] = (),
    ) -> None:
        self._target, self._options, self._deadline = target, options, deadline
        self._derived = [] if derived is None else derived
        self._held = held

    @property
    def arithmetic(self) -> Arithmetic:
        # Most plans compute nothing, and the kernels of all operators take a while to load.
        from solver.executor.arithmetic import KernelArithmetic

        return KernelArithmetic()

    def stop(self) -> bool:
        return self._deadline.expired

    def reference(self, prepared: Prepared) -> Lowered:
        """The reference program of a prepared graph: mostly the one that was derived last."""
        # Where a runtime decides itself what is in place, its reference program says so.
        in_place = self._options.in_place and not self._target.capabilities.sub_ranges
        key = (prepared.scratch_budget, prepared.storage, in_place)
        for known, last, lowered in self._derived:
            if known == key and last.graph is prepared.graph:
                return lowered
        self._target.check_stored(prepared.graph)
        lowered = self._target.reference(prepared, self._options)
        lowered = replace(lowered, program=holding(lowered.program, self._held))
        self._derived[:] = [(key, prepared, lowered)]
        return lowered

    def footprint(self, prepared: Prepared) -> tuple[int, int, frozenset[str]]:
        lowered = self.reference(prepared)
        program = lowered.program
        # Constraints may name values that only later preparations make.
        options = replace(self._options, pins=(), alignments=(), reserved=())
        for each in self._target.passes(with_capacity(options)):
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
