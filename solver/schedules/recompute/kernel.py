"""The compiled part of the search: from the numbers of gaps to a sequence with its loads; greedy repair.

Everything is in whole numbers, so that compiled and plain code agree to the bit on every machine. Where
nothing compiles the same functions run as plain Python, a hundred times slower.
"""

from __future__ import annotations

from solver.layout.model.instance import Integers
from solver.native import compiled, inlined
from solver.schedules.tables import Tables, Work

__all__ = ["EVENTS", "EXTRA", "INSTANCES", "OVER", "PEAK", "repair", "simulate"]

# Positions in the result of a simulation. A peak of -1: the numbers give no legal sequence.
PEAK, EXTRA, EVENTS, OVER, INSTANCES = range(5)

#: Values that repair looks at in each of its steps, the largest first.
_MOST_TRIED = 200

#: As in `solver.schedules.tables`.
_HOLD, _AGAIN, _BRIEF = 0, 1, 2


@compiled
def _copy(source: Integers, target: Integers) -> None:
    for i in range(len(source)):
        target[i] = source[i]


@inlined
def _open(tables: Tables, work: Work, v: int, event: int, instances: int) -> None:
    """A new instance of a value, which becomes its current one."""
    work.current[v] = instances
    work.value[instances] = v
    work.first[instances] = event
    work.last[instances] = event


@inlined
def _touch(numbers: Integers, tables: Tables, work: Work, step: int) -> None:
    """After the first run of a step what it touched is in its next gap: held there, or dropped."""
    for j in range(tables.read_start[step], tables.read_start[step + 1]):
        v = tables.reads[j]
        work.gap[v] += 1
        work.there[v] = tables.maker[v] < 0 or numbers[work.gap[v]] == _HOLD
    for j in range(tables.write_start[step], tables.write_start[step + 1]):
        v = tables.writes[j]
        work.gap[v] += 1
        work.there[v] = tables.maker[v] < 0 or numbers[work.gap[v]] == _HOLD


@inlined
def _supply(numbers: Integers, tables: Tables, work: Work, step: int, wanted: int, depth: int) -> None:
    """After a repetition what was wanted is there, for its reader alone unless it is to stay."""
    for j in range(tables.write_start[step], tables.write_start[step + 1]):
        v = tables.writes[j]
        if v == wanted:
            work.there[v] = 1
            if numbers[work.gap[v]] != _AGAIN:
                work.owner[v] = depth
        elif numbers[work.gap[v]] == _AGAIN:
            work.there[v] = 1


@inlined
def _add_up(tables: Tables, work: Work, budget: int, events: int, instances: int) -> int:
    """The loads of all events: each instance from its definition to its last touch. Returns the peak."""
    change, load, result = work.change, work.load, work.result
    for v in range(len(tables.size)):
        if tables.kept[v] and work.current[v] >= 0:
            work.last[work.current[v]] = events - 1
    for e in range(events + 1):
        change[e] = 0
    for i in range(instances):
        size = tables.size[work.value[i]]
        change[work.first[i]] += size
        change[work.last[i] + 1] -= size
    live, peak, over = tables.fixed, 0, 0
    for e in range(events):
        live += change[e]
        load[e] += live
        peak = max(peak, load[e])
        over += max(0, load[e] - budget)
    result[PEAK], result[EVENTS], result[OVER], result[INSTANCES] = peak, events, over, instances
    return peak


