"""Checks of a request before its document is read: members, options, the deadline.

Bodies of ``POST /v1/jobs`` are read as far as storing them needs (`read_order`); a worker reads the rest.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, TypeAlias, TypeVar

from pydantic import BaseModel

from service.jobs.frames import Spool
from service.problems import Problem, problem_from
from solver import documents
from solver.canonical import to_bytes
from solver.errors import ArenaplanError, DocumentError, json_pointer
from solver.plan import LayoutOptions, RequestedOptions
from solver.removed import removed
from solver.requests import Stored

__all__ = [
    "MEMBERS",
    "MODEL_WORK",
    "TASKS",
    "Order",
    "check_early",
    "check_members",
    "limited_options",
    "model_work",
    "named_deadline",
    "option_names",
    "parsed_json",
    "read_order",
    "read_request",
    "stored_of",
    "with_deadline",
    "with_graph",
]

Options = TypeVar("Options", RequestedOptions, LayoutOptions)
#: By a member that is an object: the names that belong into it.
Inside: TypeAlias = Mapping[str, Iterable[str]]

#: What every document may begin with.
_HEADER: Final = frozenset({"format", "version"})

#: Of each task, the members that its request must have, and those that it may have. A task that may have
#: `models` takes them in the place of `graph`.
MEMBERS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "plan": (("graph",), ("options", "models", "entries", "ties", "like")),
    "program": (("program",), ("options", "like")),
    "layout": (("problem",), ("options",)),
    "tradeoff": (("graph",), ("options", "points")),
    "explain": (("graph", "options"), ("training", "scores")),
    "validate": (("graph", "plan"), ("steps", "seed", "models")),
}

#: What workers call a task whose body is a model of another tool, behind a line of choices; and its task.
MODEL_WORK: Final[Mapping[str, str]] = {
    "import": "import",
    "model": "plan",
    "tradeoff-model": "tradeoff",
    "explain-model": "explain",
    "validate-model": "validate",
}

#: In a document, or in a line of choices, where each has a list of texts.
_DEADLINE: Final = re.compile(rb'"deadline_seconds"\s*:\s*(?:\[\s*")?(\d[\d.eE+-]*)')


def model_work(task: str) -> str | None:
    """The name that workers have for `task` with a model; None for a task that takes no model."""
    return next((work for work, of in MODEL_WORK.items() if of == task), None)


def with_graph(work: str, request: bytes, graph: bytes | None) -> bytes:
    """The body that a worker gets: a stored request, and the stored graph behind it.

    Earlier versions stored a request as a JSON object, into which the graph goes, or as the line in front of
    a model. Nobody has read the graph before: the worker says what is wrong with it.
    """
    if graph is None:
        return request
    if Stored.is_one(request) or work in MODEL_WORK:
        return request + graph
    name = MEMBERS[work][0][0]
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
    if task in MODEL_WORK:
        head, _, data = body.partition(b"\n")
        return Stored(MODEL_WORK[task], choices=documents.parse_json(head), content=data)
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


def parsed_json(body: bytes) -> Any:
    """The value of a body. Raises `Problem` ``invalid-json``."""
    try:
        return documents.parse_json(body)
    except DocumentError as error:
        raise Problem("invalid-json", error.message, remedy=error.remedy, pointer=error.pointer) from error


def read_request(
    body: bytes, required: tuple[str, ...], optional: tuple[str, ...], inside: Inside | None = None
) -> dict[str, Any]:
    """The members of the request. Raises `Problem` for what is not JSON, and as `check_members`."""
    request = parsed_json(body)
    if not isinstance(request, dict):
        remedy = f"Send one object with {_listed(required + optional)}."
        raise Problem("invalid-request", "The body is not a JSON object.", remedy=remedy, pointer="")
    check_members(request, required, optional, inside=inside)
    return request


def option_names(*, layout: bool) -> Iterable[str]:
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


def _fields(members: tuple[str, ...]) -> Inside:
    """The names that belong inside of those members that are objects."""
    fields: Inside = {name: own for name, own in _fields_of_documents().items() if name in members}
    options = {"options": option_names(layout="problem" in members)} if "options" in members else {}
    return {**fields, **options}


def _check_places(request: Mapping[str, Any], members: tuple[str, ...], prefix: str, inside: Inside) -> None:
    """Raises `Problem` for a member that belongs into another object of the request."""
    document = next((name for name in members if name in inside and name != "options"), "")
    fields = _HEADER | _fields_of_documents().get(document, frozenset())
    if document and document not in request and fields & request.keys():
        raise Problem(
            "invalid-request",
            f'The body is itself what belongs inside "{document}", which is missing.',
            remedy=f'Send {{"{document}": ...}} with this body in the place of the dots.',
            pointer=prefix,
        )
    for place, own in {"": members, **inside}.items():
        holder: Any = request.get(place) if place else request
        # The request of a job is checked by itself.
        for name in holder if isinstance(holder, Mapping) and place != "request" else ():
            if place in _fields_of_documents() and any(name in of for of in _fields_of_documents().values()):
                continue  # another document in its place: its format says so
            homes = (home for home, names in {"": members, **inside}.items() if name in names)
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


def _near(name: str, members: tuple[str, ...], inside: Inside) -> str:
    """A question that names the member, or the option, that an unknown name is close to."""
    options = tuple(inside.get("options", ()))
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
    inside: Inside | None = None,
) -> None:
    """Raises `Problem` for members that are missing, unknown, or in the wrong place.

    `prefix` points to where the object is; `inside` has the names that belong into members of it, if not
    those of graphs and options.
    """
    remedy = f"Send one object with {_listed(required + optional)}."
    inside = _fields(required + optional) if inside is None else inside
    _check_places(request, required + optional, prefix, inside)
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
            remedy = _near(name, required + optional, inside) + remedy
            detail = removed(name) or f'"{name}" is unknown here.'
            raise Problem("invalid-request", detail, remedy=remedy, pointer=pointer)


def _listed(names: tuple[str, ...]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def check_early(task: str, body: bytes, limits: Mapping[str, Any]) -> None:
    """Raise the `Problem` that a worker would raise first, where that takes about a millisecond.

    For bodies of some kilobytes, so that what is plainly wrong need not wait for a worker to hear so.
    """
    if task not in MEMBERS:
        return
    request = read_request(body, *MEMBERS[task])
    if "options" in MEMBERS[task][0] + MEMBERS[task][1]:
        options = request.get("options", {})
        try:
            if task == "layout":
                limited_options(documents.load_layout_options(options), limits)
            else:
                limited_options(documents.load_options(options), limits)
        except ArenaplanError as error:
            raise problem_from(error, ("options",)) from error


def with_deadline(options: Options, seconds: float | None) -> Options:
    """The same options with another deadline."""
    if isinstance(options, RequestedOptions):
        return options.having(deadline_seconds=seconds)
    return dataclasses.replace(options, deadline_seconds=seconds)


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


#: What a job may be: the tasks of synchronous routes, and the import of a model.
TASKS: Final = (*MEMBERS, "import")

#: Parameters of a query that may be there several times.
_REPEATED: Final = ("dim", "input", "freeze_before", "entries", "ties")

_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


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
                (_, *beside), optional = MEMBERS[self.task]
                check_members(self.members, tuple(beside), optional, "/request")
                return self.task, Stored(self.task, self.members).dump()
            return self.task, Stored(self.task, content=to_bytes(self.members), inline=True).dump()
        work = model_work(self.task)
        if work is None:
            raise Problem(
                "invalid-request",
                f"A model cannot be given to {self.task}.",
                remedy="Import it first, and store the graph that results.",
                pointer="/graph",
            )
        required, optional = MEMBERS.get(self.task, ((), ()))
        named = {*required, *optional, "options"} - {"graph", "models"}
        needed = tuple(name for name in required if name == "plan")
        check_members(self.members, needed, tuple(sorted(named)), "/request")
        rest = {name: value for name, value in self.members.items() if name != "options"}
        return work, Stored(self.task, choices=_texts(self.members.get("options", {}), rest)).dump()


def read_order(data: bytes) -> Order:
    """The order in the body of a request. Raises `Problem` for what is wrong with its form."""
    asked = read_request(data, ("task",), ("request", "graph", "options"), _inside())
    task, graph = asked["task"], asked.get("graph")
    if task not in TASKS:
        raise _wrong("task", f"{json.dumps(task):.60} is not a task.", f"Choose one of {', '.join(TASKS)}.")
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
        check_members(members, *MEMBERS[task], "/request")
    else:
        if not isinstance(graph, str) or not _DIGEST.fullmatch(graph):
            remedy = 'Give the SHA-256 under which it is stored; a graph itself belongs inside of "request".'
            raise _wrong("graph", f"{json.dumps(graph):.80} is not a digest.", remedy)
        if task in MEMBERS:
            inside = MEMBERS[task][0][0]
            if inside in members or "models" in members:
                raise _wrong("graph", f'"{inside}" is given twice.', "Leave one of the two out.")
    return Order(task, members, graph)


def _inside() -> Mapping[str, Iterable[str]]:
    """The names that belong into the options and the request of a job, whatever its task."""
    members = {name for required, optional in MEMBERS.values() for name in required + optional}
    options = {*option_names(layout=False), *option_names(layout=True)}
    return {"options": options, "request": members}


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
