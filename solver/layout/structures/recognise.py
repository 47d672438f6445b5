"""Which structure a problem has, and the layout that its theorem gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

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
    """Name and offsets of each structure that the instance has."""
    for structure in STRUCTURES:
        offsets = structure.place(instance)
        if offsets is not None:
            yield structure.name, offsets
