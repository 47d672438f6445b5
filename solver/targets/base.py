"""The contract of a target: the runtime whose memory is planned."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Protocol

from solver.errors import OptionsError
from solver.graph.types import TrainableGraph
from solver.layout import Lifespan
from solver.passes import Pass
from solver.preparations import Prepared
from solver.program import Constraints, Program, Tier

__all__ = ["Capabilities", "Lowered", "Target", "TargetOptions", "aligned"]


class TargetOptions(Protocol):
    """The options of a plan that a target may read; sizes are bytes."""

    @property
    def alignment(self) -> int | None: ...
    @property
    def update(self) -> str: ...
    @property
    def parallelism(self) -> int: ...
    @property
    def in_place(self) -> bool: ...
    @property
    def capacity(self) -> int | None: ...
    @property
    def recompute(self) -> bool: ...
    @property
    def tiers(self) -> tuple[Tier, ...]: ...
    @property
    def constraints(self) -> Constraints: ...


@dataclass(frozen=True, slots=True)
class Capabilities:
    """The abilities of a target. `trains`: the executor of this project can run its plans.

    `update`: gradients may be applied at another time. `sub_ranges`: in place also parts of values.
    `recompute`: its steps may run several times. `order`: they may run in another order.
    `paging`: values may leave its arena for slower memory. `storage`: it can keep activations in 16 bits.
    `scratch`: its kernels work within a scratch budget. `stored`: they unpack weights that have a storage.
    """

    trains: bool = False
    update: bool = False
    in_place: bool = False
    sub_ranges: bool = False
    parallelism: bool = False
    rewrite: bool = False
    recompute: bool = False
    order: bool = False
    paging: bool = False
    storage: bool = False
    scratch: bool = False
    stored: bool = False


@dataclass(frozen=True, slots=True)
class Lowered:
    """A program in the spaces of its target.

    `solvers` names, for each space, the layout solver that the runtime itself would use, if it insists.
    `holds` are lives that the runtime makes longer than the program needs.
    """

    program: Program
    solvers: tuple[str | None, ...]
    holds: Mapping[int, Lifespan] = field(default_factory=dict)


class Target(ABC):
    """A runtime. Stateless; found by its name in `solver.targets.TARGETS`."""

    name: ClassVar[str]
    #: A line for people who choose one.
    title: ClassVar[str]
    capabilities: ClassVar[Capabilities]

    @abstractmethod
    def reference(self, prepared: Prepared, options: TargetOptions) -> Lowered:
        """The program that every plan of the prepared graph must agree with, in the target's spaces.

        Raises OptionsError for a graph that the target cannot train.
        """

    def check_stored(self, graph: TrainableGraph) -> None:
        """Raises OptionsError for a graph with stored weights where the target's kernels read none."""
        stored = [operand for operand in graph.operands.values() if operand.type.storage is not None]
        if stored and not self.capabilities.stored:
            raise OptionsError(
                f"The target {self.name!r} reads no stored weights, and {stored[0].id!r} is stored as"
                f" {stored[0].type.storage}.",
                remedy="Plan for the target 'reference', or leave the storage out of all operands.",
                path=("target",),
            )

    def passes(self, options: TargetOptions) -> tuple[Pass, ...]:
        """The passes that turn the reference program into the one that is planned, in their order."""
        return ()


def aligned(program: Program, alignment: int) -> Lowered:
    """The program in its one space, with another alignment in bytes."""
    (space,) = program.spaces
    if space.alignment == alignment:
        return Lowered(program, (None,))
    return Lowered(replace(program, spaces=(replace(space, alignment=alignment),)), (None,))
