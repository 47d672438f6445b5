"""One permutation of axes after another."""

from __future__ import annotations

from typing import ClassVar

from solver.graph.ops.movement import permuted_axes
from solver.graph.types import Operation
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import Surroundings

__all__ = ["JoinTransposes"]


class JoinTransposes(Rule):
    """Axis i of Y is axis q[i] of H, which is axis p[q[i]] of X: one Transpose by p[q].

    The derivative takes the inverse, q then p. Where p[q] is the identity `DropIdentities` removes it.
    """

    name: ClassVar[str] = "join-transposes"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.BITWISE

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        if operation.type != "Transpose":
            return None
        inner = around.feeding(operation.inputs[0])
        if inner is None or inner.type != "Transpose":
            return None
        first, second = (permuted_axes(around.nodes[each.id]) for each in (inner, operation))
        perm = tuple(first[axis] for axis in second)
        joined = Operation(operation.id, "Transpose", inner.inputs, operation.outputs, {"perm": perm})
        return Edit((inner.id, operation.id), (joined,))
