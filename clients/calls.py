"""What a client can be asked, written once for both kinds of client."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, TypeVar

import httpx

from clients.errors import CapacityExceeded
from clients.exchange import Exchange
from clients.requests import (
    GraphLike,
    Option,
    Timeout,
    digest_of,
    document,
    export_path,
    given_options,
    is_cached,
    json_request,
    loaded,
    model_request,
    notes_of,
    read_answer,
    read_file,
    reading,
)
from clients.results import (
    LayoutResult,
    PlanResult,
    SavedPlan,
    TradeOffResult,
    ValidationResult,
    VerdictResult,
)
from clients.shells import call
from clients.steps import Request, Steps, do, send

__all__ = ["Calls"]

T = TypeVar("T")


class Calls:
    """The methods of `Client` and `AsyncClient`. What is `Steps[T]` here is a T there, or an awaitable T.

    Options are given as a mapping or by name. `timeout` is that of one call, in the place of the client's.
    All raise `ProblemError` when the service declines, `ConnectionFailed` when it cannot be reached.
    """

    exchange: Exchange

    @call
    def plan(
        self,
        /,
        graph: GraphLike,
        options: Mapping[str, Any] | None = None,
        *,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[PlanResult]:
        """Plan a graph (``batch=32, capacity="24MiB"``), or a model of another tool (``loss="mse"``).

        Raises `CapacityExceeded` when a capacity was given and the arena does not fit it.
        """
        request = yield from _to_plan(graph, given_options(options, more), timeout)
        response = yield from self.exchange.ask(request)
        with reading(response) as answer:
            return PlanResult.of(answer, notes_of(response), cached=is_cached(response))

    @call
    def save_plan(
        self,
        /,
        graph: GraphLike,
        path: PathLike[str] | str,
        options: Mapping[str, Any] | None = None,
        *,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[SavedPlan]:
        """Plan as `plan` does, and write the plan to a file as it comes, so that it need not fit into memory.

        Where that fails, a file that was there stays as it was.
        """
        request = yield from _to_plan(graph, given_options(options, more), timeout)
        response = yield from self.exchange.save(request, Path(path))
        if not response.is_success:
            read_answer(response)
        digest = response.headers.get("ETag", "").strip('"')
        size = (yield from do(Path(path).stat)).st_size
        return SavedPlan(digest, Path(path), size, is_cached(response), notes_of(response))

    @call
    def plan_program(
        self,
        /,
        program: GraphLike,
        options: Mapping[str, Any] | None = None,
        *,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[PlanResult]:
        """Plan explicit operations; options as for `plan` (``parallelism=2``). It is kept where plans are."""
        members = {"program": (yield from document(program)), "options": given_options(options, more)}
        response = yield from self.exchange.ask(json_request("/v1/program", members, timeout))
        with reading(response) as answer:
            return PlanResult.of(answer, cached=is_cached(response))

    @call
    def stored_plan(self, digest: str, *, timeout: Timeout = None) -> Steps[PlanResult]:
        """A plan that the service still keeps; `ProblemError` with status 404 when it does not."""
        response = yield from self.exchange.ask(Request("GET", f"/v1/plans/{digest}", timeout=timeout))
        with reading(response) as answer:
            return PlanResult.of(answer, cached=True)

    @call
    def export(
        self, digest: str, format_: str, *, against: str | None = None, timeout: Timeout = None
    ) -> Steps[bytes]:
        """A plan that the service still keeps, as a file: c-header, report, perfetto, offsets-csv and others.

        A report shows what changed `against` the plan with that digest. Raises `ProblemError` where the plan
        is not kept, or the format is unknown.
        """
        request = Request("GET", export_path(digest, format_, against), timeout=timeout)
        return read_file((yield from self.exchange.ask(request)))

    @call
    def fits(
        self, /, graph: GraphLike, capacity: int | str, *, timeout: Timeout = None, **more: Option
    ) -> Steps[bool]:
        """Whether an arena of at most `capacity` (bytes, or text as "24MiB") was found."""
        request = yield from _to_plan(graph, given_options(more, {"capacity": capacity}), timeout)
        response = yield from self.exchange.ask(request)
        try:
            with reading(response) as answer:
                PlanResult.of(answer)
        except CapacityExceeded:
            return False
        return True

    @call
    def tradeoff(
        self,
        /,
        graph: GraphLike,
        options: Mapping[str, Any] | None = None,
        *,
        points: int = 10,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[TradeOffResult]:
        """What smaller peaks cost in modelled time, of a graph or a model of another tool; options as for
        `plan`, a capacity is left aside.
        """
        request = yield from _about(
            "/v1/tradeoff", graph, given_options(options, more), {"points": points}, timeout
        )
        return (yield from self._asked(request, TradeOffResult.of))

    @call
    def explain(
        self,
        /,
        graph: GraphLike,
        capacity: int | str,
        options: Mapping[str, Any] | None = None,
        *,
        training: bool = False,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[VerdictResult]:
        """Whether a capacity (bytes, or text as "24MiB") is enough, and what makes it so.

        The network is a graph or a model of another tool. With `training` also measures are tried that change
        what is learned.
        """
        given = given_options(options, {**more, "capacity": capacity})
        request = yield from _about("/v1/explain", graph, given, {"training": training}, timeout)
        return (yield from self._asked(request, VerdictResult.of))

    @call
    def layout(
        self,
        /,
        problem: GraphLike,
        options: Mapping[str, Any] | None = None,
        *,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[LayoutResult]:
        """Place bare buffers (``capacity=2**20, alignment=16``).

        Raises `CapacityExceeded` when there is a capacity and no layout within it was found.
        """
        members = {"problem": (yield from document(problem)), "options": given_options(options, more)}
        response = yield from self.exchange.ask(json_request("/v1/layout", members, timeout))
        with reading(response) as answer:
            return LayoutResult.of(answer, cached=is_cached(response))

    @call
    def stored_layout(self, digest: str, *, timeout: Timeout = None) -> Steps[LayoutResult]:
        """A layout that the service still keeps; `ProblemError` with status 404 when it does not."""
        response = yield from self.exchange.ask(Request("GET", f"/v1/layouts/{digest}", timeout=timeout))
        with reading(response) as answer:
            return LayoutResult.of(answer, cached=True)

    @call
    def validate(
        self,
        /,
        graph: GraphLike,
        plan: GraphLike,
        *,
        steps: int = 5,
        seed: int = 0,
        timeout: Timeout = None,
        **more: Option,
    ) -> Steps[ValidationResult]:
        """Let the service train `steps` steps in the planned arena and compare bit for bit.

        Of a model of another tool, `more` is how it is trained (``loss="mse"``), and the plan is one that the
        service still keeps: only its digest is sent.
        """
        found, planned = (yield from loaded(graph)), (yield from document(plan))
        members: dict[str, Any] = {"steps": steps, "seed": seed}
        if found.is_model:
            given = {**given_options(None, more), **members, "plan": digest_of(planned)}
            request = model_request("/v1/validate", found.data, given, timeout)
        else:
            members = {"graph": found.data, "plan": planned, **members, **given_options(None, more)}
            request = json_request("/v1/validate", members, timeout)
        return (yield from self._asked(request, ValidationResult.of))

    @call
    def ready(self, *, timeout: Timeout = None) -> Steps[bool]:
        """Whether the service is up and can plan; asks once."""
        try:
            return (yield from send(Request("GET", "/readyz", timeout=timeout))).is_success
        except httpx.TransportError:
            return False

    def _asked(self, request: Request, read: Callable[[Mapping[str, Any], tuple[str, ...]], T]) -> Steps[T]:
        response = yield from self.exchange.ask(request)
        with reading(response) as answer:
            return read(answer, notes_of(response))


def _to_plan(graph: GraphLike, options: Mapping[str, Any], timeout: Timeout) -> Steps[Request]:
    return (yield from _about("/v1/plan", graph, options, {}, timeout))


def _about(
    path: str, graph: GraphLike, options: Mapping[str, Any], members: Mapping[str, Any], timeout: Timeout
) -> Steps[Request]:
    """What is asked of a graph; or of a model, with the same in the query."""
    found = yield from loaded(graph)
    if found.is_model:
        return model_request(path, found.data, {**options, **members}, timeout)
    return json_request(path, {"graph": found.data, "options": options, **members}, timeout)
