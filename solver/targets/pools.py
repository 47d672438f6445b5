"""What a target runtime allocates: buffers with lifespans, grouped into pools that never share bytes."""

from __future__ import annotations

from dataclasses import dataclass

from solver.graph.types import TensorType
from solver.layout import Buffer, Lifespan, Problem
from solver.training.program import Lifetime, OperandKind

__all__ = ["Pool", "TargetBuffer", "TargetPlan", "TargetStep"]


@dataclass(frozen=True, slots=True)
class TargetBuffer:
    """One operand as the target allocates it. `size` is its bytes rounded up to `alignment`."""

    id: str
    kind: OperandKind
    lifetime: Lifetime
    type: TensorType
    lifespan: Lifespan
    alignment: int

    @property
    def size(self) -> int:
        return -(-self.type.nbytes // self.alignment) * self.alignment


@dataclass(frozen=True, slots=True)
class TargetStep:
    """One step of the target's execution order, operands by buffer id.

    `wave` is the unit of time in which it runs beside others; none where one step follows the other.
    """

    id: str
    kernel: str
    uses: tuple[str, ...]
    defs: tuple[str, ...]
    scratch: tuple[str, ...]
    wave: int | None = None


@dataclass(frozen=True, slots=True)
class Pool:
    """Buffers that share one arena. `solver` names the planner the target would use, if it insists."""

    name: str
    buffers: tuple[TargetBuffer, ...]
    solver: str | None = None

    def problem(self, capacity: int | None = None) -> Problem:
        return Problem(tuple(Buffer(b.id, b.size, b.lifespan, b.alignment) for b in self.buffers), capacity)


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """All that layout and plan need to know of a target's training iteration."""

    steps: tuple[TargetStep, ...]
    pools: tuple[Pool, ...]
