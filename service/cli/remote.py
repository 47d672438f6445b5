"""The work of a command, done by a service elsewhere: the same answers, the same errors, as if done here."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
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
from service.cli.console import TITLES, Exit, fail, print_notes, progress_text
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
from solver.pipeline import TrainableGraph
from solver.plan import Deployment, Plan
from solver.requests import Model, ReadModel, Request, Source, Work

__all__ = ["Service"]

T = TypeVar("T")

#: A method of clients, its arguments, and its keywords.
_Call = tuple[str, tuple[Any, ...], Mapping[str, Any]]

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
        work = Work(request, follow=self._told)
        request, name = work.request, "+".join(request.models)
        if request.wanted == "import":
            return self._imported(request.models[name], request.options.options.batch)
        fields = json.loads(documents.dump_options(request.options))
        match request.wanted:
            case "deployment":
                call = self._of_entries(work, fields)
            case "validation":
                call = self._of_plan(work)
            case _:
                name, call = self._of_network(work, fields)
        method, arguments, more = call
        title = TITLES[request.wanted].format(name)
        sent = self._answer(title, lambda door: getattr(door, method)(*arguments, **more))
        print_notes(map(in_flags, sent.notes))
        return _READERS[request.wanted](sent.document)

    def _of_network(self, work: Work, fields: dict[str, Any]) -> tuple[str, _Call]:
        """The name of the only network, and the call that sends it."""
        request = work.request
        ((name, source),) = request.models.items()
        network = self._model(work, name, request.options.options.batch).network
        if (text := source.document()) is None:
            assert isinstance(network, TrainableGraph)  # no other tool has programs of explicit operations
            text = documents.dump_graph(network)
        if request.wanted == "tradeoff":
            return network.name, ("tradeoff", (text, fields), {"points": request.points})
        if request.wanted == "verdict":
            arguments = (text, fields.pop("capacity"), fields)
            return network.name, ("explain", arguments, {"training": request.training})
        if request.options.ranges and source.importer is not None:
            raise OptionsError(
                "The command plans a model of another tool for several sizes here, not at a service.",
                remedy="Leave out --server, or send the model itself to POST /v1/plan.",
                path=("server",),
            )
        method = "plan" if isinstance(network, TrainableGraph) else "plan_program"
        return network.name, (method, (text, fields), {})

    def _of_entries(self, work: Work, fields: dict[str, Any]) -> _Call:
        """A model of another tool is sent as the graph that it is for a batch; an entry point with another
        batch brings its own."""
        request, rows, first_batch = work.request, [], dict[str, int | None]()
        batch = request.options.options.batch
        for spec in request.entries:
            row = {name: value for name, value in asdict(spec).items() if value}
            model = spec.model or next(iter(request.models))
            if model in request.models and request.models[model].importer is not None:
                own = spec.batch or batch
                if first_batch.setdefault(model, own) != own:
                    row["graph"] = json.loads(documents.dump_graph(self._model(work, model, own).graph))
            rows.append(row)
        texts = {
            name: source.document()
            or documents.dump_graph(self._model(work, name, first_batch.get(name, batch)).graph)
            for name, source in request.models.items()
        }
        return "deploy", (texts, rows, fields), {"ties": [tie.text for tie in request.ties]}

    def _of_plan(self, work: Work) -> _Call:
        """A model of another tool goes there as it is, as its weights are needed there; it has to be the only
        one. A service without jobs must keep the plan of a model."""
        request, plan, sources = work.request, work.request.plan, work.request.models
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
        assert plan is not None
        choices: Mapping[str, Any] = {}
        network: Any
        if source.importer is not None:
            network, choices = source.content, source.choices
        elif isinstance(plan, Plan) and plan.planned_sizes is None:
            network = documents.dump_graph(work.graphs()[""])
        else:
            network = {name: source.document() or b"" for name, source in sources.items()}
            if isinstance(plan, Plan):
                (network,) = network.values()
        more = {"steps": request.steps, "seed": request.seed, **choices}
        return "validate", (network, documents.dump_planned(plan)), more

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
        with self._asking(TITLES["import"].format(source.name)) as (client, show):
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

    def stored_plan(self, digest: str) -> Plan | Deployment:
        """A plan that the service keeps."""
        with self._asking(f"fetching plan {digest[:12]}") as (client, _):
            return documents.load_planned(client.stored_plan(digest).document)

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


#: How answers to what is wanted are read.
_READERS: Final[Mapping[str, Callable[[Mapping[str, Any]], Any]]] = {
    "plan": documents.load_plan,
    "deployment": documents.load_deployment,
    "tradeoff": documents.load_tradeoff,
    "verdict": documents.load_verdict,
    "validation": documents.load_report,
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
