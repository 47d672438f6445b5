"""Concurrency levels: what a parallelism of 2 costs in bytes and brings in time, on graphs with branches.

Each cell of time is a process of its own, because BLAS reads the number of its threads when it is loaded.
With one BLAS thread the two threads of a level have the processors to themselves; with as many as there are
processors, BLAS's threads and ours compete, and one step at a time uses all processors too.
Two more columns hold on a machine that is busy with other things: the ratio of processor time, which is what
threads and barriers cost; and "at best", what the levels allow if two processors are free and a barrier costs
nothing: the longest step of each level, added up, over all steps (each timed alone, the fastest of several).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from statistics import median

from rich.console import Console
from rich.table import Table

from solver.executor import Trainer, synthetic_batch
from solver.executor.trainer import feed
from solver.graph import TrainableGraph
from solver.pipeline import plan
from solver.plan import PlanOptions, level_report
from tests.benchmarks.measure import blas_threads, in_new_process, paired, timed
from tests.benchmarks.steps import own_memory_runner
from tests.support.branching import heads, inception
from tests.support.graphs import chain

MODELS: dict[str, Callable[[], TrainableGraph]] = {
    "inception, 2 blocks of 4 branches": inception,
    "attention, 4 heads": heads,
    "a chain of 6 layers, no branches": lambda: chain((512,) * 7, batch=256),
}

_CHILD = "import sys; from tests.benchmarks.levels import child; child(sys.argv[1])"


def run(console: Console) -> None:
    """Print both tables."""
    bytes_ = Table("model", "steps", "levels of 2", "arena, parallelism 1", "2", "ratio", "4",
                   title="Bytes: what the steps of a level need is live side by side")  # fmt: skip
    for name, build in MODELS.items():
        bytes_.add_row(name, *_bytes(build()))
    console.print(bytes_)
    cores = os.cpu_count() or 1
    ratios = ("2 / 1", "processor time", "at best")
    times = Table("model", "BLAS threads", "parallelism 1", "2", *ratios,
                  title="One training step, median (low-high), pairs in turn")  # fmt: skip
    for name in MODELS:
        for threads in dict.fromkeys((1, cores)):
            found = in_new_process(_CHILD, name, environment=blas_threads(threads))
            figures = (f"{found[key]:.2f}" for key in ("ratio", "cpu", "best"))
            times.add_row(name, str(threads), found["one"], found["two"], *figures)
    console.print(times)


def _bytes(graph: TrainableGraph) -> list[str]:
    one, two, four = (plan(graph, PlanOptions(parallelism=k)) for k in (1, 2, 4))
    found = level_report(two)
    return [
        str(found.steps), str(found.count), f"{one.arena_bytes:,}", f"{two.arena_bytes:,}",
        f"{two.arena_bytes / one.arena_bytes:.3f}", f"{four.arena_bytes:,}",
    ]  # fmt: skip


def _trainer(graph: TrainableGraph, parallelism: int) -> Trainer:
    return Trainer(graph, plan(graph, PlanOptions(parallelism=parallelism)))


def child(name: str) -> None:
    """Measure in this process, and print one JSON object."""
    graph = MODELS[name]()
    batch = synthetic_batch(graph, 0, 1)
    with _trainer(graph, 1) as first, _trainer(graph, 2) as second:
        steps = (lambda: first.step(batch)), (lambda: second.step(batch))
        one, two, ratio = paired(*steps, 15)
        cpu = median(_processor_seconds(steps[1]) / _processor_seconds(steps[0]) for _ in range(15))
    facts = {"one": str(one), "two": str(two), "ratio": 1 / ratio, "cpu": cpu, "best": _at_best(graph)}
    json.dump(facts, sys.stdout)


def _processor_seconds(step: Callable[[], object]) -> float:
    """Of all threads."""
    started = time.process_time()
    step()
    return time.process_time() - started


def _at_best(graph: TrainableGraph, runs: int = 7) -> float:
    """Share of the sequential time that the longest steps of all levels take."""
    made = plan(graph, PlanOptions(parallelism=2))
    runner = own_memory_runner(graph, made)
    feed(graph, runner, synthetic_batch(graph, 0, 1))
    runner.run()
    rounds = [[timed(step) for step in runner.turns] for _ in range(runs)]
    seconds: list[float] = [min(column) for column in zip(*rounds, strict=True)]
    longest: dict[int, float] = {}
    for level, spent in zip(made.times, seconds, strict=True):
        longest[level] = max(longest.get(level, 0.0), spent)
    return sum(longest.values()) / sum(seconds)
