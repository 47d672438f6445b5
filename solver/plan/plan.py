"""A memory plan: the execution order, every buffer at its offset, and the certificate.

A plan stands on its own. Whoever has it can allocate one arena, know at which byte each operand
lives during which steps, and check every claim without the planner (see `solver.plan.verify`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from solver.layout.model.certificate import Certificate
from solver.layout.model.problem import Lifespan
from solver.rewrite import Replacement
from solver.training.program import Lifetime, OperandKind

__all__ = [
    "Arena",
    "Certificate",
    "Plan",
    "PlanOptions",
    "PlannedBuffer",
    "PlannedStep",
    "Tenant",
]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What a caller may choose. Sizes are bytes, ``None`` leaves the choice to the target.

    `capacity` makes an arena beyond it an error. `deadline_seconds` bounds the layout search by
    wall time; without it budgets are counted in work and the plan is deterministic. `update` is
    ``immediate`` (apply each gradient as soon as that is legal) or ``end``. `batch` is the value of
    the symbolic batch that the graph was read with. With several `workers` the steps are grouped into
    waves of at most so many that run at the same time. `in_place` defines operands in the memory of others
    where that changes no result. `rewrite` replaces parts of the graph by equivalent ones where that does
    not raise the peak; results may round differently.
    """

    target: str = "reference"
    solver: str = "portfolio"
    batch: int | None = None
    alignment: int | None = None
    capacity: int | None = None
    deadline_seconds: float | None = None
    scratch_budget: int = 2 * 1024 * 1024
    update: str = "immediate"
    workers: int = 1
    in_place: bool = False
    rewrite: bool = False


@dataclass(frozen=True, slots=True)
class Tenant:
    """One of the operands that live in a buffer, one after the other or as views of the same bytes.

    It is defined in the memory of `source`; a `view` leaves the bytes as they are, and any other tenant
    overwrites them. The first of a buffer has no source.
    """

    id: str
    kind: OperandKind
    lifetime: Lifetime
    shape: tuple[int, ...]
    dtype: str
    lifespan: Lifespan
    source: str | None
    view: bool


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """`nbytes` are needed, `size` are reserved (rounded up to the alignment).

    The lifespan counts steps, or waves where the plan has waves. A buffer that holds several operands has
    the name, kind and shape of the first one, and its `tenants` are all of them.
    """

    id: str
    kind: OperandKind
    lifetime: Lifetime
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    size: int
    alignment: int
    lifespan: Lifespan
    offset: int
    tenants: tuple[Tenant, ...] = ()

    @property
    def operands(self) -> tuple[Tenant, ...]:
        """The tenants, or the one operand that the buffer is for."""
        alone = Tenant(self.id, self.kind, self.lifetime, self.shape, self.dtype, self.lifespan, None, False)
        return self.tenants or (alone,)

    @property
    def end(self) -> int:
        """First byte behind the buffer."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of the execution order; operands by buffer id, scratch in neither list of the two.

    Steps with the same `wave` may run at the same time. A plan for one worker has none.
    """

    id: str
    kernel: str
    uses: tuple[str, ...]
    defs: tuple[str, ...]
    scratch: tuple[str, ...]
    wave: int | None = None


@dataclass(frozen=True, slots=True)
class Arena:
    """One contiguous block of `size` bytes. Most targets have one, onert has seven pools."""

    name: str
    size: int
    certificate: Certificate
    buffers: tuple[PlannedBuffer, ...]

    @property
    def gap(self) -> float:
        """``size / lower_bound - 1``; 0.0 for an empty arena."""
        bound = self.certificate.lower_bound
        return self.size / bound - 1.0 if bound else 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """`digest` is SHA-256 over the plan's canonical JSON without the digest itself, in hexadecimal.

    `graph_digest` ties the plan to the graph it was made for. `deterministic` is false when wall
    time decided the result. `steps` are those of the graph after its `replacements`, in their order.
    """

    graph: str
    graph_digest: str
    options: PlanOptions
    steps: tuple[PlannedStep, ...]
    arenas: tuple[Arena, ...]
    deterministic: bool
    digest: str = ""
    replacements: tuple[Replacement, ...] = ()

    @property
    def arena_bytes(self) -> int:
        """Total size of all arenas, in bytes."""
        return sum(arena.size for arena in self.arenas)

    @property
    def lower_bound(self) -> int:
        return sum(arena.certificate.lower_bound for arena in self.arenas)

    @property
    def gap_bytes(self) -> int:
        """What the arenas take beyond the lower bound; 0 proves that nothing smaller exists."""
        return self.arena_bytes - self.lower_bound

    @property
    def times(self) -> tuple[int, ...]:
        """When each step runs, in the unit of time of lifespans: its wave, or its position."""
        return tuple(t if step.wave is None else step.wave for t, step in enumerate(self.steps))

    @property
    def duration(self) -> int:
        """Units of time of one iteration: waves, or steps."""
        return min(max(self.times, default=-1) + 1, len(self.steps))

    def turn_ids(self) -> tuple[str, ...]:
        """What runs at each time: the id of a step, or those of a wave with a + between them. Linear."""
        ids: list[list[str]] = [[] for _ in range(self.duration)]
        for time, step in zip(self.times, self.steps, strict=True):
            ids[min(time, len(ids) - 1)].append(step.id)
        return tuple(map(" + ".join, ids))

    def buffers(self) -> Iterator[tuple[Arena, PlannedBuffer]]:
        for arena in self.arenas:
            for buffer in arena.buffers:
                yield arena, buffer
