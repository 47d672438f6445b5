"""From the gaps that are paged to a program with copies: the only code that makes these.

    x (first stay) ──► page_out(x) ──► x@flash ──► page_in(x) ──► x@stay1        an activation: new bytes
    w@flash ──► page_in(w) ──► w@stay0 ──► updated ──► page_out(w) ──► w@flash   carries over in slow memory
    w ──► page_out(w) ──► w@flash ──► page_in(w) ──► w                           carries over in its own bytes

The name of a value stays with the place that the caller and the next iteration know. Later passes see
ordinary values and steps.

On which levels the copies run is a timetable:

    levels of steps      0     1     2     3     4
    out behind level 0         [-----------)              any of the levels 1, 2 with two steps ahead
    back for level 4                 [-----------)        any of the levels 2, 3
    no steps ahead       0  o  1     2     3  b  4        levels of their own, on which steps wait

A channel runs one transfer at a time, the most urgent of those that may begin. A transfer that has not begun
on the last level of its window gets a level of its own after that level, on which the steps wait: first the
transfers out of fast memory, then those into it, so that no such level holds more than the levels of steps
around it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from solver.accounting.clocks import level_costs
from solver.accounting.gaps import Gap, GapKind, PagingProblem
from solver.graph.ops.base import Node
from solver.graph.types import Operation
from solver.program import (
    COPY,
    Access,
    Binding,
    Costs,
    Entry,
    EntryKind,
    Exit,
    Phase,
    Program,
    Space,
    Step,
    Tier,
    Value,
    transfer_nanoseconds,
)

__all__ = ["Timetable", "Transfer", "in_tiers", "slow_lives", "timetable", "with_transfers"]


@dataclass(frozen=True, slots=True)
class Transfer:
    """A transfer that may run on the levels `first` to `last`, or behind `last` if these are none.

    It takes `nanoseconds` on its `channel`. `leaves`: it goes out of the fast memory.
    """

    first: int
    last: int
    leaves: bool
    channel: int
    nanoseconds: int


@dataclass(frozen=True, slots=True)
class Timetable:
    """The new numbers of the levels of steps, and for each transfer the levels from the first to the last."""

    levels: tuple[int, ...]
    transfers: tuple[tuple[int, int], ...]


def timetable(costs: Sequence[int], transfers: Sequence[Transfer]) -> Timetable:
    """Levels for all transfers. `costs` are nanoseconds of the levels of steps.

    O((n + t) log t) for n levels and t transfers; by earliest deadline (Jackson, 1955).
    """
    # Where each one begins: (level, 0) beside the steps, (level, 1 or 2, rank) behind them.
    places: list[tuple[int, int, int]] = [(0, 0, 0)] * len(transfers)
    ranks: dict[tuple[int, int, int], int] = {}

    def behind(i: int, level: int) -> None:
        kind = 1 if transfers[i].leaves else 2
        rank = ranks.get((level, kind, transfers[i].channel), 0)
        ranks[level, kind, transfers[i].channel] = rank + 1
        places[i] = (level, kind, rank)

    for channel in sorted({transfer.channel for transfer in transfers}):
        starting: dict[int, list[int]] = {}
        for i, transfer in enumerate(transfers):
            if transfer.channel != channel:
                continue
            if transfer.first > transfer.last:
                behind(i, transfer.last)
            else:
                starting.setdefault(transfer.first, []).append(i)
        waiting: list[int] = []
        now = free = 0
        for level, cost in enumerate(costs):
            waiting += starting.get(level, ())
            waiting.sort(key=lambda i: (transfers[i].last, not transfers[i].leaves, i))
            if waiting and (free < now + cost or transfers[waiting[0]].last == level):
                first = waiting.pop(0)
                places[first] = (level, 0, 0)
                free = max(free, now) + transfers[first].nanoseconds
            while waiting and transfers[waiting[0]].last == level:
                behind(waiting.pop(0), level)
            now += cost
    slots = sorted({(level, 0, 0) for level in range(len(costs))} | set(places))
    number = {slot: k for k, slot in enumerate(slots)}
    levels = tuple(number[level, 0, 0] for level in range(len(costs)))
    intervals = [(number[place], number[place]) for place in places]
    # A transfer beside steps may take until the next one of its channel, or the end of its window.
    following: dict[int, int] = {}
    for i in sorted(range(len(transfers)), key=lambda i: -intervals[i][0]):
        transfer, begin = transfers[i], intervals[i][0]
        if not places[i][1]:
            end = min(levels[transfer.last], following.get(transfer.channel, len(slots)) - 1)
            intervals[i] = (begin, end)
        following[transfer.channel] = begin
    return Timetable(levels, tuple(intervals))


def in_tiers(program: Program, tiers: Sequence[Tier]) -> Program:
    """The program with a space for each tier, its own in the first one."""
    (space,) = program.spaces
    spaces = [Space(tier.name, space.alignment, addressable=not k) for k, tier in enumerate(tiers)]
    return replace(program, spaces=tuple(spaces))


def slow_lives(problem: PagingProblem, taken: Collection[int]) -> dict[int, tuple[int, int]]:
    """For each value that leaves the levels, inclusive, on which slower memory has to hold it at most.

    What may be there at the start or the end is there all the time.
    """
    levels_by_value: dict[int, tuple[int, int]] = {}
    for j in taken:
        gap = problem.gaps[j]
        low, high = levels_by_value.get(gap.value, (gap.start, gap.end))
        begin = gap.start if gap.out is None else min(gap.start, gap.out[0])
        if gap.kind is not GapKind.MIDDLE or gap.contents is None:
            low, high = 0, problem.levels - 1
        levels_by_value[gap.value] = (max(0, min(low, begin)), min(max(high, gap.end), problem.levels - 1))
    return levels_by_value


@dataclass(slots=True)
class _Stays:
    """Where one value is: its stays in fast memory by level, and its place in slower memory."""

    numbers: list[int]
    begin: list[int]
    slow: int

    def at(self, level: int) -> int:
        """The number of its stay on a level on which it is touched."""
        return self.numbers[sum(level >= start for start in self.begin)]


@dataclass(frozen=True, slots=True)
class _Copy:
    """A copy of value `of` in the making: `number` tells the copies of one value and direction apart."""

    of: int
    source: int
    target: int
    number: int
    transfer: Transfer


def with_transfers(
    program: Program,
    problem: PagingProblem,
    taken: Collection[int],
    homes: dict[int, int],
    tiers: Sequence[Tier],
    costs: Costs | None = None,
) -> Program:
    """The program in which the gaps `taken` are paged; a value leaves for the tier that `homes` says.

    `program` has a space for each tier (`in_tiers`) and no aliases, `problem` is its. Steps take what `costs`
    say, which decides where transfers begin. Loads are those of
    the problem: no level of a copy holds more than one of the levels of steps around it. O(n log n) for n
    bindings.
    """
    values = list(program.values)
    entries, exits = list(program.entry), list(program.exit)
    initial = dict(program.initial)
    entered = {e.value: e for e in program.entry}
    results = {e.value: e for e in program.exit}
    gaps: dict[int, list[Gap]] = {}
    for j in sorted(taken, key=lambda j: problem.gaps[j].start):
        gaps.setdefault(problem.gaps[j].value, []).append(problem.gaps[j])
    written = _writes(program, gaps)
    stays: dict[int, _Stays] = {}
    copies: list[_Copy] = []
    for value, of in gaps.items():
        entry = entered.get(value)
        carried = entry is not None and entry.kind is not EntryKind.FED
        middle = [gap for gap in of if gap.kind is GapKind.MIDDLE]
        around = next((gap for gap in of if gap.kind is not GapKind.MIDDLE), None)
        home = homes[value]
        there = _Stays([], [gap.end for gap in middle], value)
        if around is not None:
            # Contents that are gone end a stay, too: what is written then may lie elsewhere.
            there.begin = sorted({*there.begin, *problem.renewed.get(value, ())})
            there.numbers = [_add(values, value, f"stay{k}", 0) for k in range(len(there.begin) + 1)]
            values[value] = replace(values[value], space=home)
        else:
            there.slow = _add(values, value, tiers[home].name, home)
            if carried:
                there.numbers = [value] * (len(middle) + 1)
            else:
                others = [_add(values, value, f"stay{k + 1}", 0) for k in range(len(middle))]
                there.numbers = [*others, value] if value in results else [value, *others]
            # Contents of the start that are not copied before they are needed are there at the start.
            if _there_at_the_start(of, written.get(value, []), entry):
                assert entry is not None
                entries.append(Entry(there.slow, entry.kind, entry.reference))
                if value in results:
                    exits.append(Exit(there.slow, results[value].reference))
                if value in initial:
                    initial[there.slow] = initial[value]
        stays[value] = there
        copies += _copies(problem, values, there, value, of, written.get(value, [-1]), tiers)
    table = timetable(level_costs(program, costs), [copy.transfer for copy in copies])
    operations = list(program.operations)
    operation_of: dict[tuple[int, bool], int] = {}
    steps: list[Step] = []
    for copy, (level, until) in zip(copies, table.transfers, strict=True):
        leaves = copy.transfer.leaves
        if (copy.of, leaves) not in operation_of:
            operation_of[copy.of, leaves] = len(operations)
            type_, label = program.values[copy.of].type, program.values[copy.of].label
            name = f"{'page_out' if leaves else 'page_in'}({label})"
            channel = {"channel": copy.transfer.channel}
            node = Node(Operation(name, COPY, ("x0",), ("y0",)), (type_,), (type_,), (None,), channel)
            operations.append(node)
        bindings = (Binding("x0", copy.source, Access.READ), Binding("y0", copy.target, Access.WRITE))
        part = str(copy.number) if copy.number else ""
        steps.append(Step(operation_of[copy.of, leaves], Phase.FORWARD, bindings, None, level, until, part))
    for step in program.steps:
        bound = tuple(
            replace(b, value=stays[b.value].at(step.level)) if b.value in stays else b for b in step.bindings
        )
        level = table.levels[step.level]
        steps.append(replace(step, bindings=bound, level=level, until=level))
    steps.sort(key=lambda step: step.level)
    return replace(
        program,
        values=tuple(values),
        operations=tuple(operations),
        steps=tuple(steps),
        entry=tuple(entries),
        exit=tuple(exits),
        initial=initial,
    )


def _add(values: list[Value], value: int, suffix: str, space: int) -> int:
    old = values[value]
    values.append(replace(old, label=f"{old.label}@{suffix}", space=space))
    return len(values) - 1


def _writes(program: Program, values: Collection[int]) -> dict[int, list[int]]:
    """The levels on which values are written."""
    levels_by_value: dict[int, list[int]] = {}
    for step in program.steps:
        for binding in step.bindings:
            if binding.access.defines and binding.value in values:
                levels_by_value.setdefault(binding.value, []).append(step.level)
    return levels_by_value


def _there_at_the_start(gaps: Sequence[Gap], written: Sequence[int], entry: Entry | None) -> bool:
    """Whether slower memory must hold a value, which is in fast memory, at the start as well.

    So it must what never changes, and what one iteration copies out behind the last write for the next one.
    """
    if entry is None:
        return False
    if any(gap.contents is None for gap in gaps):
        return True
    if entry.kind is EntryKind.FED:
        return False
    behind = {gap.contents for gap in gaps if gap.start >= written[-1]}
    return any(gap.contents in behind and gap.start < written[0] for gap in gaps)


def _copies(
    problem: PagingProblem,
    values: Sequence[Value],
    stays: _Stays,
    value: int,
    gaps: Sequence[Gap],
    written: Sequence[int],
    tiers: Sequence[Tier],
) -> list[_Copy]:
    """Out once for each contents, before its first gap; in at the end of each gap.

    What carries over has the contents of the last write in the next iteration, up to the first write there:
    if it leaves behind the last write, that is where it goes out for both.
    """
    ahead, home = problem.ahead, values[stays.slow].space
    nbytes = values[value].type.nbytes
    copies = []
    leaving: dict[int, Gap] = {}
    for gap in gaps:
        if gap.contents is not None:
            before = leaving.setdefault(gap.contents, gap)
            if before.start < written[-1] <= gap.start:
                leaving[gap.contents] = gap
    for number, gap in enumerate(leaving.values()):
        assert gap.out is not None  # it has contents that go out
        first, last = gap.out
        took = transfer_nanoseconds(tiers[0], tiers[home], nbytes)
        transfer = Transfer(first, last, leaves=True, channel=home, nanoseconds=took)
        copies.append(_Copy(value, stays.at(gap.start), stays.slow, number, transfer))
    back = [gap for gap in gaps if gap.kind is not GapKind.TAIL]
    for number, gap in enumerate(back):
        took = transfer_nanoseconds(tiers[home], tiers[0], nbytes)
        first = max(gap.end - ahead, 0)
        transfer = Transfer(first, gap.end - 1, leaves=False, channel=home, nanoseconds=took)
        copies.append(_Copy(value, stays.slow, stays.at(gap.end), number, transfer))
    return copies
