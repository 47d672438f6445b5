"""Metrics in the form that Prometheus scrapes: one registry an application, names in `arenaplan_*`.

Labels take few values: routes as they are declared, names of tasks, solvers and problem types; never anything
that a caller makes up. What happens is counted where it happens, in some microseconds; what merely is (queue,
workers, memory) is read at each scrape.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import prometheus_client
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector, CollectorRegistry

from service.logs import LogWriter
from service.telemetry import tracing
from solver.version import version

__all__ = [
    "CONTENT_TYPE",
    "Metrics",
    "Reading",
    "Work",
    "memory_and_files",
    "watch_log",
]

CONTENT_TYPE: Final = CONTENT_TYPE_PLAIN_0_0_4

#: Upper bounds in seconds: answers from memory take about a millisecond, plans up to minutes. Few, as there
#: is a series of each for every route.
_SECONDS: Final = (
    0.001,
    0.005,
    0.025,
    0.1,
    0.5,
    2.5,
    10,
    30,
    120,
)
#: Upper bounds of (peak - lower bound) / lower bound; 0 is a proved optimum.
_GAPS: Final = (0.0, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS"})


@dataclass(frozen=True, slots=True)
class Reading:
    """Something that is read when it is scraped: a number, or numbers by the values of one label.

    `counts` says that it only grows; its name then ends with ``_total``.
    """

    name: str
    help: str
    read: Callable[[], float | Mapping[str, float]]
    label: str | None = None
    counts: bool = False

    def family(self) -> GaugeMetricFamily | CounterMetricFamily:
        kind = CounterMetricFamily if self.counts else GaugeMetricFamily
        return kind(self.name, self.help, labels=[self.label] if self.label else None)


class _Readings(Collector):
    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings = tuple(readings)

    def describe(self) -> Iterator[Metric]:
        """Names without values: what is registered need not be ready to be read."""
        for one in self._readings:
            yield one.family()

    def collect(self) -> Iterator[Metric]:
        for one in self._readings:
            family, value = one.family(), one.read()
            if isinstance(value, Mapping):
                for label, number in value.items():
                    family.add_metric([label], number)
            else:
                family.add_metric([], value)
            yield family


class Metrics:
    """The counters of one application. Not for several threads at once, but for scraping from any."""

    def __init__(self) -> None:
        prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self._requests = self._counter("requests", "Answered requests.", "route", "method", "status")
        self._request_seconds = self._histogram(
            "request_seconds", "From the headers of a request to its answer, by route.", "route"
        )
        self._problems = self._counter("problems", "Answers that were a problem, by its type.", "problem")
        self._queue_wait = self._histogram(
            "queue_wait_seconds", "Wait for a worker; large: beyond 256 KiB.", "size"
        )
        self._tasks = self._histogram(
            "task_seconds", "Time that a task had its worker, by how it ended.", "task", "outcome"
        )
        self._solves = self._histogram(
            "solve_seconds",
            "Time in which a plan or layout was made, in its worker.",
            "task",
            "solver",
            "claim",
        )
        self._gaps = self._histogram(
            "gap_ratio",
            "(peak - lower bound) / lower bound of what was made.",
            "task",
            "solver",
            bounds=_GAPS,
        )
        self._stages = self._histogram("stage_seconds", "Time of each stage of planning.", "stage")
        self._cache = self._counter(
            "cache_requests", "Questions to the memory of answers: hit, shared, equivalent, miss.",
            "outcome",
        )  # fmt: skip
        self._starts = self._counter("worker_starts", "Worker processes that reported.")
        self._ends = self._counter(
            "worker_ends", "Workers that ended: lost (died), stopped (by the service), failed (at start).",
            "reason",
        )  # fmt: skip
        self._jobs_ended = self._counter("jobs_ended", "Jobs that came to an end.", "task", "state")
        self._job_seconds = self._histogram("job_seconds", "From the arrival of a job to its end.", "task")
        self.in_flight = 0
        self.watch(
            Reading("arenaplan_build_info", "The version, as a label.", lambda: {version(): 1}, "version"),
            Reading(
                "arenaplan_requests_in_flight", "Requests that are not answered yet.", lambda: self.in_flight
            ),
        )
        self._routes: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        # What has not happened yet is zero, not absent: alerts compare with it.
        self._asked = {one: self._cache.labels(one) for one in ("hit", "shared", "equivalent", "miss")}
        for reason in ("lost", "stopped", "failed"):
            self._ends.labels(reason)
        for size in ("small", "large"):
            self._queue_wait.labels(size)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"arenaplan_{name}", text, labels, registry=self.registry)

    def _histogram(
        self, name: str, text: str, *labels: str, bounds: tuple[float, ...] = _SECONDS
    ) -> Histogram:
        return Histogram(f"arenaplan_{name}", text, labels, registry=self.registry, buckets=bounds)

    def watch(self, *readings: Reading) -> None:
        """Read these at each scrape."""
        self.registry.register(_Readings(readings))

    def answered(self, route: str | None, method: str, status: int, seconds: float) -> None:
        """A request was answered; `route` is its path as declared, None if no route has it."""
        key = (route or "none", method if method in _METHODS else "other", status)
        known = self._routes.get(key)
        if known is None:
            name, method, _ = key
            known = (self._requests.labels(name, method, str(status)), self._request_seconds.labels(name))
            self._routes[key] = known
        known[0].inc()
        known[1].observe(seconds)

    def problem(self, code: str) -> None:
        """A request was answered with this type of problem."""
        self._problems.labels(code).inc()

    def asked_cache(self, outcome: str) -> None:
        """`hit`: the same bytes; `shared`: those, in the database; `equivalent`: another spelling; `miss`."""
        self._asked[outcome].inc()

    def waited(self, seconds: float, *, large: bool) -> None:
        """A task has got its worker, or has given up."""
        self._queue_wait.labels("large" if large else "small").observe(seconds)

    def worked(self, task: str, outcome: str, seconds: float) -> None:
        """A worker is done: ``result``, ``known``, ``fallback``, ``stopped``, or the type of a problem."""
        self._tasks.labels(task, outcome).observe(seconds)

    def made(self, task: str, facts: Mapping[str, Any], seconds: float) -> None:
        """A worker made a plan or layout in `seconds`; `facts` are its solver, status, size and bound."""
        if "solver" in facts:
            solver = facts["solver"]
            self._solves.labels(task, solver, facts["status"]).observe(seconds)
            bound, size = facts["lower_bound"], facts["arena_bytes"]
            self._gaps.labels(task, solver).observe((size - bound) / bound if bound else 0.0)

    def stage(self, name: str, seconds: float) -> None:
        """One stage of a task took `seconds`."""
        self._stages.labels(name).observe(seconds)

    def worker_started(self) -> None:
        """A worker has reported."""
        self._starts.inc()

    def worker_ended(self, reason: str) -> None:
        """`lost`: it died; `stopped`: the service ended it; `failed`: it never reported."""
        self._ends.labels(reason).inc()

    def job_ended(self, task: str, state: str, seconds: float) -> None:
        """A job is `succeeded`, `failed` or `cancelled`, `seconds` after its arrival."""
        self._jobs_ended.labels(task, state).inc()
        self._job_seconds.labels(task).observe(seconds)

    def jobs(self, count: Callable[[], Mapping[str, float]]) -> None:
        """`count` is called at each scrape: jobs by state. Call this once, where there is a job engine."""
        self.watch(Reading("arenaplan_jobs", "Jobs by state.", count, "state"))

    def database(self, usable: Callable[[], bool], failures: Callable[[], Mapping[str, float]]) -> None:
        """Both are called at each scrape, and ask no database. Call this once, where there is one."""
        self.watch(
            Reading("arenaplan_database_usable", "1 where the last call was answered.", usable),
            Reading(
                "arenaplan_database_failures_total", "Calls that the database did not answer, by the reason.",
                failures, "reason", counts=True,
            ),
        )  # fmt: skip

    def serve(self, host: str, port: int) -> None:
        """Answer scrapes in a thread, where no other server does. Raises OSError for a port that is taken."""
        prometheus_client.start_http_server(port, host, self.registry)

    def text(self) -> bytes:
        """Everything, in Prometheus's text format; some milliseconds."""
        return generate_latest(self.registry)


def watch_log(metrics: Metrics, log: LogWriter) -> None:
    """Count the lines that a slow reader has cost."""
    name, text = "arenaplan_log_lines_dropped_total", "Lines that the log's reader was too slow for."
    metrics.watch(Reading(name, text, lambda: log.dropped, counts=True))


def memory_and_files(pids: Iterable[int]) -> tuple[int, int, int]:
    """Resident bytes of these processes together, of the largest, and their open files; 0 where unknown."""
    sizes, files = [0], 0
    for pid in pids:
        process = Path("/proc", str(pid))
        try:
            sizes.append(int((process / "statm").read_bytes().split()[1]) * resource.getpagesize())
            files += len(os.listdir(process / "fd"))  # noqa: PTH208 - names are enough
        except (OSError, ValueError, IndexError):
            continue  # it has gone
    return sum(sizes), max(sizes), files


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
