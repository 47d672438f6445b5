"""The preparation `scratch`: how many bytes beside its operands a step may use.

Kernels split their work into chunks that fit, so the budget decides the order of some sums, and bits with it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from solver.errors import OptionsError
from solver.graph.ops.base import DEFAULT_SCRATCH_BUDGET
from solver.preparations.base import Planner, Preparation, Prepared

__all__ = ["Scratch"]


@dataclass(frozen=True, slots=True)
class Scratch(Preparation):
    """`scratch_budget` is in bytes a step. Raises OptionsError where it is not positive."""

    name: ClassVar[str] = "scratch"

    scratch_budget: int = DEFAULT_SCRATCH_BUDGET

    def __post_init__(self) -> None:
        if self.scratch_budget < 1:
            raise OptionsError(
                f"A scratch budget of {self.scratch_budget:,} bytes is not positive.",
                remedy="Give at least 1 byte; a step takes one example at a time however small it is.",
                path=("scratch_budget",),
            )

    def run(self, prepared: Prepared, planner: Planner) -> Prepared:
        if prepared.scratch_budget == self.scratch_budget:
            return prepared
        return replace(prepared, scratch_budget=self.scratch_budget)
