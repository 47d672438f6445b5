"""The compiled part of the walk through sequences: what one comes to, and its neighbours.

First runs stand in the given order, so a first run is the step whose number is the count of those before it.
A further run of a step is legal anywhere behind its first one, and leaving it out is legal, too: its readers
take the instance before. So every set of places for repetitions is a schedule, and only its bytes decide.

Everything is in whole numbers, or rounded as IEEE 754 says, so that compiled and plain code agree to the bit.
"""

from __future__ import annotations

from typing import NamedTuple

from solver.layout.model.instance import Integers
from solver.schedules.compiled import compiled, inlined
from solver.schedules.tables import Tables

__all__ = ["EXTRA", "LENGTH", "MOST_AT_ONCE", "OVER", "PEAK", "Places", "measure", "walk"]

#: The multiplier of a Lehmer generator modulo 2**31 - 1: Park and Miller, CACM 1988.
_FACTOR, _MODULUS = 48_271, 2_147_483_647

#: Steps that one change inserts at most.
MOST_AT_ONCE = 60

#: Changes of a neighbour at most.
_CHANGES = 3

#: Positions in the result of a measurement. A peak of -1: a step runs again behind what it must not.
PEAK, EXTRA, OVER, LENGTH = range(4)


class Places(NamedTuple):
    """Working memory: by event its load; the same for a sequence that is tried; whether it is a first run. By
    value whether somebody behind wants it, and the event of its next reader; the values that wait somewhere,
    the last one defined first. By step a mark; a sequence that is tried; steps to insert, the last one first.
    """

    load: Integers
    load_tried: Integers
    fresh: Integers
    wanted: Integers
    reader: Integers
    waiting: Integers
    marked: Integers
    tried: Integers
    chain: Integers
    result: Integers


@inlined
def _random(state: Integers, below: int) -> int:
    """The next number of the generator, 0 <= number < below."""
    product = state[0] * _FACTOR
    product = (product & _MODULUS) + (product >> 31)
    state[0] = product if product < _MODULUS else product - _MODULUS
    return state[0] % below


@compiled
def measure(sequence: Integers, count: int, budget: int, tables: Tables, places: Places) -> int:
    """The peak in bytes of the first `count` events; `places.result` and `places.load` have the rest.

    A repetition of which nothing is read still counts. Linear in what the events read and write.
    """
    if _swept(sequence, count, False, places.load, tables, places):
        _add_up(count, budget, places.load, places)
    return places.result[PEAK]


@inlined
def _swept(
    sequence: Integers, count: int, clean: bool, load: Integers, tables: Tables, places: Places
) -> bool:
    """The load of each event and what the repetitions cost; whether all of them are legal.

    From the last event to the first one: what is wanted behind an event is live there, and what the event
    reads is wanted in front of it. With `clean` repetitions of which nothing is wanted are taken out.
    """
    wanted, fresh, result = places.wanted, places.fresh, places.result
    done, live, extra = 0, tables.fixed, 0
    result[PEAK] = -1
    for k in range(count):
        fresh[k] = sequence[k] == done
        done += fresh[k]
    for v in range(len(tables.size)):
        wanted[v] = tables.kept[v]
        live += tables.kept[v] * tables.size[v]
    begin = count
    for k in range(count - 1, -1, -1):
        step, useful, bytes_ = sequence[k], fresh[k], live
        for j in range(tables.write_start[step], tables.write_start[step + 1]):
            v = tables.writes[j]
            if wanted[v]:
                useful, wanted[v] = 1, 0
                live -= tables.size[v]
            else:
                bytes_ += tables.size[v]
        if clean and not useful:
            continue
        if fresh[k]:
            done -= 1
            bytes_ += tables.scratch[step]
        else:
            if done > tables.until[step]:
                return False
            extra += tables.cost[step]
            bytes_ += tables.scratch_again[step]
        for j in range(tables.read_start[step], tables.read_start[step + 1]):
            v = tables.reads[j]
            if not wanted[v]:
                wanted[v] = 1
                live += tables.size[v]
                bytes_ += tables.size[v]
        begin -= 1
        load[begin] = bytes_
        if clean:
            sequence[begin] = step
    for v in range(len(tables.size)):
        if tables.given[v] and not wanted[v] and begin < count:  # it is there until the first event
            load[begin] += tables.size[v]
    if begin > 0:
        for k in range(begin, count):
            sequence[k - begin] = sequence[k]
            load[k - begin] = load[k]
    result[EXTRA], result[LENGTH] = extra, count - begin
    return True


