"""The work of a command, done by a service elsewhere: the same answers, the same errors, as if done here."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
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
    JobStatus,
    ProblemError,
    Retry,
)
from service.cli.console import Exit, fail, print_notes, progress_text, read_document
from service.jobs.query import in_flags
from solver import documents, errors
from solver.errors import ArenaplanError, CapacityError, InternalError, TooManyOperationsError
from solver.layout import LayoutOptions, LayoutProblem, PlacedBuffers
from solver.pipeline import BlockProgram, TrainableGraph
from solver.plan import Deployment, Plan, RequestedOptions
from solver.reports.validation import ValidationReport
from solver.reports.verdict import TradeOff, Verdict

__all__ = ["SentGraphs", "SentModel", "Service", "is_digest", "read_plan"]

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


@dataclass(frozen=True, slots=True)
class SentModel:
    """A model of another tool that goes to the service as it is, weights and all, with how it is trained."""

    name: str
    data: bytes
    choices: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SentGraphs:
    """The networks of a deployment by name, as the texts of their documents."""

    name: str
    texts: Mapping[str, bytes]


def _text_of(network: TrainableGraph | BlockProgram) -> bytes:
    """The document of a network that came from another tool."""
    if isinstance(network, TrainableGraph):
        return documents.dump_graph(network)
    return documents.dump_program(network)


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

    def plan(
        self, model: TrainableGraph | BlockProgram, document: bytes | None, options: RequestedOptions
    ) -> Plan:
        """The plan of a graph or a program; `document` is its text, None for what came from another tool."""
        fields = json.loads(documents.dump_options(options))
        title, text = f"planning {model.name}", document or _text_of(model)
        if isinstance(model, BlockProgram):
            answer = self._answer(
                title, lambda c: c.jobs.plan_program(text, fields), lambda c: c.plan_program(text, fields)
            )
        else:
            answer = self._answer(title, lambda c: c.jobs.plan(text, fields), lambda c: c.plan(text, fields))
        return documents.load_plan(answer.document)

    def deploy(
        self,
        models: Mapping[str, bytes],
        entries: Sequence[Mapping[str, Any]],
        ties: Sequence[str],
        options: RequestedOptions,
    ) -> Deployment:
        """The deployment of networks, which are the texts of documents by name."""
        fields = json.loads(documents.dump_options(options))
        answer = self._answer(
            f"planning {'+'.join(models)}",
            lambda c: c.jobs.deploy(models, entries, fields, ties=ties),
            lambda c: c.deploy(models, entries, fields, ties=ties),
        )
        return documents.load_deployment(answer.document)

    def tradeoff(
        self,
        network: TrainableGraph | BlockProgram,
        document: bytes | None,
        options: RequestedOptions,
        points: int,
    ) -> TradeOff:
        """The curve of a graph or program; `document` as for plans."""
        fields = json.loads(documents.dump_options(options))
        text = document or _text_of(network)
        answer = self._answer(
            f"looking for schedules of {network.name}",
            lambda c: c.jobs.tradeoff(text, fields, points=points),
            lambda c: c.tradeoff(text, fields, points=points),
        )
        return documents.load_tradeoff(answer.document)

    def explain(
        self,
        network: TrainableGraph | BlockProgram,
        document: bytes | None,
        options: RequestedOptions,
        *,
        training: bool,
    ) -> Verdict:
        """The verdict on the capacity among the options; `document` as for plans."""
        fields = json.loads(documents.dump_options(options))
        capacity = fields.pop("capacity")
        text = document or _text_of(network)
        answer = self._answer(
            f"looking for what makes {network.name} fit",
            lambda c: c.jobs.explain(text, capacity, fields, training=training),
            lambda c: c.explain(text, capacity, fields, training=training),
        )
        return documents.load_verdict(answer.document)

    def layout(self, name: str, problem: LayoutProblem, options: LayoutOptions) -> PlacedBuffers:
        """The layout of buffers from a file called `name`."""
        fields = json.loads(documents.dump_layout_options(options))
        text = documents.dump_buffers(problem)
        answer = self._answer(
            f"placing {len(problem.buffers):,} buffers of {name}",
            lambda c: c.jobs.layout(text, fields),
            lambda c: c.layout(text, fields),
        )
        return documents.load_layout(answer.document)

    def validate(
        self, graph: TrainableGraph | SentModel | SentGraphs, plan: Plan | Deployment, steps: int, seed: int
    ) -> ValidationReport:
        """The report of training in the plan there. A service without jobs must keep the plan of a model."""
        network: bytes | Mapping[str, bytes]
        if isinstance(graph, TrainableGraph):
            network = documents.dump_graph(graph)
        else:
            network = graph.data if isinstance(graph, SentModel) else graph.texts
        choices = graph.choices if isinstance(graph, SentModel) else {}
        planned = documents.dump_plan(plan) if isinstance(plan, Plan) else documents.dump_deployment(plan)
        answer = self._answer(
            f"training {graph.name}",
            lambda c: c.jobs.validate(network, planned, steps=steps, seed=seed, **choices),
            lambda c: c.validate(network, planned, steps=steps, seed=seed, **choices),
        )
        print_notes(map(in_flags, answer.notes))
        return documents.load_report(answer.document)

    def import_model(
        self, name: str, model: bytes, batch: int | None, choices: Mapping[str, Any]
    ) -> TrainableGraph:
        """The graph, called `name`, of a model of another tool; prints the notes. Only jobs import models."""
        options = {**choices, "batch": batch}
        with self._asking(f"importing {name}") as (client, show):
            job = client.jobs.import_model(model, **options)
            document = self._waited(job, show)
        print_notes(map(in_flags, job.notes))
        return documents.load_graph({**document, "name": name})

    def stored_plan(self, digest: str) -> bytes:
        """The document of a plan that the service keeps."""
        with self._asking(f"fetching plan {digest[:12]}") as (client, _):
            planned = documents.load_planned(client.stored_plan(digest).document)
        if isinstance(planned, Deployment):
            return documents.dump_deployment(planned)
        return documents.dump_plan(planned)

    def _answer(self, title: str, submit: Callable[[Client], Job[T]], ask: Callable[[Client], T]) -> T:
        """The result of a job, or of a synchronous request where the service keeps no jobs.

        A job outlives broken connections and restarts of the service; Ctrl-C ends it.
        """
        with self._asking(title) as (client, show):
            try:
                job = submit(client)
            except ProblemError as problem:
                if problem.type not in _NO_JOBS:
                    raise
                return ask(client)
            return self._waited(job, show)

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
