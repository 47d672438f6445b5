"""The bytes that our own steps touch, as a log that `solver.verify.check_accesses` reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing

from solver.errors import PlanError
from solver.executor.batches import synthetic_batch
from solver.executor.memory import in_spaces
from solver.executor.proved import entry_programs, inline_data
from solver.executor.run import Runner
from solver.executor.runs import feed
from solver.graph import TrainableGraph
from solver.plan import Deployment, Plan, one_plan
from solver.verify import MemoryAccess

__all__ = ["logged_accesses"]


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
    heard: list[int] = []
    with closing(Runner(program, memory, inline_data(subject), poison=True, on_step=heard.append)) as runner:
        runner.iteration = -steps % program.period
        for iteration in range(steps):
            feed(graph, runner, synthetic_batch(graph, seed, iteration + 1))
            runner.run()
            last = runner.iteration % program.period == 0
            for t in heard:
                bindings = () if program.steps[t].due and not last else program.steps[t].bindings
                for writes in (False, True):
                    for binding in bindings:
                        if binding.access.writes if writes else binding.access.reads:
                            value = program.values[binding.value]
                            offset = addresses[binding.value] - bases[value.space]
                            yield MemoryAccess(t, writes, value.space, offset, value.type.nbytes, iteration)
            heard.clear()
