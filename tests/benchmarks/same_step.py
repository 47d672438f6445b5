"""The memory of one training step, planned here, by ExecuTorch and by XLA, side by side.

Each step is forward, backward and SGD with momentum. Ours is the ONNX export of the PyTorch module that
ExecuTorch is given (`step_networks`); XLA compiles the same network in JAX (`step_xla`), and its bytes are
arguments and temporaries. Ours count everything: weights, momentum, inputs, scratch of kernels.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from solver.graph import OptimizerSpec, TrainableGraph
from solver.importers.onnx import load_onnx
from solver.importers.options import ImportOptions
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.benchmarks.measure import ROOT

__all__ = ["NETWORKS", "ours", "run"]

FOLDER: Final = ROOT / "out" / "steps"
NETWORKS: Final = ("mlp_b32", "lenet_b32", "tf2_d128_b4", "resnet18_224_b8", "mbv2_96_b8")
#: Everything that makes the arena smaller and takes no more time in training, less scratch apart.
_SMALL: Final = PlanOptions(in_place=True, sub_ranges=True, order=True, rewrite=True, fit_scratch=True)
_SMALL_WORDS: Final = "--in-place --sub-ranges --order --rewrite --fit-scratch"


def ours(path: Path) -> TrainableGraph:
    """The graph of an export, with the optimizer that all three have."""
    options = ImportOptions(
        loss="cross-entropy",
        optimizer=OptimizerSpec("SGD", {"learning_rate": 0.01, "momentum": 0.9}),
        batch_norm="train",
        weights=False,
    )
    return load_onnx(memoryview(path.read_bytes()), options=options, path=path, name=path.stem).graph


def run(console: Console, torch: str = sys.executable, jax: str = sys.executable) -> None:
    """Print the table; `torch` is an interpreter with PyTorch (and ExecuTorch), `jax` one with JAX."""
    greedy, missing = _asked(torch, "tests.benchmarks.step_networks", str(FOLDER))
    xla, without = _asked(jax, "tests.benchmarks.step_xla")
    columns = ("step", "arenaplan", "with all options", "bound", "XLA", "ExecuTorch, greedy")
    table = Table(*columns, title="bytes of one training step, SGD with momentum")
    worse = []
    for name in NETWORKS:
        path = FOLDER / f"{name}.onnx"
        if not path.exists():
            continue
        graph = ours(path)
        small = plan(graph, _SMALL)
        peers = [found.get(name, "") for found in (xla, greedy)]
        worse += [name for peer in peers if isinstance(peer, int) and peer < small.arena_bytes]
        table.add_row(
            name, f"{plan(graph).arena_bytes:,}", f"{small.arena_bytes:,}", f"{small.lower_bound:,}",
            *(f"{peer:,}" if isinstance(peer, int) else str(peer) for peer in peers),
        )  # fmt: skip
    console.print(table)
    console.print(
        f"All options: {_SMALL_WORDS}. Above a peer: {', '.join(worse) or 'none'}.", highlight=False
    )
    for what, reason in (("PyTorch", missing), ("JAX", without)):
        if reason:
            console.print(f"Without {what}: {reason}.", markup=False, soft_wrap=True)


def _asked(python: str, *module: str) -> tuple[dict[str, Any], str]:
    """What a script of an interpreter prints last, or why it does not."""
    done = subprocess.run(
        [python, "-m", *module], cwd=ROOT, capture_output=True, text=True, check=False, encoding="utf-8"
    )
    if done.returncode:
        return {}, (done.stderr.strip().splitlines() or ["it ended"])[-1]
    return json.loads(done.stdout.splitlines()[-1]), ""
