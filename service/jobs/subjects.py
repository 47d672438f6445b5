"""Bodies of requests about networks, read into what the core answers, with the places of their parts.

A body is JSON with documents in it, as the HTTP API takes it; a line of JSON that is a query, then the bytes
of another tool's model; or the serialized form in which jobs store either. Jobs of earlier versions have one
of the first two, and are read as they are.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from service.jobs.query import in_query
from service.jobs.requests import (
    MEMBERS,
    check_members,
    limited_options,
    parsed_json,
    read_request,
    stored_of,
)
from service.problems import Problem, problem_from
from solver import documents
from solver.errors import ArenaplanError, json_pointer
from solver.importers.registry import unknown_format
from solver.options import DEPLOYMENT_OPTIONS, IMPORT_OPTIONS, MEASURES, REQUEST_OPTIONS, former_option
from solver.plan import Deployment, Plan
from solver.requests import Request, Source, Stored, Wanted
from solver.verdict import MOST_POINTS

__all__ = ["Asked", "Path", "inside", "read_asked", "said_of_a_query"]

#: Keys and indexes that lead to a part of a request.
Path = tuple[str | int, ...]

#: Members of a request that is for a deployment.
_DEPLOYED: Final = frozenset({"models", "entries", "ties"})

#: What is wanted of the core, by the task; a plan may be a deployment.
_WANTED: Final[Mapping[str, Wanted]] = {
    "plan": "plan",
    "program": "plan",
    "tradeoff": "tradeoff",
    "explain": "verdict",
    "validate": "validation",
    "import": "import",
}

_GRAPH_FORMAT: Final = "arenaplan.graph"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and where its parts stand in the body: each model, and members beside the models.

    The members of a request with a model of another tool stand in a query.
    """

    request: Request
    places: Mapping[str, Path]
    prefix: tuple[str, ...] = ()

    def problem(self, error: ArenaplanError) -> Problem:
        """The problem that an error of the core is to the caller."""
        if self.prefix:
            error.message, error.remedy = in_query(error.message), in_query(error.remedy)
        if error.path[:1] == ("models",) and len(error.path) > 1:
            error.path = (*self.places[str(error.path[1])], *error.path[2:])
            return problem_from(error)
        return problem_from(error, () if error.path[:1] == ("plan",) else self.prefix)


def read_asked(task: str, body: bytes, limits: Mapping[str, Any]) -> Asked:
    """The request of a task. Raises `Problem` for what is not JSON, missing, unknown or beyond the limits."""
    stored = stored_of(task, body)
    if stored.choices is not None:
        return _asked_of_model(stored, limits)
    required, optional = MEMBERS[stored.wanted]
    if stored.inline:
        members = {**stored.members, **read_request(stored.content, required, optional)}
    else:
        members = {**stored.members, required[0]: parsed_json(stored.content)}
        check_members(members, required, optional)
    with inside("options"):
        options = limited_options(documents.load_options(members.get("options", {})), limits)
    beside = _beside(stored.wanted, members, "", limits)
    is_deployment = stored.wanted == "plan" and not _DEPLOYED.isdisjoint(members)
    format_ = None
    if stored.wanted == "program":
        format_ = documents.PROGRAM_FORMAT
    elif not is_deployment and (stored.wanted == "plan" or isinstance(beside.get("plan"), Plan)):
        format_ = _GRAPH_FORMAT
    sources, places = dict[str, Source](), dict[str, Path]()
    for name, place, document in _documents(members, required[0]):
        _check_document(document, place, format_, limits)
        sources[name], places[name] = Source(document, name, format=format_), place
    if "models" in members and isinstance(beside.get("plan"), Plan):
        raise Problem(
            "invalid-request",
            '"models" are for a plan with entry points, and this plan is of one network.',
            remedy='Send that network as "graph".',
            pointer="/models",
        )
    wanted: Wanted = "deployment" if is_deployment else _WANTED[stored.wanted]
    request = Request(wanted, sources, options, **beside)
    return Asked(_with_entries(request, members, (), limits), places)


