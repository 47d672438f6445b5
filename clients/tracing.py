"""The span in which a call is made, for the service to go on from."""

from __future__ import annotations

import sys

__all__ = ["trace_context"]


def trace_context() -> dict[str, str]:
    """The headers of W3C Trace Context that name the active span; none where the program traces nothing.

    OpenTelemetry is used where the program has loaded it, and never loaded for its own sake.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers)
    return headers
