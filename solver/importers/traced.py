"""Training steps of other frameworks, traced as explicit programs together with their kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol

import numpy as np

from solver.errors import BatchError
from solver.graph import Array
from solver.training import BlockProgram

__all__ = ["Placed", "TracedStep", "reason_of"]


def reason_of(error: Exception) -> str:
    """The first line of what a caller's function raised, which may have no text; a name says little alone."""
    lines = str(error).strip().splitlines() if not isinstance(error, KeyError) else []
    return lines[0][:300] if lines else f"it raises {error!r:.300}."


class _Blocks(Protocol):
    """The arena of a running program, as `solver.executor.BlockRunner` has it."""

    def block(self, name: str) -> Array: ...


@dataclass(frozen=True, slots=True)
class Placed:
    """The place of a tensor: `block`, and in there `offset` and `strides` in bytes, as NumPy counts them.

    `path` says which of the function's arguments or results it is: a name, or the keys and indices that lead
    to it, as ``['loss'][0]``. `dtype` is the framework's word for its element type. A tensor without elements
    lies in no block, and `block` is empty.
    """

    path: str
    block: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @property
    def numpy(self) -> np.dtype[Any]:
        """The element type of its arrays: bfloat16 and float8 are unsigned integers of the same bits."""
        narrow = {"bfloat16": "uint16"}.get(self.dtype, "uint8" if self.dtype.startswith("float8") else "")
        return np.dtype(narrow or self.dtype)

    def within(self, block: Array) -> Array:
        """The tensor as a view of its block."""
        raw = block.reshape(-1).view(np.uint8)
        return np.ndarray(self.shape, self.numpy, raw, self.offset, self.strides)


@dataclass(frozen=True, slots=True)
class TracedStep:
    """A program, and for each of its operations a function that runs the framework's kernel on the blocks.

    `values` are the elements that carried blocks start with, by name, as they were when the step was traced,
    and those of states that the function returns as they are, which may be in none of the program's blocks.
    `results` are the tensors that the function returned, in its order, those of nested structures one after
    the other; one that is returned twice is there twice. `arguments` are the tensors that it takes, by name;
    one that no operation touches is in none of the program's blocks.
    """

    program: BlockProgram
    functions: Mapping[str, Callable[[Any], None]]
    values: Mapping[str, Array]
    results: tuple[Placed, ...] = ()
    arguments: Mapping[str, Placed] = field(default_factory=dict)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "A TracedStep cannot be pickled: it holds the framework's kernels. Pickle its program, and trace"
            " the step again where it runs."
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> TracedStep:
        return replace(self, values={name: array.copy() for name, array in self.values.items()})

    def feed(self, runner: _Blocks, name: str, values: Array) -> None:
        """Write an argument into the arena; nothing where the step has no use for it.

        Raises BatchError for a name that is no argument, and for another shape or element type.
        """
        place = self.arguments.get(name)
        if place is None:
            raise BatchError(
                f"The step takes no argument {name!r:.80}.",
                remedy=f"Its arguments are {', '.join(self.arguments)}.",
            )
        values = np.asarray(values)
        if values.dtype.name == place.dtype:
            values = values.view(place.numpy)  # of a package that adds such types to NumPy
        if values.shape != place.shape or values.dtype != place.numpy:
            raise BatchError(
                f"Argument {name!r} is {values.dtype}{list(values.shape)}; the step was traced with"
                f" {place.numpy}{list(place.shape)}.",
                remedy="Convert it, or trace the step with examples of this type.",
            )
        if place.block in self.program.blocks:
            place.within(runner.block(place.block))[...] = values

    def read(self, runner: _Blocks) -> tuple[Array, ...]:
        """Copies of the tensors that the last iteration returned, in the order of `results`."""
        return tuple(self._read(runner, place) for place in self.results)

    def _read(self, runner: _Blocks, place: Placed) -> Array:
        if not place.block:
            return np.zeros(place.shape, place.numpy)
        touched = place.block in self.program.blocks
        return place.within(runner.block(place.block) if touched else self.values[place.block]).copy()