@compiled
def simulate(numbers: Integers, budget: int, tables: Tables, work: Work) -> int:
    """Walk the given order, make what is missing just before its reader, and add up; the peak in bytes.

    The work's `result` then has the peak, the cost of all repetitions, the number of events, the bytes
    over the budget summed over events, and the number of instances. -1 where the numbers give no legal
    sequence. Cost: linear in what the events read and write.
    """
    reads, read_start = tables.reads, tables.read_start
    writes, write_start = tables.writes, tables.write_start
    there, owner, stack, place = work.there, work.owner, work.stack, work.place
    count, limit = len(read_start) - 1, len(work.steps)
    instances, k, extra = 0, 0, 0
    work.result[PEAK] = -1
    for v in range(len(tables.size)):
        there[v] = tables.fed[v]
        work.gap[v] = tables.touch_start[v] - 1
        owner[v] = -1
        work.current[v] = -1
        if tables.fed[v]:
            _open(tables, work, v, 0, instances)
            instances += 1
    for position in range(count):
        depth = 0
        stack[0], place[0] = position, read_start[position]
        while depth >= 0:
            step = stack[depth]
            i, end = place[depth], read_start[step + 1]
            while i < end and there[reads[i]]:
                i += 1
            place[depth] = i
            if i < end:
                maker = tables.maker[reads[i]]
                if maker < 0 or depth >= count or position > tables.until[maker]:
                    return -1
                depth += 1
                stack[depth], place[depth] = maker, read_start[maker]
                continue
            if k >= limit:
                return -1
            work.steps[k] = step
            work.load[k] = tables.scratch_again[step] if depth else tables.scratch[step]
            for j in range(read_start[step], end):
                v = reads[j]
                work.last[work.current[v]] = k
                if owner[v] == depth:
                    there[v] = 0
                    owner[v] = -1
            for j in range(write_start[step], write_start[step + 1]):
                _open(tables, work, writes[j], k, instances)
                instances += 1
            if depth == 0:
                _touch(numbers, tables, work, step)
            else:
                extra += tables.cost[step]
                _supply(numbers, tables, work, step, reads[place[depth - 1]], depth - 1)
            k += 1
            depth -= 1
    work.result[EXTRA] = extra
    return _add_up(tables, work, budget, k, instances)


@inlined
def _position(work: Work, at: int) -> int:
    """The step of the given order that runs at an event, or that it prepares."""
    ahead = 0
    for e in range(work.result[EVENTS]):
        if work.steps[e] == ahead:
            if e >= at:
                break
            ahead += 1
    return ahead


@compiled
def repair(
    numbers: Integers, budget: int, most: int, best: Integers, tried: Integers, tables: Tables, work: Work
) -> int:
    """Greedy, in place: at the fullest event, what takes most bytes over the budget off for its cost.

    At most `most` simulations. `best` gets the numbers with the least peak. Returns the simulations;
    `tried` is room for a number for each value.
    """
    result, done = work.result, 0
    least = -1
    while True:
        peak = simulate(numbers, budget, tables, work)
        done += 1
        if peak < 0:
            return done
        if least < 0 or peak < least:
            least = peak
            _copy(numbers, best)
        if peak <= budget or done >= most:
            return done
        extra, over = result[EXTRA], result[OVER]
        at = 0
        while work.load[at] != peak:
            at += 1
        position = _position(work, at)
        idle = 0
        for i in range(result[INSTANCES]):
            v = work.value[i]
            if work.first[i] < at < work.last[i] and tables.maker[v] >= 0:
                tried[idle] = v
                idle += 1
        chosen, number, gain, price = -1, 0, 0, 1
        for i in range(min(idle, _MOST_TRIED)):
            # The largest of those that are left comes next.
            largest = i
            for j in range(i + 1, idle):
                if tables.size[tried[j]] > tables.size[tried[largest]]:
                    largest = j
            v = tried[largest]
            tried[largest] = tried[i]
            tried[i] = v
            g = tables.touch_start[v]
            while g + 1 < tables.touch_start[v + 1] and tables.touches[g + 1] <= position:
                g += 1
            for back in range(2):
                place = g - back
                if place < tables.touch_start[v] or tables.touches[place] > position:
                    continue
                before = numbers[place]
                for other in range(before + 1, 3):
                    numbers[place] = other
                    done += 1
                    if simulate(numbers, budget, tables, work) >= 0 and result[OVER] < over:
                        saved, more = over - result[OVER], max(result[EXTRA] - extra, 0) + 1
                        # saved / more > gain / price, without the rounding of a division.
                        if float(saved) * price > float(gain) * more:
                            chosen, number, gain, price = place, other, saved, more
                numbers[place] = before
        if chosen < 0:
            return done
        numbers[chosen] = number
