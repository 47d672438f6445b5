"""Models with state in TFLM's interpreter, with the plan of `arenaplan export --to tflm` and without.

tflite-micro is built daily and has wheels for Linux only, so the interpreter of Python that has it may be
another one (``--micro``). Without it there is a line that says what to install, and no table.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import numpy as np
from rich.console import Console
from rich.table import Table

from solver.exporters.tflm import with_offline_plan
from solver.importers.circle.read import read_subgraphs
from tests.support.micro_models import STATEFUL, batches, branching_model, random_stateful_model

__all__ = ["INSTALL", "run"]

INSTALL: Final = "pip install tflite-micro numpy"
INFERENCES: Final = 6
SEEDS: Final = 20

_SCRIPT: Final = Path(__file__).with_name("micro_process.py")


def run(console: Console, python: str = sys.executable) -> None:
    """Print the table; `python` is an interpreter that can import tflite_micro."""
    title = f"TFLM's interpreter, {INFERENCES} inferences: bytes, and whether outputs are the same"
    columns = ("model", "tensors", "planned", "bound", "left", "head", "head without", "outputs")
    table = Table(*columns, title=title)
    models = {name: make() for name, make in STATEFUL.items()}
    models |= {f"random, seed {seed}": random_stateful_model(seed) for seed in range(SEEDS)}
    models |= {f"branches, seed {seed}": branching_model(seed) for seed in range(3)}
    same = 0
    for name, data in models.items():
        made = with_offline_plan(data)
        runs = [_interpreted(model, python) for model in (made.data, data)]
        if missing := next((str(run["missing"]) for run in runs if "missing" in run), None):
            console.print(f"{python} has no {missing}, so nothing was run in TFLM: {INSTALL}",
                          markup=False, soft_wrap=True)  # fmt: skip
            return
        equal = runs[0]["outputs"] == runs[1]["outputs"]
        same += equal
        table.add_row(name, str(len(made.offsets)), f"{made.size:,}", f"{made.outcome.lower_bound:,}",
                      f"{sum(made.left.values()):,}", *(f"{run['head']:,}" for run in runs),
                      "same" if equal else "DIFFER")  # fmt: skip
    console.print(table)
    console.print(f"{same} of {len(models)} models have the same outputs with the plan and without.")


def _interpreted(data: bytes, python: str) -> dict[str, object]:
    """Digests of the outputs of each inference, and bytes of the interpreter's memory for tensors."""
    with tempfile.TemporaryDirectory() as folder:
        model, inputs = Path(folder, "model.tflite"), Path(folder, "inputs.npz")
        model.write_bytes(data)
        arrays: dict[str, Any] = {}
        for k, batch in enumerate(batches(data, INFERENCES)):
            arrays |= {f"{k}.{j}": array for j, array in enumerate(batch)}
        np.savez(inputs, **arrays)
        command = [python, str(_SCRIPT), str(model), str(inputs), str(len(read_subgraphs(data)[0].outputs))]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"outputs": f"exit {done.returncode}", "head": 0}
    result: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    if head := re.search(r"head (\d+) bytes", done.stdout + done.stderr):
        result["head"] = int(head[1])
    return result
