"""The compiled part of the search for an order: the peak of one, and a walk through neighbouring ones.

Everything is in whole numbers, so that compiled and plain code agree to the bit on every machine.
"""

from __future__ import annotations

from typing import NamedTuple

from solver.layout.model.instance import Integers
from solver.schedules.compiled import compiled
from solver.schedules.tables import Tables

__all__ = ["Links", "Room", "peak_of", "walk"]

#: The multiplier of a Lehmer generator modulo 2**31 - 1: Park and Miller, CACM 1988.
_FACTOR, _MODULUS = 48_271, 2_147_483_647

#: Of two equal peaks the better one has fewer bytes near it: they count by this part.
_NEAR = 50


class Links(NamedTuple):
    """What each step follows directly, and what follows it; lists lie end to end as in `Tables`."""

    before_start: Integers
    before: Integers
    after_start: Integers
    after: Integers


class Room(NamedTuple):
    """Working memory: by value first and last touch, by step load and change, places, and a tried order."""

    first: Integers
    last: Integers
    load: Integers
    change: Integers
    place: Integers
    tried: Integers


@compiled
def peak_of(order: Integers, tables: Tables, room: Room) -> int:
    """The peak in bytes of an order in which each step runs once; `room.load` has the load of each place."""
    first, last, load, change = room.first, room.last, room.load, room.change
    count = len(order)
    for v in range(len(tables.size)):
        first[v] = 0 if tables.given[v] else -1
        last[v] = 0
    for k in range(count):
        step = order[k]
        load[k] = tables.scratch[step]
        change[k] = 0
        for j in range(tables.read_start[step], tables.read_start[step + 1]):
            last[tables.reads[j]] = k
        for j in range(tables.write_start[step], tables.write_start[step + 1]):
            v = tables.writes[j]
            if first[v] < 0:
                first[v] = k
            last[v] = k
    change[count] = 0
    for v in range(len(tables.size)):
        if first[v] >= 0:
            end = count if tables.kept[v] else last[v] + 1
            change[first[v]] += tables.size[v]
            change[end] -= tables.size[v]
    live, peak = tables.fixed, 0
    for k in range(count):
        live += change[k]
        load[k] += live
        peak = max(peak, load[k])
    return peak


@compiled
def walk(
    order: Integers,
    best: Integers,
    begin: int,
    end: int,
    most: int,
    cut: int,
    part: int,
    state: Integers,
    links: Links,
    tables: Tables,
    room: Room,
) -> int:
    """Tries `begin` to `end` of `most`: one step moves as far as what it follows and what follows it allow.

    A neighbour is taken if it is not worse by more than a threshold that falls to nothing (threshold
    accepting: Dueck and Scheuer 1990), at first one `part` of the peak. `cut` is where a load counts as near
    the peak. `order` is the walk's place afterwards, `best` the best order that it came by, whose peak is
    returned.
    """
    count = len(order)
    place, tried, load = room.place, room.tried, room.load
    for k in range(count):
        place[order[k]] = k
    least = peak_of(best, tables, room)
    peak = peak_of(order, tables, room)
    now = peak
    at = 0
    for k in range(count):
        now += max(0, load[k] - cut) // _NEAR
        if load[k] == peak:
            at = k
    for number in range(begin, end):
        state[0] = state[0] * _FACTOR % _MODULUS
        near = state[0] % 2
        state[0] = state[0] * _FACTOR % _MODULUS
        k = state[0] % count
        if near:  # one of those around the peak
            k = min(max(at - 20 + state[0] % 41, 0), count - 1)
        step = order[k]
        low, high = 0, count - 1
        for j in range(links.before_start[step], links.before_start[step + 1]):
            low = max(low, place[links.before[j]] + 1)
        for j in range(links.after_start[step], links.after_start[step + 1]):
            high = min(high, place[links.after[j]] - 1)
        state[0] = state[0] * _FACTOR % _MODULUS
        ends = state[0] % 4
        state[0] = state[0] * _FACTOR % _MODULUS
        to = low if ends == 0 else high if ends == 1 else low + state[0] % (high - low + 1)
        if to == k:
            continue
        for i in range(count):
            tried[i] = order[i]
        for i in range(k, to):
            tried[i] = order[i + 1]
        for i in range(k, to, -1):
            tried[i] = order[i - 1]
        tried[to] = step
        new = peak_of(tried, tables, room)
        total = new
        for i in range(count):
            total += max(0, load[i] - cut) // _NEAR
        if total <= now + least * (most - number) // (most * part):
            now = total
            for i in range(min(k, to), max(k, to) + 1):
                order[i] = tried[i]
                place[order[i]] = i
            for i in range(count):
                if load[i] == new:
                    at = i
            if new < least:
                least = new
                for i in range(count):
                    best[i] = order[i]
    return least
