"""Traces: which request it is, from its caller through queue and worker, and what each part of it took.

    POST /v1/plan                  the request, below the caller's span if `traceparent` names one
    ├── wait for a worker
    └── plan in a worker
        └── read, prepare, derive, passes, layout, prove, digest: the stages, one after the other

A W3C trace context is taken from requests and handed on, also where nothing is recorded here. Spans are
recorded and sent (OTLP over HTTP, in batches, by a thread) where an endpoint is configured and the extra
``telemetry`` is installed; otherwise OpenTelemetry is not even imported. Workers hold no exporter: they
report what their stages took in the frames of their answers, and the service makes spans of it.
"""

from __future__ import annotations

import contextlib
import logging
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from solver.version import version

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span as OtelSpan

__all__ = [
    "Part",
    "Span",
    "Tracing",
    "carrier",
    "configure_tracing",
    "record",
    "span",
    "trace_id_of",
    "wanted",
]

_log = logging.getLogger(__name__)

#: Version 00 of the header, and what later versions promise to keep of it (W3C Trace Context, 4.3).
_TRACEPARENT: Final = re.compile(
    r"[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?"
)
_HEADERS: Final = ("traceparent", "tracestate")
#: How long the end of the process waits for the last spans to be sent.
CLOSE_SECONDS: Final = 3.0

#: Where a request came from, while nothing is recorded here.
_incoming: ContextVar[Mapping[str, str]] = ContextVar("incoming", default={})  # noqa: B039 - never changed
_recorder: _Recorder | None = None


class Part(NamedTuple):
    """A stage of something: when it began, in seconds since 1970, and how long it took."""

    name: str
    began: float
    seconds: float

    @property
    def start(self) -> int:
        """Nanoseconds since 1970, as OpenTelemetry counts."""
        return round(self.began * 1e9)

    @property
    def end(self) -> int:
        return round((self.began + self.seconds) * 1e9)


@dataclass(slots=True)
class Span:
    """A span while it lasts. `trace_id` is empty where the request belongs to no trace."""

    trace_id: str = ""
    name: str = ""
    attributes: dict[str, str | int | float | bool] = field(default_factory=dict)
    failed: str | None = None
    recorded: bool = False


def trace_id_of(carried: Mapping[str, str]) -> str:
    """The id of the trace that a well-formed ``traceparent`` names, else nothing."""
    match = _TRACEPARENT.fullmatch(carried.get("traceparent", ""))
    return match[1] if match else ""


def span(
    name: str, carried: Mapping[str, str] | None = None, *, kind: str = "INTERNAL", **attributes: Any
) -> AbstractContextManager[Span]:
    """A span around what the ``with`` holds, below the one around it, or below the one `carried` names.

    `kind` is one of OpenTelemetry's. Attributes, name and failure may be set until the end.
    """
    if _recorder is not None:
        return _recorder.span(name, carried, kind, attributes)
    if carried is None:
        return contextlib.nullcontext(Span(trace_id_of(_incoming.get())))
    return _passing(carried) if carried else contextlib.nullcontext(Span())


@contextlib.contextmanager
def _passing(carried: Mapping[str, str]) -> Iterator[Span]:
    """Hands the caller's trace context on, and records nothing."""
    trace_id = trace_id_of(carried)
    token = _incoming.set({k: carried[k] for k in _HEADERS if carried.get(k)} if trace_id else {})
    try:
        yield Span(trace_id)
    finally:
        _incoming.reset(token)


def carrier() -> dict[str, str]:
    """The headers that name the current span to another process, or to the target of a call."""
    return dict(_incoming.get()) if _recorder is None else _recorder.carrier()


def record(
    name: str,
    began: float,
    seconds: float,
    parts: Iterable[Part] = (),
    *,
    failed: str | None = None,
    **attributes: Any,
) -> None:
    """A span that is over, below the one of now, with its parts; `began` in seconds since 1970."""
    if _recorder is not None:
        _recorder.record(Part(name, began, seconds), parts, failed, attributes)


