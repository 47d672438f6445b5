"""Requests, from their bodies to what the core answers, with the places of their parts.

A body is JSON with documents in it, as the HTTP API takes it; a line of JSON that is a query, then the bytes
of another tool's model; or the serialized form in which jobs store either. Jobs of earlier versions have one
of the first two, and are read as they are.

    KINDS        how each kind of request is read, run and answered
    read_asked   the request in a body, in a worker
    read_order   the body of ``POST /v1/jobs``, as far as storing it needs; a worker reads the rest
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import BaseModel

from service.jobs.frames import Spool
from service.jobs.query import in_query
from service.problems import Problem, problem_from
from solver import documents
from solver.canonical import to_bytes
from solver.errors import ArenaplanError, DocumentError, json_pointer
from solver.importers.registry import unknown_format
from solver.options import DEPLOYMENT_OPTIONS, IMPORT_OPTIONS, MEASURES, REQUEST_OPTIONS, former_option
from solver.plan import Deployment, LayoutOptions, Plan, RequestedOptions
from solver.removed import removed
from solver.requests import Request, Source, Stored, Wanted
from solver.verdict import MOST_POINTS

__all__ = [
    "KINDS",
    "TASK_OF_MODEL",
    "Asked",
    "Kind",
    "Order",
    "check_early",
    "check_members",
    "inside",
    "limited_options",
    "named_deadline",
    "read_asked",
    "read_order",
    "read_request",
    "stored_of",
    "with_deadline",
    "with_graph",
]

Options = TypeVar("Options", RequestedOptions, LayoutOptions)
#: By a member that is an object: the names that belong into it.
Within: TypeAlias = Mapping[str, Iterable[str]]

#: What every document may begin with.
_HEADER: Final = frozenset({"format", "version"})


@dataclass(frozen=True, slots=True)
class Kind:
    """How requests of one kind are read, run and answered.

    In JSON a request must have the `required` members, of which the first is its document, and may have the
    `optional` ones; with `models` among them, these may take the place of a graph. The core is asked for what
    is `wanted`, which for a plan may be a deployment. `model_work` is what workers call the work if its body
    is a model of another tool; empty if the kind takes none. Answers with a digest are served again under
    `collection`; `search` is the stage of others that search until a deadline.
    """

    required: tuple[str, ...]
    optional: tuple[str, ...]
    wanted: Wanted | None
    model_work: str = ""
    collection: str = ""
    search: str = ""

    @property
    def members(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        return self.required, self.optional


#: What a job may be, by the name of its task: that of a synchronous route, or the import of a model.
KINDS: Final[Mapping[str, Kind]] = {
    "plan": Kind(
        ("graph",), ("options", "models", "entries", "ties", "like"), "plan", "model", collection="plans"
    ),
    "program": Kind(("program",), ("options", "like"), "plan", collection="plans"),
    "layout": Kind(("problem",), ("options",), None, collection="layouts"),
    "tradeoff": Kind(("graph",), ("options", "points"), "tradeoff", "tradeoff-model", search="tradeoff"),
    "explain": Kind(
        ("graph", "options"), ("training", "scores"), "verdict", "explain-model", search="explain"
    ),
    "validate": Kind(
        ("graph", "plan"), ("steps", "seed", "models"), "validation", "validate-model", search="train"
    ),
    "import": Kind((), (), "import", "import"),
}

#: The kind of the work on a model of another tool, behind a line of choices. The names of this work are in
#: the table of jobs.
TASK_OF_MODEL: Final[Mapping[str, str]] = {
    kind.model_work: task for task, kind in KINDS.items() if kind.model_work
}

#: Keys and indexes that lead to a part of a request.
Path = tuple[str | int, ...]

#: Members of a request that is for a deployment.
_DEPLOYED: Final = frozenset({"models", "entries", "ties"})

#: Parameters of a query that may be there several times.
_REPEATED: Final = ("dim", "input", "freeze_before", "entries", "ties")

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")

#: In a document, or in a line of choices, where each has a list of texts.
_DEADLINE: Final = re.compile(rb'"deadline_seconds"\s*:\s*(?:\[\s*")?(\d[\d.eE+-]*)')


def with_graph(work: str, request: bytes, graph: bytes | None) -> bytes:
    """The body that a worker gets: a stored request, and the stored graph behind it.

    Earlier versions stored a request as a JSON object, into which the graph goes, or as the line in front of
    a model. Nobody has read the graph before: the worker says what is wrong with it.
    """
    if graph is None:
        return request
    if Stored.is_one(request) or work in TASK_OF_MODEL:
        return request + graph
    name = KINDS[work].required[0]
    rest = request.strip()[1:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return b'{"%b":%b%b%b' % (name.encode(), graph, comma, rest)


def stored_of(task: str, body: bytes) -> Stored:
    """The parts of a body: of a stored request, or of one as the HTTP API takes it. Raises `Problem`."""
    if Stored.is_one(body):
        try:
            return Stored.load(body)
        except DocumentError as error:
            raise problem_from(error) from error
    if task in TASK_OF_MODEL:
        head, _, data = body.partition(b"\n")
        return Stored(TASK_OF_MODEL[task], choices=documents.parse_json(head), content=data)
    return Stored(task, content=body, inline=True)


def named_deadline(body: bytes | Spool) -> float | None:
    """The deadline that the text of a request names, in seconds; the longest of several, None without one.

    Found without reading the document, at some GB/s, so that it holds while that is being read.
    """
    if isinstance(body, Spool):
        with contextlib.closing(body.view()) as view:
            texts = _DEADLINE.findall(view)
    else:
        texts = _DEADLINE.findall(body)
    deadlines = []
    for text in texts:
        try:
            deadlines.append(float(text))
        except ValueError:  # the reader of the document will say so
            continue
    return max(deadlines, default=None)


def _parsed_json(body: bytes) -> Any:
    """The value of a body. Raises `Problem` ``invalid-json``."""
    try:
        return documents.parse_json(body)
    except DocumentError as error:
        raise Problem("invalid-json", error.message, remedy=error.remedy, pointer=error.pointer) from error


def read_request(
    body: bytes, required: tuple[str, ...], optional: tuple[str, ...], within: Within | None = None
) -> dict[str, Any]:
    """The members of the request. Raises `Problem` for what is not JSON, and as `check_members`."""
    request = _parsed_json(body)
    if not isinstance(request, dict):
        remedy = f"Send one object with {_listed(required + optional)}."
        raise Problem("invalid-request", "The body is not a JSON object.", remedy=remedy, pointer="")
    check_members(request, required, optional, within=within)
    return request


def _option_names(*, layout: bool) -> Iterable[str]:
    """The fields of the options of a plan, or of a layout."""
    model = documents.LayoutOptionsDocument if layout else documents.OptionsDocument
    return model.model_fields.keys() - _HEADER


@cache
def _fields_of_documents() -> Mapping[str, frozenset[str]]:
    models: Mapping[str, type[BaseModel]] = {
        "graph": documents.GraphDocument, "program": documents.ProgramDocument,
        "problem": documents.BuffersDocument,
    }  # fmt: skip
    return {name: frozenset(model.model_fields.keys() - _HEADER) for name, model in models.items()}


def _fields(members: tuple[str, ...]) -> Within:
    """The names that belong inside of those members that are objects."""
    fields: Within = {name: own for name, own in _fields_of_documents().items() if name in members}
    options = {"options": _option_names(layout="problem" in members)} if "options" in members else {}
    return {**fields, **options}


def _check_places(request: Mapping[str, Any], members: tuple[str, ...], prefix: str, within: Within) -> None:
    """Raises `Problem` for a member that belongs into another object of the request."""
    document = next((name for name in members if name in within and name != "options"), "")
    fields = _HEADER | _fields_of_documents().get(document, frozenset())
    if document and document not in request and fields & request.keys():
        raise Problem(
            "invalid-request",
            f'The body is itself what belongs inside "{document}", which is missing.',
            remedy=f'Send {{"{document}": ...}} with this body in the place of the dots.',
            pointer=prefix,
        )
    for place, own in {"": members, **within}.items():
        holder: Any = request.get(place) if place else request
        # The request of a job is checked by itself.
        for name in holder if isinstance(holder, Mapping) and place != "request" else ():
            if place in _fields_of_documents() and any(name in of for of in _fields_of_documents().values()):
                continue  # another document in its place: its format says so
            homes = (home for home, names in {"": members, **within}.items() if name in names)
            if name in own or name in _HEADER or (home := next(homes, None)) is None:
                continue
            text = "..." if isinstance(holder[name], list | dict) else f"{json.dumps(holder[name]):.40}"
            example = f'"{name}": {text}'
            unknown = f'"{place}/{name}" is an unknown field' if place else f'"{name}" is unknown here'
            raise Problem(
                "invalid-document" if place else "invalid-request",
                f"{unknown}: it belongs " + (f'inside "{home}".' if home else f'beside "{place}".'),
                remedy="Send {"
                + (f'"{home}": {{{example}}}' if home else f'"{place}": ..., {example}')
                + "} with the rest.",
                pointer=json_pointer((*prefix.split("/")[1:], *((place,) if place else ()), name)),
            )


def _near(name: str, members: tuple[str, ...], within: Within) -> str:
    """A question that names the member, or the option, that an unknown name is close to."""
    options = tuple(within.get("options", ()))
    near = next(iter(difflib.get_close_matches(name, members + options, n=1)), None)
    if near is None:
        return ""
    place = "" if near in members else ' inside "options"'
    return f'Did you mean "{near}"{place}? '


def check_members(
    request: Mapping[str, Any],
    required: tuple[str, ...],
    optional: tuple[str, ...],
    prefix: str = "",
    within: Within | None = None,
) -> None:
    """Raises `Problem` for members that are missing, unknown, or in the wrong place.

    `prefix` points to where the object is; `within` has the names that belong into members of it, if not
    those of graphs and options.
    """
    remedy = f"Send one object with {_listed(required + optional)}."
    within = _fields(required + optional) if within is None else within
    _check_places(request, required + optional, prefix, within)
    several = "models" in optional and "models" in request
    if several and "graph" in request:
        raise Problem(
            "invalid-request",
            'There are both "graph", for one network, and "models", for several by name.',
            remedy="Leave one of the two out.",
            pointer=f"{prefix}/models",
        )
    for name in required:
        if name not in request and not (several and name == "graph"):
            unknown = [other for other in request if other not in required + optional]
            if near := difflib.get_close_matches(name, unknown, n=1):
                remedy = f'Is "{near[0]}" meant for it? {remedy}'
            raise Problem("invalid-request", f'"{name}" is missing.', remedy=remedy, pointer=prefix)
    for name in request:
        if name not in required + optional:
            pointer = f"{prefix}/" + name.replace("~", "~0").replace("/", "~1")
            remedy = _near(name, required + optional, within) + remedy
            detail = removed(name) or f'"{name}" is unknown here.'
            raise Problem("invalid-request", detail, remedy=remedy, pointer=pointer)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)


@contextlib.contextmanager
def inside(*prefix: str) -> Iterator[None]:
    """Errors of the core as problems that point into the request; flags are parameters of a query."""
    try:
        yield
    except ArenaplanError as error:
        if prefix[:1] == ("query",):
            error.message, error.remedy = in_query(error.message), in_query(error.remedy)
        raise problem_from(error, prefix) from error


def check_early(task: str, body: bytes, limits: Mapping[str, Any]) -> None:
    """Raise the `Problem` that a worker would raise first, where that takes about a millisecond.

    For bodies of some kilobytes, so that what is plainly wrong need not wait for a worker to hear so.
    """
    if task not in KINDS or task == "import":
        return
    required, optional = KINDS[task].members
    request = read_request(body, required, optional)
    if "options" in required + optional:
        with inside("options"):
            options = request.get("options", {})
            if task == "layout":
                limited_options(documents.load_layout_options(options), limits)
            else:
                limited_options(documents.load_options(options), limits)


def with_deadline(options: Options, seconds: float | None) -> Options:
    """The same options with another deadline."""
    if isinstance(options, RequestedOptions):
        return options.having(deadline_seconds=seconds)
    return replace(options, deadline_seconds=seconds)


def limited_options(options: Options, limits: Mapping[str, Any]) -> Options:
    """The options with the service's own deadline where they name none, never beyond its longest."""
    longest = limits["deadline_max_seconds"]
    if options.deadline_seconds is None:
        return with_deadline(options, limits["deadline_default_seconds"])
    if options.deadline_seconds > longest:
        raise Problem(
            "invalid-options",
            f"A deadline of {options.deadline_seconds:g} s is beyond the {longest:g} s allowed here.",
            remedy=f"Name at most {longest:g}, or leave it out.",
            pointer="/options/deadline_seconds",
        )
    return options


