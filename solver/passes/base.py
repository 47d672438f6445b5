"""What a pass is: a change of the program that must not change any result, so that every plan is proved."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from solver.program import Program

__all__ = ["Pass"]


class Pass(ABC):
    """A pass with its options: a frozen dataclass whose fields have the names of options of a plan.

    What it may rely on and what holds behind it: `requires` and `keeps` name properties of programs,
    ``sequential`` (one step a level) and ``own memory`` (no aliases).
    """

    name: ClassVar[str]
    requires: ClassVar[frozenset[str]] = frozenset()
    keeps: ClassVar[frozenset[str]] = frozenset({"sequential", "own memory"})

    @abstractmethod
    def run(self, program: Program) -> Program:
        """The changed program; the very object that was given where nothing changes."""

    def facts(self, before: Program, after: Program) -> dict[str, int | str | bool]:
        """What the pass did, for the plan's records."""
        return {}
