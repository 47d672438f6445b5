"""Bodies of ``POST /v1/jobs``, read as far as storing them needs; a worker reads the rest."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from service.jobs.requests import MEMBERS, check_members, model_work, option_names, read_request
from service.problems import Problem
from solver.canonical import to_bytes
from solver.requests import Stored

__all__ = ["TASKS", "Order", "read_order"]

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
