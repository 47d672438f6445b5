"""One training step as the benchmarks run it: in its arena, in memory of its own, and what it allocates."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from dataclasses import replace

from solver.executor import Trainer, synthetic_batch
from solver.executor.memory import BASE_ALIGNMENT, on_their_own
from solver.executor.proved import inline_data
from solver.executor.run import Runner
from solver.executor.runs import feed
from solver.graph import TrainableGraph
from solver.plan import Plan

__all__ = ["arena_step", "fresh_bytes", "own_memory_step"]


def arena_step(graph: TrainableGraph, made: Plan) -> Callable[[], float]:
    """A training step in the arena of a plan."""
    trainer, batch = Trainer(graph, made), synthetic_batch(graph, 0, 1)
    return lambda: trainer.step(batch)


def own_memory_step(graph: TrainableGraph, made: Plan) -> Callable[[], float]:
    """The same kernels in the same order, one after the other, where no two tensors share memory.

    For plans with nothing in place: a step that became a view does nothing, and needs the shared bytes.
    """
    steps = (replace(step, level=t, until=t) for t, step in enumerate(made.program.steps))
    memory = on_their_own(made.program, [offset % BASE_ALIGNMENT for offset in made.offsets])
    runner = Runner(replace(made.program, steps=tuple(steps)), memory, inline_data(graph))
    batch = synthetic_batch(graph, 0, 1)
    loss = graph.loss
    assert loss is not None

    def step() -> float:
        feed(graph, runner, batch)
        runner.run()
        return float(runner.value(loss))

    return step


def fresh_bytes(step: Callable[[], object]) -> int:
    """The most bytes that Python and NumPy had allocated anew at any moment of a step."""
    tracemalloc.start()
    try:
        step()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
