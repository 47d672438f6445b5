"""Trains one graph in one runtime, and prints what that took: a process for ``./run bench memory``.

Arguments: the runtime (``arenaplan``, ``onert``, ``pytorch``), a graph document, the number of steps, and for
onert a model file. The last line is a JSON object: ``resident`` bytes at the peak beyond those of the process
that had imported everything and trained nothing, ``seconds`` of the steps after the first, the ``losses``; or
``missing``, the package that cannot be imported.

The peak is the kernel's (VmHWM), set back before the work begins; the process has one core and one thread.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

Array = Any


def _status(key: str) -> int:
    """A line of /proc/self/status, in bytes."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(key))


def _batch(document: dict[str, Any]) -> dict[str, Array]:
    """Inputs uniform in [0, 1), and random classes: the same in every runtime."""
    random = np.random.default_rng(0)
    found = {}
    for operand in document["operands"]:
        shape = [document["batch"] if size == "batch" else size for size in operand["shape"]]
        if operand["role"] == "input":
            found[operand["name"]] = random.random(shape, np.float32)
        elif operand["role"] == "label":
            classes = random.integers(shape[-1], size=shape[0])
            found[operand["name"]] = np.eye(shape[-1], dtype=np.float32)[classes]
    return found


def _arenaplan(path: Path) -> Callable[[dict[str, Array]], Callable[[], float]]:
    from solver.documents import load_graph
    from solver.executor import Trainer
    from solver.pipeline import plan

    def start(batch: dict[str, Array]) -> Callable[[], float]:
        graph = load_graph(path.read_bytes())
        trainer = Trainer(graph, plan(graph))
        return lambda: trainer.step(batch)

    return start


def _pytorch(path: Path) -> Callable[[dict[str, Array]], Callable[[], float]]:
    import torch

    from solver.documents import load_graph
    from tests.benchmarks.eager import eager_step

    torch.set_num_threads(1)

    def start(batch: dict[str, Array]) -> Callable[[], float]:
        step = eager_step(load_graph(path.read_bytes()), batch)
        assert step is not None
        return step

    return start


def _onert(model: str, examples: int) -> Callable[[dict[str, Array]], Callable[[], float]]:
    from onert.experimental import train

    def start(batch: dict[str, Array]) -> Callable[[], float]:
        session = train.session(model)
        session.compile(
            train.optimizer.Adam(learning_rate=1e-3),
            train.losses.CategoricalCrossentropy("mean"),
            batch_size=examples,
        )
        image, label = batch["image"], batch["label"]
        return lambda: float(session.train_step([image], [label])["loss"][0])

    return start


def main() -> None:
    runtime, path, steps = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    document = json.loads(path.read_bytes())
    try:
        if runtime == "onert":
            start = _onert(sys.argv[4], document["batch"])
        else:
            start = {"arenaplan": _arenaplan, "pytorch": _pytorch}[runtime](path)
    except ModuleNotFoundError as error:
        print(json.dumps({"missing": error.name}), flush=True)
        return
    batch = _batch(document)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")  # the peak begins here
    before = _status("VmRSS")
    step = start(batch)
    losses, seconds = [step()], []
    for _ in range(steps - 1):
        began = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - began)
    print(
        json.dumps({"resident": _status("VmHWM") - before, "seconds": seconds, "losses": losses}), flush=True
    )


if __name__ == "__main__":
    main()
