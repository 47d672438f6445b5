"""Bare buffers in several memories: a home for each of them, then a layout of each memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from solver.accounting import HomeItem, HomeProblem
from solver.errors import CapacityError, OptionsError, ProblemError
from solver.layout import (
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
from solver.placement import MOST_NAMED, no_layout
from solver.program import check_memories, without
from solver.schedules.homes.refine import Unhoused, housed

__all__ = ["in_memories"]


def in_memories(
    problem: LayoutProblem, options: LayoutOptions, deadline: Deadline, search: SolveOptions
) -> PlacedBuffers:
    """A home for each buffer at least time of accesses, and a layout of each memory."""
    memories, buffers = options.memories, problem.buffers
    check_memories(memories, (), options.place)
    for i, buffer in enumerate(() if memories else buffers):
        if buffer.memory:
            raise ProblemError(
                f"Buffer {buffer.id!r} must lie in memory {buffer.memory!r}, and no memories are given.",
                remedy=f"Give it: --memory {buffer.memory}=64KiB,read=4GB/s,write=4GB/s.",
                path=("buffers", i, "memory"),
            )
    for name, is_there in (("capacity", problem.capacity is not None), ("reserved", bool(problem.reserved))):
        if is_there:
            raise OptionsError(
                f"The layout has several memories, and {name} as well.",
                remedy=f"Leave {name} out: each memory has its own size, and all of it is ours.",
                path=(name,),
            )
    check_problem(problem)
    buffers = _placed(buffers, options.place)
    problem = replace(problem, buffers=buffers)
    homes_problem = HomeProblem(
        tuple(_item(i, buffer, memories) for i, buffer in enumerate(buffers)),
        tuple(memory.bytes for memory in memories),
    )

    def lay_out(k: int, inside: tuple[int, ...], start: Layout | None) -> Outcome:
        part = LayoutProblem(tuple(buffers[i] for i in inside), memories[k].bytes)
        # Whether a layout fits is what homes are chosen by, so the search goes on until it does.
        outcome = solve(part, solver=options.solver, deadline=deadline, incumbent=start, options=search)
        if outcome.layout is None and outcome.status is Status.UNKNOWN:
            raise no_layout(options.solver, in_time=outcome.deterministic)
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


def _placed(buffers: tuple[Buffer, ...], place: Sequence[str]) -> tuple[Buffer, ...]:
    """The buffers with the memories that they must lie in. Raises OptionsError for a name without buffers."""
    ids, changed = [buffer.id for buffer in buffers], list(buffers)
    for i, text in enumerate(place):
        name, _, memory = text.rpartition("=")
        matching = matching_names(name, ids)
        if not matching:
            raise OptionsError(
                f"The place {text!r} names no buffer.", remedy=nearest_names(name, ids), path=("place", i)
            )
        for k in matching:
            changed[k] = replace(changed[k], memory=memory)
    return tuple(changed)


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
