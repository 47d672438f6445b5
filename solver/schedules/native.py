"""Solvers of native code run in threads of their own, because they notice no interrupt while they work.

An interrupt ends the wait for a solver at once, a deadline a little later: a solver that is asked to stop
mostly stops within milliseconds, but while it prepares only after tenths of a second. Then it is left alone,
and ends in its thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

from solver.layout import Deadline

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = [
    "CP_SECOND",
    "FLOW_ARC",
    "ORDER_TURN",
    "REPAIR_STEP",
    "WALK_EVENT",
    "cp_solved",
    "cp_solver",
    "lp_solved",
    "run_native",
]

#: Units of work (`Deadline`): of a deterministic second of CP-SAT, which takes 1.3 to 2.3 seconds, of a call,
#: and of writing a variable with its rows.
CP_SECOND, CP_CALL, CP_VARIABLE = 1.5, 0.012, 1.5e-5

#: Of an iteration of the simplex method, for each row; and of writing a row.
LP_ITERATION, LP_ROW = 2e-8, 2e-5

#: Of an event of a walk through sequences, of a turn of one through orders, of a step simulated by a repair,
#: and of an arc of a maximum flow.
WALK_EVENT, ORDER_TURN, REPAIR_STEP, FLOW_ARC = 1.8e-8, 5e-7, 3e-8, 4e-7

#: Seconds between two looks at the deadline, and how many of them a solver has to stop in.
_TICK, _GRACE = 0.005, 4

_Answer = TypeVar("_Answer")


def run_native(run: Callable[[], _Answer], stop: Callable[[], object], deadline: Deadline) -> _Answer | None:
    """The result of `run`, or its exception; None if the deadline has passed and `run` does not stop.

    `stop` may be called from another thread, several times, and before `run` has begun.
    """
    answer: Future[_Answer] = Future()

    def work() -> None:
        try:
            answer.set_result(run())
        except BaseException as error:  # noqa: BLE001 - raised again where the answer is asked for
            answer.set_exception(error)

    left = _GRACE
    try:
        Thread(target=work).start()  # no daemon: the interpreter must not end under native code
        while not answer.done() and left:
            if deadline.expired:
                stop()
                left -= 1
            wait((answer,), _TICK)
    finally:
        if not answer.done():
            stop()
    return answer.result() if answer.done() else None


def cp_solver(work: float, deadline: Deadline, *, seed: int = 1, linearization: int = 2) -> cp_model.CpSolver:
    """CP-SAT with one worker and `work` seconds of its deterministic time, or what the deadline leaves.

    Imports OR-Tools.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = linearization
    solver.parameters.max_deterministic_time = min(work, deadline.units / CP_SECOND)
    # Its own handler of Ctrl-C would stay behind, and end the process with the next one.
    solver.parameters.catch_sigint_signal = False
    return solver


def cp_solved(
    solver: cp_model.CpSolver, model: cp_model.CpModel, deadline: Deadline
) -> cp_model.CpSolverStatus | None:
    """The status of a solver of `cp_solver`, whose work is counted; None if the deadline has passed first."""
    status = run_native(lambda: solver.solve(model), solver.stop_search, deadline)
    spent = 0.0 if status is None else solver.response_proto.deterministic_time
    deadline.spend(CP_CALL + CP_SECOND * spent + CP_VARIABLE * len(model.proto.variables))
    return status


def lp_solved(solver: Any, deadline: Deadline) -> int | None:
    """The status of a linear solver of OR-Tools, whose iterations are counted; None as in `cp_solved`."""
    status = run_native(solver.Solve, solver.InterruptSolve, deadline)
    rows = solver.NumConstraints()
    deadline.spend((LP_ITERATION * max(0, solver.iterations()) + LP_ROW) * rows)
    return status
