"""Options of the solvers; with every default the same problem has the same answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from threading import Event
from typing import Final, Protocol, runtime_checkable

from solver.errors import OptionsError
from solver.layout.model.problem import MAX_BYTES, LayoutSolver
from solver.options import LAYOUT_RULES, documented

__all__ = [
    "ENDLESS",
    "USUAL",
    "USUAL_WORK",
    "Configurable",
    "Progress",
    "Rules",
    "SolveOptions",
    "Usual",
]


class Usual(Enum):
    """In place of a number: each stage spends what it usually does."""

    USUAL = "usual"


USUAL: Final = Usual.USUAL

#: Buffers and sections that each seed of the compiled search usually looks at: about three seconds.
USUAL_WORK: Final = 600_000_000

#: Stands for no limit.
ENDLESS: Final = 2**62


@dataclass(frozen=True, slots=True)
class Progress:
    """A better layout or bound (bytes), `seconds` after the start, and the stage that produced it."""

    incumbent: int
    bound: int
    seconds: float
    stage: str

    @property
    def gap(self) -> float:
        """How far the incumbent may be above the optimum, as a fraction of the bound."""
        return (self.incumbent - self.bound) / self.bound if self.bound else 0.0


@documented(LAYOUT_RULES)
@dataclass(frozen=True, slots=True)
class Rules:
    """Rules of the exact search, each of which only saves work: none changes what is feasible."""

    plateaus: bool = True
    gaps: bool = True
    symmetry: bool = True
    transposition: bool = True
    decomposition: bool = True
    weights: bool = True
    restarts: bool = True
    peel: bool = True
    fill: bool = True
    span: bool = True
    walls: bool = True
    jumps: bool = True
    promotion: bool = True
    structure: bool = True


@dataclass(frozen=True, slots=True)
class SolveOptions:
    """`work` per seed (None: until the deadline; `USUAL`: what each stage usually spends); `seed` of the
    first of two searches that race.

    `threads` changes the time, never the answer. With `race` the first answer wins, and the outcome
    says that it is not deterministic. The search stops at an optimality gap of `target_gap` (a fraction), and
    where `fit` is set as soon as the capacity is met. `cancel` ends it within 50 ms, once there is
    a first layout to return, and a microsecond or two a buffer to check it; `progress` is called in the
    caller's thread. Raises OptionsError where a number is out of range.

    Every solver heeds `cancel`. "portfolio" and "branch-and-bound" heed all the rest, "search" and "cp-sat"
    `seed`, `target_gap` and `fit`: their work has units of its own. Planners have nothing to choose.
    """

    work: int | Usual | None = USUAL
    seed: int = 0
    threads: int = 2
    race: bool = False
    target_gap: float = 0.0
    fit: bool = False
    rules: Rules = field(default_factory=Rules)
    progress: Callable[[Progress], None] | None = None
    cancel: Event | None = None

    def __post_init__(self) -> None:
        if isinstance(self.work, int) and self.work < 0:
            raise OptionsError(f"The work {self.work} is negative.", remedy="Give 0 or more, or None.")
        if not 0 <= self.seed < 2**62:
            raise OptionsError(f"The seed {self.seed} is out of range.", remedy="Give 0 to 2**62 - 1.")
        if self.threads < 1:
            raise OptionsError(f"There cannot be {self.threads} threads.", remedy="Give 1 or more.")
        if not 0 <= self.target_gap < float("inf"):
            raise OptionsError(
                f"The target gap {self.target_gap} is not a fraction.", remedy="Give 0 or more."
            )

    def limit(self, usual: int) -> int:
        """The work that a stage may spend; `usual` is its own budget."""
        if isinstance(self.work, Usual):
            return usual
        return ENDLESS if self.work is None else self.work

    def enough(self, bound: int, capacity: int | None) -> int:
        """The peak (bytes) at which a search may stop, with this lower bound."""
        goal = capacity or 0 if self.fit else 0
        return max(goal, self.within_gap(bound))

    def within_gap(self, bound: int) -> int:
        """The largest peak (bytes) within the target gap of this lower bound, never beyond MAX_BYTES."""
        more = bound * self.target_gap
        # The product of a huge gap is infinite, or more than an offset can be.
        return bound + int(more) if more < MAX_BYTES - bound else max(bound, MAX_BYTES)

    @property
    def cancelled(self) -> bool:
        return self.cancel is not None and self.cancel.is_set()


@runtime_checkable
class Configurable(Protocol):
    """A solver that heeds options."""

    def configured(self, options: SolveOptions) -> LayoutSolver: ...