@inlined
def _add_up(count: int, budget: int, load: Integers, places: Places) -> None:
    """The peak, and the bytes over the budget."""
    peak, over = 0, 0
    for k in range(count):
        peak = max(peak, load[k])
        over += max(0, load[k] - budget)
    places.result[PEAK], places.result[OVER] = peak, over


@inlined
def _readers(sequence: Integers, count: int, begin: int, tables: Tables, places: Places) -> None:
    """By value the first event from `begin` on that reads what is there in front of it; -1 if none does."""
    reader = places.reader
    for v in range(len(tables.size)):
        reader[v] = count if tables.kept[v] else -1
    for k in range(count - 1, begin - 1, -1):
        step = sequence[k]
        for j in range(tables.write_start[step], tables.write_start[step + 1]):
            reader[tables.writes[j]] = -1
        for j in range(tables.read_start[step], tables.read_start[step + 1]):
            reader[tables.reads[j]] = k


@inlined
def _some_idle(sequence: Integers, at: int, state: Integers, tables: Tables, places: Places) -> int:
    """A value that waits at an event for a reader behind it, and can be made again; -1 where there is none.

    `places.reader` has the readers behind that event.
    """
    wanted, reader = places.wanted, places.reader
    for v in range(len(tables.size)):
        wanted[v] = reader[v] >= 0 and tables.maker[v] >= 0
    for j in range(tables.write_start[sequence[at]], tables.write_start[sequence[at] + 1]):
        wanted[tables.writes[j]] = 0
    count = 0
    for k in range(at - 1, -1, -1):
        for j in range(tables.write_start[sequence[k] + 1] - 1, tables.write_start[sequence[k]] - 1, -1):
            v = tables.writes[j]
            if wanted[v]:
                wanted[v] = 0
                places.waiting[count] = v
                count += 1
    found = -1
    for i in range(count):
        if _random(state, i + 1) == 0:
            found = places.waiting[count - 1 - i]
    return found


@inlined
def _chain(step: int, held: int, state: Integers, tables: Tables, places: Places) -> int:
    """What has to run in front of an event so that `step` can, and `step`; its length, -1 if too long.

    `places.reader` has the readers from that event on. Of what is not there by then, `held` of sixteen are
    kept until then instead.
    """
    for other in range(step):
        places.marked[other] = 0
    places.marked[step] = 1
    length = 0
    while step >= 0:
        if places.marked[step]:
            if length == MOST_AT_ONCE:
                return -1
            places.chain[length] = step
            length += 1
            for j in range(tables.read_start[step], tables.read_start[step + 1]):
                v = tables.reads[j]
                gone = tables.maker[v] >= 0 and places.reader[v] < 0
                if gone and _random(state, 16) >= held:
                    places.marked[tables.maker[v]] = 1
        step -= 1
    return length


@inlined
def _with_drop(
    sequence: Integers,
    count: int,
    budget: int,
    load: Integers,
    peak: int,
    state: Integers,
    tables: Tables,
    places: Places,
) -> int:
    """Something that waits at one event, mostly a full one, is made again for its next reader instead.

    `load` and `peak` are those of this sequence. Returns how many events there are then.
    """
    at = _random(state, count)
    if peak > budget and _random(state, 8) > 0:
        least = budget + 1 if _random(state, 2) else peak
        while load[at] < least:
            at = at + 1 if at + 1 < count else 0
    _readers(sequence, count, at + 1, tables, places)
    v = _some_idle(sequence, at, state, tables, places)
    if v < 0:
        return count
    to = places.reader[v]
    for j in range(tables.read_start[sequence[at]], tables.read_start[sequence[at] + 1]):
        if tables.reads[j] == v:  # that event itself reads it
            return count
    if _random(state, 6) == 0:  # earlier than wanted, perhaps while what it reads is there
        to = at + 1 + _random(state, to - at)
    _readers(sequence, count, to, tables, places)
    more = _chain(tables.maker[v], 6 * _random(state, 3), state, tables, places)
    if more < 0 or count + more >= len(sequence):
        return count
    for k in range(count - 1, to - 1, -1):
        sequence[k + more] = sequence[k]
    for i in range(more):
        sequence[to + i] = places.chain[more - 1 - i]
    return count + more


