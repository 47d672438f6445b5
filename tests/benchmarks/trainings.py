"""Processes of several runtimes that take training steps in turn: one graph, one batch, one thread each."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from statistics import median
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

from solver.c_kernels import SOURCES
from solver.documents import load_graph
from solver.executor import synthetic_batch
from solver.plan import Plan
from tests.benchmarks.measure import ROOT, blas_threads
from tests.device.networks import Network

__all__ = ["C_FLAGS", "ONE_THREAD", "Training", "compiled", "in_c", "in_python", "in_turn", "prepare"]

#: How the exported files are compiled besides, as their Makefile does.
C_FLAGS: Final = ("-std=c11", "-ffp-contract=off", "-fno-fast-math", "-fno-math-errno")

#: NUM_THREADS is onert's.
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "NUM_THREADS": "1", **blas_threads(1)}

_HERE: Final = Path(__file__).parent


@dataclass
class Training:
    """A process that has answered with what it runs; `steps` are its answers so far. End it by `with`."""

    command: Sequence[str | Path]
    steps: list[dict[str, float]] = field(default_factory=list)
    runs: str = ""
    missing: str | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            list(map(str, self.command)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
            encoding="utf-8", env={**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        begun = self._answer()
        self.runs, self.missing = begun.get("runs", ""), begun.get("missing")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()

    def step(self) -> dict[str, float]:
        """Train one step, and return what it took."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self.steps.append(self._answer())
        return self.steps[-1]

    def _answer(self) -> dict[str, Any]:
        """The next line that is a JSON object; runtimes print lines of their own."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"{self.command[0]} ended with exit code {self._process.wait()}")

    def middle(self, what: str) -> float:
        """The median of the steps after the first, which warms up."""
        return median(step[what] for step in self.steps[1:])


def prepare(folder: Path, document: Mapping[str, Any], model: Path | None = None) -> Plan:
    """Write all that processes read: the graph, a batch, the program in C. Returns the plan for C."""
    graph = load_graph(document)
    batch = {
        name: np.asarray(values).astype(graph.operands[name].dtype.numpy)
        for name, values in synthetic_batch(graph, 0, 0).items()
    }
    written = Network(graph.name, lambda: graph, lambda: repeat(batch), steps=1).write(folder)
    (folder / "graph.json").write_text(json.dumps(document), encoding="utf-8")
    arrays: dict[str, Any] = dict(batch)
    np.savez(folder / "batch.npz", **arrays)
    if model is not None:
        (folder / "model.circle").symlink_to(model.resolve())
    return written.plan


def compiled(folder: Path, output: str, sources: Sequence[Path], flags: Sequence[str]) -> Path:
    """The folder's kernels and these sources, compiled by gcc."""
    files = [*sources, *sorted(SOURCES.glob("*.c"))]
    program = folder / output
    subprocess.run(["gcc", *C_FLAGS, *flags, f"-I{folder}", *files, "-o", program], check=True)
    return program


def in_c(folder: Path, output: str, flags: Sequence[str]) -> Training:
    main = _HERE / "sources" / "training_process.c"
    program = compiled(folder, output, [main, folder / "net.c"], flags)
    return Training([program, folder / "first.bin", folder / "batches.bin"])


def in_python(folder: Path, runtime: str, interpreter: str) -> Training:
    return Training([interpreter, _HERE / "training_process.py", runtime, folder])


def in_turn(trainings: Sequence[Training], seconds: float, most: int) -> None:
    """Steps of all, the order reversed each time, for about so many CPU seconds; the first one warms up.

    The machine's speed drifts; neighbours in time see the same machine.
    """
    for training in trainings:
        training.step()
    took = sum(training.step()["cpu"] for training in trainings)
    for training in trainings:
        training.steps.pop()
    for k in range(max(3, min(most, int(seconds / took)))):
        for training in list(trainings)[:: -1 if k % 2 else 1]:
            training.step()
