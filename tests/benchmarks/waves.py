"""Waves: what two workers cost in bytes and bring in time, on graphs with branches.

Each cell of time is a process of its own, because BLAS reads the number of its threads when it is loaded.
With one BLAS thread the workers have the processors to themselves; with as many as there are
processors, BLAS's threads and the workers are in each other's way, and one worker alone uses them all.
Two more columns hold on a machine that is busy with other things: the ratio of processor time, which is what
threads and barriers cost; and "at best", what the waves allow if two processors are free and a barrier costs
nothing: the longest step of each wave, added up, over all steps (each timed alone, the fastest of several).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from rich.console import Console
from rich.table import Table

from solver.executor import Trainer, synthetic_batch
from solver.executor.memory import on_their_own
from solver.executor.run import Runner
from solver.executor.trainer import feed, program_of
from solver.graph import TrainableGraph
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.plan.waves import wave_report
from tests.benchmarks.measure import in_new_process, paired, timed
from tests.support.branching import heads, inception
from tests.support.graphs import chain

MODELS: dict[str, Callable[[], TrainableGraph]] = {
    "inception, 2 blocks of 4 branches": inception,
    "attention, 4 heads": heads,
    "a chain of 6 layers, no branches": lambda: chain((512,) * 7, batch=256),
}

_CHILD = "import sys; from tests.benchmarks.waves import child; child(sys.argv[1])"

#: What the BLAS builds that NumPy comes with listen to.
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def run(console: Console) -> None:
    """Print both tables."""
    bytes_ = Table("model", "steps", "waves of 2", "arena, 1 worker", "2 workers", "ratio", "4 workers",
                   title="Bytes: steps of one wave live side by side")  # fmt: skip
    for name, build in MODELS.items():
        bytes_.add_row(name, *_bytes(build()))
    console.print(bytes_)
    cores = os.cpu_count() or 1
    ratios = ("2 workers / 1", "processor time", "at best")
    times = Table("model", "BLAS threads", "1 worker", "2 workers", *ratios,
                  title="One training step, median (low-high), pairs in turn")  # fmt: skip
    for name in MODELS:
        for threads in dict.fromkeys((1, cores)):
            found = in_new_process(_CHILD, name, environment=dict.fromkeys(_THREADS, str(threads)))
            figures = (f"{found[key]:.2f}" for key in ("ratio", "cpu", "best"))
            times.add_row(name, str(threads), found["one"], found["two"], *figures)
    console.print(times)


def _bytes(graph: TrainableGraph) -> list[str]:
    one, two, four = (plan(graph, PlanOptions(parallelism=k)) for k in (1, 2, 4))
    found = wave_report(two)
    return [
        str(found.steps), str(found.count), f"{one.arena_bytes:,}", f"{two.arena_bytes:,}",
        f"{two.arena_bytes / one.arena_bytes:.3f}", f"{four.arena_bytes:,}",
    ]  # fmt: skip


def _trainer(graph: TrainableGraph, workers: int) -> Trainer:
    return Trainer(graph, plan(graph, PlanOptions(parallelism=workers)))


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
    """Share of the sequential time that the longest steps of all waves take."""
    made = plan(graph, PlanOptions(parallelism=2))
    program = program_of(graph, made)
    memory = on_their_own(buffer for _, buffer in made.buffers())
    budget = made.options.scratch_budget
    runner = Runner(graph, replace(program, waves=()), memory, scratch_budget=budget)
    feed(runner, synthetic_batch(graph, 0, 1))
    runner.run()
    rounds = [[timed(step) for step in runner._turns] for _ in range(runs)]
    seconds: list[float] = [min(column) for column in zip(*rounds, strict=True)]
    longest: dict[int, float] = {}
    for wave, spent in zip(program.waves, seconds, strict=True):
        longest[wave] = max(longest.get(wave, 0.0), spent)
    spans: float = sum(longest.values())
    return spans / sum(seconds)
