"""The bindings of all steps as columns of numbers: questions about each of them are asked of all at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from solver.program.ir import Access, Program

__all__ = ["Touched", "in_order", "touched"]

_Flags = npt.NDArray[np.bool_]

_NUMBER: Final = {access: number for number, access in enumerate(Access)}

#: By the number of an access: whether it reads, and whether it defines.
_READS: Final[_Flags] = np.array([access.reads for access in Access])
_DEFINES: Final[_Flags] = np.array([access.defines for access in Access])


@dataclass(frozen=True, slots=True, eq=False)
class Touched:
    """A row for each binding, step by step: the number of its step, its value, and its access."""

    step: npt.NDArray[np.int64]
    value: npt.NDArray[np.int64]
    access: npt.NDArray[np.int8]

    @property
    def reads(self) -> _Flags:
        """Of each row whether its step looks at the bytes."""
        return _READS[self.access]

    @property
    def defines(self) -> _Flags:
        """Of each row whether its step leaves a result there."""
        return _DEFINES[self.access]

    def has(self, access: Access) -> _Flags:
        """Of each row whether it has this access."""
        found: _Flags = self.access == _NUMBER[access]
        return found


def touched(program: Program) -> Touched:
    """The columns of a program; made once, linear."""
    return program.once("touched", _made)


def in_order(program: Program, order: Sequence[int]) -> Program:
    """`Program.reordered`, with columns that follow from those of the program; linear."""
    rows = touched(program)
    position = np.empty(len(order), np.int64)
    position[list(order)] = np.arange(len(order))
    step = position[rows.step]
    then = np.argsort(step, kind="stable")
    made = program.reordered(order)
    made.once("touched", lambda _: Touched(step[then], rows.value[then], rows.access[then]))
    return made


def _made(program: Program) -> Touched:
    bindings = [binding for step in program.steps for binding in step.bindings]
    many = np.array([len(step.bindings) for step in program.steps], np.int64)
    values = np.array([binding.value for binding in bindings], np.int64)
    accesses = np.array([_NUMBER[binding.access] for binding in bindings], np.int8)
    return Touched(np.repeat(np.arange(len(many)), many), values, accesses)
