"""What the steps of a plan take on this machine: time, for plans that decide by it, and bytes of memory."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from statistics import median_low

from solver.errors import PlanError
from solver.executor.arithmetic import rewritten
from solver.executor.batches import synthetic_batch
from solver.executor.memory import in_spaces
from solver.executor.proved import check_plan, entry_programs, inline_data, reference_program
from solver.executor.run import Runner
from solver.executor.runs import feed
from solver.graph import TrainableGraph, graph_digest
from solver.plan import Deployment, Plan, one_plan
from solver.program import Costs
from solver.verify import MemoryAccess

__all__ = ["logged_accesses", "measured_costs"]


def measured_costs(
    graph: TrainableGraph,
    plan: Plan,
    *,
    repeats: int = 5,
    clock: Callable[[], int] = time.perf_counter_ns,
) -> Costs:
    """The median of what each step of `plan` takes in `repeats` iterations, after one that is not counted.

    `plan` is of the graph under the options to plan with later, in one memory and with nothing side by side:
    later plans have the same steps. Batches are synthetic. BLAS may use threads of its own unless
    ``OPENBLAS_NUM_THREADS=1`` was set before NumPy was loaded. Raises PlanError for a plan that is wrong, of
    another graph, or with steps that run again, at the same time, or copy.
    """
    subject = rewritten(graph, plan)
    reference = reference_program(subject, plan)
    program = plan.program
    if any(program.runs) or program.duration != len(program.steps) or len(program.spaces) != 1:
        raise PlanError(
            "Steps are timed one by one, and the plan repeats some, runs some at the same time, or pages.",
            remedy="Plan without recompute, parallelism and tiers to measure.",
        )
    violations = check_plan(reference, plan, graph_digest(graph))
    if violations:
        raise PlanError(f"The plan is wrong: {violations[0].detail}", remedy="Plan again.")
    runner = Runner(program, in_spaces(plan), inline_data(subject))
    times = []
    for k in range(repeats + 1):
        runner.iteration = program.period - 1  # what is due only at times runs in each
        feed(graph, runner, synthetic_batch(graph, 0, k + 1))
        times.append(runner.timed(clock))
    costs = {
        label: max(1, median_low(run[t] for run in times[1:])) for t, label in enumerate(program.step_labels)
    }
    return Costs(
        tuple((label, costs[label]) for label in reference.step_labels),
        f"measured on {platform.machine()}, median of {repeats}",
    )


def logged_accesses(
    graph: TrainableGraph | Mapping[str, TrainableGraph],
    plan: Plan | Deployment,
    *,
    entry_point: str | None = None,
    steps: int = 1,
    seed: int = 0,
) -> Iterator[MemoryAccess]:
    """Run `steps` iterations on synthetic batches; what was touched, step by step, what is read first.

    Of a deployment the program of one entry point runs; `graph` then has the graph of each by name. Ranges
    are those of the arrays that the kernels are given, counted from where each space begins in memory. Raises
    PlanError when graph and plan do not belong together, OptionsError as `one_plan`. Memory: the spaces.
    """
    chosen = one_plan(plan, entry_point)
    entry = next((one for one in entry_programs(graph, plan)[0] if one.plan is chosen), None)
    if entry is None:
        raise PlanError("The entry points do not go together.", remedy="Plan again.")
    graph, subject, plan = entry.graph, entry.subject, entry.plan
    memory, program = in_spaces(plan), plan.program
    addresses = [memory.raw(k).__array_interface__["data"][0] for k in range(len(program.values))]
    bases: dict[int, int] = {}
    for value, address, offset in zip(program.values, addresses, plan.offsets, strict=True):
        bases.setdefault(value.space, address - offset)
    with closing(Runner(program, memory, inline_data(subject), poison=True)) as runner:
        runner.iteration = -steps % program.period
        for iteration in range(steps):
            feed(graph, runner, synthetic_batch(graph, seed, iteration + 1))
            runner.run()
            last = runner.iteration % program.period == 0
            for t, step in enumerate(program.steps):
                bindings = () if step.due and not last else step.bindings
                for writes in (False, True):
                    for binding in bindings:
                        if binding.access.writes if writes else binding.access.reads:
                            value = program.values[binding.value]
                            offset = addresses[binding.value] - bases[value.space]
                            yield MemoryAccess(t, writes, value.space, offset, value.type.nbytes, iteration)
