"""ResNet-50 on ImageNet's shape: planned, and really trained in its arena; and what SINGA would hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from statistics import median

from rich.console import Console
from rich.table import Table

from examples.resnet50 import resnet50
from solver.executor import validate
from solver.graph import TrainableGraph
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from solver.plan.report import report
from tests.benchmarks.measure import Spread, in_new_process, repeated

_MIB = 2**20

_MODES = {"no": PlanOptions(), "yes": PlanOptions(in_place=True)}

#: What SINGA measured for its own plans on a GPU, in MB: without and with its graph, by batch.
_REPORTED = {16: (4961, 3105), 32: (10113, 6517)}


def run(console: Console) -> None:
    """Print all tables. Takes a minute: a step at full size is 200 thousand million multiplications."""
    console.print(_singa())
    graph = resnet50(16).graph
    console.print(_planning(graph))
    console.print(_identical())
    console.print(_training(graph))


def _planning(graph: TrainableGraph, runs: int = 5) -> Table:
    title = "ResNet-50, batch 16, 3 x 224 x 224, SGD with momentum: graph to proven plan, warm (medians)"
    table = Table("in place", "seconds", "of them", "steps", "buffers", "no reuse MiB", "arena B", "bound B",
                  "proof", title=title)  # fmt: skip
    for name, options in _MODES.items():
        made = plan(graph, options)
        stages: dict[str, list[float]] = {}
        spread = repeated(partial(_observed, graph, options, stages), runs)
        arena = made.arenas[0]
        proof = arena.certificate.proof.value if arena.certificate.proof else f"gap {arena.gap:.3%}"
        table.add_row(
            name, str(spread), _stages(stages), f"{len(made.steps):,}", f"{len(arena.buffers):,}",
            f"{report(made).total / _MIB:,.0f}", f"{arena.size:,}", f"{arena.certificate.lower_bound:,}",
            proof,
        )  # fmt: skip
    return table


def _observed(graph: TrainableGraph, options: PlanOptions, stages: dict[str, list[float]]) -> Plan:
    return plan(graph, options, observe=lambda stage, t: stages.setdefault(stage, []).append(t))


def _stages(stages: Mapping[str, list[float]]) -> str:
    return ", ".join(f"{name} {median(times) * 1e3:.0f} ms" for name, times in stages.items())


def _identical() -> Table:
    table = Table("in place", "steps", "bit-identical", "tensors compared", "losses",
                  title="Batch 4, 3 x 32 x 32, against memory of its own for each operand")  # fmt: skip
    graph = resnet50(4, side=32, classes=10).graph
    for name, options in _MODES.items():
        found = validate(graph, plan(graph, options), steps=3)
        losses = ", ".join(f"{step.loss:.4f}" for step in found.steps)
        table.add_row(name, str(len(found.steps)), str(found.identical), f"{found.compared:,}", losses)
    return table


#: In a process of its own: the threads of BLAS wait for each other, and where the cores are shared one
#: thread is an order of magnitude faster than two.
_STEPS = """
import json, os, resource, sys, time
os.environ["OPENBLAS_NUM_THREADS"] = "1"
from examples.resnet50 import resnet50
from solver.executor import Trainer, synthetic_batch
from solver.pipeline import plan
from solver.plan import PlanOptions
graph = resnet50(16).graph
trainer = Trainer(graph, plan(graph, PlanOptions(in_place=sys.argv[1] == "yes")))
losses, seconds, processor = [], [], []
for step in range(3):
    batch = synthetic_batch(graph, 0, step)
    started, used = time.perf_counter(), time.process_time()
    losses.append(trainer.step(batch))
    seconds.append(time.perf_counter() - started)
    processor.append(time.process_time() - used)
rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"losses": losses, "seconds": seconds, "processor": processor, "rss": rss}))
"""


def _training(graph: TrainableGraph) -> Table:
    title = "Batch 16, 3 x 224 x 224: training steps in the arena, one thread of BLAS"
    table = Table("in place", "arena MiB", "peak RSS MiB", "losses", "finite", "a step", "processor time",
                  title=title)  # fmt: skip
    for name, options in _MODES.items():
        found = in_new_process(_STEPS, name)
        table.add_row(
            name,
            f"{plan(graph, options).arena_bytes / _MIB:,.0f}",
            f"{found['rss'] / _MIB:,.0f}",
            ", ".join(f"{loss:.6f}" for loss in found["losses"]),
            str(all(map(math.isfinite, found["losses"]))),
            str(Spread.of(found["seconds"])),
            str(Spread.of(found["processor"])),
        )
    return table


def _singa() -> Table:
    title = "ResNet-50 as Apache SINGA runs it, target singa (MiB; saved: against no reuse)"
    table = Table("batch", "no reuse", "arena", "saved", "at the bound", "arena, in place", "saved",
                  "reported for its own plan, MB", title=title)  # fmt: skip
    for batch, (without, planned) in _REPORTED.items():
        graph = resnet50(batch).graph
        made, shared = (plan(graph, PlanOptions(target="singa", in_place=mode)) for mode in (False, True))
        total = report(made).total
        table.add_row(
            str(batch), f"{total / _MIB:,.0f}",
            f"{made.arena_bytes / _MIB:,.0f}", f"{1 - made.arena_bytes / total:.1%}",
            str(made.gap_bytes == shared.gap_bytes == 0),
            f"{shared.arena_bytes / _MIB:,.0f}", f"{1 - shared.arena_bytes / total:.1%}",
            f"{without:,} -> {planned:,} ({1 - planned / without:.1%})",
        )  # fmt: skip
    return table
