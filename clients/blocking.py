"""The client for ordinary programs."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from clients.errors import CapacityExceeded, ConnectionFailed
from clients.requests import (
    DEFAULT_LIMITS,
    DEFAULT_TIMEOUT,
    JSON_HEADERS,
    GraphLike,
    address,
    explain_body,
    export_path,
    layout_body,
    options_document,
    plan_body,
    program_body,
    read_file,
    reading,
    timeout_of,
    tradeoff_body,
    validate_body,
)
from clients.results import LayoutResult, PlanResult, TradeOffResult, ValidationResult, VerdictResult
from clients.retry import Retry

__all__ = ["Client"]


class Client:
    """Talks to one service. Safe to share between threads; close it, or use it in a ``with``.

    `timeout` and `limits` have the meaning they have in httpx, but a call may wait for one of the client's
    connections as long as it takes, unless a `httpx.Timeout` says otherwise; `transport` replaces the
    network in tests. All methods raise `ProblemError` when the service declines, `ConnectionFailed` when it
    cannot be reached.
    """

    def __init__(
        self,
        base_url: str = "http://127.0.0.1:8080",
        *,
        timeout: httpx.Timeout | float | None = DEFAULT_TIMEOUT,
        limits: httpx.Limits | None = None,
        retry: Retry | None = None,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._http = httpx.Client(
            base_url=base_url,
            timeout=timeout_of(timeout),
            limits=limits or DEFAULT_LIMITS,
            headers=headers,
            transport=transport,
        )
        self._retry = retry or Retry()
        self._sleep = sleep

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def plan(
        self, graph: GraphLike, options: Mapping[str, Any] | None = None, **more: int | float | str | None
    ) -> PlanResult:
        """Plan a graph; options as a mapping or by name (``batch=32, capacity="24MiB"``).

        Raises `CapacityExceeded` when a capacity was given and the arena does not fit it.
        """
        response = self._send("POST", "/v1/plan", plan_body(graph, options_document(options, more)))
        with reading(response) as document:
            return PlanResult.of(document, cached=response.headers.get("X-Cache") == "hit")

    def plan_program(
        self, program: GraphLike, options: Mapping[str, Any] | None = None, **more: int | float | str | None
    ) -> PlanResult:
        """Plan explicit operations; options as for `plan` (``parallelism=2``). It is kept where plans are."""
        body = program_body(program, options_document(options, more))
        response = self._send("POST", "/v1/program", body)
        with reading(response) as document:
            return PlanResult.of(document, cached=response.headers.get("X-Cache") == "hit")

    def stored_plan(self, digest: str) -> PlanResult:
        """A plan that the service still keeps; `ProblemError` with status 404 when it does not."""
        with reading(self._send("GET", f"/v1/plans/{digest}")) as document:
            return PlanResult.of(document, cached=True)

    def export(self, digest: str, format_: str, *, against: str | None = None) -> bytes:
        """A plan that the service still keeps, as a file: c-header, report, perfetto, offsets-csv and others.

        A report shows what changed `against` the plan with that digest. Raises `ProblemError` where the plan
        is not kept, or there is no such format.
        """
        return read_file(self._send("GET", export_path(digest, format_, against)))

    def fits(self, graph: GraphLike, capacity: int | str, **more: int | float | str | None) -> bool:
        """Whether an arena of at most `capacity` (bytes, or text as "24MiB") was found."""
        try:
            self.plan(graph, {**more, "capacity": capacity})
        except CapacityExceeded:
            return False
        return True

    def tradeoff(
        self,
        graph: GraphLike,
        options: Mapping[str, Any] | None = None,
        *,
        points: int = 10,
        **more: int | float | str | None,
    ) -> TradeOffResult:
        """What smaller peaks cost in modelled time; options as for `plan`, a capacity is left aside."""
        body = tradeoff_body(graph, options_document(options, more), points)
        with reading(self._send("POST", "/v1/tradeoff", body)) as document:
            return TradeOffResult.of(document)

    def explain(
        self,
        graph: GraphLike,
        capacity: int | str,
        options: Mapping[str, Any] | None = None,
        *,
        training: bool = False,
        **more: int | float | str | None,
    ) -> VerdictResult:
        """Whether a capacity (bytes, or text as "24MiB") is enough, and what makes it so.

        With `training` also measures are tried that change what is learned.
        """
        given = options_document(options, {**more, "capacity": capacity})
        body = explain_body(graph, given, training=training)
        with reading(self._send("POST", "/v1/explain", body)) as document:
            return VerdictResult.of(document)

    def layout(
        self, problem: GraphLike, options: Mapping[str, Any] | None = None, **more: int | float | str | None
    ) -> LayoutResult:
        """Place bare buffers; options as a mapping or by name (``capacity=2**20, alignment=16``).

        Raises `CapacityExceeded` when there is a capacity and no layout within it was found.
        """
        body = layout_body(problem, options_document(options, more))
        response = self._send("POST", "/v1/layout", body)
        with reading(response) as document:
            return LayoutResult.of(document, cached=response.headers.get("X-Cache") == "hit")

    def stored_layout(self, digest: str) -> LayoutResult:
        """A layout that the service still keeps; `ProblemError` with status 404 when it does not."""
        with reading(self._send("GET", f"/v1/layouts/{digest}")) as document:
            return LayoutResult.of(document, cached=True)

    def validate(
        self, graph: GraphLike, plan: GraphLike, *, steps: int = 5, seed: int = 0
    ) -> ValidationResult:
        """Let the service train `steps` steps in the planned arena and compare bit for bit."""
        body = validate_body(graph, plan, steps, seed)
        with reading(self._send("POST", "/v1/validate", body)) as document:
            return ValidationResult.of(document)

    def ready(self) -> bool:
        """Whether the service is up and can plan; asks once."""
        try:
            return self._http.get("/readyz").is_success
        except httpx.TransportError:
            return False

    def _send(self, method: str, path: str, body: bytes | None = None) -> httpx.Response:
        """The first answer that is not a passing failure, or the last of all tries."""
        attempt = 1
        while True:
            try:
                response = self._http.request(method, path, content=body, headers=JSON_HEADERS)
            except httpx.TransportError as error:
                pause = self._retry.after_error(attempt, error)
                if pause is None:
                    raise ConnectionFailed(f"{address(self._http.base_url, path)}: {error!r}") from error
            else:
                pause = self._retry.after_answer(attempt, response)
                if pause is None:
                    return response
            self._sleep(pause)
            attempt += 1
