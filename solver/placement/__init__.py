"""Layouts of bare buffers from end to end: options, buffers -> layout -> certificate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from threading import Event
from typing import Final

from solver.errors import CapacityError, OptionsError
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
    Progress,
    SolveOptions,
    Status,
    live_at,
    solve,
)
from solver.names import matching_names, nearest_names

__all__ = ["place", "prepare"]

#: Buffers named in an error that a capacity is too small; the report would be as long as the problem.
MOST_NAMED: Final = 100

#: Numbers among the options, from the least to below the last.
_RANGES: Final = (
    ("capacity", 0, inf),
    ("deadline_seconds", 0, inf),
    ("work", 0, inf),
    ("seed", 0, 2**62),
    ("threads", 1, 65),
    ("target_gap", 0, 1_000_000),  # of the bound; beyond it the product would leave the range of floats
)


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
    if options.memories or options.place or any(buffer.memory for buffer in problem.buffers):
        from solver.placement.memories import (
            in_memories,  # programs and OR-Tools, which one memory does without
        )

        return in_memories(problem, options, deadline, search)
    outcome = solve(problem, solver=options.solver, deadline=deadline, incumbent=incumbent, options=search)
    layout, capacity = outcome.layout, problem.capacity
    if layout is None and outcome.status is Status.UNKNOWN:
        raise no_layout(options.solver, in_time=outcome.deterministic)
    if layout is None or (capacity is not None and layout.peak > capacity):
        raise _does_not_fit(problem, outcome, capacity or 0)
    certificate = Certificate(
        outcome.status, outcome.proof, outcome.lower_bound, outcome.witness_step, outcome.solver
    )
    return PlacedBuffers(problem, options, layout, certificate, outcome.deterministic)


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


def no_layout(solver: str, *, in_time: bool) -> OptionsError:
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
