"""What a pass is: a change of the program that must not change any result, so that every plan is proved."""

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

#: Hears of a search: None at its beginning.
Tell: TypeAlias = Callable[[SearchProgress | None], None]


def silent(_progress: SearchProgress | None) -> None:
    """Where no caller wants to hear of a search."""


@dataclass(frozen=True, slots=True)
class Applied:
    """What a pass made of a program, and what the plan records of it, None where nothing changed.

    `complete` is false where wall time ended a search. `bound` is what is proved of the cost of repetitions.
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
        """The changed program; the very object that was given where nothing changes."""

    def facts(self, before: Program, after: Program) -> Facts:
        """What the pass did, for the plan's records."""
        return {}

    def apply(self, program: Program, deadline: Deadline, tell: Tell = silent) -> Applied:
        """Run, and say what changed. A pass that searches stops at the deadline with the best so far; it
        tells None where its search begins, and then how far that is.
        """
        changed = self.run(program)
        return Applied(changed, None if changed is program else self.facts(program, changed))
