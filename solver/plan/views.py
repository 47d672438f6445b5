"""A plan as people and allocators read it: arenas with buffers, steps with what they use and define.

All of it is computed from the program and the offsets of a plan; nothing here is stored in a plan
document of version 2. Documents of version 1 hold these tables and no program.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from solver.layout import Buffer, Certificate, Hole, Layout, LayoutProblem, Lifespan
from solver.plan.options import PlanOptions
from solver.program import Kind, Lifetime, Record, Replacement, without

__all__ = ["AliasedValue", "Arena", "PlanView", "PlannedBuffer", "PlannedStep", "level_ids", "memory_maps"]


@dataclass(frozen=True, slots=True)
class AliasedValue:
    """One of the values that lie in a buffer, one after the other or as views of the same bytes.

    Its `nbytes` begin at `offset`. It is defined in the bytes of `source`; a `view` leaves them as they
    are, and any other value overwrites them. The first of a buffer has no source. `storage` says how the
    elements of a stored weight are kept, and is empty for any other value.
    """

    id: str
    kind: Kind
    lifetime: Lifetime
    shape: tuple[int, ...]
    dtype: str
    lifespan: Lifespan
    source: str | None
    view: bool
    offset: int
    nbytes: int
    storage: str = ""

    @property
    def elements(self) -> str:
        """The element type, and how the elements are stored, in words."""
        return f"{self.dtype} stored as {self.storage}" if self.storage else self.dtype


@dataclass(frozen=True, slots=True)
class PlannedBuffer:
    """`nbytes` are needed, `size` are reserved (rounded up to the alignment).

    The lifespan counts steps, or concurrency levels where steps run at the same time. A buffer that holds
    several values has the name, kind and shape of the first one, and its `aliases` are all of them. During
    `lent`, parts of the lifespan in order of time, others may have its bytes: a copy brings it back then.
    """

    id: str
    kind: Kind
    lifetime: Lifetime
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    size: int
    alignment: int
    lifespan: Lifespan
    offset: int
    aliases: tuple[AliasedValue, ...] = ()
    lent: tuple[Lifespan, ...] = ()
    storage: str = ""

    @property
    def spans(self) -> tuple[Lifespan, ...]:
        """When its bytes are held, as intervals in order of time."""
        return without(self.lifespan, self.lent)

    @property
    def values(self) -> tuple[AliasedValue, ...]:
        """The aliases, or the one value that the buffer is for."""
        alone = AliasedValue(
            self.id,
            self.kind,
            self.lifetime,
            self.shape,
            self.dtype,
            self.lifespan,
            None,
            False,
            self.offset,
            self.nbytes,
            self.storage,
        )
        return self.aliases or (alone,)

    @property
    def end(self) -> int:
        """First byte behind the buffer."""
        return self.offset + self.size


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of the execution order; values by label, scratch in neither list of the two.

    What is updated stands in `uses` and in `defs`. Steps with the same `level` run at the same time. `again`
    counts the runs of the same step before this one.
    """

    id: str
    kernel: str
    uses: tuple[str, ...]
    defs: tuple[str, ...]
    scratch: tuple[str, ...]
    level: int
    again: int = 0


def level_ids(steps: Sequence[PlannedStep], count: int) -> tuple[str, ...]:
    """The steps of each of `count` levels: the label of a step, or several with a + between them. Linear."""
    labels: list[list[str]] = [[] for _ in range(count)]
    for step in steps:
        labels[min(step.level, count - 1)].append(step.id)
    return tuple(map(" + ".join, labels))


@dataclass(frozen=True, slots=True)
class Arena:
    """One contiguous block of `size` bytes. Most targets have one, onert has seven."""

    name: str
    size: int
    certificate: Certificate
    buffers: tuple[PlannedBuffer, ...]

    @property
    def gap(self) -> float:
        """``size / lower_bound - 1``; 0.0 for an empty arena."""
        bound = self.certificate.lower_bound
        return self.size / bound - 1.0 if bound else 0.0


class PlanView(Protocol):
    """The part of a plan that reports, pictures and exporters need."""

    @property
    def graph(self) -> str: ...
    @property
    def graph_digest(self) -> str: ...
    @property
    def options(self) -> PlanOptions: ...
    @property
    def steps(self) -> tuple[PlannedStep, ...]: ...
    @property
    def arenas(self) -> tuple[Arena, ...]: ...
    @property
    def replacements(self) -> tuple[Replacement, ...]: ...
    @property
    def records(self) -> tuple[Record, ...]: ...
    @property
    def deterministic(self) -> bool: ...
    @property
    def digest(self) -> str: ...
    @property
    def arena_bytes(self) -> int: ...
    @property
    def lower_bound(self) -> int: ...
    @property
    def gap_bytes(self) -> int: ...
    @property
    def times(self) -> tuple[int, ...]: ...
    @property
    def duration(self) -> int: ...
    def level_ids(self) -> tuple[str, ...]: ...
    def buffers(self) -> Iterator[tuple[Arena, PlannedBuffer]]: ...


def memory_maps(plan: PlanView) -> Iterator[str]:
    """The picture of each arena that holds something, as an SVG element. O(n log n) for n buffers."""
    from solver.pictures import draw, to_svg  # waits for a notebook that shows a plan

    for arena in plan.arenas:
        if not arena.buffers:
            continue
        buffers = tuple(
            Buffer(b.id, b.size, b.lifespan, b.alignment, holes=tuple(map(Hole, b.lent)))
            for b in arena.buffers
        )
        scene = draw(
            LayoutProblem(buffers),
            Layout(tuple(b.offset for b in arena.buffers), arena.size),
            title=f"{plan.graph}: {arena.name}, {arena.size:,} bytes",
            about=f"{len(buffers):,} buffers, {plan.duration:,} steps",
            lower_bound=arena.certificate.lower_bound,
        )
        yield to_svg(scene).decode()