# ---------------------------------------------------------------------------------------- in a worker


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
    kind, prefix = KINDS[stored.wanted], () if stored.choices is None else ("query",)
    choices: Mapping[str, Any] = {}
    if stored.choices is not None:
        choices, members, fields = _of_query(stored.wanted, stored.choices)
    else:
        if stored.inline:
            members = {**stored.members, **read_request(stored.content, *kind.members)}
        else:
            members = {**stored.members, kind.required[0]: _parsed_json(stored.content)}
            check_members(members, *kind.members)
        fields = members.get("options", {})
    with inside(*(prefix or ("options",))):
        options = documents.load_options(fields)
    options = limited_options(options, limits)
    beside = _beside(stored.wanted, members, prefix, limits)
    is_deployment = stored.wanted == "plan" and not _DEPLOYED.isdisjoint(members)
    sources, places = dict[str, Source](), dict[str, Path]()
    if prefix:
        sources["model"], places["model"] = Source(stored.content, choices=choices), ("model",)
        if sources["model"].importer is None:
            error = unknown_format("The body")
            raise Problem("invalid-document", error.message, remedy=error.remedy)
    else:
        format_ = None
        if stored.wanted == "program":
            format_ = documents.PROGRAM_FORMAT
        elif not is_deployment and (stored.wanted == "plan" or isinstance(beside.get("plan"), Plan)):
            format_ = "arenaplan.graph"
        for name, place, document in _documents(members, kind.required[0]):
            _check_document(document, place, format_, limits)
            sources[name], places[name] = Source(document, name, format=format_), place
    if "models" in members and isinstance(beside.get("plan"), Plan):
        raise Problem(
            "invalid-request",
            '"models" are for a plan with entry points, and this plan is of one network.',
            remedy='Send that network as "graph".',
            pointer="/models",
        )
    if is_deployment:
        beside = _entries(members, prefix, limits)
    wanted = "deployment" if is_deployment else kind.wanted
    assert wanted is not None, "buffers are no network"
    return Asked(Request(wanted, sources, options, **beside), places, prefix)


