"""The compiled part of the walk through sequences: what one comes to, and its neighbours.

First runs stand in the given order, so a first run is the step whose number is the count of those before it.
A further run of a step is legal anywhere behind its first one, and leaving it out is legal, too: its readers
take the instance before. So every set of places for repetitions is a schedule, and only its bytes decide.

Everything is in whole numbers, or rounded as IEEE 754 says, so that compiled and plain code agree to the bit.
"""

from __future__ import annotations

from typing import NamedTuple

from solver.layout.model.instance import Integers
from solver.native import compiled, inlined
from solver.schedules.tables import Tables

__all__ = [
    "EXTRA",
    "LENGTH",
    "MOST_AT_ONCE",
    "OVER",
    "PEAK",
    "Places",
    "measure",
    "measure_beside",
    "stand_at",
    "walk",
]

#: The multiplier of a Lehmer generator modulo 2**31 - 1: Park and Miller, CACM 1988.
_FACTOR, _MODULUS = 48_271, 2_147_483_647

#: Steps that one change inserts at most.
MOST_AT_ONCE = 60

#: Changes of a neighbour at most.
_CHANGES = 3

#: What bytes over the budget cost at most.
_DEAREST = 2.0**61

#: Positions in the result of a measurement. A peak of -1: a step runs again behind what it must not.
PEAK, EXTRA, OVER, INSTANCES, LENGTH = range(5)


class Places(NamedTuple):
    """Working memory: by event its load, and whether it is a first run; of instance i the value, and the
    events of its definition and of its last reader; by value its current instance, and whether somebody
    behind wants it, here and in another sequence; by step a mark; a sequence that is tried; steps to insert,
    the last one first. By event, of those before it: first runs, cost of repetitions, bytes over the budget
    and fullest load; and the fullest load from there on.
    """

    load: Integers
    change: Integers
    fresh: Integers
    value: Integers
    first: Integers
    last: Integers
    current: Integers
    wanted: Integers
    wanted_there: Integers
    marked: Integers
    tried: Integers
    chain: Integers
    firsts: Integers
    costs: Integers
    overs: Integers
    fullest: Integers
    fullest_behind: Integers
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
    value, first, last, current = places.value, places.first, places.last, places.current
    change, load, result = places.change, places.load, places.result
    instances, extra, done = 0, 0, 0
    result[PEAK] = -1
    for v in range(len(tables.size)):
        current[v] = -1
        if tables.fed[v]:
            current[v] = instances
            value[instances], first[instances], last[instances] = v, 0, 0
            instances += 1
    for k in range(count):
        step = sequence[k]
        change[k] = 0
        if step == done:
            done += 1
            load[k] = tables.scratch[step]
        else:
            if done > tables.until[step]:
                return -1
            extra += tables.cost[step]
            load[k] = tables.scratch_again[step]
        for j in range(tables.read_start[step], tables.read_start[step + 1]):
            last[current[tables.reads[j]]] = k
        for j in range(tables.write_start[step], tables.write_start[step + 1]):
            v = tables.writes[j]
            current[v] = instances
            value[instances], first[instances], last[instances] = v, k, k
            instances += 1
    change[count], change[count + 1] = 0, 0
    for v in range(len(tables.size)):
        if tables.kept[v] and current[v] >= 0:
            last[current[v]] = count
    for i in range(instances):
        size = tables.size[value[i]]
        change[first[i]] += size
        change[last[i] + 1] -= size
    live, peak, over = tables.fixed, 0, 0
    for k in range(count):
        live += change[k]
        load[k] += live
        peak = max(peak, load[k])
        over += max(0, load[k] - budget)
    result[PEAK], result[EXTRA], result[OVER] = peak, extra, over
    result[INSTANCES], result[LENGTH] = instances, count
    return peak


