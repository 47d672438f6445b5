"""The examples of the gallery: what they take, what sharing memory costs, and that they learn."""

from __future__ import annotations

import gc
from collections.abc import Callable
from statistics import fmean

from rich.console import Console
from rich.table import Table

from arenaplan.builder import Model
from examples.gallery import GALLERY, WINDOW, Example
from solver.executor import synthetic_batch
from solver.plan import Plan, PlanOptions
from tests.benchmarks.eager import eager_step
from tests.benchmarks.measure import paired, repeated, timed
from tests.benchmarks.steps import arena_step, fresh_bytes, own_memory_step

#: Seconds of steps to compare for each example, within limits: short steps need many pairs.
SECONDS, FEWEST, MOST = 4.0, 11, 401

#: Steps whose losses are shown beside PyTorch's.
FIRST = 3


def run(console: Console) -> None:
    """Print the tables."""
    plans, steps = _bytes_table(), _steps_table()
    for example in GALLERY.values():
        model = example.model()
        made = model.plan(PlanOptions())
        plans.add_row(example.name, *_bytes(model, made))
        steps.add_row(example.name, str(example.batch), *_step(example, model, made))
        del model, made
        gc.collect()
    console.print(plans)
    console.print(steps)
    console.print(_beside_pytorch())


def _bytes_table() -> Table:
    headings = ("example", "parameters", "steps", "buffers", "no reuse B", "arena B", "bound B", "proof")
    return Table(*headings, "planning, warm", title="Examples: one arena each")


def _steps_table() -> Table:
    headings = (
        "example",
        "batch",
        "step in the arena",
        "same kernels, own memory",
        "ratio",
        "fresh KiB a step",
    )
    return Table(*headings, f"loss, first and last {WINDOW} steps", title="Examples: one training step")


def _bytes(model: Model, made: Plan) -> list[str]:
    arena = made.arenas[0]
    proof = arena.certificate.proof.value if arena.certificate.proof else f"gap {arena.gap:.3%}"
    apart = sum(buffer.size for buffer in arena.buffers)
    counts = (model.parameters, len(made.steps), len(arena.buffers), apart, arena.size)
    return [f"{n:,}" for n in (*counts, arena.certificate.lower_bound)] + [
        proof,
        str(repeated(model.plan, 5)),
    ]


def _step(example: Example, model: Model, made: Plan) -> list[str]:
    inside, outside = arena_step(model.graph, made), own_memory_step(model.graph, made)
    own, other, ratio = paired(inside, outside, _pairs(inside))
    fresh = fresh_bytes(inside)
    losses = list(example.train(example.prepare(model)))
    learned = "" if example.learned(losses) else " NOT LEARNT"
    ends = f"{fmean(losses[:WINDOW]):.3f} {fmean(losses[-WINDOW:]):.3f} of {len(losses)}{learned}"
    return [str(own), str(other), f"{ratio:.3f}", f"{fresh / 1024:.1f}", ends]


def _pairs(step: Callable[[], object]) -> int:
    step()
    return max(FEWEST, min(MOST, int(SECONDS / timed(step))))


def _beside_pytorch() -> Table:
    """Steps of both, and the first losses as each of them has them."""
    headings = ("example", "step in the arena", "PyTorch eager", "ratio", "first losses here", "in PyTorch")
    table = Table(*headings, title="Examples beside PyTorch")
    for example in GALLERY.values():
        graph = example.model().graph
        eager = eager_step(graph, synthetic_batch(graph, 0, 1))
        if eager is None:
            return Table("PyTorch is not installed", title="Examples beside PyTorch")
        inside = arena_step(graph, example.model().plan(PlanOptions()))
        ours, theirs = ([f"{step():.6g}" for _ in range(FIRST)] for step in (inside, eager))
        own, other, ratio = paired(inside, eager, _pairs(inside))
        table.add_row(example.name, str(own), str(other), f"{ratio:.2f}", " ".join(ours), " ".join(theirs))
    return table
