"""Layout of each space of a program, within one capacity or in tiers that have one each; and plans whose
persistent values lie at the bottom of their spaces.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

from solver.errors import CapacityError, OptionsError
from solver.layout import (
    Buffer,
    Certificate,
    Deadline,
    Hole,
    LayoutProblem,
    Outcome,
    Proof,
    Reserved,
    SolveOptions,
    Status,
    above_reserved,
    max_load,
)
from solver.layout.api import solve
from solver.pipeline.watch import Stopwatch
from solver.plan import Plan, PlanOptions
from solver.program import PlaceRules, Program, Region, conflicts, loads
from solver.targets import TARGETS

__all__ = ["layout_problem", "no_layout", "place", "settled", "too_large"]


def place(
    program: Program,
    placed: Sequence[Region],
    solvers: Sequence[str | None],
    options: PlanOptions,
    deadline: Deadline,
    watch: Stopwatch,
) -> list[Outcome]:
    """Solve each space. The capacity bounds their sum, so a space may use what the others leave.

    `solvers` has a name for each space that does not take that of the options. Raises CapacityError where a
    space has no layout that fits, OptionsError where its solver has none at all.
    """
    rules = options.constraints.rules(program) if options.constraints else None
    if rules is not None:
        capacities: list[int | None] = [options.capacity] * len(program.spaces)
        if options.tiers:
            capacities = [tier.bytes for tier in options.tiers]
        for conflict in conflicts(program, placed, rules, capacities):
            raise conflict.error()
    by_space: list[list[Region]] = [[] for _ in program.spaces]
    for region in placed:
        by_space[region.space].append(region)
    left = options.capacity
    bounds = [0] * len(by_space)
    if left is not None:  # what the spaces behind the first need at least is left to them
        bounds[1:] = [
            max_load(layout_problem(program, inside, None, rules, k)).bytes
            for k, inside in enumerate(by_space)
            if k
        ]
    outcomes: list[Outcome] = []
    for k, inside in enumerate(by_space):
        room = None if left is None else left - sum(bounds[k + 1 :])
        if options.tiers:
            room = options.tiers[k].bytes
        problem = layout_problem(program, inside, None if room is None else max(0, room), rules, k)
        solver = (solvers[k] if k < len(solvers) else None) or options.solver
        outcome = solve(problem, solver=solver, deadline=deadline, options=SolveOptions(progress=watch.found))
        if outcome.layout is None and outcome.status is Status.UNKNOWN:
            raise no_layout(solver, in_time=outcome.deterministic)
        if outcome.layout is None or (room is not None and outcome.layout.peak > room):
            certain = outcome.lower_bound
            if not options.tiers:
                certain += sum(o.lower_bound for o in outcomes) + sum(bounds[k + 1 :])
            raise too_large(problem, outcome, room or 0, certain, options, k)
        left = None if left is None else left - outcome.layout.peak
        if rules is not None and rules.alignments:
            outcome = _as_added_up(outcome, loads(program, placed=tuple(placed))[k], rules.blocks[k])
        outcomes.append(outcome)
    return outcomes


def _as_added_up(outcome: Outcome, curve: Sequence[int], reserved: Sequence[Reserved]) -> Outcome:
    """The outcome with what adding up sizes proves; padding between aligned values is for a search."""
    load = max(curve, default=0)
    witness = curve.index(load) if load else None
    peak = outcome.layout.peak if outcome.layout else 0
    if outcome.proof is Proof.MAX_LOAD and above_reserved(load, reserved) != peak:
        return replace(outcome, proof=Proof.SOLVER, witness_step=witness)
    return replace(outcome, witness_step=witness)


def layout_problem(
    program: Program, placed: Sequence[Region], capacity: int | None, rules: PlaceRules | None, space: int
) -> LayoutProblem:
    """The layout of the regions of one space."""
    alignment = program.spaces[space].alignment
    buffers = []
    for region in placed:
        offset, multiple = (None, alignment) if rules is None else rules.place(program, region)
        label = program.values[region.members[0]].label
        holes = tuple(map(Hole, region.lent)) if region.lent else ()
        buffers.append(Buffer(label, region.size, region.lifespan, multiple, offset, holes))
    return LayoutProblem(tuple(buffers), capacity, () if rules is None else rules.blocks[space])


def no_layout(solver: str, *, in_time: bool) -> OptionsError:
    """The solver has no layout, and nothing says that there is none: not a question of capacity."""
    if in_time:
        remedy = 'It may not take pins or alignments: use "portfolio".'
        return OptionsError(f"The solver {solver!r} found no layout.", remedy=remedy, path=("solver",))
    return OptionsError(
        f"Time ran out before the solver {solver!r} had a layout.",
        remedy='Give more time, or use "portfolio", which always has one.',
        path=("deadline_seconds",),
    )


def too_large(
    problem: LayoutProblem, outcome: Outcome, room: int, bound: int, options: PlanOptions, space: int
) -> CapacityError:
    """The space has `room` of the capacity; `bound` is proved for all that share it, whatever others take.

    With tiers each space has a capacity of its own, and what is proved holds for what the passes put there.
    """
    target = TARGETS.get(options.target)  # none: an explicit program
    ways = ["reduce the batch"] if target else []
    if options.parallelism > 1:
        ways.append("run fewer steps at the same time")
    if target and target.capabilities.recompute and not (options.recompute or options.tiers):
        ways.append("leave out `as_written` and `only`, so that steps may run again")
    if target:
        ways.append("train fewer parameters")
    capacity = room if options.tiers else options.capacity or 0
    peak = capacity - room + outcome.layout.peak if outcome.layout else None
    witness = outcome.witness_step or 0
    live = [
        b
        for b in problem.buffers
        if b.lifespan.start <= witness < b.lifespan.end
        and not any(hole.lifespan.start <= witness < hole.lifespan.end for hole in b.holes)
    ]
    required = max(peak or 0, bound)
    subject, raised = "The plan needs", f"Raise the capacity to {required:,}"
    if options.recompute:
        subject = "No schedule was found whose layout fits: the first one needs"
    path: tuple[str | int, ...] = ("capacity",)
    if options.tiers:
        name = options.tiers[space].name
        subject = f"No way of paging was found whose layout fits: tier {name!r} with the first one needs"
        raised, path = f"Give {name!r} {required:,} bytes", ("tiers", space, "bytes")
    return CapacityError(
        CapacityError.sentence(subject, peak=peak, bound=bound, capacity=capacity),
        remedy=f"{', '.join((raised, *ways[:-1]))}{', or ' + ways[-1] if ways else ''}.",
        required=required,
        available=capacity,
        live_at_peak=sorted(((b.id, b.size) for b in live), key=lambda item: (-item[1], item[0])),
        path=path,
        # Passes that search may put less there.
        proved=bound > capacity and not (options.tiers or options.recompute),
    )


def settled(plan: Plan, persistent: Sequence[int]) -> Plan:
    """The plan with these values at the bottom of their spaces, in this order; the others move up by as much
    as was below them. They are live all the time, so nothing meets that did not before. O(n log n).
    """
    values = plan.program.values
    for space in range(len(plan.sizes)):
        inside = [value for value in persistent if values[value].space == space]
        plan = _settled(plan, space, inside)
    return plan


def _settled(plan: Plan, space: int, persistent: Sequence[int]) -> Plan:
    regions = {region.members[0]: region for region in plan.regions if region.space == space}
    if any(regions[value].lent for value in persistent):
        plan = _without_lending(plan, regions, persistent)
    rounded = [regions[value].size for value in persistent]
    bottom = dict(zip(persistent, accumulate(rounded, initial=0), strict=False))
    below = sorted((plan.offsets[value], regions[value].size) for value in persistent)
    starts = [offset for offset, _ in below]
    sums = [0, *accumulate(size for _, size in below)]
    offsets, top = list(plan.offsets), 0
    for first, region in regions.items():
        new = bottom.get(first)
        if new is None:
            old = plan.offsets[first]
            new = old - sums[bisect_left(starts, old)] + sums[-1]
        offsets[first] = new
        if len(region.members) > 1:
            for member, shift in zip(region.members, region.offsets, strict=True):
                offsets[member] = new + shift
        if region.size and new + region.size > top:
            top = new + region.size
    certificate = _certificate(plan.certificates[space], plan, space, top)
    return replace(
        plan,
        offsets=tuple(offsets),
        sizes=(*plan.sizes[:space], top, *plan.sizes[space + 1 :]),
        certificates=(*plan.certificates[:space], certificate, *plan.certificates[space + 1 :]),
    )


def _without_lending(plan: Plan, regions: Mapping[int, Region], persistent: Collection[int]) -> Plan:
    """The plan with another layout of a space of slower memory, where these values lend their bytes to no
    other, though copies restore them. The certificate is mended by the caller.
    """
    buffers = tuple(
        Buffer(
            plan.program.values[first].label,
            region.size,
            region.lifespan,
            plan.program.spaces[region.space].alignment,
            holes=() if first in persistent else tuple(map(Hole, region.lent)),
        )
        for first, region in regions.items()
    )
    outcome = solve(LayoutProblem(buffers), solver="portfolio")
    assert outcome.layout is not None  # without a capacity there always is one
    offsets = list(plan.offsets)
    for region, offset in zip(regions.values(), outcome.layout.offsets, strict=True):
        for member, shift in zip(region.members, region.offsets, strict=True):
            offsets[member] = offset + shift
    return replace(plan, offsets=tuple(offsets))


def _certificate(old: Certificate, plan: Plan, space: int, size: int) -> Certificate:
    """The certificate of a space with its new size."""
    if size == plan.sizes[space]:
        return old
    curve = loads(plan.program, placed=plan.regions)[space]
    if max(curve, default=0) == size:
        return Certificate(Status.OPTIMAL, Proof.MAX_LOAD, size, curve.index(size), old.solver)
    if old.lower_bound == size:
        return replace(old, status=Status.OPTIMAL, proof=Proof.SOLVER, witness_step=None)
    return replace(old, status=Status.FEASIBLE, proof=None)
