"""Which structure a problem has, and the layout that its theorem gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.layout.model.instance import Instance, Integers
from solver.layout.structures.chains import chain
from solver.layout.structures.colouring import uniform
from solver.layout.structures.laminar import laminar

__all__ = ["STRUCTURES", "Structure", "structured"]


@dataclass(frozen=True, slots=True)
class Structure:
    """A name, and offsets for an instance of that structure; None for any other."""

    name: str
    place: Callable[[Instance], Integers | None]


#: The quickest to recognise first.
STRUCTURES: Final = (Structure("uniform", uniform), Structure("chain", chain), Structure("laminar", laminar))


def structured(instance: Instance) -> Iterator[tuple[str, Integers]]:
    """Name and offsets of each structure that the instance has, above what lives in all sections.

    Buffers that live all the time may lie at the bottom of any layout where nothing is pinned and sums of
    sizes keep alignments: taking one out and moving all below it up changes no peak. So the others alone
    decide the structure, as weights do not.
    """
    base = (instance.start == 0) & (instance.end == instance.sections)
    if not base.any() or base.all() or instance.pinned or instance.misaligning:
        yield from _of_all(instance)
        return
    others = np.flatnonzero(~base)
    offsets = np.cumsum(np.where(base, instance.size, 0)) - instance.size
    for name, above in _of_all(instance.subset(others).compact()):
        offsets[others] = above + int(instance.size[base].sum())
        yield name, offsets.copy()


def _of_all(instance: Instance) -> Iterator[tuple[str, Integers]]:
    for structure in STRUCTURES:
        offsets = structure.place(instance)
        if offsets is not None:
            yield structure.name, offsets
