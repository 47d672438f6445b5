"""The one way in: preconditions, a solver, postconditions. No solver can hand out a wrong layout."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from solver.errors import InternalError, OptionsError, ProblemError
from solver.layout.baselines import BASELINES
from solver.layout.bounds import max_load, pinned_top, settle
from solver.layout.check import Violation, check_problem, find_violations
from solver.layout.exact.capacity_search import BranchAndBound
from solver.layout.exact.cp_sat import CpSat
from solver.layout.greedy.local_search import LocalSearch
from solver.layout.greedy.placement import Greedy
from solver.layout.model.instance import FREE, Instance, arrays_kept, round_up
from solver.layout.model.options import Configurable, SolveOptions
from solver.layout.model.pieces import has_holes, without_holes
from solver.layout.model.problem import (
    MAX_BYTES,
    Buffer,
    Deadline,
    Layout,
    LayoutProblem,
    LayoutSolver,
    Lifespan,
    Outcome,
    Proof,
    Reserved,
    Status,
)
from solver.layout.portfolio import Portfolio
from solver.native import deadline_of

__all__ = ["MAX_TOTAL_BYTES", "SOLVERS", "solve"]

#: The largest sum of sizes, padding and pins in bytes: solvers add in 64 bits, and keep some of the bits.
MAX_TOTAL_BYTES: Final = 2**60

_OURS: Final[tuple[LayoutSolver, ...]] = (Portfolio(), Greedy(), LocalSearch(), BranchAndBound(), CpSat())

#: Seconds that checking a layout takes for each buffer, and for each piece that its holes make of it, and
#: half as much again: solvers stop so long before the deadline.
CHECK_SECONDS: Final = 5e-7

#: Problems without a layout after which ceilings between reserved ranges are left out.
MOST_CEILINGS: Final = 16

#: The largest alignment that a reserved range is said to have.
MAX_ALIGNMENT: Final = 2**20

#: Solvers that place into holes. Others take buffers whole.
_INTO_HOLES: Final = ("portfolio", "greedy", "search", "cp-sat")

#: Solvers by name, ours and then the planners of other systems. Each keeps no state between calls.
SOLVERS: Final[Mapping[str, LayoutSolver]] = MappingProxyType(
    {solver.name: solver for solver in (*_OURS, *BASELINES)}
)


def solve(
    problem: LayoutProblem,
    *,
    solver: str = "portfolio",
    deadline: Deadline | None = None,
    incumbent: Layout | None = None,
    options: SolveOptions | None = None,
) -> Outcome:
    """Place every buffer; see `Outcome` for what the answer claims.

    With a capacity: INFEASIBLE when a proof says that nothing fits, UNKNOWN when the best layout
    found does not fit and no proof rules out a better one. Both keep that best layout (None if
    the max-load bound alone settled it), whose peak is the smallest arena known to work.

    Raises `ProblemError` for a bad problem, for one of more than `MAX_TOTAL_BYTES`, or an incumbent that is
    not a layout of it, `OptionsError` for an unknown solver, `InternalError` when a solver breaks its word.
    """
    if solver not in SOLVERS:
        raise OptionsError(f"There is no solver {solver!r}.", remedy=f"Choose one of {', '.join(SOLVERS)}.")
    # A cancel event that is set leaves no time, but is no deadline.
    seconds = None if deadline is None or deadline.cancelled else deadline.remaining
    with arrays_kept(problem), deadline_of(seconds):
        return _solved(problem, solver, deadline, incumbent, options)


def _solved(
    problem: LayoutProblem,
    solver: str,
    deadline: Deadline | None,
    incumbent: Layout | None,
    options: SolveOptions | None,
) -> Outcome:
    check_problem(problem)
    _check_total(problem)
    if incumbent is not None and (wrong := _broken(problem, incumbent)):
        raise ProblemError(
            f"The incumbent is not a layout of this problem: {wrong[0].rule}, {wrong[0].detail}."
        )
    if any(not buffer.size for buffer in problem.buffers):
        return _without_empty(problem, solver, deadline, incumbent, options)
    impossible = _trivial(problem)
    if impossible is not None:
        return impossible
    if problem.reserved:
        return _around_reserved(problem, solver, deadline or Deadline(), incumbent, options)
    until = (deadline or Deadline()).or_when(options.cancel if options else None)
    steps = Instance.in_steps(problem)
    pieces = len(problem.buffers) if steps is None else len(steps) + 2 * len(steps.holes)
    until = until.sooner(CHECK_SECONDS * pieces)
    chosen = _chosen(solver, options or SolveOptions())
    if has_holes(problem) and solver not in _INTO_HOLES:
        outcome = _solved_whole(problem, chosen, until, incumbent)
    else:
        outcome = chosen.solve(problem, until, incumbent)
    return _within_capacity(problem, _checked(problem, outcome))


def _check_total(problem: LayoutProblem) -> None:
    """Raises ProblemError where sums of bytes would leave the arithmetic of the solvers. O(n)."""
    instance, total = Instance.in_steps(problem), MAX_TOTAL_BYTES + 1
    if instance is not None:
        total = int((instance.exact + instance.alignment - 1).sum())
        total += int((instance.offset + instance.exact)[instance.offset != FREE].max(initial=0))
    if total > MAX_TOTAL_BYTES:
        total = sum(buffer.size + buffer.alignment - 1 for buffer in problem.buffers)
        total += max((b.offset + b.size for b in problem.buffers if b.offset is not None), default=0)
        amount, row, field = max(
            (amount, -row, field)
            for row, buffer in enumerate(problem.buffers)
            for field, amount in (
                ("size", buffer.size),
                ("alignment", buffer.alignment),
                ("offset", buffer.offset or 0),
            )
        )
        raise ProblemError(
            f"The buffers add up to {total:,} bytes with padding and pins, more than 2**60; the largest is "
            f"{problem.buffers[-row].id!r} with {field} {amount:,}.",
            remedy="Write sizes, alignments and offsets in a larger unit, such as KiB.",
            path=("buffers", -row, field),
        )


def _solved_whole(
    problem: LayoutProblem, solver: LayoutSolver, deadline: Deadline, incumbent: Layout | None
) -> Outcome:
    """The answer of a solver that knows no holes, whose bounds do not hold with them."""
    whole = without_holes(problem)
    bound, began = max_load(problem), time.perf_counter()
    try:
        check_problem(whole)
    except ProblemError:  # pins that only holes keep apart
        return settle(problem, incumbent, bound, solver.name, began)
    fits = incumbent is not None and not _broken(whole, incumbent)
    outcome = solver.solve(whole, deadline, incumbent if fits else None)
    layouts = [layout for layout in (incumbent, outcome.layout) if layout is not None]
    best = min(layouts, key=lambda layout: layout.peak, default=None)
    return settle(problem, best, bound, outcome.solver, began, deterministic=outcome.deterministic)


def _around_reserved(
    problem: LayoutProblem,
    solver: str,
    deadline: Deadline,
    incumbent: Layout | None,
    options: SolveOptions | None,
) -> Outcome:
    """Solves one problem without reserved ranges for each of them that the topmost buffer may lie above.

    ::

        top below the first range      capacity: where it begins     no range
        top below the second range     capacity: where it begins     the first one is a pinned buffer
        top above all ranges           capacity: that of the problem    all are pinned buffers

    The first of them that has a layout has the smallest. Its bound holds for the problem if those before it
    are proved to have none; else the bounds of those hold as well, and the smallest one counts.

    A problem whose gaps are all too small for the largest buffer has no layout. After `MOST_CEILINGS`
    problems without a layout only that of the capacity and the last one are solved: they have every smaller
    layout.
    """
    buffers, ranges = problem.buffers, sorted(problem.reserved)
    load = max_load(problem)
    least = max(load.bytes, pinned_top(problem))
    start = min(buffer.lifespan.start for buffer in buffers)
    end = max(buffer.lifespan.end for buffer in buffers)
    ids = {buffer.id for buffer in buffers}
    lowest = _first_fit(buffers, ranges)
    below: list[Buffer] = []
    solved = 0
    bounds: list[int] = []
    layout: Layout | None = None
    outcome: Outcome | None = None
    deterministic = True
    for number in range(len(ranges) + 1):
        ceiling = ranges[number].low if number < len(ranges) else MAX_BYTES
        capacity = ceiling if ceiling < MAX_BYTES else None
        # Beyond the capacity only the smallest arena that is known to work is of interest.
        is_within = problem.capacity is None or not number or ranges[number - 1].low < problem.capacity
        is_last = is_within and problem.capacity is not None and problem.capacity <= ceiling
        if is_last:
            capacity = problem.capacity
        is_needed = is_last or capacity is None
        if ceiling < least or (number < lowest and not is_needed):
            pass  # proved to have no layout
        elif solved >= MOST_CEILINGS and not is_needed:
            if is_within:
                bounds.append(ranges[number - 1].high if number else 0)
        else:
            solved += 1
            known = incumbent if incumbent is not None and incumbent.peak <= ceiling else None
            if known is not None:
                top = max([known.peak, *(b.size + (b.offset or 0) for b in below)])
                known = Layout((*known.offsets, *(b.offset or 0 for b in below)), top)
            until = deadline if is_needed else deadline.leaving(1 / 2)
            outcome = _solved(LayoutProblem((*buffers, *below), capacity), solver, until, known, options)
            deterministic = deterministic and outcome.deterministic
            layout = None if outcome.layout is None else _layout_of(buffers, outcome.layout.offsets)
            fits = layout is not None and layout.peak <= ceiling
            if is_within and (fits or is_last or outcome.status is not Status.INFEASIBLE):
                bounds.append(outcome.lower_bound)
            if fits:
                break
            layout = None
        if number < len(ranges):
            below.append(_as_buffer(ranges[number], Lifespan(start, end), ids))
    assert outcome is not None  # no range limits the last one
    bound = max(least, min(bounds, default=0))
    status, proof = Status.UNKNOWN, None
    if layout is not None:
        status = Status.OPTIMAL if layout.peak <= bound else Status.FEASIBLE
        if status is Status.OPTIMAL:
            proof = Proof.MAX_LOAD if layout.peak <= load.bytes else Proof.SOLVER
    answer = replace(
        outcome,
        status=status,
        layout=layout,
        lower_bound=bound,
        witness_step=load.witness_step,
        proof=proof,
        deterministic=deterministic,
    )
    return _within_capacity(problem, _checked(problem, answer))


def _first_fit(buffers: tuple[Buffer, ...], ranges: Sequence[Reserved]) -> int:
    """The first range below which, and above the one before it, the largest buffer has room."""
    free = ((buffer.size, buffer.alignment) for buffer in buffers if buffer.offset is None)
    size, alignment = max(free, default=(0, 1))
    low = 0
    for number, range_ in enumerate(ranges):
        if round_up(low, alignment) + size <= range_.low:
            return number
        low = range_.high
    return len(ranges)


def _as_buffer(range_: Reserved, life: Lifespan, ids: Container[str]) -> Buffer:
    """A reserved range as a pinned buffer with a name that no other one has."""
    name = f"reserved {range_.low}..{range_.high}"
    while name in ids:
        name += " "
    # The largest alignment that its place has, as the smallest one of all decides what solvers count in.
    alignment = min(range_.low & -range_.low or MAX_ALIGNMENT, MAX_ALIGNMENT)
    return Buffer(name, range_.high - range_.low, life, alignment, range_.low)


def _layout_of(buffers: tuple[Buffer, ...], offsets: tuple[int, ...]) -> Layout:
    """The layout of the first buffers alone."""
    kept = offsets[: len(buffers)]
    return Layout(kept, max(offset + b.size for b, offset in zip(buffers, kept, strict=True)))


def _without_empty(
    problem: LayoutProblem,
    solver: str,
    deadline: Deadline | None,
    incumbent: Layout | None,
    options: SolveOptions | None,
) -> Outcome:
    """Places the other buffers. Buffers of 0 bytes take no place: they lie where they are pinned, or at 0."""
    kept = [i for i, buffer in enumerate(problem.buffers) if buffer.size]
    smaller = replace(problem, buffers=tuple(problem.buffers[i] for i in kept))
    start = None if incumbent is None else Layout(tuple(incumbent.offsets[i] for i in kept), incumbent.peak)
    outcome = solve(smaller, solver=solver, deadline=deadline, incumbent=start, options=options)
    if outcome.layout is None:
        return outcome
    offsets = [buffer.offset or 0 for buffer in problem.buffers]
    for i, offset in zip(kept, outcome.layout.offsets, strict=True):
        offsets[i] = offset
    return _checked(problem, replace(outcome, layout=Layout(tuple(offsets), outcome.layout.peak)))


def _chosen(solver: str, options: SolveOptions) -> LayoutSolver:
    """The solver with the options, which those without a search have no use for."""
    chosen = SOLVERS[solver]
    return chosen.configured(options) if isinstance(chosen, Configurable) else chosen


def _trivial(problem: LayoutProblem) -> Outcome | None:
    """The answer where nothing needs placing, or where the bound alone rules everything out."""
    if not problem.buffers:
        return Outcome(Status.OPTIMAL, Layout((), 0), 0, None, Proof.MAX_LOAD, "none", 0.0)
    if problem.capacity is None:
        return None
    bound = max_load(problem)
    if bound.bytes > problem.capacity:
        return Outcome(
            Status.INFEASIBLE, None, bound.bytes, bound.witness_step, Proof.MAX_LOAD, "max-load", 0.0
        )
    return None


def _broken(problem: LayoutProblem, layout: Layout) -> tuple[Violation, ...]:
    """Violations apart from the capacity, which is judged by the status."""
    return find_violations(replace(problem, capacity=None), layout, limit=3)


def _checked(problem: LayoutProblem, outcome: Outcome) -> Outcome:
    if outcome.layout is None:
        return outcome
    wrong = _broken(problem, outcome.layout)
    if wrong:
        named = "; ".join(f"{v.rule} {', '.join(v.buffers)}: {v.detail}" for v in wrong)
        raise InternalError(f"Solver {outcome.solver!r} made a wrong layout ({named}).")
    if outcome.layout.peak < outcome.lower_bound:
        raise InternalError(
            f"Solver {outcome.solver!r} claims the lower bound {outcome.lower_bound}, "
            f"yet its layout ends at {outcome.layout.peak:,}."
        )
    return outcome


def _within_capacity(problem: LayoutProblem, outcome: Outcome) -> Outcome:
    if problem.capacity is None or (outcome.layout and outcome.layout.peak <= problem.capacity):
        return outcome
    if outcome.lower_bound > problem.capacity:
        return replace(outcome, status=Status.INFEASIBLE, proof=Proof.SOLVER)
    return replace(outcome, status=Status.UNKNOWN, proof=None)
