"""Terms, and what bytes hold: the numbers that the proof calculates with.

A term stands for a value that some kernel computed: the reference step, the slot, and the contents of the
slots that the result depends on. Terms are interned, not hashed: two results have one number exactly if the
same kernel of the same operation made them from the same contents, so equal numbers mean equal bits.

Contents are byte strings in which each byte is a byte of some term. Nearly all are one whole term, and have
its number. Others are pieces of several, as a value has that is laid over two others::

    contents 7    [ term 3, bytes 0..64 | term 5, bytes 0..32 ]
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterable

__all__ = ["UNDEFINED", "Bytes", "Contents", "Piece"]

#: What holds no value: bytes that nothing has written, scratch behind its step, a copy that is on its way.
UNDEFINED = -1

#: A number of contents, and its first and last byte, exclusive.
Piece = tuple[int, int, int]


class Contents:
    """All contents that occur in one proof, by number."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._pieces: list[tuple[Piece, ...]] = []
        self.sizes: list[int] = []

    def term(self, key: Hashable, size: int) -> int:
        """The number of a whole term of `size` bytes, the same for the same key."""
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.sizes)
            self._pieces.append(((found, 0, size),))
            self.sizes.append(size)
        return found

    def is_whole(self, number: int) -> bool:
        """Whether these contents are one whole term, neither undefined nor pieces."""
        return number != UNDEFINED and self._pieces[number][0] == (number, 0, self.sizes[number])

    def joined(self, pieces: Iterable[Piece]) -> int:
        """The number of contents that are pieces of others, one behind the other."""
        whole: list[Piece] = []
        for number, start, end in pieces:
            position = 0
            for root, first, last in self._pieces[number]:
                low, high = max(start, position), min(end, position + last - first)
                if low < high:
                    piece = (root, first + low - position, first + high - position)
                    if whole and whole[-1][0] == root and whole[-1][2] == piece[1]:
                        piece = (root, whole.pop()[1], piece[2])
                    whole.append(piece)
                position += last - first
        if len(whole) == 1 and whole[0][1] == 0 and whole[0][2] == self.sizes[whole[0][0]]:
            return whole[0][0]
        key = ("pieces", *whole)
        found = self._numbers.get(key)
        if found is None:
            found = self._numbers[key] = len(self.sizes)
            self._pieces.append(tuple(whole))
            self.sizes.append(sum(last - first for _, first, last in whole))
        return found


class Bytes:
    """What each byte of one line of addresses holds: ranges that do not overlap, all others undefined.

    A write ends whatever it touches. O(log n) for n ranges, and what it ends.
    """

    def __init__(self, contents: Contents) -> None:
        self._contents = contents
        self._starts: list[int] = []
        self._ranges: dict[int, tuple[int, int, int]] = {}

    def clear(self, low: int, high: int) -> None:
        """Leave the bytes ``[low, high)`` undefined."""
        starts, ranges = self._starts, self._ranges
        first = bisect_left(starts, low)
        if first and ranges[starts[first - 1]][0] > low:
            start = starts[first - 1]
            end, number, shift = ranges[start]
            ranges[start] = (low, number, shift)
            if end > high:
                starts.insert(first, high)
                ranges[high] = (end, number, shift + high - start)
                return
        last = first
        while last < len(starts) and starts[last] < high:
            start = starts[last]
            end, number, shift = ranges.pop(start)
            last += 1
            if end > high:
                starts[first:last] = [high]
                ranges[high] = (end, number, shift + high - start)
                return
        if last > first:
            del starts[first:last]

    def write(self, low: int, high: int, number: int) -> None:
        """Let the bytes ``[low, high)`` hold the contents with this number, or none."""
        found = self._ranges.get(low)
        if found is not None and found[0] == high:
            if number == UNDEFINED:
                del self._ranges[low]
                del self._starts[bisect_left(self._starts, low)]
            else:
                self._ranges[low] = (high, number, 0)
            return
        self.clear(low, high)
        if number != UNDEFINED:
            self._starts.insert(bisect_left(self._starts, low), low)
            self._ranges[low] = (high, number, 0)

    def read(self, low: int, high: int) -> int:
        """What the bytes ``[low, high)`` hold: UNDEFINED if one of them holds nothing."""
        found = self._ranges.get(low)
        if found is not None and found[:1] + found[2:] == (high, 0):
            whole = self._contents.sizes[found[1]] == high - low
            if whole:
                return found[1]
        pieces: list[Piece] = []
        k, position = max(bisect_right(self._starts, low) - 1, 0), low
        while position < high:
            if k == len(self._starts) or self._starts[k] > position:
                return UNDEFINED
            start = self._starts[k]
            end, number, shift = self._ranges[start]
            if end <= position:
                return UNDEFINED
            last = min(end, high)
            pieces.append((number, shift + position - start, shift + last - start))
            position, k = last, k + 1
        return self._contents.joined(pieces)
