"""The memory of training, measured: the same step here, in onert and in PyTorch, as processes of their own.

Peak resident memory above the process that has imported its runtime, and seconds a step, on one core with one
thread. onert reads its own model files, where they stand beside the check-out; PyTorch runs the graph in
eager mode. Each may live in an interpreter of its own (``--python``, ``--torch``).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from solver.documents import load_graph
from solver.pipeline import plan
from tests.benchmarks.measure import ROOT, blas_threads
from tests.support.buffers import DATA

__all__ = ["run"]

MODELS: Final = ("mnist", "mobilenet_v2")
STEPS: Final = 5

_SCRIPT: Final = Path(__file__).with_name("memory_process.py")
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", **blas_threads(1)}


def run(console: Console, python: str = sys.executable, torch: str = sys.executable) -> None:
    """Print the table. `python` is an interpreter that can import onert, `torch` one with PyTorch."""
    columns = ("model", "runtime", "peak resident, above the start", "planned arena", "a step", "first loss")
    table = Table(*columns, title=f"Training with Adam, {STEPS} steps, one core, one thread")
    missing = {}
    for name in MODELS:
        path = ROOT / "examples" / f"{name}.json"
        arena = sum(plan(load_graph(path.read_bytes())).sizes)
        for runtime, interpreter in (("arenaplan", sys.executable), ("onert", python), ("pytorch", torch)):
            model = DATA / f"{name}.circle"
            if runtime == "onert" and not model.exists():
                missing[f"{model.name} beside this check-out"] = runtime
                continue
            found = _measured(interpreter, runtime, path, model)
            if "missing" in found:
                missing[str(found["missing"])] = runtime
                continue
            table.add_row(
                name, runtime, f"{found['resident'] / 1e6:,.0f} MB",
                f"{arena / 1e6:,.1f} MB" if runtime == "arenaplan" else "",
                f"{median(found['seconds']):.3f} s", f"{found['losses'][0]:.6f}",
            )  # fmt: skip
    console.print(table)
    for what, runtime in missing.items():
        console.print(f"Without {runtime}: there is no {what}.", markup=False, soft_wrap=True)


def _measured(interpreter: str, runtime: str, path: Path, model: Path) -> dict[str, Any]:
    command = [interpreter, str(_SCRIPT), runtime, str(path), str(STEPS), str(model)]
    environment = {**os.environ, **_ONE_THREAD, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, stdout=subprocess.PIPE, check=True, cwd=ROOT, encoding="utf-8", env=environment
    )
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
