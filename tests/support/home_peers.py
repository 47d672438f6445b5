"""Greedy planners for several memory pools, written from their published descriptions.

* TVM's Unified Static Memory Planner (RFC 0009 of Apache TVM): buffers by size, or by the number of buffers
  that they meet, largest first; each in the first pool, in the order of preference, in which it fits above
  all buffers that are placed there and that it meets.
* ExecuTorch's planner for banks: tensors by size, largest first; each in the first bank with a free gap, at
  the lowest offset.

All of them take pools in one order of preference for all buffers: here the fastest first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from solver.accounting import HomeItem, HomeProblem

__all__ = ["PEERS", "Placed"]

#: The memory and the offset of each item; None where one finds no room.
Placed = list[tuple[int, int]] | None


def usmp_by_size(problem: HomeProblem) -> Placed:
    meets = _conflicts(problem.items)
    order = sorted(range(len(problem.items)), key=lambda i: (-problem.items[i].size, -len(meets[i]), i))
    return _placed(problem, order, meets, _above)


def usmp_by_conflicts(problem: HomeProblem) -> Placed:
    meets = _conflicts(problem.items)
    order = sorted(range(len(problem.items)), key=lambda i: (-len(meets[i]), -problem.items[i].size, i))
    return _placed(problem, order, meets, _above)


def banked(problem: HomeProblem) -> Placed:
    meets = _conflicts(problem.items)
    order = sorted(range(len(problem.items)), key=lambda i: (-problem.items[i].size, i))
    return _placed(problem, order, meets, _lowest_gap)


PEERS: Mapping[str, Callable[[HomeProblem], Placed]] = {
    "USMP, by size": usmp_by_size,
    "USMP, by conflicts": usmp_by_conflicts,
    "banked greedy": banked,
}


def _conflicts(items: Sequence[HomeItem]) -> list[set[int]]:
    return [
        {
            j
            for j, other in enumerate(items)
            if j != i and any(a.overlaps(b) for a in item.spans for b in other.spans)
        }
        for i, item in enumerate(items)
    ]


def _placed(
    problem: HomeProblem,
    order: Sequence[int],
    meets: Sequence[set[int]],
    offset_for: Callable[[list[tuple[int, int]], int], int],
) -> Placed:
    places: dict[int, tuple[int, int]] = {}
    speed = _preference(problem)
    for i in order:
        item = problem.items[i]
        for k in speed:
            if item.nanoseconds[k] is None:
                continue
            there = [
                (places[j][1], places[j][1] + problem.items[j].size)
                for j in meets[i]
                if j in places and places[j][0] == k
            ]
            offset = offset_for(there, item.size)
            if offset + item.size <= problem.capacities[k]:
                places[i] = k, offset
                break
        else:
            return None
    return [places[i] for i in range(len(problem.items))]


def _preference(problem: HomeProblem) -> list[int]:
    """The memories, the fastest first: by the time that all items would take there."""
    total = [sum(item.nanoseconds[k] or 0 for item in problem.items) for k in range(len(problem.capacities))]
    return sorted(range(len(total)), key=total.__getitem__)


def _above(there: list[tuple[int, int]], size: int) -> int:
    return max((high for _, high in there), default=0)


def _lowest_gap(there: list[tuple[int, int]], size: int) -> int:
    offset = 0
    for low, high in sorted(there):
        if low >= offset + size:
            break
        offset = max(offset, high)
    return offset
