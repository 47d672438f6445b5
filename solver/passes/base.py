"""The contract of a pass: it changes the program and no result, so every plan can be proved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from solver.layout import Deadline
from solver.program import CostBound, Program
from solver.schedules import SearchProgress

__all__ = ["Applied", "Facts", "Pass", "Tell", "silent"]

Facts: TypeAlias = Mapping[str, int | str | bool]

#: Receives the progress of a search; None when the search begins.
Tell: TypeAlias = Callable[[SearchProgress | None], None]


def silent(_progress: SearchProgress | None) -> None:
    """Ignores the progress of a search."""


@dataclass(frozen=True, slots=True)
class Applied:
    """The program after a pass, and the facts that the plan records; no facts if nothing changed.

    `complete` is false if wall time ended a search. `bound` is the proved bound on the cost of repetitions.
    """

    program: Program
    facts: Facts | None = None
    complete: bool = True
    bound: CostBound | None = None


class Pass(ABC):
    """A pass with its options: a frozen dataclass whose fields have the names of options of a plan.

    What it may rely on and what holds behind it: `requires` and `keeps` name properties of programs,
    ``sequential`` (one step a level) and ``own memory`` (no aliases).
    """

    name: ClassVar[str]
    requires: ClassVar[frozenset[str]] = frozenset()
    keeps: ClassVar[frozenset[str]] = frozenset({"sequential", "own memory"})
    #: Whether the pass takes so long that preparations, which try many programs, do without it.
    searches: ClassVar[bool] = False

    @abstractmethod
    def run(self, program: Program) -> Program:
        """The changed program; the same object if nothing changes."""

    def facts(self, before: Program, after: Program) -> Facts:
        """The facts that the plan records of the pass."""
        return {}

    def apply(self, program: Program, deadline: Deadline, tell: Tell = silent) -> Applied:
        """Run, and return the facts as well. A pass that searches stops at the deadline with the best so far;
        it calls `tell` with None when its search begins, and then with its progress.
        """
        changed = self.run(program)
        return Applied(changed, None if changed is program else self.facts(program, changed))
