"""Solvers of native code run in threads of their own, because they notice no interrupt while they work.

An interrupt ends the wait for a solver at once, a deadline a little later: a solver that is asked to stop
mostly stops within milliseconds, but while it prepares only after tenths of a second. Then it is left alone,
and ends in its thread.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, wait
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from solver.layout import Deadline

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["cp_solver", "run_native"]

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


def cp_solver(work: float, *, seed: int = 1, linearization: int = 2) -> cp_model.CpSolver:
    """CP-SAT with one worker and `work` seconds of its deterministic time. Imports OR-Tools."""
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.random_seed = seed
    solver.parameters.num_workers = 1
    solver.parameters.linearization_level = linearization
    solver.parameters.max_deterministic_time = work
    # Its own handler of Ctrl-C would stay behind, and end the process with the next one.
    solver.parameters.catch_sigint_signal = False
    return solver