def _asked_of_model(stored: Stored, limits: Mapping[str, Any]) -> Asked:
    """Parameters are choices for the import, members of the task, and fields of its options; of these two,
    texts that are JSON are what they say."""
    choices, members, fields = _of_query(stored.wanted, stored.choices or {})
    source = Source(stored.content, choices=choices)
    with inside("query"), said_of_a_query():
        options = documents.load_options(fields)
    options = limited_options(options, limits)
    beside = _beside(stored.wanted, members, "/query", limits)
    if source.importer is None:
        error = unknown_format("The body")
        raise Problem("invalid-document", error.message, remedy=error.remedy)
    is_deployment = stored.wanted == "plan" and not _DEPLOYED.isdisjoint(members)
    wanted: Wanted = "deployment" if is_deployment else _WANTED[stored.wanted]
    request = _with_entries(
        Request(wanted, {"model": source}, options, **beside), members, ("model",), limits
    )
    return Asked(request, {"model": ("model",)}, ("query",))


def _with_entries(
    request: Request, members: Mapping[str, Any], prefix: tuple[str, ...], limits: Mapping[str, Any]
) -> Request:
    """The request with the entry points among its members, if it is for a deployment."""
    if request.wanted != "deployment":
        return request
    if members.get("like") is not None:
        raise Problem(
            "invalid-request",
            "Entry points cannot be planned like another plan.",
            remedy='Leave out "like", or plan the networks one by one.',
            pointer=json_pointer((*(("query",) if prefix else ()), "like")),
        )
    rows = {name: members[name] for name in ("entries", "ties") if name in members}
    with inside(*prefix):
        specs, ties = documents.load_entries(rows)
    own = dict[int, Source]()
    for k, row in enumerate(rows.get("entries", ())):
        if isinstance(row, dict) and row.get("graph") is not None:
            _check_document(row["graph"], ("entries", k, "graph"), None, limits)
            own[k] = Source(row["graph"])
    return replace(request, entries=specs, ties=ties, entry_models=own)


def _documents(members: Mapping[str, Any], single: str) -> Iterator[tuple[str, Path, Any]]:
    """The name, the place and the value of each document of a network."""
    if "models" not in members:
        name = members[single].get("name") if isinstance(members[single], dict) else None
        yield (name if isinstance(name, str) and name else "model"), (single,), members[single]
        return
    models = members["models"]
    if not isinstance(models, dict) or not models:
        raise Problem(
            "invalid-request",
            '"models" is not an object with a graph or a program for each name.',
            remedy='Send {"models": {"encoder": {...}, "decoder": {...}}}, or one network as "graph".',
            pointer="/models",
        )
    for name, document in models.items():
        yield name, ("models", name), document


def _check_document(document: Any, place: Path, format_: str | None, limits: Mapping[str, Any]) -> None:
    """No operation names more operands than allowed: the work on one may grow with their square."""
    fields, most = document if isinstance(document, dict) else {}, limits["max_operands"]
    is_program = (format_ or fields.get("format")) == documents.PROGRAM_FORMAT
    operations = fields.get("operations")
    for k, operation in enumerate(operations if isinstance(operations, list) else ()):
        for name in ("reads", "writes") if is_program else ("inputs", "outputs"):
            operands = operation.get(name) if isinstance(operation, dict) else None
            if isinstance(operands, list) and len(operands) > most:
                raise Problem(
                    "too-many-operations",
                    f"An operation has {len(operands):,} {name}, at most {most:,} are allowed here.",
                    remedy="Split it into several, or raise ARENAPLAN_MAX_OPERANDS.",
                    pointer=json_pointer((*place, "operations", k, name)),
                )


