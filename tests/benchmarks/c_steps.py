"""Training in C beside NumPy's executor: CPU time of one step on one thread, in turn in one process.

Each network is trained by its plan for the target `c`, compiled for this processor, for any of its kind,
and without vector extensions; and by its usual plan in NumPy. Figures are medians; ratios are those of
neighbours.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import which
from statistics import median
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from examples.gallery import GALLERY
from examples.models import mnist, mobilenet_v2
from solver.c_training import c_training_files
from solver.documents import load_graph
from solver.executor import Trainer, first_contents, inline_data, synthetic_batch
from solver.graph import TrainableGraph
from solver.pipeline import plan_requested
from solver.plan import PlanOptions, RequestedOptions
from tests.benchmarks.measure import blas_threads, in_new_process

__all__ = ["measured", "run"]

NETWORKS: Final[Mapping[str, Callable[[], TrainableGraph]]] = {
    "mnist b32": lambda: load_graph(mnist()),
    "lenet5 b32": lambda: GALLERY["lenet5"].model().graph,
    "transformer b16": lambda: GALLERY["transformer"].model().graph,
    "mobilenet_v2 b10": lambda: load_graph(mobilenet_v2()),
}

#: What the same files are compiled with.
FLAGS: Final = {
    "C, -march=native": ("-O2", "-march=native"),
    "C, any processor": ("-O2",),
    "C, -DAP_PLAIN": ("-O2", "-march=native", "-DAP_PLAIN"),
}

#: CPU seconds that all steps of one network may take, about.
PATIENCE: Final = 40.0
MOST: Final = 15

_STRICT: Final = ("-std=c11", "-ffp-contract=off", "-fno-math-errno", "-shared", "-fPIC")
_CODE: Final = """import json, sys
from tests.benchmarks.c_steps import measured
print(json.dumps(measured(sys.argv[1])))"""


def run(console: Console, part: str | None = None) -> None:
    """Print the table; `part`: only networks with this in their names."""
    if which("gcc") is None:
        console.print("There is no gcc, so nothing was trained in C: apt-get install gcc libc6-dev")
        return
    title = "one training step, CPU milliseconds on one thread, and the median ratio to NumPy's executor"
    table = Table("network", "steps", "NumPy", *FLAGS, "arena, C", "arena, NumPy", title=title)
    for name in NETWORKS:
        if part is not None and part not in name:
            continue
        found = in_new_process(_CODE, name, environment=blas_threads(1))
        cells = [f"{found['times'][flags]:,.1f} ({found['ratios'][flags]:.2f} ×)" for flags in FLAGS]
        arenas = [f"{nbytes:,}" for nbytes in found["arenas"]]
        table.add_row(name, str(found["steps"]), f"{found['times']['NumPy']:,.1f}", *cells, *arenas)
    console.print(table)


def measured(name: str) -> dict[str, Any]:
    """Medians of one network, and of its ratios to NumPy's executor."""
    graph = NETWORKS[name]()
    plan, usual = (
        plan_requested(graph, RequestedOptions(PlanOptions(target=target))) for target in ("c", "reference")
    )
    batch = synthetic_batch(graph, 0, 0)
    first = first_contents(plan.program, inline_data(graph))
    with tempfile.TemporaryDirectory() as folder, Trainer(graph, usual) as trainer:
        files = c_training_files(plan, first, embeds=False)
        for path, data in files.items():
            Path(folder, path).parent.mkdir(exist_ok=True)
            Path(folder, path).write_bytes(data)
        state, fed = files["net_weights.bin"], _fed(graph, batch)
        actions: dict[str, Callable[[], object]] = {"NumPy": lambda: trainer.step(batch)}
        for title, flags in FLAGS.items():
            actions[title] = _compiled(Path(folder), flags, state, fed)
        slowest = max(_seconds(action) for action in actions.values())
        steps = max(3, min(MOST, int(PATIENCE / (len(actions) * slowest))))
        rounds = [_round(actions, reverse=bool(k % 2)) for k in range(steps)]
    return {
        "steps": steps,
        "arenas": [plan.arena_bytes, usual.arena_bytes],
        "times": {title: 1e3 * median(row[title] for row in rounds) for title in actions},
        "ratios": {title: median(row[title] / row["NumPy"] for row in rounds) for title in FLAGS},
    }


def _round(actions: Mapping[str, Callable[[], object]], *, reverse: bool) -> dict[str, float]:
    titles = list(actions)[::-1] if reverse else list(actions)
    return {title: _seconds(actions[title]) for title in titles}


def _seconds(action: Callable[[], object]) -> float:
    started = time.process_time()
    action()
    return time.process_time() - started


def _fed(graph: TrainableGraph, batch: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays by the names of the functions that take them."""
    return {
        f"net_feed_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}": np.ascontiguousarray(
            np.asarray(values).astype(graph.operands[name].dtype.numpy)
        )
        for name, values in batch.items()
    }


def _compiled(
    folder: Path, flags: tuple[str, ...], state: bytes, fed: Mapping[str, Any]
) -> Callable[[], object]:
    """A training step by a folder's files: feeding is part of it."""
    library = folder / f"net{len(list(folder.glob('*.so')))}.so"
    sources = [folder / "net.c", *sorted(folder.glob("kernels/*.c"))]
    subprocess.run(["gcc", *_STRICT, *flags, f"-I{folder}", *sources, "-o", library], check=True)
    net = ctypes.CDLL(str(library))
    net.net_step.restype = ctypes.c_float
    assert net.net_load(state, ctypes.c_size_t(len(state))) == 0

    def step() -> float:
        for function, array in fed.items():
            getattr(net, function)(array.ctypes.data_as(ctypes.c_void_p))
        return float(net.net_step())

    return step
