"""Dependencies between steps: which ones a step has to follow, because of what both do to one operand."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

__all__ = ["dependencies"]

K = TypeVar("K", bound=Hashable)


def dependencies(touches: Iterable[tuple[Iterable[K], Iterable[K]]]) -> tuple[frozenset[int], ...]:
    """For each step the positions of those that it has to follow directly; `touches` has (reads, writes).

    RAW: a read follows the last write. WAR: a write follows the reads since then. WAW: a write
    follows the last write. Longer chains follow from these. Linear in touches and result.
    """
    found: list[frozenset[int]] = []
    writer: dict[K, int] = {}
    readers: dict[K, list[int]] = {}
    for t, (reads, writes) in enumerate(touches):
        before: set[int] = set()
        for key in reads:
            before.update((writer[key],) if key in writer else ())
            readers.setdefault(key, []).append(t)
        for key in writes:
            before.update((writer[key],) if key in writer else ())
            before.update(readers.pop(key, ()))
            writer[key] = t
        found.append(frozenset(before - {t}))
    return tuple(found)
