"""The lowest-plateau skyline heuristic: fill the deepest niche, or raise it to its lower neighbour.

    skyline
      |          ______
      | ____    |      |         the lowest plateau is [b, e); put the best buffer that lives
      |     |___|      |__       wholly inside it onto it, or, if there is none, raise it
      +-----b---e-------------   to the lower of its two neighbours (that space is lost)
            sections

After the best-fit heuristic of strip packing (Burke, Kendall & Whitwell, 2004) as Sekiyama et al.
(2018, arXiv 1804.10001) use it for memory.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from solver.layout.model.instance import FREE, Instance, Integers
from solver.layout.model.problem import Deadline

__all__ = ["RULES", "lowest_plateau"]

#: What makes a buffer the first to go onto a plateau.
RULES: Final = ("lifetime", "area", "size")

_TALLER: Final = np.iinfo(np.int64).max


def lowest_plateau(
    instance: Instance, rule: str, limit: int, deadline: Deadline | None = None
) -> Integers | None:
    """Offsets, or None when one would end beyond `limit` or the deadline has passed.

    No pins; offsets are sums of sizes. `rule` is one of `RULES`. O(sections) per placement. An empty instance
    gives no offsets.
    """
    deadline = deadline or Deadline()
    rank = _ranks(instance, rule)
    by_start = _by_start(instance, rank)
    skyline = np.zeros(instance.sections, dtype=np.int64)
    offsets = np.full(len(instance), FREE, dtype=np.int64)
    end, size, exact = instance.end.tolist(), instance.size.tolist(), instance.exact.tolist()
    left = len(instance)
    while left:
        if deadline.expired:
            return None
        begin, stop = _lowest(skyline)
        chosen = _best_inside(by_start, begin, stop, end, rank)
        if chosen is None:
            skyline[begin:stop] = _lower_neighbour(skyline, begin, stop)
            continue
        by_start[int(instance.start[chosen])].remove(chosen)
        offsets[chosen] = skyline[begin]
        skyline[instance.start[chosen] : end[chosen]] += size[chosen]
        if int(offsets[chosen]) + exact[chosen] > limit:
            return None
        left -= 1
    return offsets


def _ranks(instance: Instance, rule: str) -> list[int]:
    """Position of each buffer when the best comes first."""
    width = instance.end - instance.start
    area = instance.size.astype(np.float64) * width
    keys = {
        "lifetime": (-instance.size, -width),
        "area": (-width, -area),
        "size": (-width, -instance.size),
    }
    order = np.lexsort(keys[rule])
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return [int(r) for r in rank]


def _by_start(instance: Instance, rank: list[int]) -> list[list[int]]:
    """The buffers that start at each section, best first."""
    starting: list[list[int]] = [[] for _ in range(instance.sections)]
    for i in sorted(range(len(instance)), key=rank.__getitem__):
        starting[int(instance.start[i])].append(i)
    return starting


def _lowest(skyline: Integers) -> tuple[int, int]:
    """The leftmost of the lowest plateaus, as sections [begin, stop)."""
    begin = int(skyline.argmin())
    higher = skyline[begin:] != skyline[begin]
    return begin, begin + int(higher.argmax()) if higher.any() else len(skyline)


def _best_inside(
    by_start: list[list[int]], begin: int, stop: int, end: list[int], rank: list[int]
) -> int | None:
    inside = (next((i for i in by_start[section] if end[i] <= stop), None) for section in range(begin, stop))
    return min((i for i in inside if i is not None), key=rank.__getitem__, default=None)


def _lower_neighbour(skyline: Integers, begin: int, stop: int) -> int:
    """Height of the lower neighbour. There is one: a plateau over all sections holds every buffer left."""
    left = int(skyline[begin - 1]) if begin else _TALLER
    right = int(skyline[stop]) if stop < len(skyline) else _TALLER
    return min(left, right)
