"""The main job: from a graph document to a proven plan, and a training step in its arena."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median

from rich.console import Console
from rich.table import Table

from solver.documents import load_graph
from solver.executor import synthetic_batch
from solver.graph import TrainableGraph
from solver.pipeline import plan
from solver.plan import Plan
from tests.benchmarks.eager import eager_step
from tests.benchmarks.measure import ROOT, in_new_process, paired, repeated
from tests.benchmarks.steps import arena_step, fresh_bytes, own_memory_step

#: Document, seed's seven pools with the planned extras, what the released runtime holds (FIELD figures
#: of onert 0.1.0, reproduced by the golden tests), and the bytes this project promises to stay under.
MODELS = {
    "mnist": (ROOT / "examples/mnist.json", 31_814_976, 48_375_616, 26_000_000),
    "mobilenet v2": (ROOT / "examples/mobilenet_v2.json", 604_942_864, 953_516_912, 410_000_000),
}

#: The peak is that of the process image: `getrusage` hands on what the parent had before it.
_COLD = """
import json, sys, time
started = time.perf_counter()
from solver.documents import load_graph
from solver.pipeline import plan
imported = time.perf_counter()
made = plan(load_graph(open(sys.argv[1], "rb").read()))
done = time.perf_counter()
rss = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps({"imports": imported - started, "plan": done - imported, "rss": rss}))
"""


def run(console: Console) -> None:
    """Print both tables."""
    graphs = {name: load_graph(row[0].read_bytes()) for name, row in MODELS.items()}
    plans = {name: plan(graph) for name, graph in graphs.items()}
    console.print(_arenas(plans))
    console.print(_planning(graphs))
    console.print(_steps(graphs, plans))


def _arenas(plans: dict[str, Plan]) -> Table:
    headings = ("model", "arena B", "max-load bound B", "proof", "buffers", "promised B")
    others = ("onert, 7 pools + extras B", "onert 0.1.0 holds B")
    table = Table(*headings, *others, title="One joint arena, weights, Adam state and scratch included")
    for name, made in plans.items():
        arena, (_, seven, holds, limit) = made.arenas[0], MODELS[name]
        proof = arena.certificate.proof.value if arena.certificate.proof else f"gap {arena.gap:.3%}"
        table.add_row(
            name, f"{arena.size:,}", f"{arena.certificate.lower_bound:,}", proof, str(len(arena.buffers)),
            f"{limit:,}", f"{seven:,} ({seven / arena.size:.2f}x)", f"{holds:,} ({holds / arena.size:.2f}x)",
        )  # fmt: skip
    return table


def _planning(graphs: dict[str, TrainableGraph]) -> Table:
    stages = ("parse", "prepare", "derive", "passes", "layout", "prove", "digest")
    table = Table("model", "cold process", "of it imports", "peak RSS MiB", "warm", *stages,
                  title="Graph document to proven plan (median, low-high)")  # fmt: skip
    for name, graph in graphs.items():
        path = MODELS[name][0]
        cold = [in_new_process(_COLD, str(path)) for _ in range(5)]
        warm = repeated(partial(_from_document, path), 9)
        table.add_row(
            name,
            f"{median(c['process_seconds'] for c in cold):.2f} s",
            f"{median(c['imports'] for c in cold):.2f} s",
            f"{max(c['rss'] for c in cold) / 2**20:.0f}",
            str(warm),
            *_stage_times(path, graph),
        )
    return table


def _from_document(path: Path) -> Plan:
    return plan(load_graph(path.read_bytes()))


def _stage_times(path: Path, graph: TrainableGraph, runs: int = 9) -> list[str]:
    seen: dict[str, list[float]] = {}
    for _ in range(runs):
        plan(graph, observe=lambda stage, seconds: seen.setdefault(stage, []).append(seconds))
    parse = repeated(lambda: load_graph(path.read_bytes()), runs)
    return [str(round(parse.middle * 1e3, 1)), *(f"{median(times) * 1e3:.1f}" for times in seen.values())]


def _steps(graphs: dict[str, TrainableGraph], plans: dict[str, Plan]) -> Table:
    table = Table("model", "step in the arena", "same kernels, own memory", "ratio", "fresh KiB a step",
                  "PyTorch eager", "ratio", title="One training step")  # fmt: skip
    for name, graph in graphs.items():
        table.add_row(name, *_step_row(graph, plans[name], runs=21 if name == "mnist" else 7))
    return table


def _step_row(graph: TrainableGraph, made: Plan, runs: int) -> list[str]:
    batch = synthetic_batch(graph, 0, 1)
    inside, outside = arena_step(graph, made), own_memory_step(graph, made)
    a, b, ratio = paired(inside, outside, runs)
    fresh = fresh_bytes(inside)
    eager = eager_step(graph, batch)
    against = ["not installed", "-"]
    if eager is not None:
        _, e, against_ratio = paired(inside, eager, max(3, runs // 3))
        against = [str(e), f"{against_ratio:.2f}"]
    return [str(a), str(b), f"{ratio:.3f}", f"{fresh / 1024:.1f}", *against]
