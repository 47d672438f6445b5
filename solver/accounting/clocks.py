"""How long an iteration takes: a clock for the steps, and one for each channel.

    levels      0        1            2                 3         4
    steps     |====|==========|======------|===========|=====|          level 2 waits for a copy
    channel   |    |##############|########|                            two copies, one after the other

A step on a level begins when all that ended on earlier levels has ended; a copy also waits for its channel.
Steps of a level run at the same time, so a level lasts as long as its longest step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from operator import add

from solver.accounting.costs import step_costs
from solver.accounting.gaps import renewed
from solver.accounting.homes import level_accesses
from solver.program import COPY, Costs, EntryKind, Program, Step, Tier, loads, transfer_nanoseconds

__all__ = [
    "Traffic",
    "busy_with",
    "channel_of",
    "elapsed",
    "home_figures",
    "is_copy",
    "least_elapsed",
    "level_costs",
    "traffic",
]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that copies move in one iteration; `written` has those that go to each space, by number."""

    moved_in: int
    moved_out: int
    written: tuple[int, ...]


def is_copy(program: Program, step: Step) -> bool:
    """Whether a step moves contents from one space to another."""
    return step.reference is None and program.kernel(step) == COPY


def channel_of(program: Program, step: Step) -> tuple[int, int]:
    """The channel of a copy, by the numbers of its memories: between two of them there is one."""
    source, target = (program.values[binding.value].space for binding in step.bindings)
    return min(source, target), max(source, target)


def traffic(program: Program) -> Traffic:
    """The bytes that the copies of a program move. Linear."""
    into, out, written = 0, 0, [0] * len(program.spaces)
    for step in program.steps:
        if is_copy(program, step):
            source, target = (program.values[b.value] for b in step.bindings)
            written[target.space] += target.type.nbytes
            if program.spaces[target.space].addressable:
                into += target.type.nbytes
            elif program.spaces[source.space].addressable:
                out += target.type.nbytes
    return Traffic(into, out, tuple(written))


def level_costs(program: Program, measured: Costs | None = None) -> list[int]:
    """Nanoseconds of the steps on each level, without copies: by `measured` costs, else by the roofline."""
    nanoseconds = [0] * program.duration
    for step, cost in zip(program.steps, step_costs(program, measured), strict=True):
        if not is_copy(program, step):
            nanoseconds[step.level] = max(nanoseconds[step.level], cost)
    return nanoseconds


def elapsed(
    program: Program, tiers: Sequence[Tier], measured: Costs | None = None, memories: Sequence[Tier] = ()
) -> int:
    """Nanoseconds of one iteration with its copies; one transfer at a time on a channel.

    Tier k is the memory of space k. Steps also take the time of their accesses where the first spaces are
    `memories` that kernels reach. O(n log n) for n steps.
    """
    costs = list(map(add, level_costs(program, measured), level_accesses(program, memories)))
    copies: dict[int, list[Step]] = {}
    for step in program.steps:
        if is_copy(program, step):
            copies.setdefault(step.level, []).append(step)
    free: dict[tuple[int, int], int] = {}
    ends: dict[int, int] = {}
    now = last = 0
    for level, cost in enumerate(costs):
        begin = max(now, ends.pop(level - 1, 0))
        now = begin + cost
        for step in copies.get(level, ()):
            source, target = (program.values[b.value] for b in step.bindings)
            channel = channel_of(program, step)
            took = transfer_nanoseconds(tiers[source.space], tiers[target.space], source.type.nbytes)
            free[channel] = max(begin, free.get(channel, 0)) + took
            ends[step.until] = max(ends.get(step.until, 0), free[channel])
            last = max(last, free[channel])
    return max(now, last)


def home_figures(
    program: Program, memories: Sequence[Tier], tiers: Sequence[Tier], measured: Costs | None = None
) -> dict[str, int]:
    """Nanoseconds of an iteration in several memories, by the names that the record ``homes`` has for them:
    of all accesses, of the levels without them, and of both with all copies. As `elapsed`.
    """
    return {
        "access_nanoseconds": sum(level_accesses(program, memories)),
        "compute_nanoseconds": sum(level_costs(program, measured)),
        "nanoseconds": elapsed(program, (*memories, *tiers), measured, memories),
    }


def least_elapsed(
    program: Program, tiers: Sequence[Tier], compute: int, proved: Iterable[tuple[int, int]]
) -> int:
    """Nanoseconds that one iteration takes at least, whatever is paged and whatever runs again. Linear.

    For a sequential program, whose steps alone take `compute`. Each pair in `proved` is a budget in bytes,
    and nanoseconds that repetitions cost at least within it. What is away at one moment comes in once an
    iteration, and goes out once unless it is fed, never written, or a result; nothing does of contents that
    are written again before they are read. So where x bytes do both,
    repetitions cost at least what they do in x bytes more than the first tier has, and channels are busy
    with x bytes.
    """
    budgets = sorted({*proved, (max(loads(program)[0], default=0), 0)})
    busy = busy_with(program, tiers)
    best, since = None, tiers[0].bytes
    for k, (budget, _) in enumerate(budgets):
        if budget > tiers[0].bytes or k + 1 == len(budgets):
            repeated = max(nanoseconds for _, nanoseconds in budgets[k:])
            needed = max(compute + repeated, busy(since - tiers[0].bytes))
            best, since = needed if best is None else min(best, needed), budget
    return best or compute


def busy_with(program: Program, tiers: Sequence[Tier]) -> Callable[[int], int]:
    """Nanoseconds for which channels are busy at least if so many bytes are away at one moment. Linear."""
    entry = {e.value: e.kind for e in program.entry}
    written = {b.value for step in program.steps for b in step.bindings if b.access.defines}
    once = {value for value, kind in entry.items() if kind is EntryKind.FED or value not in written}
    once |= {e.value for e in program.exit if entry.get(e.value) in (None, EntryKind.FED)}
    spared = sum(program.values[value].type.nbytes for value in once)
    # Budgets count bytes as they are reserved, transfers those of the contents.
    spared += sum(-value.type.nbytes % program.spaces[value.space].alignment for value in program.values)
    # Contents that nothing reads again are away at no cost.
    spared += sum(program.values[value].type.nbytes for value in renewed(program))
    fast = tiers[0]
    rates = [
        [min(rate for rate in ends if rate) for ends in ((fast.read, tier.write), (tier.read, fast.write))]
        for tier in tiers[1:]
    ]
    together = sum(Fraction(out * back, out + back) for out, back in rates)
    return lambda away: int(max(0, away - spared) * 1_000_000_000 / together)
