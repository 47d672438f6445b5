"""The work of a command, done by a service elsewhere: the same answers, the same errors, as if done here."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import httpx
from rich.console import Console
from rich.markup import escape

from clients import CapacityExceeded, Client, ClientError, ProblemError, Retry
from service.cli.console import Exit, fail, read_document
from solver import documents, errors
from solver.errors import ArenaplanError, CapacityError, InternalError, TooManyOperationsError
from solver.layout import LayoutOptions, LayoutProblem, PlacedBuffers
from solver.pipeline import BlockProgram, TrainableGraph
from solver.plan import Plan, PlanOptions, TradeOff, ValidationReport, Verdict

__all__ = ["Service", "is_digest", "read_plan"]

_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)

#: What pointers of the service begin with, and those of a command do not.
_MEMBERS: Final = frozenset({"graph", "program", "problem", "model", "plan", "options"})

#: The core's errors by their code. Too many operations is a limit of the service, not of the graph.
_ERRORS: Final[Mapping[str, type[ArenaplanError]]] = {
    kind.code: kind
    for kind in vars(errors).values()
    if isinstance(kind, type)
    and issubclass(kind, ArenaplanError)
    and kind not in (ArenaplanError, CapacityError, InternalError, TooManyOperationsError)
}

#: As long as a person waits for a name that may be misspelt.
_RETRY: Final = Retry(attempts=6)


def is_digest(path: Path) -> bool:
    """Whether this names a plan by its digest, and not a file."""
    return _DIGEST.fullmatch(str(path)) is not None and not path.exists()


class Service:
    """The service at `url`. The key is `ARENAPLAN_API_KEY`.

    Errors that the core would raise here are raised as the core raises them. All others end the command.
    """

    def __init__(self, url: str, *, as_json: bool) -> None:
        self._url = url
        self._as_json = as_json

    def plan(
        self, model: TrainableGraph | BlockProgram, document: bytes | None, options: PlanOptions
    ) -> Plan:
        """The plan of a graph or a program; `document` is its text, None for what came from another tool."""
        given = json.loads(documents.dump_options(options))
        with self._asking(f"planning {model.name}") as client:
            if isinstance(model, BlockProgram):
                text = document or documents.dump_program(model)
                return documents.load_plan(client.plan_program(text, given).document)
            return documents.load_plan(client.plan(document or documents.dump_graph(model), given).document)

    def tradeoff(
        self, graph: TrainableGraph, document: bytes | None, options: PlanOptions, points: int
    ) -> TradeOff:
        given = json.loads(documents.dump_options(options))
        with self._asking(f"looking for schedules of {graph.name}") as client:
            answer = client.tradeoff(document or documents.dump_graph(graph), given, points=points)
            return documents.load_tradeoff(answer.document)

    def explain(
        self, graph: TrainableGraph, document: bytes | None, options: PlanOptions, *, training: bool
    ) -> Verdict:
        given = json.loads(documents.dump_options(options))
        capacity = given.pop("capacity")
        with self._asking(f"looking for what makes {graph.name} fit") as client:
            text = document or documents.dump_graph(graph)
            answer = client.explain(text, capacity, given, training=training)
            return documents.load_verdict(answer.document)

    def layout(self, name: str, problem: LayoutProblem, options: LayoutOptions) -> PlacedBuffers:
        given = json.loads(documents.dump_layout_options(options))
        with self._asking(f"placing {len(problem.buffers):,} buffers of {name}") as client:
            return documents.load_layout(client.layout(documents.dump_buffers(problem), given).document)

    def validate(self, graph: TrainableGraph, plan: Plan, steps: int, seed: int) -> ValidationReport:
        with self._asking(f"training {graph.name}") as client:
            text = documents.dump_graph(graph)
            answer = client.validate(text, documents.dump_plan(plan), steps=steps, seed=seed)
            return documents.load_report(answer.document)

    def stored_plan(self, digest: str) -> bytes:
        """The document of a plan that the service keeps."""
        with self._asking(f"fetching plan {digest[:12]}") as client:
            return documents.dump_plan(documents.load_plan(client.stored_plan(digest).document))

    @contextlib.contextmanager
    def _asking(self, title: str) -> Iterator[Client]:
        """A client; what it is asked for stands on standard error meanwhile, if that is a terminal."""
        console = Console(stderr=True)
        status = console.status(escape(f"{title}, at {self._url}")) if console.is_terminal else None
        try:
            with status or contextlib.nullcontext(), Client(self._url, retry=_RETRY) as client:
                yield client
        except ProblemError as problem:
            if (error := _error(problem)) is not None:
                raise error from problem
            code = Exit.BUG if problem.type == "/problems/internal-error" else Exit.USAGE
            said = {"type": problem.type, "detail": problem.detail, "remedy": problem.remedy}
            facts = {name: value for name, value in said.items() if value is not None}
            fail(f"{self._url}: {problem}", code, as_json=self._as_json, **facts)
        except (ClientError, httpx.InvalidURL) as error:
            fail(f"--server: {error}", Exit.USAGE, as_json=self._as_json)


def _error(problem: ProblemError) -> ArenaplanError | None:
    """The error that the core would have raised; None for what only a service can say."""
    code = problem.type.removeprefix("/problems/")
    parts = (part.replace("~1", "/").replace("~0", "~") for part in (problem.pointer or "").split("/")[1:])
    path: list[str | int] = [int(part) if part.isdecimal() else part for part in parts]
    if path and path[0] in _MEMBERS:
        del path[0]
    remedy = problem.remedy or ""
    if isinstance(problem, CapacityExceeded):
        return CapacityError(
            problem.detail,
            required=problem.required,
            available=problem.available,
            live_at_peak=problem.live_at_peak,
            remedy=remedy,
            path=path,
            proved=problem.proved,
        )
    kind = _ERRORS.get(code)
    return None if kind is None else kind(problem.detail, remedy=remedy, path=path)


def read_plan(path: Path, server: str | None, *, as_json: bool = False) -> bytes:
    """The document of a plan: a file, standard input, or by its digest what the service at `server` keeps."""
    if server is None or not is_digest(path):
        return read_document(path)
    return Service(server, as_json=as_json).stored_plan(str(path))
