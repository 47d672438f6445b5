"""The one way in: preconditions, a solver, postconditions. No solver can hand out a wrong layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from solver.errors import InternalError, OptionsError, ProblemError
from solver.layout.baselines import BASELINES
from solver.layout.bounds.max_load import max_load
from solver.layout.check import Violation, check_problem, find_violations
from solver.layout.exact.branch_and_bound import BranchAndBound
from solver.layout.exact.cp_sat import CpSat
from solver.layout.greedy.local_search import LocalSearch
from solver.layout.greedy.placement import Greedy
from solver.layout.holes import solve_with_holes
from solver.layout.model.columns import columns_kept
from solver.layout.model.options import Configurable, SolveOptions
from solver.layout.model.pieces import has_holes
from solver.layout.model.problem import (
    MAX_BYTES,
    Deadline,
    Layout,
    LayoutProblem,
    LayoutSolver,
    Outcome,
    Proof,
    Status,
)
from solver.layout.portfolio import Portfolio
from solver.layout.scaled import SAFE, solve_scaled, too_large

__all__ = ["SOLVERS", "solve"]

_OURS: Final[tuple[LayoutSolver, ...]] = (Portfolio(), Greedy(), LocalSearch(), BranchAndBound(), CpSat())

#: Seconds a buffer that checking a layout takes, and half as much again: solvers stop so long before the
#: deadline.
CHECK_SECONDS: Final = 5e-7

#: The same of counting in larger units and back.
SCALING_SECONDS: Final = 2.5e-6

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

    Raises `ProblemError` for a bad problem or an incumbent that is not a layout of it, `OptionsError`
    for an unknown solver, `InternalError` when a solver breaks its word.
    """
    if solver not in SOLVERS:
        raise OptionsError(f"There is no solver {solver!r}.", remedy=f"Choose one of {', '.join(SOLVERS)}.")
    with columns_kept(problem):
        return _solved(problem, solver, deadline, incumbent, options)


def _solved(
    problem: LayoutProblem,
    solver: str,
    deadline: Deadline | None,
    incumbent: Layout | None,
    options: SolveOptions | None,
) -> Outcome:
    check_problem(problem)
    if incumbent is not None and (wrong := _broken(problem, incumbent)):
        raise ProblemError(
            f"The incumbent is not a layout of this problem: {wrong[0].rule}, {wrong[0].detail}."
        )
    if any(not buffer.size for buffer in problem.buffers):
        return _without_empty(problem, solver, deadline, incumbent, options)
    impossible = _trivial(problem)
    if impossible is not None:
        return impossible
    until = (deadline or Deadline()).or_when(options.cancel if options else None)
    until = until.sooner(CHECK_SECONDS * len(problem.buffers))
    asked = options or SolveOptions()

    def solved(smaller: LayoutProblem, start: Layout | None, asked: SolveOptions) -> Outcome:
        chosen = _chosen(solver, asked)
        if has_holes(smaller):
            return solve_with_holes(smaller, chosen, asked, until, start)
        return chosen.solve(smaller, until, start)

    planner = SOLVERS[solver] in BASELINES
    if too_large(problem, MAX_BYTES if planner else SAFE):
        until = until.sooner(SCALING_SECONDS * len(problem.buffers))
        outcome = solve_scaled(problem, until, incumbent, asked, solved, improved=not planner)
    else:
        outcome = solved(problem, incumbent, asked)
    return _within_capacity(problem, _checked(problem, outcome))


def _without_empty(
    problem: LayoutProblem,
    solver: str,
    deadline: Deadline | None,
    incumbent: Layout | None,
    options: SolveOptions | None,
) -> Outcome:
    """Places the other buffers. Buffers of 0 bytes take no place: they lie where they are pinned, or at 0."""
    kept = [i for i, buffer in enumerate(problem.buffers) if buffer.size]
    smaller = LayoutProblem(tuple(problem.buffers[i] for i in kept), problem.capacity)
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
