"""Honest measuring on shared machines: medians, ratios within one run, whole processes for memory."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Spread:
    """Seconds of several runs."""

    low: float
    middle: float
    high: float

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Spread:
        return cls(min(seconds), median(seconds), max(seconds))

    def __str__(self) -> str:
        scale, unit = (1e3, "ms") if self.middle < 1 else (1.0, "s")
        return f"{self.middle * scale:.1f} {unit} ({self.low * scale:.1f}-{self.high * scale:.1f})"


def blas_threads(count: int) -> dict[str, str]:
    """The environment in which the BLAS builds that NumPy comes with start so many threads."""
    names = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
    return dict.fromkeys(names, str(count))


def timed(action: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds of a call by this clock."""
    started = clock()
    action()
    return clock() - started


def repeated(action: Callable[[], Any], runs: int, warmup: int = 1) -> Spread:
    """Seconds of `runs` calls after `warmup` calls that do not count."""
    for _ in range(warmup):
        action()
    return Spread.of([timed(action) for _ in range(runs)])


def in_pairs(
    a: Callable[[], Any], b: Callable[[], Any], runs: int, clock: Callable[[], float] = time.perf_counter
) -> list[tuple[float, float]]:
    """Seconds of two actions in turn, A B B A ..., behind one call of each that does not count.

    The machine's speed drifts; neighbours in time see the same machine.
    """
    a(), b()
    pairs = []
    for k in range(runs):
        if k % 2:
            second, first = timed(b, clock), timed(a, clock)
            pairs.append((first, second))
        else:
            pairs.append((timed(a, clock), timed(b, clock)))
    return pairs


def paired(a: Callable[[], Any], b: Callable[[], Any], runs: int) -> tuple[Spread, Spread, float]:
    """The seconds of two actions that take turns, and the median of A / B pair by pair."""
    pairs = in_pairs(a, b, runs)
    return (
        Spread.of([p[0] for p in pairs]),
        Spread.of([p[1] for p in pairs]),
        median(p[0] / p[1] for p in pairs),
    )


def in_new_process(
    code: str, *arguments: str, environment: Mapping[str, str] = MappingProxyType({})
) -> dict[str, Any]:
    """Run `code` in a fresh interpreter; it prints one JSON object. Adds ``seconds`` of the process."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True, text=True, check=True, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment}, encoding="utf-8")  # fmt: skip
    seconds = time.perf_counter() - started
    return {**json.loads(done.stdout.splitlines()[-1]), "process_seconds": seconds}


def asked(python: str, *module: str) -> tuple[dict[str, Any], str]:
    """The JSON object that a module prints last, run by an interpreter; or {} and why there is none."""
    done = subprocess.run(
        [python, "-m", *module], cwd=ROOT, capture_output=True, text=True, check=False, encoding="utf-8"
    )
    if done.returncode:
        return {}, (done.stderr.strip().splitlines() or ["it ended"])[-1]
    return json.loads(done.stdout.splitlines()[-1]), ""


def figure_table(title: str, words: str | None, figures: str) -> Table:
    """A table of columns with words, if there are any, then of columns with figures, by their headings."""
    table = Table(*([] if words is None else words.split(", ")), title=title)
    for heading in figures.split(", "):
        table.add_column(heading, justify="right")
    return table


def machine() -> str:
    """The machine on which the figures were measured."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    system = f"{platform.system()} {platform.machine()}"
    return f"{system}, {_cpu()}, {cores} cores, Python {platform.python_version()}"


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return platform.processor() or "unknown processor"
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown")


def commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        encoding="utf-8",
    )
    return done.stdout.strip() or "no commit"
