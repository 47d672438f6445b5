"""Topological order of operations, the cycle that prevents one, and reachability of the loss."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Mapping, Sequence

from solver.errors import CyclicGraphError
from solver.graph.types import Operation

__all__ = ["depends_on", "topological_order"]

#: Operations of a cycle that an error prints.
_NAMED_OPERATIONS = 20


def topological_order(operations: Sequence[Operation], defined_by: Mapping[str, int]) -> list[int]:
    """Indexes of `operations` so that each follows what it reads; ties in the given order.

    Kahn's algorithm with a heap: O((V + E) log V). Raises CyclicGraphError that prints one cycle.
    """
    readers: list[list[int]] = [[] for _ in operations]
    missing = [0] * len(operations)
    for i, operation in enumerate(operations):
        for before in {defined_by[name] for name in operation.inputs if name in defined_by}:
            readers[before].append(i)
            missing[i] += 1
    ready = [i for i, count in enumerate(missing) if not count]
    order: list[int] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(i)
        for reader in readers[i]:
            missing[reader] -= 1
            if not missing[reader]:
                heapq.heappush(ready, reader)
    if len(order) < len(operations):
        raise _cycle(operations, defined_by, missing)
    return order


def _cycle(
    operations: Sequence[Operation], defined_by: Mapping[str, int], missing: Sequence[int]
) -> CyclicGraphError:
    """Walk backwards through unsorted operations until one repeats: that is a cycle."""
    start = next(i for i, count in enumerate(missing) if count)
    walk: list[int] = []
    seen: dict[int, int] = {}
    while start not in seen:
        seen[start] = len(walk)
        walk.append(start)
        start = next(
            defined_by[name]
            for name in operations[start].inputs
            if name in defined_by and missing[defined_by[name]]
        )
    loop = [operations[i].id for i in (start, *reversed(walk[seen[start] + 1 :]), start)]
    if len(loop) > _NAMED_OPERATIONS:
        loop[_NAMED_OPERATIONS // 2 : -_NAMED_OPERATIONS // 2] = [
            f"... {len(loop) - _NAMED_OPERATIONS} more ..."
        ]
    return CyclicGraphError(
        f"The operations form a cycle: {' -> '.join(loop)}.",
        remedy="A training graph is acyclic: unroll the loop.",
        path=("operations", start),
    )


def depends_on(
    target: str,
    operations: Sequence[Operation],
    defined_by: Mapping[str, int],
    sources: Callable[[Operation], Iterable[str]] = lambda operation: operation.inputs,
) -> set[str]:
    """All operands that `target` is computed from, itself included. Linear.

    `sources` says which inputs of an operation count.
    """
    reached = {target}
    pending = [target]
    while pending:
        name = pending.pop()
        if name not in defined_by:
            continue
        for source in sources(operations[defined_by[name]]):
            if source and source not in reached:
                reached.add(source)
                pending.append(source)
    return reached
