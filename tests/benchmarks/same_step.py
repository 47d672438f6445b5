"""The memory of one training step, planned here, by ExecuTorch and by XLA, side by side.

Each step is forward, backward and SGD with momentum. Ours is the ONNX export of the PyTorch module that
ExecuTorch is given (`step_networks`); XLA compiles the same network in JAX (`step_xla`), and its bytes are
arguments and temporaries. Ours count everything: weights, momentum, inputs, scratch of kernels. ExecuTorch's
kernels allocate scratch besides, so ours stand there without it as well: the most bytes of tensors that live
at a step.
"""

from __future__ import annotations

import sys
from collections import Counter
from itertools import accumulate
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from solver.graph import OptimizerSpec, TrainableGraph
from solver.importers.onnx import load_onnx
from solver.importers.options import ImportOptions
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from solver.program import Kind
from tests.benchmarks.measure import ROOT, asked

__all__ = ["NETWORKS", "ours", "run", "tensors_alone"]

FOLDER: Final = ROOT / "out" / "steps"
NETWORKS: Final = ("mlp_b32", "lenet_b32", "tf2_d128_b4", "resnet18_224_b8", "mbv2_96_b8")
#: Everything that makes the arena smaller and takes no more time in training, less scratch apart.
_SMALL: Final = PlanOptions(in_place=True, sub_ranges=True, order=True, rewrite=True, fit_scratch=True)
_SMALL_WORDS: Final = "--only in-place,sub-ranges,order,fit-scratch --rewrite"


def ours(path: Path) -> TrainableGraph:
    """The graph of an export, with the optimizer that all three have."""
    options = ImportOptions(
        loss="cross-entropy",
        optimizer=OptimizerSpec("SGD", {"learning_rate": 0.01, "momentum": 0.9}),
        batch_norm="train",
        weights=False,
    )
    return load_onnx(memoryview(path.read_bytes()), options=options, path=path, name=path.stem).graph


def tensors_alone(made: Plan) -> int:
    """The most bytes of buffers other than scratch that live at a step."""
    buffers = [buffer for _, buffer in made.buffers() if buffer.kind is not Kind.SCRATCH]
    changes: Counter[int] = Counter()
    for buffer in buffers:
        for span in buffer.spans:
            changes[span.start] += buffer.size
            changes[span.end] -= buffer.size
    return max(accumulate(changes[step] for step in sorted(changes)), default=0)


def run(console: Console, torch: str = sys.executable, jax: str = sys.executable) -> None:
    """Print the table; `torch` is an interpreter with PyTorch (and ExecuTorch), `jax` one with JAX."""
    greedy, missing = asked(torch, "tests.benchmarks.step_networks", str(FOLDER))
    xla, without = asked(jax, "tests.benchmarks.step_xla")
    columns = (
        *(
            "step",
            "arenaplan",
            "tensors alone",
            "--only fit-scratch",
            "all options",
            "tensors alone",
            "bound",
        ),
        *("XLA", "ExecuTorch, greedy"),
    )
    table = Table(*columns, title="bytes of one training step, SGD with momentum")
    above: dict[str, list[str]] = {
        "by default": [],
        "tensors alone": [],
        "fitted": [],
        "with all options": [],
    }
    for name in NETWORKS:
        path = FOLDER / f"{name}.onnx"
        if not path.exists():
            continue
        graph = ours(path)
        plain, small = plan(graph), plan(graph, _SMALL)
        fitted = plan(graph, PlanOptions(fit_scratch=True)).arena_bytes
        peers = [found.get(name, "") for found in (xla, greedy)]
        least = min((peer for peer in peers if isinstance(peer, int)), default=small.arena_bytes)
        sizes = (plain.arena_bytes, tensors_alone(plain), fitted, small.arena_bytes)
        for size, names in zip(sizes, above.values(), strict=True):
            names += [name] if size > least else []
        row = (*sizes, tensors_alone(small), small.lower_bound, *peers)
        table.add_row(name, *(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    console.print(table)
    console.print(f"All options: {_SMALL_WORDS}.", highlight=False)
    for what, names in above.items():
        console.print(f"Above a peer {what}: {', '.join(names) or 'none'}.", highlight=False)
    for what, reason in (("PyTorch", missing), ("JAX", without)):
        if reason:
            console.print(f"Without {what}: {reason}.", markup=False, soft_wrap=True)
