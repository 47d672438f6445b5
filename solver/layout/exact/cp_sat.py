"""Exact placement as a constraint program: rectangles of time by offset that do not overlap.

OR-Tools is imported where it is used: importing it takes about a second, and most problems are
settled before they get here.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from functools import cache
from threading import Thread
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from solver.layout.bounds import max_load, settle
from solver.layout.greedy.placement import greedy_portfolio
from solver.layout.model.instance import FREE, Instance, Integers, layout_of
from solver.layout.model.options import SolveOptions
from solver.layout.model.problem import Deadline, Layout, LayoutProblem, LayoutSolver, Outcome

if TYPE_CHECKING:
    from ortools.sat.python import cp_model

__all__ = ["CpSat", "Model", "Refinement", "let_go", "refine", "representable"]

#: CP-SAT works in signed 64 bits and multiplies extents; its bounds are read as doubles. Beyond this
#: many units, times sections, it is not asked.
MAX_EXTENT: Final = 2**50

SEED: Final = 1

#: The search interleaves this many strategies in one thread, which keeps it deterministic.
STRATEGIES: Final = 8

#: Seconds between looks at the deadline, and how many such pauses CP-SAT has to stop in.
TICK: Final = 0.005
GRACE: Final = 2

#: Time limit of CP-SAT itself, in seconds after the deadline; the caller has stopped waiting by then. A limit
#: at the deadline would end the search some milliseconds early, and pass for a work limit that was reached.
OWN_LIMIT: Final = 1.0


@dataclass(frozen=True, slots=True)
class Refinement:
    """The best layout, the bytes proved necessary (0: none), and whether wall time cut the search."""

    layout: Layout
    proved: int
    cut: bool


class _Line:
    """Between CP-SAT's thread and the caller's: the best layout so far, and what stops the search."""

    def __init__(self, incumbent: Layout) -> None:
        self.best = incumbent
        self.stop: Callable[[], None] | None = None

    def offer(self, layout: Layout) -> None:
        self.best = min(self.best, layout, key=lambda candidate: candidate.peak)


def _grid(instance: Instance) -> int:
    """The bytes of which every offset of some best layout is a multiple.

    Move all buffers down as far as they go: offsets become sums of sizes above the ground or a
    pin, rounded up to alignments. An alignment that divides all sizes and pins rounds nothing.
    With holes, tops and bottoms of pieces come into these sums as well.
    """
    if instance.pieces is not None:
        ends = instance.pieces[:, 2:4].ravel().tolist()
        pinned = instance.offset[instance.offset != FREE].tolist()
        return math.gcd(*ends, *pinned, *instance.exact.tolist(), *instance.alignment.tolist())
    pins = instance.offset[instance.offset != FREE]
    grid = math.gcd(int(np.gcd.reduce(instance.size)), int(np.gcd.reduce(pins)) if len(pins) else 0)
    return math.gcd(grid, *(a for a in set(instance.alignment.tolist()) if grid % a))


def representable(instance: Instance, peak: int) -> bool:
    """Whether CP-SAT can compute with numbers as large as this problem needs."""
    steps = int(instance.rows[:, 1].max(initial=0))
    return peak // math.gcd(_grid(instance), *instance.exact.tolist()) * steps <= MAX_EXTENT


class Model:
    """Minimise the peak, down to `enough`. Offsets count in `grid` bytes, the peak in `unit` bytes."""

    def __init__(
        self,
        instance: Instance,
        incumbent: Layout,
        bound: int,
        enough: int,
        deadline: Deadline,
    ) -> None:
        """Raises TimeoutError once the deadline has passed."""
        from ortools.sat.python import cp_model

        self._instance, self._incumbent, self._deadline = instance, incumbent, deadline
        self._grid = _grid(instance)
        self._unit = math.gcd(self._grid, *instance.exact.tolist())
        self._model = cp_model.CpModel()
        self._variables = [self._variable(i) for i in range(len(instance))]
        self._offsets = [self._stride(i) * x for i, x in enumerate(self._variables)]
        lowest, self._highest = -(-max(bound, enough) // self._unit), incumbent.peak // self._unit
        # A peak that nothing below was asked for proves nothing.
        self._given = lowest * self._unit if enough > bound else 0
        self._peak = self._model.new_int_var(min(lowest, self._highest), self._highest, "peak")
        self._no_overlap(instance.rows)
        self._below_peak()
        self._model.minimize(self._peak)
        self._hint()

    def _variable(self, i: int) -> cp_model.IntVar:
        """How many strides (see `_stride`) lie below the buffer; a constant where it is pinned."""
        self._check()
        pin, stride = int(self._instance.offset[i]), self._stride(i) * self._grid
        if pin != FREE:
            return self._model.new_constant(pin // stride)
        room = self._incumbent.peak - int(self._instance.exact[i])
        return self._model.new_int_var(0, room // stride, f"strides below {i}")

    def _stride(self, i: int) -> int:
        """The alignment in grid units, where it asks for more than the grid gives."""
        return max(1, int(self._instance.alignment[i]) // self._grid)

    def _check(self) -> None:
        if self._deadline.expired:
            raise TimeoutError

    def _no_overlap(self, rows: Integers) -> None:
        model, spans, ranges = self._model, [], []
        for k, (start, end, low, high, owner) in enumerate(rows.tolist()):
            self._check()
            spans.append(model.new_fixed_size_interval_var(start, end - start, f"span {k}"))
            bottom = self._offsets[owner] + low // self._grid
            ranges.append(model.new_fixed_size_interval_var(bottom, (high - low) // self._grid, f"range {k}"))
        model.add_no_overlap_2d(spans, ranges)

    def _below_peak(self) -> None:
        scale = self._grid // self._unit
        for offset, exact in zip(self._offsets, self._instance.exact.tolist(), strict=True):
            self._model.add(offset * scale + exact // self._unit <= self._peak)

    def _hint(self) -> None:
        """Start from the incumbent, rounded down where it is off the grid."""
        self._model.add_hint(self._peak, self._highest)
        for i, offset in enumerate(self._incumbent.offsets):
            if self._instance.offset[i] == FREE:
                self._model.add_hint(self._variables[i], offset // (self._stride(i) * self._grid))

    def solve(self, work: float, seed: int, line: _Line) -> Refinement:
        """`work` is CP-SAT's deterministic time; rectangles cost it many times that in seconds."""
        from ortools.sat.python import cp_model

        solver = cp_model.CpSolver()
        solver.parameters.random_seed = seed % 2**31
        solver.parameters.num_workers = STRATEGIES
        solver.parameters.interleave_search = True
        solver.parameters.max_deterministic_time = work
        solver.parameters.max_time_in_seconds = min(self._deadline.remaining + OWN_LIMIT, 1e9)
        line.stop = solver.stop_search
        status = solver.solve(self._model, self._listener(line))
        finished = status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
        if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            # Of equally good layouts the answer itself: which of them is heard of first, threads decide.
            line.best = min(self._layout(solver.value), line.best, key=lambda candidate: candidate.peak)
        layout = line.best
        proved = layout.peak if status == cp_model.OPTIMAL and layout.peak > self._given else 0
        if status == cp_model.INFEASIBLE:
            proved = (self._highest + 1) * self._unit
        let_go(self._model)
        return Refinement(layout, proved, cut=not finished and self._deadline.expired)

    def _listener(self, line: _Line) -> cp_model.CpSolverSolutionCallback:
        """Keeps each better layout at once: a caller that stops waiting for CP-SAT loses nothing."""
        listener: cp_model.CpSolverSolutionCallback = _listener_class()(
            lambda value: line.offer(self._layout(value))
        )
        return listener

    def _layout(self, value: Callable[[cp_model.LinearExprT], int]) -> Layout:
        offsets: Integers = np.array([value(x) * self._grid for x in self._offsets], dtype=np.int64)
        return layout_of(self._instance, offsets)