@inlined
def stand_at(sequence: Integers, count: int, budget: int, tables: Tables, places: Places) -> int:
    """Measure a sequence, and sum up what stands before and behind each of its events; the peak in bytes.

    Neighbours of it can be measured beside it then.
    """
    peak = measure(sequence, count, budget, tables, places)
    if peak < 0:
        return peak
    done, costs, overs, fullest = 0, 0, 0, 0
    for k in range(count):
        places.firsts[k], places.costs[k] = done, costs
        places.overs[k], places.fullest[k] = overs, fullest
        places.fresh[k] = sequence[k] == done
        if places.fresh[k]:
            done += 1
        else:
            costs += tables.cost[sequence[k]]
        overs += max(0, places.load[k] - budget)
        fullest = max(fullest, places.load[k])
    places.firsts[count], places.costs[count] = done, costs
    places.overs[count], places.fullest[count] = overs, fullest
    places.fullest_behind[count] = 0
    for k in range(count - 1, -1, -1):
        places.fullest_behind[k] = max(places.fullest_behind[k + 1], places.load[k])
    return peak


@inlined
def _waiting(wanted: Integers, at: int, tables: Tables, places: Places) -> int:
    """Marks the values that are there in front of an event for it or one behind it; their bytes."""
    bytes_ = 0
    for v in range(len(tables.size)):
        wanted[v] = 0
    for i in range(places.result[INSTANCES]):
        if places.first[i] < at <= places.last[i]:
            wanted[places.value[i]] = 1
            bytes_ += tables.size[places.value[i]]
    return bytes_


@inlined
def _differing(
    sequence: Integers, count: int, length: int, here: Places, there: Places
) -> tuple[int, int, int]:
    """How many events at the beginning are the same in `there.tried`, and where those at the end begin in it
    and in `sequence`. Marks the first runs between them.
    """
    tried, same, begin, end = there.tried, 0, length, count
    while same < count and same < length and sequence[same] == tried[same]:
        same += 1
    while end > same and begin > same and sequence[end - 1] == tried[begin - 1]:
        end -= 1
        begin -= 1
    done = here.firsts[same]
    for k in range(same, begin):
        there.fresh[k] = tried[k] == done
        done += there.fresh[k]
    while done != here.firsts[end]:  # what is a first run in one is a repetition in the other
        there.fresh[begin] = tried[begin] == done
        done += there.fresh[begin]
        begin += 1
        end += 1
    return same, begin, end


@inlined
def _between(
    same: int, begin: int, done: int, live: int, tables: Tables, there: Places
) -> tuple[int, int, int]:
    """Loads of the events of `there.tried` from `same` up to `begin`, from the last one to the first one.

    What is wanted behind an event is live there, and what it reads is wanted in front of it. Events that
    are left are moved to the end; returns where they begin, -1 where one is illegal; what is live in front of
    them, and what the repetitions cost.
    """
    tried, wanted, load, extra = there.tried, there.wanted, there.load, 0
    for k in range(begin - 1, same - 1, -1):
        step, useful, bytes_ = tried[k], there.fresh[k], live
        for j in range(tables.write_start[step], tables.write_start[step + 1]):
            v = tables.writes[j]
            if wanted[v]:
                useful, wanted[v] = 1, 0
                live -= tables.size[v]
            else:
                bytes_ += tables.size[v]
        if not useful:
            continue
        if there.fresh[k]:
            done -= 1
            bytes_ += tables.scratch[step]
        else:
            if done > tables.until[step]:
                return -1, live, extra
            extra += tables.cost[step]
            bytes_ += tables.scratch_again[step]
        for j in range(tables.read_start[step], tables.read_start[step + 1]):
            v = tables.reads[j]
            if not wanted[v]:
                wanted[v] = 1
                live += tables.size[v]
                bytes_ += tables.size[v]
        begin -= 1
        tried[begin] = step
        load[begin] = bytes_
    return begin, live, extra


