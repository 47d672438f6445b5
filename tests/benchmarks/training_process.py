"""Trains one graph in one runtime, step by step: a process for ``./run bench c`` and ``./run bench memory``.

    python training_process.py RUNTIME FOLDER

RUNTIME is ``arenaplan``, ``onert`` or ``pytorch``; FOLDER has ``graph.json``, ``batch.npz`` (each input and
label by its name) and, for onert, ``model.circle``. The first line that is printed is ``{"runs": ...}``, or
``{"missing": ...}`` with the name of the package that cannot be imported. Then each line of standard input
is answered by one step on the batch: a JSON object of the ``loss``, the ``cpu`` and ``wall`` seconds, the
``peak`` of resident bytes, and those ``above`` the process that had imported everything and trained
nothing.

onert and PyTorch may live in another interpreter, without this project installed in it.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Batch = dict[str, Any]
Step = Callable[[], float]


def _status(key: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def _arenaplan(folder: Path) -> tuple[str, Callable[[Batch], Step]]:
    from solver.documents import load_graph
    from solver.executor import Trainer
    from solver.pipeline import plan

    def start(batch: Batch) -> Step:
        graph = load_graph((folder / "graph.json").read_bytes())
        trainer = Trainer(graph, plan(graph))
        return lambda: trainer.step(batch)

    return f"NumPy {np.__version__} with OpenBLAS for {_blas_kernel()}", start


def _blas_kernel() -> str:
    """The processor whose kernels the OpenBLAS of NumPy's wheel runs."""
    for path in Path(np.__file__).parents[1].glob("numpy.libs/*openblas*"):
        name = getattr(ctypes.CDLL(str(path)), "scipy_openblas_get_corename64_", None)
        if name is not None:
            name.restype = ctypes.c_char_p
            return str(name().decode())
    return "an unknown processor"


def _pytorch(folder: Path) -> tuple[str, Callable[[Batch], Step]]:
    import torch

    from solver.documents import load_graph
    from tests.benchmarks.eager import eager_step

    torch.set_num_threads(1)

    def start(batch: Batch) -> Step:
        step = eager_step(load_graph((folder / "graph.json").read_bytes()), batch)
        assert step is not None
        return step

    return f"PyTorch {torch.__version__}, eager", start


def _onert(folder: Path) -> tuple[str, Callable[[Batch], Step]]:
    from importlib.metadata import version

    from onert.experimental import train

    def start(batch: Batch) -> Step:
        session = train.session(str(folder / "model.circle"))
        image, label = batch["image"], batch["label"]
        session.compile(
            train.optimizer.Adam(learning_rate=1e-3),
            train.losses.CategoricalCrossentropy("mean"),
            batch_size=len(image),
        )
        return lambda: float(session.train_step([image], [label])["loss"][0])

    return f"onert {version('onert')}", start


def main() -> None:
    runtime, folder = sys.argv[1], Path(sys.argv[2])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-1:])
    try:
        runs, start = {"arenaplan": _arenaplan, "onert": _onert, "pytorch": _pytorch}[runtime](folder)
    except ModuleNotFoundError as error:
        print(json.dumps({"missing": error.name}), flush=True)
        return
    with np.load(folder / "batch.npz") as arrays:
        batch = {name: arrays[name] for name in arrays}
    print(json.dumps({"runs": runs}), flush=True)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak begins here
    before = _status("VmRSS")
    step = start(batch)
    for _ in sys.stdin:
        wall, cpu = time.perf_counter(), time.process_time()
        loss = step()
        cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
        peak = _status("VmHWM")
        answer = {"loss": loss, "cpu": cpu, "wall": wall, "peak": peak, "above": peak - before}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
