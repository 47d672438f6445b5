"""The work for one task, reported as metrics and as a span with its stages."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any

from service.telemetry import tracing
from service.telemetry.metrics import Metrics

__all__ = ["Work"]


class Work:
    """One task in a worker, from its making until `ended`; process `pid` does it."""

    def __init__(self, metrics: Metrics, task: str, pid: int) -> None:
        self._metrics = metrics
        self._task = task
        self._pid = pid
        self._began = time.time()
        self._clock = time.perf_counter()
        self._over = False
        self.fallback = False

    def ended(
        self,
        outcome: str,
        facts: Mapping[str, Any] | None = None,
        stages: Iterable[tuple[str, float, float]] = (),
    ) -> None:
        """Only the first call counts. `outcome` as in `Metrics.worked`, `facts` of the worker's result.

        `stages` are names, beginnings in seconds since 1970, and seconds.
        """
        if self._over:
            return
        self._over = True
        seconds = time.perf_counter() - self._clock
        parts = [tracing.Part(*stage) for stage in stages]
        self._metrics.worked(self._task, outcome, seconds)
        for part in parts:
            self._metrics.stage(part.name, part.seconds)
        if facts:
            self._metrics.made(self._task, facts, sum(part.seconds for part in parts if part.name != "read"))
        attributes = {"arenaplan.task": self._task, "arenaplan.outcome": outcome, "process.pid": self._pid}
        failed = None if outcome in ("result", "known", "fallback") else outcome
        tracing.record(f"{self._task} in a worker", self._began, seconds, parts, failed=failed, **attributes)
