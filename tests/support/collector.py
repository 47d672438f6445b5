"""A collector of traces in this process: OTLP over HTTP, decoded as it arrives."""

from __future__ import annotations

import gzip
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Collector", "ReceivedSpan", "running_collector"]

#: Far beyond what anything takes on a loaded machine; only a failing test waits for it.
PATIENCE = 60.0


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
                collector.spans.append(received)
                collector.arrived.put(received)
            self.send_response(200)
            self.send_header("Content-Type", "application/x-protobuf")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None:
            """Tests are quiet."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        collector = Collector(f"http://127.0.0.1:{server.server_port}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield collector
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