@inlined
def _until_alike(
    sequence: Integers, same: int, begin: int, live: int, tables: Tables, here: Places, there: Places
) -> tuple[int, int, int]:
    """Loads of the same events in front of the differing ones, as far as not the same values are wanted.

    Returns how many events there are in front of that, where it begins in `there.tried`, and what its
    repetitions cost.
    """
    wanted, other, extra, differ = there.wanted, there.wanted_there, 0, 0
    for v in range(len(tables.size)):
        differ += wanted[v] != other[v]
    while same > 0 and differ > 0:
        same -= 1
        step, fresh, bytes_ = sequence[same], here.fresh[same], live
        useful = fresh
        for j in range(tables.write_start[step], tables.write_start[step + 1]):
            v = tables.writes[j]
            differ -= wanted[v] != other[v]
            if wanted[v]:
                useful = 1
                live -= tables.size[v]
            else:
                bytes_ += tables.size[v]
            wanted[v], other[v] = 0, 0
        for j in range(tables.read_start[step], tables.read_start[step + 1]):
            v = tables.reads[j]
            differ -= wanted[v] != other[v]
            if useful and not wanted[v]:
                wanted[v] = 1
                live += tables.size[v]
                bytes_ += tables.size[v]
            other[v] = 1
            differ += wanted[v] != 1
        if useful:
            begin -= 1
            there.tried[begin] = step
            there.load[begin] = bytes_ + (tables.scratch[step] if fresh else tables.scratch_again[step])
            extra += 0 if fresh else tables.cost[step]
    return same, begin, extra


@inlined
def measure_beside(
    sequence: Integers,
    count: int,
    length: int,
    clean: bool,
    budget: int,
    tables: Tables,
    here: Places,
    there: Places,
) -> bool:
    """Measures the `length` events of `there.tried`; returns whether they are legal. `here` is at `sequence`.

    Repetitions of which nothing is read are taken out; `there.result` has the figures of what is left. With
    `clean`, which says that nothing of `sequence` is unread, only what differs is looked at: behind it all
    is as in `sequence`, and so it is in front of where the same values are wanted in both. Linear in what
    differs, and in the instances.
    """
    tried, load, result = there.tried, there.load, there.result
    if clean:
        same, upto, end = _differing(sequence, count, length, here, there)
    else:
        same, upto, end, done = 0, length, count, 0
        for k in range(length):
            there.fresh[k] = tried[k] == done
            done += there.fresh[k]
    live = tables.fixed + _waiting(there.wanted, end, tables, here)
    begin, live, extra = _between(same, upto, here.firsts[end], live, tables, there)
    if begin < 0:
        return False
    _waiting(there.wanted_there, same, tables, here)
    same, begin, more = _until_alike(sequence, same, begin, live, tables, here, there)
    if same == 0:
        for v in range(len(tables.size)):
            if tables.fed[v] and not there.wanted[v]:  # it is there until the first event
                load[begin] += tables.size[v]
    peak = max(here.fullest[same], here.fullest_behind[end])
    over = here.overs[same] + here.overs[count] - here.overs[end]
    for k in range(begin, upto):
        peak = max(peak, load[k])
        over += max(0, load[k] - budget)
    result[EXTRA] = here.costs[same] + extra + more + here.costs[count] - here.costs[end]
    result[PEAK], result[OVER], result[LENGTH] = peak, over, same + length - begin
    if begin > same:
        for k in range(begin, length):
            tried[same + k - begin] = tried[k]
    return True


@inlined
def _some_idle(at: int, state: Integers, tables: Tables, places: Places) -> int:
    """One of the instances that wait at an event and can be made again; -1 where there is none."""
    found, idle = -1, 0
    for i in range(places.result[INSTANCES]):
        if places.first[i] < at < places.last[i] and tables.maker[places.value[i]] >= 0:
            idle += 1
            if _random(state, idle) == 0:
                found = i
    return found