@inlined
def _with_move(sequence: Integers, count: int, state: Integers, leave: int, tables: Tables) -> int:
    """One repetition leaves; unless `leave`, it comes back somewhere else, mostly near."""
    if count == len(tables.cost):
        return count
    which, at, done = _random(state, count - len(tables.cost)), -1, 0
    while which >= 0:
        at += 1
        if sequence[at] == done:
            done += 1
        else:
            which -= 1
    step = sequence[at]
    for k in range(at, count - 1):
        sequence[k] = sequence[k + 1]
    if leave:
        return count - 1
    begin = 0
    while sequence[begin] != step:
        begin += 1
    begin += 1
    if _random(state, 3) == 0:
        to = begin + _random(state, count - begin)
    else:
        to = min(max(at - 10 + _random(state, 21), begin), count - 1)
    for k in range(count - 1, to, -1):
        sequence[k] = sequence[k - 1]
    sequence[to] = step
    return count


@compiled
def walk(
    sequence: Integers,
    count: int,
    budget: int,
    begin: int,
    end: int,
    most: int,
    hot: int,
    weight: int,
    logarithms: Integers,
    state: Integers,
    best: Integers,
    found: Integers,
    tables: Tables,
    places: Places,
) -> int:
    """The turns from `begin` to `end`, of `most`: neighbours are taken, worse ones with a chance that falls.

    Bytes over the budget cost `weight` nanoseconds for a budget's worth summed over events, and ten times
    that for a budget's worth at the peak. `best` gets the cheapest sequence within the budget where that
    costs less than `found[0]`, or where this is -1; then `found` gets its cost and its length. `hot` is the
    first temperature in nanoseconds, `logarithms` has ``-1024 ln((i + 0.5) / n)`` for its n places, `state`
    is the generator's. Returns the length of the sequence that the walk is at. Simulated annealing:
    Kirkpatrick et al., 1983.
    """
    result, tried, load, load_tried = places.result, places.tried, places.load, places.load_tried
    peak = measure(sequence, count, budget, tables, places)
    if peak < 0:
        return count
    now = result[EXTRA] + int(float(weight) * (result[OVER] + 10 * max(0, peak - budget)) / budget)
    for turn in range(begin, end):
        left = most - turn
        heat = hot * left // most * left // most
        for k in range(count):
            tried[k] = sequence[k]
        length = count
        for change in range(1 + _random(state, _CHANGES)):
            kind = _random(state, 10)
            if kind >= 4:
                length = _with_move(tried, length, state, kind < 7, tables)
            elif change == 0:
                length = _with_drop(tried, length, budget, load, peak, state, tables, places)
            elif _swept(tried, length, False, load_tried, tables, places):
                _add_up(length, budget, load_tried, places)
                length = _with_drop(
                    tried, length, budget, load_tried, result[PEAK], state, tables, places
                )
        if not _swept(tried, length, True, load_tried, tables, places):
            continue
        length = result[LENGTH]
        most_then = now + heat * logarithms[_random(state, len(logarithms))] // 1024
        if result[EXTRA] > most_then:
            continue
        _add_up(length, budget, load_tried, places)
        over = result[OVER] + 10 * max(0, result[PEAK] - budget)
        then = result[EXTRA] + int(float(weight) * over / budget)
        if then > most_then:
            continue
        now, count, peak = then, length, result[PEAK]
        for k in range(count):
            sequence[k] = tried[k]
            load[k] = load_tried[k]
        if peak <= budget and (found[0] < 0 or result[EXTRA] < found[0]):
            found[0], found[1] = result[EXTRA], count
            for k in range(count):
                best[k] = tried[k]
    return count