class Tracing:
    """Recording, from `configure_tracing` until `close`."""

    def __init__(self, recorder: _Recorder) -> None:
        self._recorder = recorder

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Send the remaining spans, for at most `seconds`, and record no more."""
        global _recorder
        if _recorder is self._recorder:
            _recorder = None
        last = threading.Thread(target=self._recorder.provider.shutdown, name="last spans", daemon=True)
        last.start()
        last.join(seconds)


def wanted(endpoint: str | None, environment: Mapping[str, str]) -> bool:
    """Whether traces are to be sent: by our own setting, or by the variables of OpenTelemetry."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if environment.get("OTEL_TRACES_EXPORTER", "otlp") != "otlp":
        return False
    names = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
    return endpoint is not None or any(environment.get(name) for name in names)


def configure_tracing(endpoint: str | None = None) -> Tracing | None:
    """Record spans from now on and send them to `endpoint`, or where OpenTelemetry's variables say.

    Those variables decide the rest: name of the service, sampling, headers, sizes of batches. None, with a
    warning in the log, where the extra ``telemetry`` is not installed.
    """
    global _recorder
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, OTELResourceDetector, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError as error:
        _log.warning(
            "Traces are not sent (%s): pip install 'opentelemetry-sdk>=1.30'"
            " 'opentelemetry-exporter-otlp-proto-http>=1.30'",
            error,
        )
        return None
    own = Resource.create({SERVICE_NAME: "arenaplan", SERVICE_VERSION: version()})
    exporter = OTLPSpanExporter(endpoint and f"{endpoint.rstrip('/')}/v1/traces")
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(exporter))
    _recorder = _Recorder(provider)
    return Tracing(_recorder)


class _Recorder:
    """Spans by OpenTelemetry, with a provider of our own: other code of the process keeps its own."""

    def __init__(self, provider: TracerProvider) -> None:
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.provider = provider
        self._tracer = provider.get_tracer("arenaplan", version())
        self._propagator = TraceContextTextMapPropagator()

    @contextlib.contextmanager
    def span(
        self, name: str, carried: Mapping[str, str] | None, kind: str, attributes: Mapping[str, Any]
    ) -> Iterator[Span]:
        from opentelemetry.context import Context
        from opentelemetry.trace import SpanKind

        parent = None if carried is None else self._propagator.extract(carried, Context())
        with self._tracer.start_as_current_span(
            name,
            parent,
            SpanKind[kind],
            dict(attributes),
            set_status_on_exception=False,
            record_exception=False,
        ) as open_span:
            trace_id = f"{open_span.get_span_context().trace_id:032x}"
            one = Span(trace_id, name, recorded=open_span.is_recording())
            try:
                yield one
            except BaseException as error:
                one.failed = one.failed or type(error).__name__
                raise
            finally:
                self._finish(open_span, one, name)

    @staticmethod
    def _finish(open_span: OtelSpan, one: Span, name: str) -> None:
        from opentelemetry.trace import Status, StatusCode

        open_span.set_attributes(one.attributes)
        if one.name != name:
            open_span.update_name(one.name)
        if one.failed:
            open_span.set_status(Status(StatusCode.ERROR, one.failed))

    def carrier(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        self._propagator.inject(headers)
        return headers

    def record(
        self, whole: Part, parts: Iterable[Part], failed: str | None, attributes: Mapping[str, Any]
    ) -> None:
        from opentelemetry.trace import set_span_in_context

        span = self._tracer.start_span(whole.name, attributes=dict(attributes), start_time=whole.start)
        if span.is_recording():
            below = set_span_in_context(span)
            for part in parts:
                self._tracer.start_span(part.name, below, start_time=part.start).end(part.end)
        one = Span(name=whole.name, failed=failed)
        self._finish(span, one, whole.name)
        span.end(whole.end)