def let_go(model: cp_model.CpModel) -> None:
    """Take away the old names of its methods, which hold the model itself; nothing can be asked of it behind.

    With them it stays, with all its memory, until cycles are collected, and OR-Tools has no call that lets go
    of it. A version whose models keep no such names has nothing to take away.
    """
    getattr(model, "__dict__", {}).clear()


@cache
def _listener_class() -> Any:
    """Made once: a class of each search, and the model with it, would stay until cycles are collected."""
    from ortools.sat.python import cp_model

    class Listener(cp_model.CpSolverSolutionCallback):
        def __init__(self, heard: Callable[[Callable[[cp_model.LinearExprT], int]], None]) -> None:
            super().__init__()
            self._heard = heard

        def on_solution_callback(self) -> None:
            self._heard(self.value)

    return Listener


def refine(
    instance: Instance,
    incumbent: Layout,
    bound: int,
    deadline: Deadline,
    work: float,
    seed: int = SEED,
    enough: int = 0,
) -> Refinement:
    """Improve on the incumbent until optimal, below `enough` bytes, or until work or wall time is spent.

    CP-SAT runs in a thread of its own. When the deadline has passed it is told to stop, and left alone if it
    does not at once: loading it hears of nothing. Without OR-Tools the incumbent is the answer, and the log
    says so.
    """
    if deadline.expired or incumbent.peak <= enough or not representable(instance, incumbent.peak):
        return Refinement(incumbent, 0, cut=deadline.expired)
    line = _Line(incumbent)
    answer: Future[Refinement] = Future()

    def run() -> None:
        try:
            model = Model(instance, incumbent, bound, enough, deadline)
            answer.set_result(model.solve(work, seed, line))
        except TimeoutError:
            answer.set_result(Refinement(incumbent, 0, cut=True))
        except ImportError as error:
            logging.getLogger(__name__).warning("Layouts are made without CP-SAT: %s", error)
            answer.set_result(Refinement(incumbent, 0, cut=False))
        except BaseException as error:  # noqa: BLE001 - raised again where the answer is asked for
            answer.set_exception(error)

    Thread(target=run).start()  # no daemon: the interpreter must not end under CP-SAT
    while not answer.done() and deadline.remaining > 0:
        wait((answer,), min(TICK, deadline.remaining))
    for _ in range(GRACE):
        if not answer.done():
            if line.stop is not None:
                line.stop()
            wait((answer,), TICK)
    return answer.result() if answer.done() else Refinement(line.best, 0, cut=True)


@dataclass(frozen=True, slots=True)
class CpSat:
    """CP-SAT by itself, started from the greedy portfolio. Exact with pins and any alignment."""

    options: SolveOptions = field(default_factory=SolveOptions)
    name: str = "cp-sat"

    #: Deterministic time, which this model undercharges: of the order of half a minute.
    work: float = 1.0

    def configured(self, options: SolveOptions) -> LayoutSolver:
        return replace(self, options=options)

    def solve(self, problem: LayoutProblem, deadline: Deadline, incumbent: Layout | None = None) -> Outcome:
        began = time.perf_counter()
        bound, instance = max_load(problem), Instance.of(problem)
        enough = self.options.enough(bound.bytes, problem.capacity)
        layout = incumbent or greedy_portfolio(instance, enough, deadline).layout
        result = Refinement(layout, 0, cut=False)
        if layout.peak > enough:
            seed = SEED + self.options.seed
            result = refine(instance, layout, bound.bytes, deadline, self.work, seed, enough)
        return settle(
            problem,
            result.layout,
            bound,
            self.name,
            began,
            proved=result.proved,
            deterministic=not result.cut,
        )