@inlined
def _chain(step: int, to: int, held: int, state: Integers, tables: Tables, places: Places) -> int:
    """Lists the steps to run before event `to` so that `step` can run, and `step`.

    Returns how many there are, -1 for too many. Of what is not there by then, `held` of sixteen are kept
    until then instead.
    """
    for i in range(places.result[INSTANCES]):  # ordered by their definition
        if places.first[i] < to:
            places.current[places.value[i]] = i
    for other in range(len(tables.cost)):
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
                gone = tables.maker[v] >= 0 and places.last[places.current[v]] < to
                if gone and _random(state, 16) >= held:
                    places.marked[tables.maker[v]] = 1
        step -= 1
    return length


@inlined
def _with_drop(
    sequence: Integers, count: int, budget: int, state: Integers, tables: Tables, places: Places
) -> int:
    """Something that waits at one event, mostly a full one, is made again for its next reader instead.

    `places` are those of this sequence. Returns how many events there are then.
    """
    peak = places.result[PEAK]
    at = _random(state, count)
    if places.result[OVER] > 0 and _random(state, 8) > 0:
        least = budget + 1 if _random(state, 2) else peak
        while places.load[at] < least:
            at = at + 1 if at + 1 < count else 0
    dropped = _some_idle(at, state, tables, places)
    if dropped < 0:
        return count
    v, to = places.value[dropped], -1
    for k in range(at, places.last[dropped] + 1):
        for j in range(tables.read_start[sequence[k]], tables.read_start[sequence[k] + 1]):
            if tables.reads[j] == v:
                to = k
        if to >= 0:
            break
    if to <= at:  # that event itself reads it
        return count
    if _random(state, 6) == 0:  # earlier than wanted, perhaps while what it reads is there
        to = at + 1 + _random(state, to - at)
    more = _chain(tables.maker[v], to, 6 * _random(state, 3), state, tables, places)
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
    here: Places,
    there: Places,
) -> int:
    """The turns from `begin` to `end`, of `most`: neighbours are taken, worse ones with a chance that falls.

    Bytes over the budget cost `weight` nanoseconds for a budget's worth summed over events, and ten times
    that for a budget's worth at the peak. `best` gets the cheapest sequence within the budget where that
    costs less than `found[0]`, or where this is -1; then `found` gets its cost and its length. `hot` is the
    first temperature in nanoseconds, `logarithms` has ``-1024 ln((i + 0.5) / n)`` for its n places, `state`
    is the generator's. `here` has the figures of the sequence that the walk is at, `there` those of what is
    tried. Returns the length of that sequence. Simulated annealing: Kirkpatrick et al., 1983.
    """
    result, tried = there.result, there.tried
    peak = stand_at(sequence, count, budget, tables, here)
    if peak < 0:
        return count
    clean = False
    now = here.result[EXTRA] + _penalty(peak, here.result[OVER], budget, weight)
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
            elif change == 0:  # measured before
                length = _with_drop(tried, length, budget, state, tables, here)
            elif measure(tried, length, budget, tables, there) >= 0:
                length = _with_drop(tried, length, budget, state, tables, there)
        if not measure_beside(sequence, count, length, clean, budget, tables, here, there):
            continue
        then = result[EXTRA] + _penalty(result[PEAK], result[OVER], budget, weight)
        if then - now > heat * logarithms[_random(state, len(logarithms))] // 1024:
            continue
        now, count, clean = then, result[LENGTH], True
        for k in range(count):
            sequence[k] = tried[k]
        peak = stand_at(sequence, count, budget, tables, here)
        if peak <= budget and (found[0] < 0 or result[EXTRA] < found[0]):
            found[0], found[1] = result[EXTRA], count
            for k in range(count):
                best[k] = tried[k]
    return count


@inlined
def _penalty(peak: int, over: int, budget: int, weight: int) -> int:
    """The cost of bytes over the budget, limited so that sums stay below 2**63."""
    return int(min(float(weight) * (over + 10 * max(0, peak - budget)) / budget, _DEAREST))
