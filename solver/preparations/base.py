"""Preparations: choices that may change bits, made before the reference program is derived."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol

from solver.graph import TrainableGraph
from solver.graph.ops.base import DEFAULT_SCRATCH_BUDGET
from solver.program import Record, Replacement

if TYPE_CHECKING:
    from solver.preparations.rewriting import Arithmetic

__all__ = ["Planner", "Preparation", "Prepared"]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The input of derivation: the graph, the bytes of scratch that one step may use, and the type that
    activations wait in for the backward pass, None for their own.

    `replacements` lead from the graph that was given to this one. `complete` is false when a preparation
    was stopped by a deadline. `records` are what preparations did.
    """

    graph: TrainableGraph
    scratch_budget: int = DEFAULT_SCRATCH_BUDGET
    replacements: tuple[Replacement, ...] = ()
    complete: bool = True
    records: tuple[Record, ...] = ()
    storage: str | None = None


class Planner(Protocol):
    """Questions that a preparation may ask of the planner while it tries something."""

    @property
    def arithmetic(self) -> Arithmetic:
        """Computes operations on constants, by the kernels that training runs."""

    @property
    def stop(self) -> Callable[[], bool]:
        """Whether the time for planning is over."""

    def footprint(self, prepared: Prepared) -> tuple[int, int, frozenset[str]]:
        """Of the program that would be planned: the bytes that every arena needs, those of all buffers
        without reuse, and the operations that run while most bytes are live.
        """


class Preparation(ABC):
    """A preparation with its options: a frozen dataclass whose fields have the names of options of a plan."""

    name: ClassVar[str]

    @abstractmethod
    def run(self, prepared: Prepared, planner: Planner) -> Prepared:
        """The new input of derivation; the very same object where nothing changes."""
