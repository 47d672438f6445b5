"""Two published models of recomputation, written down again, to be solved beside this project's search.

    Checkmate, POET    a stage for each step, Booleans for each step and value in it: an integer program
    Moccasin           a stage for each step, some intervals for each value: a constraint program

Jain et al., *Checkmate*, MLSys 2020 (arXiv 1910.02653), whose recomputation POET has as well (Patil et al.,
ICML 2022, arXiv 2207.07697); Bartan et al., *Moccasin*, ICML 2023 (arXiv 2304.14463). Both keep the order of
first runs, as `solver.schedules.recompute` does.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any

from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]
from ortools.sat.python import cp_model

from solver.accounting import ScheduleProblem

__all__ = ["Answer", "checkmate", "moccasin", "vgg16_cifar"]

#: Times that Moccasin computes a value at most, as in its paper's experiments.
_COPIES = 2


@dataclass(frozen=True, slots=True)
class Answer:
    """The cost of repetitions, None without a solution; and whether it is proved to be the least."""

    extra: float | None
    proved: bool


def checkmate(problem: ScheduleProblem, budget: int, seconds: float) -> Answer:
    """Checkmate's integer program, for CBC. Step t defines value t. O(n * edges) rows.

    In stage t step t runs for the first time, and earlier ones may run again before it. ``runs[t, k]``: step
    k runs in stage t. ``held[t, k]``: value k is in memory when stage t begins. ``frees[t, i, k]``: behind
    step k of stage t value i, which it reads, is not needed any more.
    """
    count = len(problem.steps)
    solver = pywraplp.Solver.CreateSolver("CBC")
    solver.SetTimeLimit(int(seconds * 1000))
    readers: list[list[int]] = [[] for _ in range(count)]
    for k, values in enumerate(problem.reads):
        for i in values:
            readers[i].append(k)
    runs = {(t, k): solver.BoolVar("") for t in range(count) for k in range(t + 1)}
    held = {(t, k): solver.BoolVar("") for t in range(count) for k in range(t)}
    edges = [(i, k) for k in range(count) for i in problem.reads[k]]
    frees = {(t, i, k): solver.BoolVar("") for t in range(count) for i, k in edges if k <= t}
    for t in range(count):
        solver.Add(runs[t, t] == 1)
        for i, k in edges:
            if k <= t:
                solver.Add(runs[t, k] <= runs[t, i] + held.get((t, i), 0))
        for k in range(t):
            solver.Add(held[t, k] <= runs[t - 1, k] + held.get((t - 1, k), 0))
            if problem.kept[k]:
                solver.Add(held[t, k] == 1)
            if problem.until[k] < t:
                solver.Add(runs[t, k] == 0)
        used: Any = sum(problem.size[k] * held[t, k] for k in range(t)) + problem.fixed
        for k in range(t + 1):
            used = used + problem.size[k] * runs[t, k]
            row = solver.NumVar(0, budget, "")
            solver.Add(row == used)
            used = row
            for i in problem.reads[k]:
                later = [runs[t, j] for j in readers[i] if k < j <= t]
                wanted = held.get((t + 1, i), int(problem.kept[i]))
                hazards = 1 - runs[t, k] + wanted + sum(later)
                solver.Add(1 - frees[t, i, k] <= hazards)
                solver.Add((2 + len(later)) * (1 - frees[t, i, k]) >= hazards)
                used = used - problem.size[i] * frees[t, i, k]
    solver.Minimize(sum(problem.cost[k] * variable for (_, k), variable in runs.items()))
    parameters = pywraplp.MPSolverParameters()  # by default an answer within a ten-thousandth is enough
    parameters.SetDoubleParam(pywraplp.MPSolverParameters.RELATIVE_MIP_GAP, 0.0)
    status = solver.Solve(parameters)
    found = status in (pywraplp.Solver.OPTIMAL, pywraplp.Solver.FEASIBLE)
    extra = solver.Objective().Value() - sum(problem.cost) if found else None
    return Answer(extra, status == pywraplp.Solver.OPTIMAL)


def moccasin(problem: ScheduleProblem, budget: int, work: float) -> Answer:
    """Moccasin's constraint program, for CP-SAT. Step t defines value t; `work` is deterministic time.

    Stage t has t + 1 moments, at whose k-th one step k may run. A value has `_COPIES` intervals in which it
    is held, each from a moment at which its step runs; one that runs needs what it reads to be held.
    """
    count, model = len(problem.steps), cp_model.CpModel()
    horizon = count * (count + 1) // 2

    def moment(stage: int, step: int) -> int:
        return stage * (stage + 1) // 2 + step

    copies: list[list[tuple[Any, Any, Any]]] = []
    intervals, extra = [], []
    for k in range(count):
        found: list[tuple[Any, Any, Any]] = []
        for copy in range(_COPIES if k < min(problem.until[k], count - 1) else 1):
            there = model.new_bool_var("")
            if copy:
                places = cp_model.Domain.from_values([moment(t, k) for t in range(k + 1, count)])
                start: Any = model.new_int_var_from_domain(places, "")
                model.add(start >= found[-1][1]).only_enforce_if(there)
                extra.append(problem.cost[k] * there)
            else:
                model.add(there == 1)
                start = model.new_constant(moment(k, k))
            end, length = model.new_int_var(0, horizon, ""), model.new_int_var(1, horizon, "")
            intervals.append(model.new_optional_interval_var(start, length, end, there, ""))
            found.append((start, end, there))
        copies.append(found)
    for k, values in enumerate(problem.reads):
        for start, _, there in copies[k]:
            for i in values:
                model.add_bool_or([*(_within(model, start, each) for each in copies[i]), there.negated()])
    for k, kept in enumerate(problem.kept):
        if kept:
            model.add(copies[k][0][1] == horizon)
    demands = [problem.size[k] for k in range(count) for _ in copies[k]]
    model.add_cumulative(intervals, demands, budget - problem.fixed)
    model.minimize(sum(extra))
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_deterministic_time = work
    status = solver.solve(model)
    solved = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return Answer(solver.objective_value if solved else None, status == cp_model.OPTIMAL)


def _within(model: cp_model.CpModel, start: Any, copy: tuple[Any, Any, Any]) -> cp_model.IntVar:
    """Only true where this copy is held at `start`, and was made before."""
    begin, end, there = copy
    chosen = model.new_bool_var("")
    model.add(begin < start).only_enforce_if(chosen)
    model.add(start < end).only_enforce_if(chosen)
    model.add_implication(chosen, there)
    return chosen


def vgg16_cifar(batch: int = 1) -> tuple[list[tuple[int, ...]], list[int], list[int]]:
    """POET's graph of VGG-16 for CIFAR-10: what each of 81 nodes reads, bytes of float32, and FLOPs.

    POET's energy is proportional to FLOPs, which it counts by the layer: a product twice, an activation once.
    A gradient reads its layer, the layer behind, and the gradient before; it takes twice the layer's FLOPs,
    and the bytes of the layer behind.
    """
    shape: tuple[int, ...] = (batch, 3, 32, 32)
    shapes, flops = [shape], [0]

    def layer(new: tuple[int, ...], cost: int) -> None:
        nonlocal shape
        shape = new
        shapes.append(new)
        flops.append(cost)

    for stage, convolutions in zip((64, 128, 256, 512, 512), (2, 2, 3, 3, 3), strict=True):
        for _ in range(convolutions):
            wide = (batch, stage, *shape[2:])
            layer(wide, 2 * 9 * prod(shape) * stage + prod(wide))
            layer(wide, prod(wide))
        small = (batch, stage, shape[2] // 2, shape[3] // 2)
        layer(small, 2 * 4 * prod(small))
    layer((batch, prod(shape[1:])), prod(shape))
    for features in (4096, 4096, 10):
        layer((batch, features), 2 * (shape[1] + 1) * features + features)
        if features > 10:
            layer(shape, prod(shape))
            layer(shape, prod(shape))
    layer((10,), 10 * prod(shape))
    count = len(shapes)
    reads: list[tuple[int, ...]] = [(t - 1,) if t else () for t in range(count)]
    for back, k in enumerate(range(count - 2, -1, -1)):
        reads.append((k, k + 1, count + back - 1) if back else (k, k + 1))
        shapes.append(shapes[k + 1])
        flops.append(2 * flops[k])
    return reads, [4 * prod(each) for each in shapes], flops
