"""Operations that nothing needs."""

from __future__ import annotations

from typing import ClassVar

from solver.graph.types import Operation
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import Surroundings

__all__ = ["DropDeadCode"]


class DropDeadCode(Rule):
    """Operations that neither the loss nor an output depends on, all at once, and operands left unread.

    Training emits no backward step for them as it is: no derivative of the loss comes to them. What
    updates a state is alive, and so is all that it reads.
    """

    name: ClassVar[str] = "drop-dead-code"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.BITWISE

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        return Edit(around.dead) if around.dead and operation.id == around.dead[-1] else None
