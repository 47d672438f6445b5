"""The compiled part of the search for an order: the loads of one, and a walk through neighbouring ones.

A neighbour has the steps of one stretch in another order. What is live before and behind the stretch stays,
so only the loads within it are added up again: a turn costs what the stretch touches, not what all steps do.

    order     . . . a b c d e . . .        a moves behind d
    later     . . . b c d a e . . .        alone, where nothing between follows it
    with      . . . b d a c e . . .        with c, which follows it; or d in front of a, with what it follows

Everything is in whole numbers, so that compiled and plain code agree to the bit on every machine.
"""

from __future__ import annotations

from typing import NamedTuple

from solver.layout.model.instance import Integers
from solver.native import compiled, inlined
from solver.schedules.tables import Tables

__all__ = ["Links", "Room", "peak_of", "walk"]

#: The multiplier of a Lehmer generator modulo 2**31 - 1: Park and Miller, CACM 1988.
_FACTOR, _MODULUS = 48_271, 2_147_483_647

#: Steps that one turn moves across at most, and the places that are looked at for a full one.
_FARTHEST, _LOOKS = 60, 64

#: What is over when the excess is gone falls by this part of the peak.
_LOWER = 100


class Links(NamedTuple):
    """For each step its direct predecessors, its direct successors, and the values that it touches; lists lie
    end to end as in `Tables`.
    """

    before_start: Integers
    before: Integers
    after_start: Integers
    after: Integers
    touched_start: Integers
    touched: Integers


class Room(NamedTuple):
    """Working memory. By value: the places of its first and its last touch, a mark for each turn, and its
    last touch in a tried stretch. By place: the load, a tried stretch and its loads. By step: its place and
    a mark for each turn.
    """

    first: Integers
    last: Integers
    seen: Integers
    end: Integers
    load: Integers
    tried: Integers
    loads: Integers
    place: Integers
    mark: Integers


@inlined
def _random(state: Integers, below: int) -> int:
    """The next number of the generator, 0 <= number < below."""
    state[0] = state[0] * _FACTOR % _MODULUS
    return state[0] % below


@compiled
def peak_of(order: Integers, tables: Tables, links: Links, room: Room) -> int:
    """The peak in bytes of an order in which each step runs once.

    `room.load` then has the load of each place, `room.first` and `room.last` the places of each value's first
    and last touch: -1 for what the caller gives, and the number of steps for what is kept.
    """
    first, last, load = room.first, room.last, room.load
    count, live, peak = len(order), tables.fixed, 0
    for v in range(len(tables.size)):
        first[v], last[v] = count, -1
        if tables.fed[v]:
            first[v] = -1
            live += tables.size[v]
    for k in range(count):
        for j in range(links.touched_start[order[k]], links.touched_start[order[k] + 1]):
            v = links.touched[j]
            first[v] = min(first[v], k)
            last[v] = k
    for v in range(len(tables.size)):
        if tables.kept[v]:
            last[v] = count
    for k in range(count):
        begin, end = links.touched_start[order[k]], links.touched_start[order[k] + 1]
        for j in range(begin, end):
            if first[links.touched[j]] == k:
                live += tables.size[links.touched[j]]
        load[k] = live + tables.scratch[order[k]]
        peak = max(peak, load[k])
        for j in range(begin, end):
            if last[links.touched[j]] == k:
                live -= tables.size[links.touched[j]]
    return peak


@inlined
def _later(order: Integers, k: int, far: int, together: int, turn: int, links: Links, room: Room) -> int:
    """In `room.tried` the stretch from place k on, in which its first step moves `far` places at most;
    `together`: with what follows it there. The stretch's last place.
    """
    tried, mark = room.tried, room.mark
    end, step, to = min(k + far, len(order) - 1), order[k], k
    if not together:
        for j in range(links.after_start[step], links.after_start[step + 1]):
            end = min(end, room.place[links.after[j]] - 1)
    mark[step] = turn
    for i in range(k + 1, end + 1):
        other, follows = order[i], 0
        if together:
            for j in range(links.before_start[other], links.before_start[other + 1]):
                follows |= mark[links.before[j]] == turn
        if follows:
            mark[other] = turn
        else:
            tried[to] = other
            to += 1
    for i in range(k, end + 1):
        if mark[order[i]] == turn:
            tried[to] = order[i]
            to += 1
    return end


@inlined
def _earlier(order: Integers, k: int, far: int, together: int, turn: int, links: Links, room: Room) -> int:
    """The mirror image of `_later`: the step at k moves towards the front. The stretch's first place."""
    tried, mark = room.tried, room.mark
    begin, step, to = max(k - far, 0), order[k], k
    if not together:
        for j in range(links.before_start[step], links.before_start[step + 1]):
            begin = max(begin, room.place[links.before[j]] + 1)
    mark[step] = turn
    for i in range(k - 1, begin - 1, -1):
        other, leads = order[i], 0
        if together:
            for j in range(links.after_start[other], links.after_start[other + 1]):
                leads |= mark[links.after[j]] == turn
        if leads:
            mark[other] = turn
        else:
            tried[to] = other
            to -= 1
    for i in range(k, begin - 1, -1):
        if mark[order[i]] == turn:
            tried[to] = order[i]
            to -= 1
    return begin


