"""Terms, and what bytes hold: the numbers that the proof calculates with.

A term stands for a value that some kernel computed: the reference step, the slot, and the terms of the
slots that the result depends on. Terms are interned, not hashed: two results have one number exactly if the
same kernel of the same operation made them from the same terms, so equal numbers mean equal bits.

    addresses   0        64       128            whatever a write touches ends as a whole: what is left of it
    before      [ term 3 ][    term 5     )      is not a value, and no step may look at it
    write           [ term 9 )
    after       [undefined[ term 9 )undefined)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable

__all__ = ["UNDEFINED", "Bytes", "Terms"]

#: What is not a whole value: bytes that nothing has written, scratch behind its step, a copy on its way,
#: pieces of several values.
UNDEFINED = -1


class Terms:
    """All terms that occur in one proof, by number."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}

    def number(self, key: Hashable) -> int:
        """The number of a term, the same for the same key."""
        return self._numbers.setdefault(key, len(self._numbers))


class Bytes:
    """What ranges of one line of addresses hold: ranges do not overlap, and all other bytes are undefined.

    O(log n) a write or read for n ranges, and what a write ends.
    """

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ranges: dict[int, tuple[int, int]] = {}

    def write(self, low: int, high: int, number: int) -> None:
        """Let the bytes ``[low, high)`` hold the term with this number, or none."""
        starts, ranges = self._starts, self._ranges
        found = ranges.get(low)
        if found is not None and found[0] == high and number != UNDEFINED:
            ranges[low] = (high, number)
            return
        first = bisect_left(starts, low)
        if first and ranges[starts[first - 1]][0] > low:
            first -= 1
        last = first
        while last < len(starts) and starts[last] < high:
            del ranges[starts[last]]
            last += 1
        if number == UNDEFINED:
            del starts[first:last]
        else:
            starts[first:last] = [low]
            ranges[low] = (high, number)

    def read(self, low: int, high: int) -> int:
        """The term that the bytes ``[low, high)`` hold; UNDEFINED if they do not hold exactly one, whole."""
        found = self._ranges.get(low)
        return found[1] if found is not None and found[0] == high else UNDEFINED
