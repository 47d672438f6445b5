"""Checks of a request before its document is read: members, options, the deadline."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Mapping
from typing import Any, Final, TypeVar

from service.jobs.spool import Spool
from service.problems import Problem, problem_from
from solver import documents
from solver.errors import ArenaplanError, DocumentError
from solver.plan import LayoutOptions, RequestedOptions

__all__ = [
    "MEMBERS",
    "MODEL_WORK",
    "check_early",
    "check_members",
    "limited_options",
    "model_work",
    "named_deadline",
    "read_request",
    "with_deadline",
    "with_graph",
]

Options = TypeVar("Options", RequestedOptions, LayoutOptions)

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
    """The body that a worker gets: a request, a JSON object, with the stored graph in its place.

    Of a model, the request is the line in front of its bytes. Nobody has read the graph before: the worker
    says what is wrong with it.
    """
    if graph is None:
        return request
    if work in MODEL_WORK:
        return request + graph
    name = MEMBERS[work][0][0]
    rest = request.strip()[1:]
    comma = b"" if rest.lstrip().startswith(b"}") else b","
    return b'{"%b":%b%b%b' % (name.encode(), graph, comma, rest)


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


def read_request(body: bytes, required: tuple[str, ...], optional: tuple[str, ...]) -> dict[str, Any]:
    """The members of the request. Raises `Problem` for what is not JSON, missing or unknown."""
    try:
        request = documents.parse_json(body)
    except DocumentError as error:
        raise Problem("invalid-json", error.message, remedy=error.remedy, pointer=error.pointer) from error
    if not isinstance(request, dict):
        remedy = f"Send one object with {_listed(required + optional)}."
        raise Problem("invalid-request", "The body is not a JSON object.", remedy=remedy, pointer="")
    check_members(request, required, optional)
    return request


def check_members(
    request: Mapping[str, Any], required: tuple[str, ...], optional: tuple[str, ...], prefix: str = ""
) -> None:
    """Raises `Problem` for members that are missing or unknown; `prefix` points to where the object is."""
    remedy = f"Send one object with {_listed(required + optional)}."
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
            raise Problem("invalid-request", f'"{name}" is missing.', remedy=remedy, pointer=prefix)
    for name in request:
        if name not in required + optional:
            pointer = f"{prefix}/" + name.replace("~", "~0").replace("/", "~1")
            raise Problem("invalid-request", f'"{name}" is unknown here.', remedy=remedy, pointer=pointer)


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
