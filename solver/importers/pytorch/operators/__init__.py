"""PyTorch's operators (ATen) and what they are here, family by family.

A family is a module with a table `HANDLERS`: from the operator's name to a function that takes a `Context`
and the operator's arguments, and returns what it gives. The names are those of the functional operators that
`torch.export` leaves: in-place ones, views with another stride and batches of losses are gone by then. What a
table has is not decomposed; what none has is, as far as PyTorch can, into what the tables have.
"""

from __future__ import annotations

from collections.abc import Mapping

from solver.importers.pytorch.context import Handler
from solver.importers.pytorch.operators import elementwise, layers, movement, reduction

__all__ = ["HANDLERS"]

#: By name, as ``linear.default``.
HANDLERS: Mapping[str, Handler] = {
    **elementwise.HANDLERS,
    **layers.HANDLERS,
    **movement.HANDLERS,
    **reduction.HANDLERS,
}
