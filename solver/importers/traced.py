"""Training steps of other frameworks, traced as explicit programs together with their kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from solver.graph import Array
from solver.training import BlockProgram

__all__ = ["TracedStep"]


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A program, and for each of its operations a function that runs the framework's kernel on the blocks.

    `values` are the elements that carried blocks start with, by name, as they were when the step was traced.
    """

    program: BlockProgram
    functions: Mapping[str, Callable[[Any], None]]
    values: Mapping[str, Array]
