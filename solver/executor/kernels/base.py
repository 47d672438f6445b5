"""The interface of kernels: functions on arrays that live elsewhere.

Kernels write into arrays given to them and allocate nothing of tensor size: every output,
derivative and scratch array is a view at its planned offset. They never read an output before
writing it, never assume zeros, and write every element of what they define.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from solver.errors import InternalError
from solver.graph.ops.base import Node
from solver.graph.types import Array

__all__ = ["Call", "Kernels", "no_derivative"]


@dataclass(frozen=True, slots=True)
class Call:
    """Arrays of one step of one operation; absent ones are ``None``.

    Forward: reads `x`, writes `y` and every array of `saved`; `scratch` is free to use. Where no backward
    step reads it, an entry of `saved` is still there unless the operator calls it optional.
    Backward: reads `dy` and those of `x`, `y` and `saved` that `BackwardNeeds` asked for, writes
    each `dx[i]` that is not ``None`` (overwrites; accumulation is a step of its own).
    What the operator `updates` stands in `x` and is writable: forward reads it, then writes it in place.
    Views are C-contiguous, of the operand's shape. `iteration()` is the number of the training iteration
    that runs, from 1; nothing else differs between a step and its replay.
    """

    node: Node
    x: tuple[Array | None, ...] = ()
    y: tuple[Array | None, ...] = ()
    dy: tuple[Array | None, ...] = ()
    dx: tuple[Array | None, ...] = ()
    saved: Mapping[str, Array] = field(default_factory=dict)
    scratch: Mapping[str, Array] = field(default_factory=dict)
    iteration: Callable[[], int] = lambda: 1

    @property
    def attributes(self) -> Mapping[str, Any]:
        return self.node.attributes


@dataclass(frozen=True, slots=True)
class Kernels:
    """Forward and backward kernel of one operator.

    Both are *prepared*: they take the `Call` once, when the arena is laid out, do all the slicing
    and reshaping there, and return the function that each training step calls with no argument.
    """

    forward: Callable[[Call], Callable[[], None]]
    backward: Callable[[Call], Callable[[], None]]


def no_derivative(call: Call) -> Callable[[], None]:
    """The backward kernel of an operator that nothing asks for one. Raises InternalError."""
    raise InternalError(f"Operation {call.node.operation.id!r} has no derivative.")
