"""What a target runtime allocates: buffers with lifespans, grouped into pools that never share bytes."""

from __future__ import annotations

from dataclasses import dataclass

from solver.graph.types import TensorType
from solver.layout import Buffer, LayoutProblem, Lifespan
from solver.training.program import Lifetime, OperandKind

__all__ = ["Pool", "TargetBuffer", "TargetPlan", "TargetStep", "TargetTenant"]


@dataclass(frozen=True, slots=True)
class TargetBuffer:
    """One operand as the target allocates it. `size` is its bytes rounded up to `alignment`.

    `tenants` are the operands that share it, in the order in which they come; none where it is for one.
    """

    id: str
    kind: OperandKind
    lifetime: Lifetime
    type: TensorType
    lifespan: Lifespan
    alignment: int
    tenants: tuple[TargetTenant, ...] = ()

    @property
    def size(self) -> int:
        return -(-self.type.nbytes // self.alignment) * self.alignment


@dataclass(frozen=True, slots=True)
class TargetTenant:
    """An operand as if it had a buffer to itself; it is defined in the memory of `source`, of which it may
    be a `view`. The first of all has no source.
    """

    buffer: TargetBuffer
    source: str | None
    view: bool


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

    def problem(self, capacity: int | None = None) -> LayoutProblem:
        return LayoutProblem(
            tuple(Buffer(b.id, b.size, b.lifespan, b.alignment) for b in self.buffers), capacity
        )


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """All that layout and plan need to know of a target's training iteration."""

    steps: tuple[TargetStep, ...]
    pools: tuple[Pool, ...]
