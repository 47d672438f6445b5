"""Passes: changes of the program that keep every result, in the order in which they run.

A pass is one module with a frozen dataclass: its options. It takes a program and gives a program; the
reference program stays as it is, and the symbolic proof compares the two (`solver.verify`). What may
change bits is not a pass but a preparation (`solver.preparations`).
"""

from __future__ import annotations

from dataclasses import fields

from solver.passes.aliases import Aliases
from solver.passes.base import Applied, Facts, Pass, Tell
from solver.passes.levels import MAX_PARALLELISM, Levels
from solver.passes.paging import Paging
from solver.passes.recompute import Recompute
from solver.passes.search_order import SearchOrder, in_given_order, in_listed_order
from solver.passes.updates import UPDATE_MODES, Order

__all__ = [
    "MAX_PARALLELISM",
    "PASSES",
    "UPDATE_MODES",
    "Aliases",
    "Applied",
    "Facts",
    "Levels",
    "Order",
    "Paging",
    "Pass",
    "Recompute",
    "SearchOrder",
    "Tell",
    "chosen",
    "in_given_order",
    "in_listed_order",
]

#: Every pass, in the order in which they run. Adding one is a module here and its place in this list.
PASSES: tuple[type[Pass], ...] = (Order, SearchOrder, Recompute, Levels, Paging, Aliases)


def chosen(options: object) -> tuple[Pass, ...]:
    """The passes with their options, which are attributes of `options` by name.

    Raises OptionsError for a value that a pass does not take.
    """
    return tuple(
        kind(**{field.name: getattr(options, field.name) for field in fields(kind)})  # type: ignore[arg-type]  # dataclasses
        for kind in PASSES
    )
