"""First fit in windows of time, compiled: what ends too high is placed anew together with what is around it.

::

    capacity  - - - - - -__- - - - - -      a buffer (#) ends above the capacity that is aimed at
               ___   |  |##|  |             what lives wholly within a window around it is taken out; what
              |   |  |__|##|_ |             reaches into the window stays, as a pin
              |___|__|_______||_
                     t0       t1            then first fit by size, and again with what did not fit in front

Putting in front what has failed, and beginning again: squeaky wheel optimisation (Joslin and Clements, 1999).
A window holds a few dozen buffers, so a pass through it takes a microsecond, and most windows take three.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from solver.layout.model.instance import Integers
from solver.native import compiled, inlined

__all__ = ["FAILED", "LOOKED", "MOST", "Buffers", "Scratch", "lower_in_windows"]

Flags: TypeAlias = npt.NDArray[np.bool_]

#: Buffers that a window may hold, those that reach into it included.
MOST: Final = 512

#: What `counts` holds: windows without success, and boxes looked at.
FAILED: Final = 0
LOOKED: Final = 1

#: Each time but for one in so many, what has failed goes to the front; then half as far.
FRONT: Final = 3


class Buffers(NamedTuple):
    """All buffers; their numbers by birth; of these the births, and the latest death of all up to each."""

    start: Integers
    end: Integers
    size: Integers
    exact: Integers
    alignment: Integers
    pinned: Flags
    by_birth: Integers
    birth: Integers
    reach: Integers


class Scratch(NamedTuple):
    """One window: of each member its buffer, and where it is; then members, those to place in the order of
    trying, those that stay and all that are placed, the lowest first. `counts` is what comes back.
    """

    buffer: Integers
    start: Integers
    end: Integers
    size: Integers
    offset: Integers
    order: Integers
    stays: Integers
    placed: Integers
    counts: Integers


@inlined
def _first_above(numbers: Integers, number: int) -> int:
    """How many sorted numbers are at most this one."""
    low, high = 0, len(numbers)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] <= number:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def _insert(s: Scratch, into: Integers, count: int, member: int) -> None:
    """Keeps members by their offsets, the lowest first."""
    at = count
    while at > 0 and s.offset[into[at - 1]] > s.offset[member]:
        into[at] = into[at - 1]
        at -= 1
    into[at] = member


@inlined
def _cut_out(b: Buffers, s: Scratch, offsets: Integers, i: int, half: int) -> tuple[int, int]:
    """The window of so many births before buffer `i` and behind it: how many to place, and how many stay.

    Those to place are ordered by size, of equal ones the longest first; (0, 0) where there are too many.
    """
    at = _first_above(b.birth, b.start[i] - 1)
    first = min(b.start[i], b.birth[max(0, at - half)])
    last = max(b.end[i], b.birth[min(len(b.birth) - 1, at + half)] + 1)
    low, high = _first_above(b.reach, first), _first_above(b.birth, last - 1)
    if high - low > len(s.buffer):
        return 0, 0
    members, free, stay = 0, 0, 0
    for position in range(low, high):
        j = b.by_birth[position]
        if b.end[j] > first:
            m = members
            s.buffer[m], s.start[m], s.end[m], s.size[m] = j, b.start[j], b.end[j], b.size[j]
            s.offset[m] = offsets[j]
            members += 1
            if s.start[m] >= first and s.end[m] <= last and not b.pinned[j]:
                at, life = free, s.end[m] - s.start[m]
                while at > 0:
                    k = s.order[at - 1]
                    if s.size[k] > s.size[m] or (s.size[k] == s.size[m] and s.end[k] - s.start[k] >= life):
                        break
                    s.order[at] = k
                    at -= 1
                s.order[at] = m
                free += 1
            else:
                _insert(s, s.stays, stay, m)
                stay += 1
    return free, stay


@inlined
def _pass(b: Buffers, s: Scratch, free: int, stay: int, capacity: int) -> int:
    """First fit of all in the order; the position of the first that does not fit, `free` where all do."""
    count = stay
    for k in range(stay):
        s.placed[k] = s.stays[k]
    for position in range(free):
        m = s.order[position]
        start, end, size, at, bottom = s.start[m], s.end[m], s.size[m], 0, 0
        mask = -b.alignment[s.buffer[m]]
        while at < count:
            k = s.placed[at]
            if s.start[k] < end and s.end[k] > start:
                if s.offset[k] - bottom >= size:
                    break
                bottom = max(bottom, (s.offset[k] + s.size[k] - mask - 1) & mask)
            at += 1
        s.counts[LOOKED] += at
        if bottom + b.exact[s.buffer[m]] > capacity:
            return position
        s.offset[m] = bottom
        _insert(s, s.placed, count, m)
        count += 1
    return free


@inlined
def _fits(b: Buffers, s: Scratch, free: int, stay: int, capacity: int, passes: int) -> bool:
    """Up to so many passes through a window; False at once where one does not fit beside what stays."""
    for k in range(1, passes + 1):
        failed = _pass(b, s, free, stay, capacity)
        if failed == free:
            return True
        if failed == 0:
            return False
        to = failed // 2 if k % FRONT == 0 else 0
        m = s.order[failed]
        for position in range(failed, to, -1):
            s.order[position] = s.order[position - 1]
        s.order[to] = m
    return False


@compiled
def lower_in_windows(
    b: Buffers,
    s: Scratch,
    offsets: Integers,
    high: Integers,
    halves: Integers,
    capacity: int,
    passes: int,
    first: int,
    most: int,
) -> int:
    """Bring these buffers under the capacity, from position `first` on, by windows of these widths in turn.

    Comes back after about `most` boxes more or the first failure, and says how far it got. Offsets change
    only where a window has succeeded; then nothing that was placed in it ends above the capacity.
    """
    until = s.counts[LOOKED] + most
    for position in range(first, len(high)):
        i = high[position]
        if offsets[i] + b.exact[i] > capacity:
            done = False
            for half in halves:
                free, stay = _cut_out(b, s, offsets, i, half)
                s.counts[LOOKED] += free + stay
                if free > 0 and _fits(b, s, free, stay, capacity, passes):
                    for k in range(free):
                        offsets[s.buffer[s.order[k]]] = s.offset[s.order[k]]
                    done = True
                    break
            if not done:
                s.counts[FAILED] += 1
                return position + 1
        if s.counts[LOOKED] >= until:
            return position + 1
    return len(high)
