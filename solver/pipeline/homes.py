"""Programs in several memories that kernels reach: a home for each region, then the layout of each memory.

passes, with all memories as one ──► homes ──► layouts, one for each memory ──► record and bound
                                       ▲             │
                                       └─────────────┘ solver.schedules.homes.refine
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from solver.accounting import home_figures, home_problem, in_memories, places_of
from solver.errors import CapacityError, OptionsError
from solver.layout import Deadline, Layout, Outcome, SolveOptions, Status
from solver.layout.api import solve
from solver.pipeline.layout import layout_problem, no_layout, too_large
from solver.pipeline.watch import Stopwatch
from solver.plan import PlanOptions
from solver.program import HomeBound, Program, Region, loads, regions

__all__ = ["RECORD", "InMemories", "place_in_memories"]

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
        outcome = solve(
            buffers,
            solver=options.solver,
            deadline=deadline,
            incumbent=start,
            options=SolveOptions(progress=watch.found),
        )
        if outcome.layout is None and outcome.status is Status.UNKNOWN:
            raise no_layout(options.solver, in_time=outcome.deterministic)
        return outcome

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