def _entries(
    members: Mapping[str, Any], prefix: tuple[str, ...], limits: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a request for a deployment by the members with its entry points."""
    if members.get("like") is not None:
        raise Problem(
            "invalid-request",
            "Entry points cannot be planned like another plan.",
            remedy='Leave out "like", or plan the networks one by one.',
            pointer=json_pointer((*prefix, "like")),
        )
    rows = {name: members[name] for name in ("entries", "ties") if name in members}
    with inside(*prefix):
        entries, ties = documents.load_entries(rows)
    models = dict[int, Source]()
    for k, row in enumerate(rows.get("entries", ())):
        if isinstance(row, dict) and row.get("graph") is not None:
            _check_document(row["graph"], ("entries", k, "graph"), None, limits)
            models[k] = Source(row["graph"])
    return {"entries": entries, "ties": ties, "entry_models": models}


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


def _beside(
    task: str, members: Mapping[str, Any], prefix: tuple[str, ...], limits: Mapping[str, Any]
) -> dict[str, Any]:
    """The fields of a request by the members beside its models. `prefix` leads to the object of these."""

    def value_of(name: str, default: Any, is_right: Callable[[Any], bool], remedy: str) -> Any:
        value = members.get(name, default)
        if is_right(value):
            return value
        detail = f'"{name}" is {json.dumps(value):.40}.'
        raise Problem("invalid-request", detail, remedy=remedy, pointer=json_pointer((*prefix, name)))

    def whole(name: str, default: int, least: int, most: int) -> Any:
        remedy = f"Give a whole number from {least} to {most}."
        return value_of(name, default, lambda value: type(value) is int and least <= value <= most, remedy)

    match task:
        case "plan" | "program":
            return {"like": None if _DEPLOYED & members.keys() else _old_plan(members, prefix)}
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


def _old_plan(members: Mapping[str, Any], prefix: tuple[str, ...]) -> Plan | Deployment | None:
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
            pointer=json_pointer((*prefix, "like")),
        )
    with inside(*prefix, "like"):
        return documents.load_planned(like)


def _of_query(
    task: str, texts: Mapping[str, Sequence[str]]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Choices for the import, members of the task, and fields of its options, from the texts of a query."""
    required, optional = KINDS["plan" if task == "import" else task].members
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


# ------------------------------------------------------------------------------------------- as a job


@dataclass(frozen=True, slots=True)
class Order:
    """A job as it was asked for: members of the request, and the digest of a stored graph that it lacks."""

    task: str
    members: Mapping[str, Any]
    graph: str | None

    def work(self, *, model: bool) -> tuple[str, bytes]:
        """The worker's name of the task, and its request; `model` says that the stored graph is a model.

        Raises `Problem` where that cannot be done with what is stored.
        """
        if not model:
            if self.task == "import":
                raise Problem(
                    "invalid-request",
                    "The stored graph is declared as JSON, which need not be imported.",
                    remedy="Store a model as application/octet-stream or application/onnx.",
                    pointer="/graph",
                )
            if self.graph is not None:
                (_, *beside), optional = KINDS[self.task].members
                check_members(self.members, tuple(beside), optional, "/request")
                return self.task, Stored(self.task, self.members).dump()
            return self.task, Stored(self.task, content=to_bytes(self.members), inline=True).dump()
        kind = KINDS[self.task]
        if not kind.model_work:
            raise Problem(
                "invalid-request",
                f"A model cannot be given to {self.task}.",
                remedy="Import it first, and store the graph that results.",
                pointer="/graph",
            )
        named = {*kind.required, *kind.optional, "options"} - {"graph", "models"}
        needed = tuple(name for name in kind.required if name == "plan")
        check_members(self.members, needed, tuple(sorted(named)), "/request")
        rest = {name: value for name, value in self.members.items() if name != "options"}
        return kind.model_work, Stored(
            self.task, choices=_texts(self.members.get("options", {}), rest)
        ).dump()


def read_order(data: bytes) -> Order:
    """The order in the body of a request. Raises `Problem` for what is wrong with its form."""
    names = {name for kind in KINDS.values() for name in kind.required + kind.optional}
    options = {*_option_names(layout=False), *_option_names(layout=True)}
    within = {"options": options, "request": names}
    asked = read_request(data, ("task",), ("request", "graph", "options"), within)
    task, graph = asked["task"], asked.get("graph")
    if task not in KINDS:
        raise _wrong("task", f"{json.dumps(task):.60} is not a task.", f"Choose one of {', '.join(KINDS)}.")
    members = asked.get("request", {})
    if not isinstance(members, dict):
        raise _wrong("request", "The request is not a JSON object.", f"Give what /v1/{task} takes.")
    if "options" in asked:
        if "options" in members:
            raise _wrong("options", "Options are given twice.", "Leave them out here, or in the request.")
        members = {**members, "options": asked["options"]}
    if graph is None:
        if task == "import":
            raise _wrong("graph", "An import needs a stored model.", "PUT the model to /v1/graphs/ first.")
        check_members(members, *KINDS[task].members, "/request")
    else:
        if not isinstance(graph, str) or not _DIGEST.fullmatch(graph):
            remedy = 'Give the SHA-256 under which it is stored; a graph itself belongs inside of "request".'
            raise _wrong("graph", f"{json.dumps(graph):.80} is not a digest.", remedy)
        document = KINDS[task].required[:1]
        if document and (document[0] in members or "models" in members):
            raise _wrong("graph", f'"{document[0]}" is given twice.', "Leave one of the two out.")
    return Order(task, members, graph)


def _texts(options: Any, members: Mapping[str, Any]) -> dict[str, list[str]]:
    """The parameters beside a model: texts in lists, as the synchronous route's query has them."""
    if not isinstance(options, dict):
        raise _wrong("options", "The options are not a JSON object.", "Give an object.")
    texts = {}
    for name, value in {**options, **members}.items():
        values = value if name in _REPEATED and isinstance(value, list) else [value]
        texts[name] = [one if isinstance(one, str) else json.dumps(one) for one in values]
    return texts


def _wrong(member: str, detail: str, remedy: str) -> Problem:
    return Problem("invalid-request", detail, remedy=remedy, pointer=f"/{member}")
