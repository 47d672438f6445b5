"""Layouts of bare buffers from end to end: options, buffers -> layout -> certificate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from threading import Event
from typing import Final

from solver.accounting import HomeItem, HomeProblem
from solver.errors import CapacityError, OptionsError, ProblemError
from solver.layout import (
    SOLVERS,
    Buffer,
    Certificate,
    Deadline,
    Layout,
    LayoutOptions,
    LayoutProblem,
    Outcome,
    PlacedBuffers,
    PlacedHomes,
    PlacedMemory,
    Progress,
    Proof,
    SolveOptions,
    Status,
    check_problem,
    live_at,
    max_load,
    solve,
)
from solver.memories import Tier, access_nanoseconds
from solver.names import matching_names, nearest_names
from solver.program import check_memories, without

__all__ = ["place", "prepare"]

#: Numbers among the options, from the least to below the last.
_RANGES: Final = (
    ("capacity", 0, inf),
    ("deadline_seconds", 0, inf),
    ("work", 0, inf),
    ("seed", 0, 2**62),
    ("threads", 1, 65),
    ("target_gap", 0, 1_000_000),  # of the bound; beyond it the product would leave the range of floats
)

#: Buffers named in an error that a capacity is too small; the report would be as long as the problem.
MOST_NAMED = 100


def place(
    problem: LayoutProblem,
    options: LayoutOptions | None = None,
    *,
    incumbent: Layout | None = None,
    progress: Callable[[Progress], None] | None = None,
    cancel: Event | None = None,
) -> PlacedBuffers:
    """Place every buffer under the capacity, or as low as possible without one.

    The search starts from `incumbent` if there is one, tells `progress` of each better layout or bound,
    and ends soon after `cancel` is set, with the best so far. Without `options.deadline_seconds` the same
    arguments give the same layout. The digest is left to `documents.layout_with_digest`. Raises ProblemError
    for buffers that no solver can take, OptionsError for an option out of range, for a solver that cannot
    take the problem and for a deadline too short for it, CapacityError when the best layout found does not
    fit the capacity or a proof says that none does.
    """
    options = options or LayoutOptions()
    problem = prepare(problem, options)
    deadline = Deadline.after(options.deadline_seconds)
    search = replace(_search(problem, options), progress=progress, cancel=cancel)
    if options.memories:
        return _in_memories(problem, options, deadline, search)
    outcome = solve(problem, solver=options.solver, deadline=deadline, incumbent=incumbent, options=search)
    layout, capacity = outcome.layout, problem.capacity
    if layout is None and outcome.status is Status.UNKNOWN:
        raise _no_layout(options.solver, in_time=outcome.deterministic)
    if layout is None or (capacity is not None and layout.peak > capacity):
        raise _does_not_fit(problem, outcome, capacity or 0)
    certificate = Certificate(
        outcome.status, outcome.proof, outcome.lower_bound, outcome.witness_step, outcome.solver
    )
    return PlacedBuffers(problem, options, layout, certificate, outcome.deterministic)


def _in_memories(
    problem: LayoutProblem, options: LayoutOptions, deadline: Deadline, search: SolveOptions
) -> PlacedBuffers:
    """A home for each buffer at least time of accesses, and a layout of each memory."""
    from solver.schedules.homes.refine import Unhoused, housed

    memories, buffers = options.memories, problem.buffers
    check_memories(memories, (), ())
    for name, is_there in (("capacity", problem.capacity is not None), ("reserved", bool(problem.reserved))):
        if is_there:
            raise OptionsError(
                f"The layout has several memories, and {name} as well.",
                remedy=f"Leave {name} out: each memory has its own size, and all of it is ours.",
                path=(name,),
            )
    check_problem(problem)
    homes_problem = HomeProblem(
        tuple(_item(i, buffer, memories) for i, buffer in enumerate(buffers)),
        tuple(memory.bytes for memory in memories),
    )

    def lay_out(k: int, inside: tuple[int, ...], start: Layout | None) -> Outcome:
        part = LayoutProblem(tuple(buffers[i] for i in inside), memories[k].bytes)
        # Whether a layout fits is what homes are chosen by, so the search goes on until it does.
        outcome = solve(part, solver=options.solver, deadline=deadline, incumbent=start, options=search)
        if outcome.layout is None and outcome.status is Status.UNKNOWN:
            raise _no_layout(options.solver, in_time=outcome.deterministic)
        return outcome

    result = housed(homes_problem, [buffer.alignment for buffer in buffers], lay_out, deadline)
    if isinstance(result, Unhoused):
        raise _without_homes(problem, options, proved=result.proved)
    offsets, placed = [0] * len(buffers), []
    for k, (memory, outcome) in enumerate(zip(memories, result.outcomes, strict=True)):
        assert outcome.layout is not None  # homes whose layouts fit
        inside = [i for i, home in enumerate(result.homes) if home == k]
        for i, offset in zip(inside, outcome.layout.offsets, strict=True):
            offsets[i] = offset
        placed.append(
            PlacedMemory(
                memory,
                outcome.layout.peak,
                Certificate(
                    outcome.status, outcome.proof, outcome.lower_bound, outcome.witness_step, outcome.solver
                ),
            )
        )
    bound = result.certificate
    homes = PlacedHomes(
        result.homes,
        tuple(placed),
        homes_problem.nanoseconds(result.homes),
        result.bound,
        bound.nanoseconds,
        bound.denominator,
        tuple((row.memory, row.level, row.multiplier) for row in bound.rows),
    )
    peak = sum(each.peak for each in placed)
    whole = Certificate(Status.FEASIBLE, None, sum(p.certificate.lower_bound for p in placed), None, "homes")
    if whole.lower_bound == peak:
        whole = replace(whole, status=Status.OPTIMAL, proof=Proof.SOLVER)
    layout = Layout(tuple(offsets), peak)
    deterministic = result.complete and all(outcome.deterministic for outcome in result.outcomes)
    return PlacedBuffers(problem, options, layout, whole, deterministic, homes=homes)


def _item(i: int, buffer: Buffer, memories: Sequence[Tier]) -> HomeItem:
    """A buffer whose home is chosen. Bytes that it keeps in a hole are left to the layout."""
    names = [memory.name for memory in memories]
    if buffer.memory and buffer.memory not in names:
        raise ProblemError(
            f"Buffer {buffer.id!r} must lie in memory {buffer.memory!r}, which there is not.",
            remedy=f"Choose one of {', '.join(names)}.",
            path=("buffers", i, "memory"),
        )
    if buffer.offset is not None:
        raise ProblemError(
            f"Buffer {buffer.id!r} is pinned, and several memories are given.",
            remedy='Name the memory that it must lie in, as "memory": "tcm", and leave the offset out.',
            path=("buffers", i, "offset"),
        )
    times = (access_nanoseconds(m, buffer.size, buffer.reads, buffer.writes) for m in memories)
    spans = without(buffer.lifespan, tuple(hole.lifespan for hole in buffer.holes))
    return HomeItem(
        buffer.size,
        spans,
        tuple(t if buffer.memory in ("", m.name) else None for t, m in zip(times, memories, strict=True)),
    )


def _without_homes(problem: LayoutProblem, options: LayoutOptions, *, proved: bool) -> CapacityError:
    """Says which buffer no memory holds, or what must lie in one that is too small; else how much is live."""
    memories = options.memories
    for i, buffer in enumerate(problem.buffers):
        possible = [memory for memory in memories if buffer.memory in ("", memory.name)]
        most = max(memory.bytes for memory in possible)
        if buffer.size > most:
            return CapacityError(
                f"Buffer {buffer.id!r} (row {i + 1}) alone has {buffer.size:,} bytes; no memory that it may"
                f" lie in has more than {most:,}.",
                remedy=f"Give {possible[0].name!r} {buffer.size:,} bytes.",
                required=buffer.size,
                available=most,
                live_at_peak=[(buffer.id, buffer.size)],
                path=("memories",),
                proved=True,
            )
    for k, memory in enumerate(memories):
        pinned = replace(problem, buffers=tuple(b for b in problem.buffers if b.memory == memory.name))
        bound = max_load(pinned)
        if bound.bytes > memory.bytes:
            return CapacityError(
                f"What must lie in memory {memory.name!r} takes {bound.bytes:,} bytes at once; it has"
                f" {memory.bytes:,}.",
                remedy=f"Give {memory.name!r} {bound.bytes:,} bytes, or place less there.",
                required=bound.bytes,
                available=memory.bytes,
                live_at_peak=_live(pinned, bound.witness_step or 0),
                path=("memories", k, "bytes"),
                proved=True,
            )
    bound, together = max_load(problem), sum(memory.bytes for memory in memories)
    known = proved or bound.bytes > together
    how = "no homes exist" if known else "no homes were found"
    return CapacityError(
        f"{bound.bytes:,} bytes are live at once and the memories have {together:,} together; {how} with"
        " which each memory holds its buffers as a whole.",
        remedy="Give one of them more bytes.",
        required=max(bound.bytes, together + 1),
        available=together,
        live_at_peak=_live(problem, bound.witness_step or 0),
        path=("memories",),
        proved=known,
    )


def _live(problem: LayoutProblem, step: int) -> list[tuple[str, int]]:
    """The buffers that are live at a step, the largest first."""
    live = live_at(problem, step)
    return sorted(((b.id, b.size) for b in live), key=lambda b: (-b[1], b[0]))[:MOST_NAMED]


def _check(options: LayoutOptions) -> None:
    if options.solver not in SOLVERS:
        remedy = f"Choose one of {', '.join(SOLVERS)}."
        raise OptionsError(f"Unknown solver {options.solver!r}.", remedy=remedy, path=("solver",))
    alignment = options.alignment
    if alignment is not None and (alignment < 1 or alignment & (alignment - 1)):
        remedy = "Give 1, 2, 4, ..., or leave it out."
        raise OptionsError(
            f"Alignment {alignment} is not a power of two.", remedy=remedy, path=("alignment",)
        )
    for name, least, most in _RANGES:
        number = getattr(options, name)
        if number is not None and not least <= number < most:
            remedy = f"Give {least} or more" + (f", less than {most}." if most < inf else ".")
            raise OptionsError(f"{name} is {number}.", remedy=remedy, path=(name,))


def _search(problem: LayoutProblem, options: LayoutOptions) -> SolveOptions:
    """Work ends the search unless a deadline does; a capacity that is met ends it in any case."""
    search = SolveOptions(
        seed=options.seed,
        threads=options.threads,
        race=options.race,
        target_gap=options.target_gap,
        fit=problem.capacity is not None,
        rules=options.rules,
    )
    if options.work is None and options.deadline_seconds is None:
        return search
    return replace(search, work=options.work)


def prepare(problem: LayoutProblem, options: LayoutOptions) -> LayoutProblem:
    """The problem with the capacity, the least alignment and the constraints that the options ask for.

    Raises OptionsError.
    """
    _check(options)
    capacity = problem.capacity if options.capacity is None else options.capacity
    reserved = tuple(dict.fromkeys((*problem.reserved, *options.reserved)))
    buffers, least = problem.buffers, options.alignment
    if least is not None:
        buffers = tuple(
            buffer if buffer.alignment >= least else replace(buffer, alignment=least) for buffer in buffers
        )
    if options.pins or options.alignments:
        buffers = _constrained(buffers, options)
    return LayoutProblem(buffers, capacity, reserved)


def _constrained(buffers: Sequence[Buffer], options: LayoutOptions) -> tuple[Buffer, ...]:
    """The buffers with the pins and alignments of the options."""
    ids = [buffer.id for buffer in buffers]
    changed = list(buffers)
    for each in options.alignments:
        for k in _named(ids, "alignments", each.name):
            changed[k] = replace(changed[k], alignment=max(changed[k].alignment, each.bytes))
    for pin in options.pins:
        matching = _named(ids, "pins", pin.name)
        if len(matching) > 1:
            raise OptionsError(
                f"The pin {pin.name!r} names {len(matching):,} buffers: {ids[matching[0]]!r} is the first.",
                remedy=f"Pin one of them: {ids[matching[0]]}={pin.offset}.",
                path=("pins", pin.name),
            )
        if buffers[matching[0]].offset not in (None, pin.offset):
            raise OptionsError(
                f"The problem itself pins {ids[matching[0]]!r} at {buffers[matching[0]].offset}.",
                remedy="Leave one of the two pins out.",
                path=("pins", pin.name),
            )
        changed[matching[0]] = replace(changed[matching[0]], offset=pin.offset)
    return tuple(changed)


def _named(ids: Sequence[str], option: str, name: str) -> list[int]:
    matching = matching_names(name, ids)
    if matching:
        return matching
    path = (option, name)
    raise OptionsError(f"No buffer is called {name!r}.", remedy=nearest_names(name, ids), path=path)


def _no_layout(solver: str, *, in_time: bool) -> OptionsError:
    """The solver has no layout, and nothing says that there is none: not a question of capacity."""
    if in_time:
        return OptionsError(
            f"The solver {solver!r} found no layout of this problem.",
            remedy='It may not take pins or alignments: use "portfolio".',
            path=("solver",),
        )
    return OptionsError(
        f"Time ran out before the solver {solver!r} had a layout.",
        remedy='Give more time, or use "portfolio", which always has one.',
        path=("deadline_seconds",),
    )


def _does_not_fit(problem: LayoutProblem, outcome: Outcome, capacity: int) -> CapacityError:
    """Says which buffer, where one alone is too large; else what lives at the worst step."""
    peak, bound = outcome.layout.peak if outcome.layout else None, outcome.lower_bound
    live = live_at(problem, outcome.witness_step or 0)
    message = CapacityError.sentence("The buffers need", peak=peak, bound=bound, capacity=capacity)
    row, largest = max(enumerate(problem.buffers, 1), key=lambda numbered: numbered[1].size)
    if largest.size > capacity:
        alone = f"Buffer {largest.id!r} (row {row}) alone has {largest.size:,} bytes"
        message = f"{alone}; the capacity is {capacity:,}."
    return CapacityError(
        message,
        remedy="Raise the capacity."
        if bound > capacity
        else "Raise the capacity, or give the search more time.",
        required=max(peak or 0, bound),
        available=capacity,
        live_at_peak=sorted(((b.id, b.size) for b in live), key=lambda b: (-b[1], b[0]))[:MOST_NAMED],
        path=("capacity",),
        proved=bound > capacity,
    )
