"""The work of a command, done by a service elsewhere: the same answers, the same errors, as if done here."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from clients import (
    CapacityExceeded,
    Client,
    ClientError,
    ConnectionFailed,
    Job,
    JobNotFinished,
    Jobs,
    JobStatus,
    ProblemError,
    Retry,
)
from service.cli.console import Exit, fail, print_notes, progress_text, read_document
from service.jobs.query import in_flags
from solver import documents, errors
from solver.errors import (
    ArenaplanError,
    CapacityError,
    InternalError,
    OptionsError,
    TooManyOperationsError,
)
from solver.layout import LayoutOptions, LayoutProblem, PlacedBuffers
from solver.pipeline import BlockProgram, TrainableGraph
from solver.plan import Deployment, Plan
from solver.reports.validation import ValidationReport
from solver.reports.verdict import TradeOff, Verdict
from solver.requests import Model, ReadModel, Request, Source, Work

__all__ = ["Service", "is_digest", "read_plan"]

T = TypeVar("T")

_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)

#: What pointers of the service begin with, and those of a command do not.
_MEMBERS: Final = frozenset({"graph", "program", "problem", "model", "plan", "options", "query"})

#: The core's errors by their code. Too many operations is a limit of the service, not of the graph.
_ERRORS: Final[Mapping[str, type[ArenaplanError]]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, ArenaplanError)
    and "code" in vars(kind)  # subclasses without a code of their own are told apart here alone
    and kind not in (ArenaplanError, CapacityError, InternalError, TooManyOperationsError)
}

#: What says that a service keeps no jobs, none for who asks, or none as large as this one.
_NO_JOBS: Final = frozenset(
    {
        "/problems/jobs-off",
        "/problems/database-unavailable",
        "/problems/not-found",
        "/problems/method-not-allowed",
        "/problems/forbidden",
        "/problems/body-too-large",
    }
)

#: As long as a person waits for a name that may be misspelt.
_RETRY: Final = Retry(attempts=6)


def is_digest(path: Path) -> bool:
    """Whether this names a plan by its digest, and not a file."""
    return _DIGEST.fullmatch(str(path)) is not None and not path.exists()


class Service:
    """The service at `url`. The key is `ARENAPLAN_API_KEY`; jobs are waited for `ARENAPLAN_WAIT_SECONDS`.

    Errors that the core would raise here are raised as the core raises them. All others end the command.
    """

    def __init__(self, url: str, *, as_json: bool) -> None:
        self._url = url
        self._as_json = as_json
        self._seconds: float | None = None
        if text := os.environ.get("ARENAPLAN_WAIT_SECONDS"):
            try:
                self._seconds = float(text)
            except ValueError:
                fail(
                    f"ARENAPLAN_WAIT_SECONDS is {text!r:.80}, not a number of seconds.",
                    Exit.USAGE,
                    as_json=as_json,
                )

    def answer(self, request: Request) -> Any:
        """What is wanted. A model of another tool is sent as the graph that it is, but to train in a plan."""
        request = Work(request).request
        return _WAYS[request.wanted](self, request, json.loads(documents.dump_options(request.options)))

    def _plan(self, request: Request, fields: dict[str, Any]) -> Plan:
        text, network = self._text(request)
        if request.options.ranges and self._source(request).importer is not None:
            raise OptionsError(
                "The command plans a model of another tool for several sizes here, not at a service.",
                remedy="Leave out --server, or send the model itself to POST /v1/plan.",
                path=("server",),
            )
        title = f"planning {network.name}"
        if isinstance(network, TrainableGraph):
            answer = self._answer(title, lambda door: door.plan(text, fields))
        else:
            answer = self._answer(title, lambda door: door.plan_program(text, fields))
        return documents.load_plan(answer.document)

    def _deployment(self, request: Request, fields: dict[str, Any]) -> Deployment:
        """A model of another tool is sent as the graph that it is for a batch; an entry point with another
        batch brings its own."""
        work = Work(request, follow=self._told)
        batch, first_batch = request.options.options.batch, dict[str, int | None]()
        rows = []
        for spec in request.entries:
            row = {name: value for name, value in asdict(spec).items() if value}
            model = spec.model or next(iter(request.models))
            if model in request.models and request.models[model].importer is not None:
                own = spec.batch or batch
                if first_batch.setdefault(model, own) != own:
                    row["graph"] = json.loads(documents.dump_graph(self._model(work, model, own).graph))
            rows.append(row)
        texts = {
            name: source.document() or documents.dump_graph(
                self._model(work, name, first_batch.get(name, batch)).graph
            )
            for name, source in request.models.items()
        }  # fmt: skip
        ties = [tie.text for tie in request.ties]
        answer = self._answer(
            f"planning {'+'.join(texts)}",
            lambda door: door.deploy(texts, rows, fields, ties=ties),
        )
        return documents.load_deployment(answer.document)

    def _tradeoff(self, request: Request, fields: dict[str, Any]) -> TradeOff:
        text, network = self._text(request)
        answer = self._answer(
            f"looking for schedules of {network.name}",
            lambda door: door.tradeoff(text, fields, points=request.points),
        )
        return documents.load_tradeoff(answer.document)

    def _verdict(self, request: Request, fields: dict[str, Any]) -> Verdict:
        text, network = self._text(request)
        capacity, training = fields.pop("capacity"), request.training
        answer = self._answer(
            f"looking for what makes {network.name} fit",
            lambda door: door.explain(text, capacity, fields, training=training),
        )
        return documents.load_verdict(answer.document)

    def _validation(self, request: Request, _fields: dict[str, Any]) -> ValidationReport:
        """A model of another tool goes there as it is, as its weights are needed there; it has to be the only
        one. A service without jobs must keep the plan of a model."""
        plan, sources = request.plan, request.models
        choices: Mapping[str, Any] = {}
        network: bytes | dict[str, bytes]
        for name, source in sources.items():
            if source.importer is not None and len(sources) > 1:
                raise OptionsError(
                    f"{source.label!r:.80} is a model of another tool, which a service takes alone.",
                    remedy="Leave out --server, or write its graph first:"
                    f" arenaplan import {source.label:.80} -o {name:.80}.json",
                    path=("server",),
                )
            if source.without_weights is not source:
                raise OptionsError(
                    "A file of weights stays here.",
                    remedy="Leave out --server; or --weights, to train from the weights in the model.",
                    path=("weights",),
                )
        source = next(iter(sources.values()))
        if source.importer is not None and isinstance(source.content, bytes):
            network, choices = source.content, source.choices
        elif isinstance(plan, Plan) and plan.planned_sizes is None:
            network = documents.dump_graph(Work(request).graphs()[""])
        else:
            texts = {name: source.document() or b"" for name, source in sources.items()}
            network = next(iter(texts.values())) if isinstance(plan, Plan) else texts
        assert plan is not None
        planned = documents.dump_plan(plan) if isinstance(plan, Plan) else documents.dump_deployment(plan)
        asked = {"steps": request.steps, "seed": request.seed, **choices}
        answer = self._answer(
            f"training {'+'.join(sources)}",
            lambda door: door.validate(network, planned, **asked),
        )
        print_notes(map(in_flags, answer.notes))
        return documents.load_report(answer.document)

    def _import(self, request: Request, _fields: dict[str, Any]) -> TrainableGraph:
        return self._imported(self._source(request), request.options.options.batch)

    def _source(self, request: Request) -> Source:
        (source,) = request.models.values()
        return source

    def _text(self, request: Request) -> tuple[bytes, TrainableGraph | BlockProgram]:
        """The document of the only model of a request, and its network."""
        source, batch = self._source(request), request.options.options.batch
        model = self._model(Work(request, follow=self._told), next(iter(request.models)), batch)
        if (text := source.document()) is None:
            text = documents.dump_graph(model.graph)  # no other tool has programs of explicit operations
        return text, model.network

    def _model(self, work: Work, name: str, batch: int | None) -> Model:
        """A model of a request at a batch; the service imports it if its package is not installed here."""
        source = work.request.models[name]
        if source.importer is not None and not source.importer.installed:
            return Model(source, self._imported(source, batch))
        return work.model(name, batch)

    def _told(self, _stage: str, news: object) -> None:
        if isinstance(news, ReadModel):
            print_notes(news.notes)

    def _imported(self, source: Source, batch: int | None) -> TrainableGraph:
        """The graph of a model of another tool; prints the notes. Only jobs import models."""
        options, data = {**source.choices, "batch": batch}, source.content
        assert isinstance(data, bytes)
        with self._asking(f"importing {source.name}") as (client, show):
            job = client.jobs.import_model(data, **options)
            document = self._waited(job, show)
        print_notes(map(in_flags, job.notes))
        return documents.load_graph({**document, "name": source.name})

    def layout(self, name: str, problem: LayoutProblem, options: LayoutOptions) -> PlacedBuffers:
        """The layout of buffers from a file called `name`."""
        fields = json.loads(documents.dump_layout_options(options))
        text = documents.dump_buffers(problem)
        answer = self._answer(
            f"placing {len(problem.buffers):,} buffers of {name}",
            lambda door: door.layout(text, fields),
        )
        return documents.load_layout(answer.document)

    def stored_plan(self, digest: str) -> bytes:
        """The document of a plan that the service keeps."""
        with self._asking(f"fetching plan {digest[:12]}") as (client, _):
            planned = documents.load_planned(client.stored_plan(digest).document)
        if isinstance(planned, Deployment):
            return documents.dump_deployment(planned)
        return documents.dump_plan(planned)

    def _answer(self, title: str, ask: Callable[[Client | Jobs], T | Job[T]]) -> T:
        """The result of a job, or of a synchronous request if the service keeps no jobs; `ask` is for both.

        A job outlives broken connections and restarts of the service; Ctrl-C ends it.
        """
        with self._asking(title) as (client, show):
            try:
                answer = ask(client.jobs)
            except ProblemError as problem:
                if problem.type not in _NO_JOBS:
                    raise
                answer = ask(client)
            return self._waited(answer, show) if isinstance(answer, Job) else answer

    def _waited(self, job: Job[T], show: Callable[[str], None]) -> T:
        try:
            return job.wait(lambda status: show(_progress_of(status)), timeout=self._seconds)
        except KeyboardInterrupt:
            job.cancel()
            raise

    @contextlib.contextmanager
    def _asking(self, title: str) -> Iterator[tuple[Client, Callable[[str], None]]]:
        """A client, and what shows how far it is, on standard error if that is a terminal."""
        console = Console(stderr=True)
        title = f"{title}, at {self._url}"
        try:
            with contextlib.ExitStack() as stack:
                client = stack.enter_context(Client(self._url, retry=_RETRY))
                columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
                disabled = not console.is_terminal
                bar = stack.enter_context(
                    Progress(*columns, console=console, transient=True, disable=disabled)
                )
                task = bar.add_task(escape(title))
                yield client, lambda text: bar.update(task, description=escape(f"{title}: {text}"))
        except ProblemError as problem:
            if (error := _error(problem)) is not None:
                raise error from problem
            code = Exit.BUG if problem.type == "/problems/internal-error" else Exit.USAGE
            members = {"type": problem.type, "detail": problem.detail, "remedy": problem.remedy}
            facts = {name: value for name, value in members.items() if value is not None}
            fail(f"{self._url}: {problem}", code, as_json=self._as_json, **facts)
        except JobNotFinished as late:
            fail(
                f"{self._url}: the job has not ended within {late.seconds:g} s (ARENAPLAN_WAIT_SECONDS). It"
                f" goes on: GET /v1/jobs/{late.id} says how far it is, DELETE ends it.",
                Exit.USAGE,
                as_json=self._as_json,
                job=late.id,
            )
        except ConnectionFailed as error:
            remedy = "See whether a service runs there."
            fail(f"--server: {error}. {remedy}", Exit.USAGE, as_json=self._as_json)
        except (ClientError, httpx.InvalidURL) as error:
            fail(f"--server: {error}", Exit.USAGE, as_json=self._as_json)


#: How a service is asked for what is wanted.
_WAYS: Final[Mapping[str, Callable[[Service, Request, dict[str, Any]], Any]]] = {
    "plan": Service._plan,
    "deployment": Service._deployment,
    "tradeoff": Service._tradeoff,
    "verdict": Service._verdict,
    "validation": Service._validation,
    "import": Service._import,
}


def _progress_of(status: JobStatus) -> str:
    """``layout, 21,613,184 bytes, at least 21,613,184``."""
    progress = status.progress
    if progress is None:
        return status.state
    return progress_text(progress.stage, asdict(progress))


def _error(problem: ProblemError) -> ArenaplanError | None:
    """The error that the core would have raised; None for what only a service can say."""
    code = problem.type.removeprefix("/problems/")
    parts = (part.replace("~1", "/").replace("~0", "~") for part in (problem.pointer or "").split("/")[1:])
    path: list[str | int] = [int(part) if part.isdecimal() else part for part in parts]
    if path and path[0] in _MEMBERS:
        del path[0]
    detail, remedy = in_flags(problem.detail), in_flags(problem.remedy or "")
    if isinstance(problem, CapacityExceeded):
        error = CapacityError(
            detail,
            required=problem.required,
            available=problem.available,
            live_at_peak=problem.live_at_peak,
            remedy=remedy,
            path=path,
            proved=problem.proved,
        )
        error.entry_point = problem.document.get("entry_point")
        error.held = problem.document.get("held", 0)
        return error
    kind = _ERRORS.get(code)
    return None if kind is None else kind(detail, remedy=remedy, path=path)


def read_plan(path: Path, server: str | None, *, as_json: bool = False) -> bytes:
    """The document of a plan: a file, standard input, or by its digest what the service at `server` keeps."""
    if server is None or not is_digest(path):
        return read_document(path)
    return Service(server, as_json=as_json).stored_plan(str(path))
