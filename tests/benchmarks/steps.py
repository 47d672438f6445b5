"""One training step as the benchmarks run it: in its arena, in memory of its own, and what it allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

from solver.executor import Trainer, synthetic_batch
from solver.executor.memory import on_their_own
from solver.executor.run import Runner
from solver.executor.trainer import feed, program_of
from solver.graph import TrainableGraph
from solver.plan import Plan

__all__ = ["arena_step", "fresh_bytes", "own_memory_step"]


def arena_step(graph: TrainableGraph, made: Plan) -> Callable[[], float]:
    """A training step in the arena of a plan."""
    trainer, batch = Trainer(graph, made), synthetic_batch(graph, 0, 1)
    return lambda: trainer.step(batch)


def own_memory_step(graph: TrainableGraph, made: Plan) -> Callable[[], float]:
    """The same kernels in the same order on the same batch, where no two tensors share memory."""
    memory = on_their_own(buffer for _, buffer in made.buffers())
    runner = Runner(graph, program_of(graph, made), memory, scratch_budget=made.options.scratch_budget)
    batch = synthetic_batch(graph, 0, 1)

    def step() -> float:
        feed(runner, batch)
        runner.run()
        return float(runner.value(graph.loss))

    return step


def fresh_bytes(step: Callable[[], object]) -> int:
    """The most bytes that Python and NumPy had allocated anew at any moment of a step."""
    tracemalloc.start()
    try:
        step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
