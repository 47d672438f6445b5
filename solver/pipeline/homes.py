"""Programs in several memories that kernels reach: a home for each region, then the layout of each memory.

passes, with all memories as one ──► homes ──► layouts, one for each memory ──► record and bound
                                       ▲             │
                                       └─────────────┘ solver.schedules.homes.refine
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from solver.accounting import (
    HomeItem,
    HomeProblem,
    as_one_memory,
    home_figures,
    home_problem,
    in_memories,
    places_of,
)
from solver.errors import CapacityError, OptionsError
from solver.layout import (
    Buffer,
    Certificate,
    Deadline,
    Layout,
    LayoutProblem,
    Lifespan,
    Outcome,
    Proof,
    SolveOptions,
    Status,
    max_load,
)
from solver.layout.api import solve
from solver.pipeline.layout import layout_problem, no_layout, too_large
from solver.pipeline.watch import Stopwatch
from solver.plan import Plan, PlanOptions
from solver.program import HomeBound, Program, Region, loads, regions

__all__ = ["RECORD", "InMemories", "in_common_homes", "place_in_memories"]


#: The name of the record.
RECORD = "homes"


@dataclass(frozen=True, slots=True)
class InMemories:
    """A program with homes, its regions, a layout of each space, the figures of the record and the bound."""

    program: Program
    regions: tuple[Region, ...]
    outcomes: list[Outcome]
    facts: dict[str, int]
    bound: HomeBound
    complete: bool


def place_in_memories(
    program: Program,
    placed: Sequence[Region],
    options: PlanOptions,
    deadline: Deadline,
    watch: Stopwatch,
) -> InMemories:
    """Homes and layouts for a program whose first space stands for all memories.

    Raises CapacityError where no homes with layouts were found, OptionsError where the solver has no layout.
    """
    from solver.schedules.homes.refine import Unhoused, housed

    memories = options.memories
    inside = [region for region in placed if region.space == 0]
    allowed = places_of(program, options.place, memories)
    problem = home_problem(program, inside, memories, allowed)
    _check_room(program, inside, allowed, options)

    def lay_out(k: int, items: tuple[int, ...], start: Layout | None) -> Outcome:
        buffers = layout_problem(program, [inside[i] for i in items], memories[k].bytes, None, 0)
        return _laid_out(buffers, options.solver, deadline, start, SolveOptions(progress=watch.found))

    alignment = program.spaces[0].alignment
    result = housed(problem, [alignment] * len(inside), lay_out, deadline)
    if isinstance(result, Unhoused):
        raise _without_homes(program, inside, result.proved, result.memory, result.excess, options)
    settled = in_memories(program, placed, result.homes, memories)
    outcomes = list(result.outcomes)
    everything = regions(settled)
    for j, tier in enumerate(options.tiers):
        there = [region for region in everything if region.space == len(memories) + j]
        slow = layout_problem(settled, there, tier.bytes, None, len(memories) + j)
        outcome = solve(
            slow, solver=options.solver, deadline=deadline, options=SolveOptions(progress=watch.found)
        )
        if outcome.layout is None and outcome.status is Status.UNKNOWN:
            raise no_layout(options.solver, in_time=outcome.deterministic)
        if outcome.layout is None or outcome.layout.peak > tier.bytes:
            raise too_large(slow, outcome, tier.bytes, outcome.lower_bound, options, j)
        outcomes.append(outcome)
    facts = {
        "bound_nanoseconds": result.bound,
        "checked_nanoseconds": result.certificate.nanoseconds,
        **home_figures(settled, memories, options.tiers, options.costs),
    }
    return InMemories(settled, everything, outcomes, facts, result.certificate, result.complete)


def _laid_out(
    problem: LayoutProblem, solver: str, deadline: Deadline, start: Layout | None, options: SolveOptions
) -> Outcome:
    outcome = solve(problem, solver=solver, deadline=deadline, incumbent=start, options=options)
    if outcome.layout is None and outcome.status is Status.UNKNOWN:
        raise no_layout(solver, in_time=outcome.deterministic)
    return outcome


def _check_room(
    program: Program, inside: Sequence[Region], allowed: dict[int, int], options: PlanOptions
) -> None:
    """Raises for what loads alone exclude: too much that must lie in one memory, or too much in all."""
    memories = options.memories
    for region in inside:
        only = {allowed[member]: member for member in region.members if member in allowed}
        if len(only) > 1:
            (a, x), (b, y) = sorted(only.items())[:2]
            raise OptionsError(
                f"{program.values[x].label!r} must lie in {memories[a].name!r} and"
                f" {program.values[y].label!r} in {memories[b].name!r}, and they share bytes.",
                remedy="Place them in the same memory, or leave one of the two out.",
                path=("place",),
            )
        possible = [memories[k] for k in only] or memories
        if region.size > (most := max(memory.bytes for memory in possible)):
            names = " or ".join(repr(memory.name) for memory in possible)
            label = program.values[region.members[0]].label
            raise CapacityError(
                f"{label!r} has {region.size:,} bytes; no memory that it may lie in, {names}, has more than"
                f" {most:,}.",
                remedy=f"Give one of them {region.size:,} bytes, or reduce the batch.",
                required=region.size,
                available=most,
                live_at_peak=[(label, region.size)],
                path=("memories",),
                proved=not (options.recompute or options.tiers),
            )
    for k, memory in enumerate(memories):
        pinned = [r for r in inside if any(allowed.get(member) == k for member in r.members)]
        load, live = _peak(program, pinned)
        if load > memory.bytes:
            raise CapacityError(
                f"What must lie in memory {memory.name!r} takes {load:,} bytes at once; it has"
                f" {memory.bytes:,}.",
                remedy=f"Give {memory.name!r} {load:,} bytes, or let it hold less: of what is placed there"
                f" {live[0][0]!r} is the largest.",
                required=load,
                available=memory.bytes,
                live_at_peak=live,
                path=("memories", k, "bytes"),
                proved=not (options.recompute or options.tiers),
            )
    load, live = _peak(program, inside)
    together = sum(memory.bytes for memory in memories)
    if load > together:
        raise CapacityError(
            f"{load:,} bytes are live at once; the memories have {together:,} together.",
            remedy=f"Give them {load - together:,} bytes more, add memory behind them with --tier, reduce the"
            " batch, or train fewer parameters.",
            required=load,
            available=together,
            live_at_peak=live,
            path=("memories",),
            proved=not (options.recompute or options.tiers),
        )


def _peak(program: Program, inside: Sequence[Region]) -> tuple[int, list[tuple[str, int]]]:
    """The most bytes of these regions that are live at once, and what is live there, the largest first."""
    curve = loads(program, placed=tuple(inside))[0]
    if not curve:
        return 0, []
    level = max(range(len(curve)), key=curve.__getitem__)
    live = [
        (program.values[region.members[0]].label, region.size)
        for region in inside
        if any(span.start <= level < span.end for span in region.spans)
    ]
    return curve[level], sorted(live, key=lambda item: (-item[1], item[0]))


def _without_homes(
    program: Program,
    inside: Sequence[Region],
    proved: bool,
    memory: int | None,
    excess: int,
    options: PlanOptions,
) -> CapacityError:
    """The error where all bytes fit the memories together, but no homes for each region were found."""
    memories = options.memories
    load, live = _peak(program, inside)
    together = sum(each.bytes for each in memories)
    largest = max(range(len(memories)), key=lambda k: memories[k].bytes)
    memory = largest if memory is None else memory
    needed = memories[memory].bytes + max(excess, 1)
    how = "no homes exist" if proved else "no homes were found"
    return CapacityError(
        f"{load:,} bytes are live at once and the memories have {together:,} together, but {how} with which"
        f" each memory holds its values as a whole.",
        remedy=f"Give {memories[memory].name!r} more than {memories[memory].bytes:,} bytes, or reduce the"
        " batch.",
        required=max(load, together + needed - memories[memory].bytes),
        available=together,
        live_at_peak=live,
        path=("memories", memory, "bytes"),
        proved=proved and not (options.recompute or options.tiers),
    )


def in_common_homes(
    plans: Sequence[Plan], persistent: Sequence[Sequence[int]], deadline: Deadline
) -> list[Plan]:
    """The plans of entry points with common homes and places of their persistent values.

        levels of      train               infer          evaluate
        weight         ████████████████████████████████████████████   one item: its accesses in all of them
        activations    ▒▒▒▒▒▒  ▒▒▒▒▒▒▒▒    ░░░░  ░░░       ▒▒▒▒▒▒      items of one entry point each

    Entry points never run at the same time, so on their joined time lines this is a problem like that of one
    program, and so are the layouts. `persistent` has the numbers of these values for each plan, in one order.
    All plans have the same memories and no tiers. Raises CapacityError where no common homes were found.
    """
    from solver.schedules.homes.refine import Unhoused, housed

    options = plans[0].options
    memories = options.memories
    entries = [_Entry(plan, values) for plan, values in zip(plans, persistent, strict=True)]
    begins = list(accumulate((entry.program.duration for entry in entries), initial=0))
    common = [
        [entry.problem.items[entry.number[value]] for entry, value in zip(entries, row, strict=True)]
        for row in zip(*persistent, strict=True)
    ]
    items = [_joined(parts, begins[-1]) for parts in common]
    for entry, begin in zip(entries, begins, strict=False):
        for i in entry.transient:
            item = entry.problem.items[i]
            spans = tuple(Lifespan(span.start + begin, span.end + begin) for span in item.spans)
            items.append(replace(item, spans=spans))
    problem = HomeProblem(tuple(items), tuple(memory.bytes for memory in memories))
    alignment = entries[0].program.spaces[0].alignment

    def buffers(k: int, inside: Sequence[int]) -> LayoutProblem:
        spans = [Lifespan(items[i].spans[0].start, items[i].spans[-1].end) for i in inside]
        return LayoutProblem(
            tuple(
                Buffer(str(i), items[i].size, span, alignment) for i, span in zip(inside, spans, strict=True)
            ),
            memories[k].bytes,
        )

    def lay_out(k: int, inside: tuple[int, ...], start: Layout | None) -> Outcome:
        return _laid_out(buffers(k, inside), options.solver, deadline, start, SolveOptions())

    result = housed(problem, [alignment] * len(items), lay_out, deadline)
    if isinstance(result, Unhoused):
        together = sum(memory.bytes for memory in memories)
        needed = max_load(buffers(0, range(len(items)))).bytes
        raise CapacityError(
            f"Each entry point fits the memories by itself; no homes were found that what they have in common"
            f" can have in all of them. {needed:,} bytes are live at once, the memories have {together:,}.",
            remedy=f"Give {memories[-1].name!r} more than {memories[-1].bytes:,} bytes, or reduce a batch.",
            required=max(needed, together + 1),
            available=together,
            live_at_peak=[],
            path=("memories",),
        )
    offsets = [0] * len(items)
    for k, outcome in enumerate(result.outcomes):
        assert outcome.layout is not None  # homes whose layouts fit
        inside = [i for i, home in enumerate(result.homes) if home == k]
        for i, offset in zip(inside, outcome.layout.offsets, strict=True):
            offsets[i] = offset
    moved, at = [], len(common)
    for entry in entries:
        numbers = {entry.number[value]: row for row, value in enumerate(entry.values)}
        numbers |= {i: at + position for position, i in enumerate(entry.transient)}
        at += len(entry.transient)
        homes = [result.homes[numbers[i]] for i in range(len(entry.inside))]
        places = [offsets[numbers[i]] for i in range(len(entry.inside))]
        moved.append(entry.moved(homes, places, deterministic=result.complete))
    return moved


class _Entry:
    """One entry point, with all memories as one: its regions, and the homes that they may have."""

    def __init__(self, plan: Plan, values: Sequence[int]) -> None:
        self.plan, self.values, memories = plan, values, plan.options.memories
        self.program: Program = as_one_memory(plan.program, len(memories))
        self.inside: tuple[Region, ...] = regions(self.program, plan.holds)
        allowed = places_of(plan.program, plan.options.place, memories)
        self.problem = home_problem(self.program, self.inside, memories, allowed)
        #: The region of each value that is the first in one.
        self.number = {region.members[0]: i for i, region in enumerate(self.inside)}
        common = {self.number[value] for value in values}
        self.transient = [i for i in range(len(self.inside)) if i not in common]

    def moved(self, homes: Sequence[int], places: Sequence[int], *, deterministic: bool) -> Plan:
        """The plan with these homes and places of regions, and its figures."""
        plan, memories = self.plan, self.plan.options.memories
        program = in_memories(self.program, self.inside, homes, memories)
        offsets = list(plan.offsets)
        sizes = [0] * len(memories)
        for region, home, place in zip(self.inside, homes, places, strict=True):
            for member, shift in zip(region.members, region.offsets, strict=True):
                offsets[member] = place + shift
            sizes[home] = max(sizes[home], place + region.size if region.size else 0)
        curves = loads(program, plan.holds)
        certificates = [
            _certificate(curve, size, old.solver)
            for curve, size, old in zip(curves, sizes, plan.certificates, strict=True)
        ]
        figures = home_figures(program, memories, (), plan.options.costs)
        records = tuple(
            replace(record, facts={**record.facts, **figures}) if record.name == RECORD else record
            for record in plan.records
        )
        return replace(
            plan,
            program=program,
            offsets=tuple(offsets),
            sizes=tuple(sizes),
            certificates=tuple(certificates),
            records=records,
            deterministic=plan.deterministic and deterministic,
        )


def _joined(parts: Sequence[HomeItem], end: int) -> HomeItem:
    """A value that stays between runs: live all the time, with the accesses of all entry points."""
    times = zip(*(part.nanoseconds for part in parts), strict=True)
    return HomeItem(
        max(part.size for part in parts),
        (Lifespan(0, end),),
        tuple(None if None in each else sum(t or 0 for t in each) for each in times),
    )


def _certificate(curve: Sequence[int], size: int, solver: str) -> Certificate:
    """The bytes that are live at once are the bound."""
    load = max(curve, default=0)
    witness = curve.index(load) if load else None
    if load == size:
        return Certificate(Status.OPTIMAL, Proof.MAX_LOAD, load, witness, solver)
    return Certificate(Status.FEASIBLE, None, load, witness, solver)
