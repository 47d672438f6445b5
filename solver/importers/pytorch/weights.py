"""Parameters and buffers between PyTorch's ``state_dict`` and the operands of a graph."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.graph import Array
from solver.importers.pytorch.context import Gates

__all__ = ["Weight"]


@dataclass(frozen=True, slots=True)
class Weight:
    """An operand and the tensor of the module that it holds; `names` are all that lead to a tied one.

    `layout` is how it lies here: blocks of rows in another order, or divided by a number. `row` is the one of
    the tensor that the operand holds, where it is not the whole.
    """

    operand: str
    names: tuple[str, ...]
    layout: Gates | float | None = None
    row: int | None = None

    def inward(self, values: Array) -> Array:
        """PyTorch's elements as they lie here; a new array unless they lie alike."""
        if self.row is not None:
            return np.ascontiguousarray(values[self.row])
        match self.layout:
            case Gates(order):
                blocks = np.split(values, len(order))
                return np.concatenate([blocks[k] for k in order])
            case None:
                return values
            case factor:
                return (values / factor).astype(values.dtype)

    def outward(self, values: Array) -> Array:
        """The inverse of `inward`, for an operand that holds a whole tensor."""
        match self.layout:
            case Gates(order):
                blocks = np.split(values, len(order))
                return np.concatenate([blocks[order.index(k)] for k in range(len(order))])
            case None:
                return values
            case factor:
                return (values * factor).astype(values.dtype)