def _beside(task: str, members: Mapping[str, Any], pointer: str, limits: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request by the members beside its models. `pointer` leads to the object of these."""

    def value_of(name: str, default: Any, is_right: Callable[[Any], bool], remedy: str) -> Any:
        value = members.get(name, default)
        if is_right(value):
            return value
        detail = f'"{name}" is {json.dumps(value):.40}.'
        raise Problem("invalid-request", detail, remedy=remedy, pointer=f"{pointer}/{name}")

    def whole(name: str, default: int, least: int, most: int) -> Any:
        remedy = f"Give a whole number from {least} to {most}."
        return value_of(name, default, lambda value: type(value) is int and least <= value <= most, remedy)

    match task:
        case "plan" | "program":
            return {"like": None if _DEPLOYED & members.keys() else _old_plan(members, pointer)}
        case "tradeoff":
            return {"points": whole("points", 10, 2, MOST_POINTS)}
        case "explain":
            training = value_of(
                "training", True, lambda value: isinstance(value, bool), "Give true or false."
            )
            scores = value_of("scores", None, _are_scores, _GIVE_SCORES)
            if scores is None:
                return {"training": training}
            by_name = {} if scores == "bytes" else {"scores": scores}
            return {"training": training, "chooses": True, **by_name}
        case "validate":
            most = limits["validate_max_steps"]
            steps, seed = whole("steps", min(5, most), 1, most), whole("seed", 0, 0, 2**63 - 1)
            with inside("plan"):
                return {"steps": steps, "seed": seed, "plan": documents.load_planned(members["plan"])}
    return {}


_GIVE_SCORES: Final = (
    'Give numbers by the name of an operation or parameter, as {"conv1": 0.2, "fc": 3}, or "bytes".'
)


def _are_scores(value: Any) -> bool:
    """Whether layers can be chosen by the value; None leaves out the choice."""
    if isinstance(value, dict):
        return all(type(score) in (int, float) for score in value.values())
    return value is None or bool(value == "bytes")


def _old_plan(members: Mapping[str, Any], pointer: str) -> Plan | Deployment | None:
    """The plan whose persistent values are to stay where they are, if there is one."""
    like = members.get("like")
    if like is None:
        return None
    if isinstance(like, str):
        raise Problem(
            "invalid-request",
            '"like" is a text, and not the document of a plan.',
            remedy="Give the document, which GET /v1/plans/DIGEST has; a digest will do only with a model of"
            " another tool.",
            pointer=f"{pointer}/like",
        )
    with inside(*pointer.strip("/").split("/") if pointer else (), "like"):
        return documents.load_planned(like)


@contextlib.contextmanager
def inside(*prefix: str) -> Iterator[None]:
    """Errors of the core, turned into problems that point into the request."""
    try:
        yield
    except ArenaplanError as error:
        raise problem_from(error, prefix) from error


@contextlib.contextmanager
def said_of_a_query() -> Iterator[None]:
    """Errors name parameters where they name flags."""
    try:
        yield
    except ArenaplanError as error:
        error.message, error.remedy = in_query(error.message), in_query(error.remedy)
        raise


def _of_query(
    task: str, texts: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Choices for the import, members of the task, and fields of its options, from the texts of a query."""
    required, optional = MEMBERS.get(task, MEMBERS["plan"])
    named = {*required, *optional} - {"graph", "models", "options"}
    choices: dict[str, Any] = {}
    members: dict[str, Any] = {}
    fields: dict[str, Any] = {}
    for name, values in texts.items():
        choice = IMPORT_OPTIONS.get(name)
        if choice is not None and choice.kind == "words":
            choices[name] = values
        elif name in DEPLOYMENT_OPTIONS and name in named:
            members[name] = [_value(value) for value in values]
        elif name in REQUEST_OPTIONS and REQUEST_OPTIONS[name].is_list:
            whole = _value(values[0])
            fields[name] = whole if len(values) == 1 and not isinstance(whole, str) else values
        elif len(values) > 1:
            raise Problem(
                "invalid-request",
                f"{name!r:.60} is given twice.",
                remedy="Give it once.",
                pointer=f"/query/{name}",
            )
        elif name in MEASURES:
            words = former_option(name, name, f"only={name}", "scratch_budget=64KiB")
            raise Problem("invalid-document", words[0], remedy=words[1], pointer=f"/query/{name}")
        elif choice is not None:
            choices[name] = values[0]
        else:
            (members if name in named else fields)[name] = _value(values[0])
    if task == "validate":  # the options are those of the plan
        check_members({**members, **fields}, ("plan",), tuple(sorted(named)), "/query", {})
    return choices, members, fields


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
