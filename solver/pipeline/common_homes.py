"""Homes of several entry points together: what stays between runs has one home and one place in all of them.

    levels of      train               infer          evaluate
    weight         ████████████████████████████████████████████   one item: its accesses in all entry points
    activations    ▒▒▒▒▒▒  ▒▒▒▒▒▒▒▒    ░░░░  ░░░       ▒▒▒▒▒▒      items of one entry point each

Entry points never run at the same time, so on their joined time lines this is a problem like that of one
program, and so are the layouts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
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
from solver.errors import CapacityError
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
from solver.pipeline.homes import RECORD
from solver.pipeline.layout import no_layout
from solver.pipeline.paths import Candidate
from solver.plan import Plan
from solver.program import Program, Region, loads, regions

__all__ = ["in_common_homes"]


def in_common_homes(
    candidates: Sequence[Candidate], persistent: Sequence[Sequence[int]], deadline: Deadline
) -> list[Candidate]:
    """The candidates with common homes and places of their persistent values.

    `persistent` has the numbers of these values for each candidate, in one order. All candidates have the
    same memories and no tiers. Raises CapacityError where no common homes were found.
    """
    from solver.schedules.homes.refine import Unhoused, housed

    memories = candidates[0].plan.options.memories
    entries = [
        _Entry(candidate.plan, values) for candidate, values in zip(candidates, persistent, strict=True)
    ]
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
    solver = candidates[0].plan.options.solver

    def buffers(k: int, inside: Sequence[int]) -> LayoutProblem:
        spans = [Lifespan(items[i].spans[0].start, items[i].spans[-1].end) for i in inside]
        return LayoutProblem(
            tuple(
                Buffer(str(i), items[i].size, span, alignment) for i, span in zip(inside, spans, strict=True)
            ),
            memories[k].bytes,
        )

    def lay_out(k: int, inside: tuple[int, ...], start: Layout | None) -> Outcome:
        outcome = solve(
            buffers(k, inside), solver=solver, deadline=deadline, incumbent=start, options=SolveOptions()
        )
        if outcome.layout is None and outcome.status is Status.UNKNOWN:
            raise no_layout(solver, in_time=outcome.deterministic)
        return outcome

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
    settled, at = [], len(common)
    for candidate, entry in zip(candidates, entries, strict=True):
        numbers = {entry.number[value]: row for row, value in enumerate(entry.values)}
        numbers |= {i: at + position for position, i in enumerate(entry.transient)}
        at += len(entry.transient)
        homes = [result.homes[numbers[i]] for i in range(len(entry.inside))]
        places = [offsets[numbers[i]] for i in range(len(entry.inside))]
        plan = entry.moved(homes, places, deterministic=result.complete)
        settled.append(replace(candidate, plan=plan))
    return settled


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
