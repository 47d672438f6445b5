"""Rules: a rule looks at one operation with its surroundings and proposes a replacement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import ClassVar

from solver.graph.types import Operand, Operation
from solver.preparations.rewriting.surroundings import Surroundings

__all__ = ["Agreement", "Edit", "Rule"]


class Agreement(Enum):
    """How results before and after a replacement compare, arenas being aligned to 64 bytes."""

    BITWISE = "bitwise"
    ROUNDING = "rounding"


@dataclass(frozen=True, slots=True)
class Edit:
    """A replacement at one place.

    `replaced` names the operations that go, the last of them the anchor: where it stood stand
    `operations`. `constants` are new operands, or take the place of operands that are no longer
    computed. `renamed` maps operands that go to those that their readers read instead.
    """

    replaced: tuple[str, ...]
    operations: tuple[Operation, ...] = ()
    constants: tuple[Operand, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "renamed", MappingProxyType(dict(self.renamed)))

    @property
    def anchor(self) -> str:
        return self.replaced[-1]


class Rule(ABC):
    """One equivalence. Stateless; its docstring has the algebra, also of the derivatives.

    Each use lowers the operations that are no activations (a Reshape counts half), or leaves them and
    lowers the activations in front of a MaxPool, or leaves both and lowers the activations. A rule that
    `adds_operations` lowers the bound of the arena instead. So rewriting ends. `value` says how everything
    computed forward compares, `gradient` how the gradients of the parameters do.
    """

    name: ClassVar[str]
    value: ClassVar[Agreement]
    gradient: ClassVar[Agreement]
    adds_operations: ClassVar[bool] = False

    @abstractmethod
    def edit(self, around: Surroundings, operation: Operation) -> Edit | None:
        """The edit anchored at `operation`, or nothing where the rule does not hold."""
