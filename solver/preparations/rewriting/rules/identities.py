"""Operations whose output is their input."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import ClassVar

from solver.graph.ops.base import Node
from solver.graph.types import Operation
from solver.preparations.rewriting.rule import Agreement, Edit, Rule
from solver.preparations.rewriting.surroundings import Surroundings

__all__ = ["DropIdentities"]


class DropIdentities(Rule):
    """Y = X: what reads Y reads X instead. The derivative is dX = dY, that of X itself.

    Movement that keeps the shape (Reshape, Flatten, Squeeze, Unsqueeze, Expand, Cast, Concat and Split of one
    piece, Pad with nothing), Transpose that leaves the axes in order, Dropout that drops nothing.
    Not where Y is an output: its name has to survive.
    """

    name: ClassVar[str] = "drop-identity"
    value: ClassVar[Agreement] = Agreement.BITWISE
    gradient: ClassVar[Agreement] = Agreement.BITWISE

    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        is_identity = _IDENTITIES.get(operation.type)
        if is_identity is None or not is_identity(around.nodes[operation.id]):
            return None
        source, target, *others = operation.inputs[0], *operation.outputs
        if target in around.kept or any(name in around.kept or around.readers(name) for name in others):
            return None
        return Edit((operation.id,), renamed={target: source})


def _keeps_type(node: Node) -> bool:
    return node.outputs[0] == node.input(0)


def _is_only_piece(node: Node) -> bool:
    return len(node.inputs) == len(node.outputs) == 1


def _keeps_axes(node: Node) -> bool:
    perm = node.attributes["perm"]
    axes = tuple(range(len(node.input(0).shape)))
    return (axes[::-1] if perm is None else perm) == axes


_IDENTITIES: Mapping[str, Callable[[Node], bool]] = MappingProxyType(
    {
        **dict.fromkeys(("Cast", "Expand", "Flatten", "Pad", "Reshape", "Squeeze", "Unsqueeze"), _keeps_type),
        "Concat": _is_only_piece,
        "Dropout": lambda node: not node.attributes["ratio"],
        "Split": lambda node: len(node.outputs) == 1,
        "Transpose": _keeps_axes,
    }
)