@inlined
def _worse(
    order: Integers,
    begin: int,
    end: int,
    cut: int,
    most: int,
    turn: int,
    tables: Tables,
    links: Links,
    room: Room,
) -> int:
    """By how many bytes, summed over places, the tried stretch is more over the cut.

    `room.loads` has its loads. Where this is more than `most`, adding up ends early.
    """
    first, last, seen, load = room.first, room.last, room.seen, room.load
    live, worse = load[begin] - tables.scratch[order[begin]], 0
    for j in range(links.touched_start[order[begin]], links.touched_start[order[begin] + 1]):
        if first[links.touched[j]] == begin:
            live -= tables.size[links.touched[j]]
    for k in range(end, begin - 1, -1):
        worse -= max(0, load[k] - cut)
        for j in range(links.touched_start[room.tried[k]], links.touched_start[room.tried[k] + 1]):
            v = links.touched[j]
            if seen[v] != 2 * turn:
                seen[v], room.end[v] = 2 * turn, k
    for k in range(begin, end + 1):
        step = room.tried[k]
        for j in range(links.touched_start[step], links.touched_start[step + 1]):
            v = links.touched[j]
            if first[v] >= begin and seen[v] == 2 * turn:
                seen[v] = 2 * turn + 1
                live += tables.size[v]
        room.loads[k] = live + tables.scratch[step]
        worse += max(0, room.loads[k] - cut)
        if worse > most:  # all of the old stretch was taken off, so the rest of the new one only adds to it
            return worse
        for j in range(links.touched_start[step], links.touched_start[step + 1]):
            v = links.touched[j]
            if last[v] <= end and room.end[v] == k:
                live -= tables.size[v]
    return worse


@inlined
def _take(order: Integers, begin: int, end: int, links: Links, room: Room) -> None:
    """The tried stretch becomes part of the order."""
    first, last = room.first, room.last
    for k in range(end, begin - 1, -1):
        order[k], room.load[k] = room.tried[k], room.loads[k]
        room.place[order[k]] = k
        for j in range(links.touched_start[order[k]], links.touched_start[order[k] + 1]):
            if first[links.touched[j]] >= begin:
                first[links.touched[j]] = k
    for k in range(begin, end + 1):
        for j in range(links.touched_start[order[k]], links.touched_start[order[k] + 1]):
            if last[links.touched[j]] <= end:
                last[links.touched[j]] = k


@compiled
def walk(
    order: Integers,
    best: Integers,
    begin: int,
    end: int,
    most: int,
    target: int,
    hot: int,
    state: Integers,
    tables: Tables,
    links: Links,
    room: Room,
) -> int:
    """Tries `begin` to `end` of `most` neighbours, so that less is over a cut, in bytes summed over places.

    ``state[1]`` is the cut. Where nothing is over it any more it falls below the peak, to `target` at least.
    A neighbour is taken if it is not worse by more than a threshold below `hot` bytes, which falls to nothing
    (threshold accepting: Dueck and Scheuer 1990), or by less, as dice say. `order` is the walk's place
    afterwards, `best` what is least over the last cut, by ``state[2]`` bytes, -1 before the first turn.
    Returns the turns that are left, none where the target is met. ``state[0]`` is the generator's.
    """
    count = len(order)
    peak_of(order, tables, links, room)
    over = 0
    for v in range(len(tables.size)):
        room.seen[v] = 0
    for k in range(count):
        room.place[order[k]] = k
        room.mark[k] = 0
        over += max(0, room.load[k] - state[1])
    if state[2] < 0:
        state[2] = over
    for number in range(begin, end):
        turn = number + 1
        heat = hot * (most - number) // most * (most - number) // most
        k = _random(state, count)
        if _random(state, 2):  # around one that is over
            for _ in range(_LOOKS):
                if room.load[k] > state[1]:
                    break
                k = _random(state, count)
            k = min(max(k - 8 + _random(state, 17), 0), count - 1)
        far = 1 + _random(state, _FARTHEST)
        if _random(state, 2):
            far = 1 + far // 4
        together = _random(state, 2)
        low = high = k
        if _random(state, 2):
            high = _later(order, k, far, together, turn, links, room)
        else:
            low = _earlier(order, k, far, together, turn, links, room)
        while low < high and room.tried[low] == order[low]:
            low += 1
        while low < high and room.tried[high] == order[high]:
            high -= 1
        if low >= high:
            continue
        most_worse = heat * _random(state, 1024) // 1024
        worse = _worse(order, low, high, state[1], most_worse, turn, tables, links, room)
        if worse > most_worse:
            continue
        _take(order, low, high, links, room)
        over += worse
        if over < state[2]:
            state[2] = over
            for i in range(count):
                best[i] = order[i]
            if over == 0:
                peak = 0
                for i in range(count):
                    peak = max(peak, room.load[i])
                if peak <= target:
                    return 0
                state[1] = max(target, peak - peak // _LOWER - 1)
                for i in range(count):
                    over += max(0, room.load[i] - state[1])
                state[2] = over
    return most - end
