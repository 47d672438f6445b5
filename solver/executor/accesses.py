"""The bytes that our own steps touch, as a log that `solver.verify.check_accesses` reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from solver.executor.arithmetic import rewritten
from solver.executor.batches import synthetic_batch
from solver.executor.memory import in_spaces
from solver.executor.proved import check_plan, inline_data, reference_program
from solver.executor.run import Runner
from solver.executor.runs import feed
from solver.graph import TrainableGraph, graph_digest
from solver.plan import Plan
from solver.verify import MemoryAccess

__all__ = ["logged_accesses"]


def logged_accesses(
    graph: TrainableGraph, plan: Plan, *, steps: int = 1, seed: int = 0
) -> Iterator[MemoryAccess]:
    """Train for `steps` steps on synthetic batches; what was touched, step by step, what is read first.

    Ranges are those of the arrays that the kernels are given, counted from where each space begins in
    memory. Raises PlanError when graph and plan do not belong together. Memory: the spaces.
    """
    subject = rewritten(graph, plan)
    check_plan(reference_program(subject, plan), plan, graph_digest(graph))
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
