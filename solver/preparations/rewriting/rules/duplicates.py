"""The same operation on the same operands, twice."""

from __future__ import annotations

from typing import ClassVar

from solver.graph.types import Operation
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import RANDOM, Surroundings

__all__ = ["MergeDuplicates"]


class MergeDuplicates(Rule):
    """f(X), f(X) = one f(X) for the readers of both.

    Its derivative is f'(dY + dZ) where it was f'(dY) + f'(dZ): the same, since derivatives are linear in
    dY, up to rounding. Not what draws random numbers or updates a state, nor where the second
    is an output, whose name has to survive.
    """

    name: ClassVar[str] = "merge-duplicates"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.ROUNDING

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        first = around.first_alike(operation)
        if first.id == operation.id or operation.type in RANDOM:
            return None
        if not around.changes_nothing_else(operation) or any(
            name in around.kept for name in operation.outputs
        ):
            return None
        return Edit((operation.id,), renamed=dict(zip(operation.outputs, first.outputs, strict=True)))
