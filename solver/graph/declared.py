"""How a graph is declared, before anything about it is known to be right."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from solver.errors import BatchError
from solver.graph.storage import Storage
from solver.graph.types import DType, Initializer, Role

__all__ = ["MAX_BYTES", "DeclaredOperand", "Trainable", "with_sizes"]

#: Sizes beyond this do not fit the signed 64-bit offsets of any runtime.
MAX_BYTES = 2**63 - 1

#: The trainable set: everything, names, or the last n operations that own parameters (n < 0: all).
Trainable = Literal["all"] | Sequence[str] | int


@dataclass(frozen=True, slots=True)
class DeclaredOperand:
    """An operand as a document declares it.

    `shape` and `dtype` may be left out for an INTERMEDIATE operand and are then inferred. What has a
    `storage` is not trained. `path` leads to the declaration in the document; errors point there.
    """

    id: str
    role: Role
    shape: tuple[int, ...] | None = None
    dtype: DType | None = None
    initializer: Initializer | None = None
    trainable: bool = True
    path: tuple[str | int, ...] = ()
    storage: Storage | None = None


def with_sizes(
    shape: Sequence[int | str], sizes: Mapping[str, int], path: tuple[str | int, ...]
) -> tuple[int, ...]:
    """Replace symbolic dimensions by their sizes. Raises BatchError where the size of one is missing."""
    resolved = []
    for axis, dimension in enumerate(shape):
        if isinstance(dimension, int):
            resolved.append(dimension)
        elif dimension in sizes:
            resolved.append(sizes[dimension])
        elif dimension == "batch":
            raise BatchError(
                "The graph has a symbolic batch and no value for it.",
                remedy="Set `batch` in the graph or in the options.",
                path=(*path, axis),
            )
        else:
            raise BatchError(
                f"{dimension!r} is not a dimension.",
                remedy='A dimension is a positive integer, "batch", or a name of the graph\'s "dims".',
                path=(*path, axis),
            )
    return tuple(resolved)
