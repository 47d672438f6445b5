"""Metrics and traces of the real process: what a scraper and a collector get."""

from __future__ import annotations

import gzip
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from opentelemetry.sdk.trace import TracerProvider
from prometheus_client.parser import text_string_to_metric_families

from clients import Client, ProblemError
from tests.support.server import PATIENCE, ROOT, die_with_parent, running_server


@dataclass(frozen=True, slots=True)
class ReceivedSpan:
    """A span as it came; ids in hexadecimal digits, times in nanoseconds since 1970."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    kind: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


class Collector:
    """`url` is what OTEL_EXPORTER_OTLP_ENDPOINT takes."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans: list[ReceivedSpan] = []
        self.arrived: queue.SimpleQueue[ReceivedSpan] = queue.SimpleQueue()

    def wait_for(self, name: str) -> ReceivedSpan:
        """The next span of this name, of those not waited for before."""
        while True:
            try:
                span = self.arrived.get(timeout=PATIENCE)
            except queue.Empty:
                names = [span.name for span in self.spans]
                raise AssertionError(f"no span {name!r} within {PATIENCE:g} s, only {names}") from None
            if span.name == name:
                return span

    def below(self, parent: ReceivedSpan) -> list[ReceivedSpan]:
        """Spans whose parent this is, in the order of their beginnings."""
        return sorted(
            (span for span in self.spans if span.parent_id == parent.span_id), key=lambda span: span.start
        )


@contextmanager
def running_collector() -> Iterator[Collector]:
    """On a free port of loopback."""
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            assert self.path == "/v1/traces"
            for received in _spans(ExportTraceServiceRequest.FromString(body)):
                running.spans.append(received)
                running.arrived.put(received)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield running
        finally:
            server.shutdown()
            thread.join()


def _spans(request: Any) -> Iterator[ReceivedSpan]:
    for of_resource in request.resource_spans:
        resource = {one.key: _value(one.value) for one in of_resource.resource.attributes}
        for of_scope in of_resource.scope_spans:
            for span in of_scope.spans:
                yield ReceivedSpan(
                    span.name,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.start_time_unix_nano,
                    span.end_time_unix_nano,
                    span.kind,
                    span.status.code == 2,
                    {one.key: _value(one.value) for one in span.attributes},
                    resource,
                )


def _value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return getattr(value, kind) if kind else None


Graph = dict[str, Any]
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"
CARRIED = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "vendor=1"}


def scraped(http: httpx.Client) -> Samples:
    answer = http.get("/metrics")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def sample(samples: Samples, name: str, **labels: str) -> float:
    """0 where there is none: of counters with labels, only those that have counted are shown."""
    return samples.get((f"arenaplan_{name}", frozenset(labels.items())), 0.0)


def test_metrics(tiny: Graph) -> None:
    """Requests, cache, queue, solves, workers and processes, before and after some work."""
    with running_server(workers=1) as server, server.client() as http:
        tasks = {"task": "plan", "solver": "portfolio"}
        for _ in range(2):
            assert http.post("/v1/plan", json={"graph": tiny}).status_code == 200
        assert http.head("/healthz").status_code == 200
        assert http.post("/v1/plan", json={"graph": {}}).status_code == 422
        assert http.get("/nowhere/at/all").status_code == 404
        before = sample(scraped(http), "worker_starts_total")
        (pid,) = server.worker_pids()
        os.kill(pid, signal.SIGKILL)
        until = time.monotonic() + PATIENCE
        while sample(now := scraped(http), "worker_starts_total") == before:
            assert time.monotonic() < until
        assert sample(now, "requests_total", route="/v1/plan", method="POST", status="200") == 2
        assert sample(now, "requests_total", route="/v1/plan", method="POST", status="422") == 1
        assert sample(now, "requests_total", route="/healthz", method="HEAD", status="200") == 1
        assert sample(now, "requests_total", route="none", method="GET", status="404") == 1
        assert sample(now, "request_seconds_count", route="/v1/plan") == 3
        assert sample(now, "problems_total", problem="not-found") == 1
        assert [sample(now, "cache_requests_total", outcome=o) for o in ("hit", "equivalent", "miss")] == [
            1,
            0,
            1,
        ]
        assert sample(now, "queue_wait_seconds_count", size="small") == 2
        assert sample(now, "task_seconds_count", task="plan", outcome="result") == 1
        assert sample(now, "solve_seconds_count", claim="optimal", **tasks) == 1
        assert sample(now, "gap_ratio_bucket", le="0.0", **tasks) == 1
        assert sample(now, "stage_seconds_count", stage="layout") == 1
        assert sample(now, "worker_ends_total", reason="lost") == 1
        assert sample(now, "workers", state="idle") == sample(now, "ready") == 1
        assert sample(now, "requests_in_flight") == 1  # the question itself
        assert sample(now, "connections") == 1
        assert 0 < sample(now, "cache_bytes") < sample(now, "cache_limit_bytes")
        assert sample(now, "workers_resident_bytes", of="largest") > 10_000_000
        assert sample(now, "workers_open_fds") >= 3
        assert now["process_resident_memory_bytes", frozenset()] > 10_000_000
        assert now["process_open_fds", frozenset()] > 3
        assert sample(now, "log_lines_dropped_total") == 0


