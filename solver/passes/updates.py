"""The pass `order`: where each update stands.

An update may follow its gradient at once when no later step reads the weight's old value. That
frees the gradient early: with all updates at the end, every gradient lives to the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from solver.errors import OptionsError
from solver.passes.base import Pass
from solver.program import ACCUMULATE, UPDATE, Access, Program, Step, in_order, touched

__all__ = ["UPDATE_MODES", "Order", "updates_when_legal"]

#: ``immediate``: as early as every reader allows; ``end``: after the whole backward pass.
UPDATE_MODES = ("immediate", "end")


@dataclass(frozen=True, slots=True)
class Order(Pass):
    """Where updates stand. Raises OptionsError for a mode that is not one of `UPDATE_MODES`."""

    name: ClassVar[str] = "order"
    requires: ClassVar[frozenset[str]] = frozenset({"sequential", "own memory"})

    update: str = "immediate"

    def __post_init__(self) -> None:
        if self.update not in UPDATE_MODES:
            raise OptionsError(
                f"Unknown update mode {self.update!r}.",
                remedy=f"Choose one of {', '.join(UPDATE_MODES)}.",
                path=("update",),
            )

    def run(self, program: Program) -> Program:
        """Steps in the order asked for. The values that each step finds stay the same."""
        return updates_when_legal(program) if self.update == "immediate" else program

    def facts(self, before: Program, after: Program) -> dict[str, int | str | bool]:
        moved = sum(step.reference != t for t, step in enumerate(after.steps))
        return {"update": self.update, "steps_moved": moved}


def updates_when_legal(program: Program) -> Program:
    """Move each update behind the last other step that touches one of its values. Linear.

    Tied weights thus wait for all their readers and all their partial gradients.
    """
    kernels = [program.kernel(step) for step in program.steps]
    updates = [t for t, kernel in enumerate(kernels) if kernel == UPDATE]
    others = [t for t, kernel in enumerate(kernels) if kernel != UPDATE]
    positions, rows = np.full(len(kernels), -1), touched(program)
    positions[others] = np.arange(len(others))
    behind = np.full(len(program.values), -1)
    np.maximum.at(behind, rows.value, positions[rows.step])
    last = behind.tolist()
    after: dict[int, list[int]] = {}
    for t in updates:
        ready = max(last[value] for value in _kept(program.steps[t]))
        while ready + 1 < len(others) and kernels[others[ready + 1]] == ACCUMULATE:
            ready += 1  # a partial is freed first: it lives over two neighbouring steps and no longer
        after.setdefault(ready, []).append(t)
    order = [*after.get(-1, [])]
    for position, t in enumerate(others):
        order += [t, *after.get(position, [])]
    return in_order(program, order)


def _kept(step: Step) -> list[int]:
    return [binding.value for binding in step.bindings if binding.access is not Access.SCRATCH]
