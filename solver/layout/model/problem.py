"""Problems and answers of layout solvers: buffers in, offsets out.

Sizes, offsets and peaks are exact Python integers in bytes. Lifespans are half-open
``[start, end)`` over integer steps, never empty. Nothing here knows a neural network.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field, replace
from enum import Enum
from threading import Event
from typing import Protocol, Self

__all__ = [
    "MAX_BYTES",
    "Buffer",
    "Deadline",
    "Hole",
    "Layout",
    "LayoutProblem",
    "LayoutSolver",
    "Lifespan",
    "Outcome",
    "Proof",
    "Reserved",
    "Status",
    "Work",
]

#: Sizes and ends beyond this do not fit the signed 64-bit offsets of any runtime.
MAX_BYTES = 2**63 - 1


@dataclass(frozen=True, slots=True, order=True)
class Lifespan:
    """Half-open interval of steps ``[start, end)``; ``start < end``."""

    start: int
    end: int

    def overlaps(self, other: Lifespan) -> bool:
        return self.start < other.end and other.start < self.end


@dataclass(frozen=True, slots=True)
class Hole:
    """During `lifespan` a buffer holds its bytes ``[low, high)`` alone; none where the two are equal.

    Documents call it a gap.
    """

    lifespan: Lifespan
    low: int = 0
    high: int = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """`size` bytes that must stay put during `lifespan`; an `offset` here is pinned.

    During its `holes`, which lie inside the lifespan, apart and in order of time, others may hold the rest.
    Where there are several memories, all of it is read `reads` times and written `writes` times, and it must
    lie in `memory`, if that is named.
    """

    id: str
    size: int
    lifespan: Lifespan
    alignment: int = 1
    offset: int | None = None
    holes: tuple[Hole, ...] = ()
    reads: int = 1
    writes: int = 1
    memory: str = ""


@dataclass(frozen=True, slots=True, order=True)
class Reserved:
    """Bytes ``[low, high)`` of the arena in which no buffer may lie at any step."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class LayoutProblem:
    """Buffers to place in one arena of at most `capacity` bytes (``None``: as small as possible).

    `reserved` ranges share no byte. They count towards the peak only below the topmost buffer.
    """

    buffers: tuple[Buffer, ...]
    capacity: int | None = None
    reserved: tuple[Reserved, ...] = ()


@dataclass(frozen=True, slots=True)
class Layout:
    """Offsets in the order of `LayoutProblem.buffers`; `peak` is the largest offset + size, in bytes."""

    offsets: tuple[int, ...]
    peak: int


class Status(Enum):
    """Of a problem there is a smallest layout; a layout; a proof that none fits the capacity; or nothing yet.

    `Outcome` says what comes with each.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


class Proof(Enum):
    """Why no smaller arena exists. Never conflate the two.

    `MAX_LOAD`: the peak equals the bytes live at the witness step; anyone can add them up.
    `SOLVER`: a complete search closed the optimality gap; one has to trust, or rerun, the solver.
    """

    MAX_LOAD = "max-load"
    SOLVER = "solver"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A solver's answer. `layout` is present for OPTIMAL and FEASIBLE, `proof` for OPTIMAL.

    `lower_bound` (bytes) holds for every layout of the problem; `witness_step` is a step at which
    the max-load bound is attained (``None`` for an empty problem). An INFEASIBLE answer means no
    layout fits `LayoutProblem.capacity`; its proof says which argument rules it out.
    `deterministic` is false when wall time, not work, decided the answer.
    """

    status: Status
    layout: Layout | None
    lower_bound: int
    witness_step: int | None
    proof: Proof | None
    solver: str
    seconds: float
    deterministic: bool = True


@dataclass(slots=True)
class Work:
    """The work of the searches of one request, in units; and their answers, so that none is asked twice.

    An answer stands beside the question: a problem, which is frozen, with budgets.
    """

    spent: float = 0.0
    answers: dict[object, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deadline:
    """When to stop: at the `time.monotonic` instant `at`, as soon as `cancel` is set by any thread, or when
    searches have done `most` units of `work`.

    ``None`` in the first two places and no limit of work: never. Everything that searches looks at it every
    few milliseconds, and counts what it does. A unit takes one to two seconds of one core. The count depends
    on the problem alone, so a search that its work ends has the same answer on every machine.
    """

    at: float | None = None
    cancel: Event | None = None
    work: Work = field(default_factory=Work, compare=False)
    most: float = math.inf

    @classmethod
    def after(cls, seconds: float | None) -> Deadline:
        return cls(None if seconds is None else time.monotonic() + seconds)

    def or_when(self, cancel: Event | None) -> Self:
        """The same, and when this event is set; an event that was there gives way."""
        return self if cancel is None else replace(self, cancel=cancel)

    def sooner(self, seconds: float) -> Self:
        """So much earlier, for what comes after."""
        return self if self.at is None else replace(self, at=self.at - seconds)

    def leaving(self, part: float) -> Self:
        """Earlier by this part of the time and of the work that remain, for what comes after."""
        earlier = self if self.remaining == math.inf else self.sooner(part * self.remaining)
        return earlier.within((1 - part) * self.units)

    def within(self, units: float) -> Self:
        """The same after at most so many further units of work, if work is limited at all."""
        return self if self.most == math.inf else replace(self, most=min(self.most, self.work.spent + units))

    def by_time(self) -> Self:
        """The same for what counts no work, and has to be done however much was."""
        return replace(self, most=math.inf)

    def spend(self, units: float) -> None:
        """Count work that was done."""
        self.work.spent += units

    @property
    def units(self) -> float:
        """Units of work left, never negative; infinity without a limit."""
        return max(0.0, self.most - self.work.spent)

    @property
    def cancelled(self) -> bool:
        return self.cancel is not None and self.cancel.is_set()

    @property
    def remaining(self) -> float:
        """Seconds left, never negative; infinity without a limit."""
        if self.cancelled:
            return 0.0
        return math.inf if self.at is None else max(0.0, self.at - time.monotonic())

    @property
    def late(self) -> bool:
        """Whether time is up, so that another run may find more."""
        return self.remaining <= 0.0

    @property
    def expired(self) -> bool:
        """Whether a search has to end: time is up, or the work is done."""
        return self.work.spent >= self.most or self.late


class LayoutSolver(Protocol):
    """One way of finding offsets. Never raises for infeasible or out of time: says so in `Status`."""

    @property
    def name(self) -> str: ...

    def solve(
        self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None
    ) -> Outcome: ...