def test_metrics_may_be_off() -> None:
    with running_server(workers=1, metrics="false") as server, server.client() as http:
        answer = http.get("/metrics")
        assert (answer.status_code, answer.json()["type"]) == (404, "/problems/not-found")


@pytest.fixture
def collector() -> Any:
    with running_collector() as running:
        yield running


def test_traces(collector: Collector, tiny: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the caller's span through the queue into the stages of the worker, and the ids in the log."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test")
    with running_server(workers=1) as server, server.client() as http:
        (pid,) = server.worker_pids()
        answer = http.post("/v1/plan", json={"graph": tiny}, headers={**CARRIED, "X-Request-ID": "traced"})
        assert answer.status_code == 200
        assert server.request_event("traced")["trace_id"] == TRACE
        refused = http.post("/v1/plan", json={"graph": {}}, headers={"X-Request-ID": "alone"})
        alone = server.request_event("alone")["trace_id"]
        assert server.stop() == 0
    request, other = collector.wait_for("POST /v1/plan"), collector.wait_for("POST /v1/plan")
    assert (request.trace_id, request.parent_id, request.kind) == (TRACE, PARENT, 2)
    assert answer.headers["traceresponse"] == f"00-{TRACE}-{request.span_id}-01"
    assert request.attributes["http.route"] == "/v1/plan"
    assert request.attributes["http.response.status_code"] == 200
    assert request.attributes["arenaplan.digest"] == answer.json()["digest"]
    assert request.resource["service.name"] == "arenaplan"
    assert request.resource["deployment.environment"] == "test"
    waited, worked = collector.below(request)
    assert (waited.name, worked.name) == ("wait for a worker", "plan in a worker")
    assert worked.attributes["process.pid"] == pid
    assert worked.attributes["arenaplan.outcome"] == "result"
    stages = collector.below(worked)
    assert [one.name for one in stages][:2] == ["read", "prepare"]
    assert {"derive", "passes", "layout", "prove"} <= {one.name for one in stages}
    assert all(worked.start <= one.start <= one.end <= worked.end + 10_000_000 for one in stages)
    assert (other.trace_id, other.parent_id, other.failed) == (alone, "", False)
    assert other.trace_id != TRACE
    (wait, task) = collector.below(other)
    assert task.attributes["arenaplan.outcome"] == refused.json()["type"].removeprefix("/problems/")
    assert task.failed
    assert wait.trace_id == task.trace_id == alone


def test_jobs(collector: Collector, tiny: Graph, tmp_path: Path) -> None:
    """A job goes on in the trace of the request that has made it, and is counted."""
    settings = {"otlp_endpoint": collector.url, "database_url": f"sqlite:///{tmp_path}/jobs.db"}
    with running_server(workers=1, **settings) as server, server.client() as http:
        order = {"task": "plan", "request": {"graph": tiny}}
        made = http.post("/v1/jobs", json=order, headers=CARRIED)
        assert made.status_code == 202
        ended = made.json()
        while ended["state"] not in ("succeeded", "failed"):
            ended = http.get(made.headers["location"], headers={"Prefer": "wait=5"}).json()
        assert ended["state"] == "succeeded"
        ending = {"task": "plan", "state": "succeeded"}
        until = time.monotonic() + PATIENCE
        # The end is counted a moment after it is visible, and the database every few seconds.
        while (
            sample(now := scraped(http), "jobs_ended_total", **ending) < 1
            or sample(now, "jobs", state="succeeded") < 1
        ):
            assert time.monotonic() < until
        assert sample(now, "jobs", state="succeeded") == 1
        assert sample(now, "jobs", state="queued") == 0
        assert sample(now, "job_seconds_count", task="plan") == 1
        assert server.stop() == 0
    job = collector.wait_for("job plan")
    (request,) = (span for span in collector.spans if span.name == "POST /v1/jobs")
    assert (job.trace_id, job.parent_id) == (TRACE, request.span_id)
    assert job.attributes["arenaplan.job"] == made.json()["id"]
    assert "plan in a worker" in [span.name for span in collector.below(job)]


def test_the_setting_and_the_sampling_of_the_caller(collector: Collector) -> None:
    """Our own setting names the collector; what the caller does not sample is not recorded here either."""
    with running_server(workers=1, otlp_endpoint=collector.url) as server, server.client() as http:
        unsampled = {"traceparent": f"00-{TRACE}-{PARENT}-00", "X-Request-ID": "unsampled"}
        assert "traceresponse" not in http.get("/v1/schemas", headers=unsampled).headers
        assert server.request_event("unsampled")["trace_id"] == TRACE
        http.get("/v1/schemas/plan")
        assert server.stop() == 0
    assert collector.wait_for("GET /v1/schemas/{name}").trace_id != TRACE
    assert [span.name for span in collector.spans] == ["GET /v1/schemas/{name}"]


def test_a_collector_that_is_not_there(tiny: Graph) -> None:
    """Costs neither an answer nor the end of the service."""
    with (
        running_server(workers=1, otlp_endpoint="http://127.0.0.1:9") as server,
        Client(server.url) as client,
    ):
        assert client.plan(tiny).digest
        assert server.stop() == 0


def test_without_a_collector_the_ids_of_the_caller_are_logged() -> None:
    with running_server(workers=1) as server, server.client() as http:
        assert (
            "traceresponse"
            not in http.get("/v1/schemas", headers={**CARRIED, "X-Request-ID": "known"}).headers
        )
        assert server.request_event("known")["trace_id"] == TRACE
        http.get("/v1/schemas", headers={"traceparent": "00-0-0-00", "X-Request-ID": "malformed"})
        assert "trace_id" not in server.request_event("malformed")


def test_the_client_names_the_span_that_it_is_called_in() -> None:
    """Where the program has an active tracer; otherwise nothing is sent."""
    seen: list[httpx.Request] = []

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(404, json={"type": "/problems/plan-not-found", "status": 404})

    with Client("http://test", transport=httpx.MockTransport(answer)) as client:
        tracer = TracerProvider(shutdown_on_exit=False).get_tracer("test")
        with tracer.start_as_current_span("caller") as span, pytest.raises(ProblemError):
            client.stored_plan("0" * 64)
        with pytest.raises(ProblemError):
            client.stored_plan("0" * 64)
    context = span.get_span_context()
    sent = f"00-{context.trace_id:032x}-{context.span_id:016x}-"
    assert seen[0].headers["traceparent"].startswith(sent)
    assert "traceparent" not in seen[1].headers


def test_a_log_that_nobody_reads() -> None:
    """Several times what its pipe holds: every request is answered, and a late reader gets each line."""
    settings = {"PORT": 0, "WORKERS": 1, "DRAIN_SECONDS": 0, "DATABASE_URL": "off"}
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ARENAPLAN_")}
    environment |= {f"ARENAPLAN_{name}": str(value) for name, value in settings.items()}
    command = [sys.executable, "-m", "service.cli", "serve"]
    requests = 800
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, preexec_fn=die_with_parent
    ) as process:
        assert process.stderr is not None
        while "url" not in (event := json.loads(process.stderr.readline())):
            continue
        with httpx.Client(base_url=event["url"], timeout=PATIENCE) as http:
            for number in range(requests):
                assert http.get(f"/{number}/{'x' * 200}").status_code == 404
            assert sample(scraped(http), "log_lines_dropped_total") == 0
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=PATIENCE)
    lines = [json.loads(line) for line in log.splitlines()]
    paths = [line["path"].split("/")[1] for line in lines if line["event"] == "request"]
    assert [path for path in paths if path.isdigit()] == [str(number) for number in range(requests)]
    assert len(log) > 4 * 65_536
