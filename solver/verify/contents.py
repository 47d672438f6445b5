"""Terms, and what bytes hold: the numbers that the proof calculates with.

A term stands for a value that some kernel computed: the reference step, the slot, and the terms of the
slots that the result depends on. Terms are interned, not hashed: two results have one number exactly if the
same kernel of the same operation made them from the same terms, so equal numbers mean equal bits.

    addresses   0        64       128            whatever a write touches ends as a whole: what is left of it
    before      [ term 3 ][    term 5     )      is not a value, and no step may look at it
    write           [ term 9 )
    after       [undefined[ term 9 )undefined)

What is cut out of a value or put together from several is pieces of terms, interned too. Where the reference
program has such values, a write leaves what it does not touch, and ranges are read in part or together::

    before      [          term 3          )     bytes 16 to 48 of term 3 are read, or written: no change
    write             [ term 9 )
    after       [3: 0-20)[ term 9 )[3: 40-64)    bytes 0 to 16 of term 3 are still there
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable

__all__ = ["EMPTY", "UNDEFINED", "Bytes", "Terms"]

#: The contents of every tensor of 0 bytes: one term, beyond the numbers of all others.
EMPTY = 1 << 62

#: What is not a whole value: bytes that nothing has written, scratch behind its step, a copy on its way.
UNDEFINED = -1

#: A term, the first and the last of its bytes, exclusive, and how many it has.
_Piece = tuple[int, int, int, int]


class Terms:
    """All terms that occur in one proof, by number; what consists of pieces has numbers below UNDEFINED."""

    def __init__(self) -> None:
        self._count = 0
        self._numbers: dict[Hashable, int] = {}
        self._joined: dict[tuple[_Piece, ...], int] = {}
        self._pieces: list[tuple[_Piece, ...]] = []
        self._known = 0

    def new(self) -> int:
        """The number of a term that is like no other one."""
        self._count += 1
        return self._count - 1

    def number(self, key: Hashable) -> int:
        """The number of a term, the same for the same key."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = self.new()
        return found

    def joined(self, pieces: Iterable[_Piece]) -> int:
        """The number of what consists of pieces of these terms, or of pieces again, one behind the other."""
        found: list[_Piece] = []
        for number, start, stop, size in pieces:
            if number == UNDEFINED:
                return UNDEFINED
            position = 0
            for root, first, last, whole in (
                ((number, 0, size, size),) if number >= 0 else self._pieces[UNDEFINED - 1 - number]
            ):
                low, high = max(start, position), min(stop, position + last - first)
                if low < high:
                    piece = (root, first + low - position, first + high - position, whole)
                    if found and found[-1][0] == root and found[-1][2] == piece[1]:
                        piece = (root, found.pop()[1], piece[2], whole)
                    found.append(piece)
                position += last - first
        if not found:
            return EMPTY
        if len(found) == 1 and found[0][2] - found[0][1] == found[0][3]:
            return found[0][0]
        key = tuple(found)
        number = self._joined.setdefault(key, UNDEFINED - 1 - len(self._pieces))
        if UNDEFINED - 1 - number == len(self._pieces):
            self._pieces.append(key)
        return number

    def close(self) -> None:
        """What consists of pieces from now on is not a value of the reference program."""
        self._known = len(self._pieces)

    @property
    def has_pieces(self) -> bool:
        """Whether a value of the reference program consists of pieces."""
        return self._known > 0

    def is_value(self, number: int) -> bool:
        """Whether a number stands for a whole value: a term, or what a value of the reference consists of."""
        return number >= 0 or 0 <= UNDEFINED - 1 - number < self._known


class Bytes:
    """What ranges of one line of addresses hold: ranges do not overlap, and all other bytes are undefined.

    `terms` are those of the reference program, closed. O(log n) a write or read for n ranges, and what a
    write ends.
    """

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._cuts = terms.has_pieces
        self._starts: list[int] = []
        self._ranges: dict[int, tuple[int, int]] = {}

    def write(self, low: int, high: int, number: int) -> None:
        """Let the bytes ``[low, high)`` hold what has this number, or nothing.

        A view of a part writes what is there already; what it is a part of can still be read as a whole.
        """
        if low == high:
            return
        starts, ranges = self._starts, self._ranges
        found = ranges.get(low)
        if found is not None and found[0] == high and number != UNDEFINED:
            ranges[low] = (high, number)
            return
        first = bisect_left(starts, low)
        if first and ranges[starts[first - 1]][0] > low:
            if self._cuts:
                self._cut(first - 1, low)
            else:
                first -= 1
        last = first
        while last < len(starts) and starts[last] < high:
            if self._cuts and ranges[starts[last]][0] > high:
                self._cut(last, high)
            del ranges[starts[last]]
            last += 1
        if number == UNDEFINED:
            del starts[first:last]
        else:
            starts[first:last] = [low]
            ranges[low] = (high, number)

    def read(self, low: int, high: int) -> int:
        """The number of what the bytes ``[low, high)`` hold; UNDEFINED if they do not hold it all."""
        if low == high:
            return EMPTY
        found = self._ranges.get(low)
        if found is not None and found[0] == high:
            return found[1]
        if not self._cuts:
            return UNDEFINED
        pieces: list[_Piece] = []
        starts, ranges = self._starts, self._ranges
        k, position = max(bisect_right(starts, low) - 1, 0), low
        while position < high:
            if k == len(starts) or starts[k] > position:
                return UNDEFINED
            start = starts[k]
            end, number = ranges[start]
            if end <= position:
                return UNDEFINED
            pieces.append((number, position - start, min(end, high) - start, end - start))
            position, k = end, k + 1
        return self._terms.joined(pieces)

    def _cut(self, k: int, at: int) -> None:
        """Let range k end at an address inside of it, and another one begin there."""
        start = self._starts[k]
        end, number = self._ranges[start]
        size = end - start
        self._starts.insert(k + 1, at)
        self._ranges[start] = (at, self._terms.joined([(number, 0, at - start, size)]))
        self._ranges[at] = (end, self._terms.joined([(number, at - start, size, size)]))
