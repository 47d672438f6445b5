"""Equal sizes: as many places as buffers are ever live at the same time.

A place is handed on from the buffer that ends first to the one that starts next.

Placing intervals of one size is colouring an interval graph, which needs as many colours as intervals meet in
one point (Gilmore & Hoffman, 1964, by way of Dilworth's theorem)::

    place 1   |==0==|   |===2===| |==5==|        births in the order of start, deaths in the order of end:
    place 0  |====1====| |==3==|   |=4=|         with w places, birth k takes the place of death k - w

At birth k, k + 1 buffers have been born and at most w live, so at least k + 1 - w have died: death k - w,
counted from 0, has passed. No two births take the place of the same death, so no two that meet share a place.
"""

from __future__ import annotations

import numpy as np

from solver.layout.model.instance import Instance, Integers, round_up
from solver.layout.model.sorting import in_order

__all__ = ["coloured", "depth", "uniform"]


def depth(instance: Instance) -> int:
    """The most buffers that are live at a time: the clique number of the interval graph. O(n + sections)."""
    born = np.bincount(instance.start, minlength=instance.sections + 1)
    died = np.bincount(instance.end, minlength=instance.sections + 1)
    return int((born - died).cumsum().max(initial=0))


def coloured(instance: Instance, colours: int) -> Integers:
    """A colour, from 0, for each buffer; those that meet differ. O(n log n).

    There are so many `colours`, at least `depth`.
    """
    births = in_order(instance.start).tolist()
    deaths = in_order(instance.end).tolist()
    colour = [0] * len(births)
    for k, i in enumerate(births):
        colour[i] = k if k < colours else colour[deaths[k - colours]]
    return np.array(colour, dtype=np.int64)


def uniform(instance: Instance) -> Integers | None:
    """Offsets where all sizes are equal and nothing is pinned; None for any other problem.

    Meets the bound where all ask for the same bytes at one alignment; a larger alignment widens each place.
    """
    if not len(instance) or instance.pinned or int(instance.size.min()) != int(instance.size.max()):
        return None
    place = round_up(int(instance.size[0]), int(instance.alignment.max()))
    return coloured(instance, depth(instance)) * place
