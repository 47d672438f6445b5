"""Preparations come before derivation and may change bits, so that they decide the reference program.

A preparation is one module with a frozen dataclass: its options. What may not change bits is a pass
(`solver.passes`). How gradients are treated (clipping, micro-batches, loss scaling) and which parameters are
trained stand in the training spec of the graph, which comes before both.
"""

from __future__ import annotations

from dataclasses import fields

from solver.preparations.alike import fixed_types
from solver.preparations.base import Planner, Preparation, Prepared
from solver.preparations.chunked_head import ChunkedHead
from solver.preparations.fit_scratch import FitScratch
from solver.preparations.frozen_storage import FrozenStorage, with_frozen_storage
from solver.preparations.rewrite import Rewrite
from solver.preparations.scratch import Scratch
from solver.preparations.storage import Storage
from solver.preparations.tiles import Tiles, with_tiles

__all__ = [
    "PREPARATIONS",
    "ChunkedHead",
    "FitScratch",
    "FrozenStorage",
    "Planner",
    "Preparation",
    "Prepared",
    "Rewrite",
    "Scratch",
    "Storage",
    "Tiles",
    "chosen",
    "fixed_types",
    "with_frozen_storage",
    "with_tiles",
]

#: Every preparation, in the order in which they run. Adding one is a module here and its place in this list.
#: A head in chunks reads a weight in front of its Transpose, which would else keep it from being stored.
#: Scratch is fitted to the graph as it is, and again to what rewriting leaves of it.
PREPARATIONS: tuple[type[Preparation], ...] = (
    *(Scratch, Storage, ChunkedHead, FrozenStorage, Tiles),
    *(FitScratch, Rewrite, FitScratch),
)


def chosen(options: object) -> tuple[Preparation, ...]:
    """The preparations with their options, which are attributes of `options` by name.

    Raises OptionsError for a value that a preparation does not take.
    """
    return tuple(
        kind(**{field.name: getattr(options, field.name) for field in fields(kind)})  # type: ignore[arg-type]  # dataclasses
        for kind in PREPARATIONS
    )
