"""What belongs into another object of a request is refused with its place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from service.jobs.requests import KINDS, check_members, read_order, stored_of, with_graph
from service.problems import Problem
from solver.canonical import to_bytes
from solver.errors import ArenaplanError
from solver.removed import REMOVED
from solver.requests import Stored

GRAPH = {"format": "arenaplan.graph", "version": 1, "operands": [], "operations": []}
PROBLEM = {"buffers": [], "capacity": 64}

#: Task, request, pointer of the problem, words of its detail and remedy.
MISPLACED: tuple[tuple[str, Mapping[str, Any], str, str], ...] = (
    ("plan", GRAPH, "", 'inside "graph", which is missing. Send {"graph": ...}'),
    ("layout", {"version": 1, **PROBLEM}, "", 'inside "problem", which is missing'),
    ("plan", {"operations": []}, "", 'inside "graph"'),
    ("explain", {"graph": {}, "options": {}, "operands": []}, "/operands", 'inside "graph"'),
    ("plan", {"graph": {}, "capacity": 9}, "/capacity", 'Send {"options": {"capacity": 9}}'),
    ("plan", {"graph": {}, "options": {}, "deadline_seconds": 2}, "/deadline_seconds", 'inside "options"'),
    ("layout", {"problem": PROBLEM, "seed": 1}, "/seed", 'inside "options"'),
    ("explain", {"graph": {}, "tiers": ["a=1"]}, "/tiers", 'inside "options"'),
    ("plan", {"graph": {"deadline_seconds": 2}}, "/graph/deadline_seconds", 'inside "options"'),
    ("plan", {"graph": {}, "options": {"like": 3}}, "/options/like", 'it belongs beside "options"'),
    ("plan", {"graph": {}, "options": {"operands": []}}, "/options/operands", 'it belongs inside "graph"'),
    ("plan", {"graph": {}, "capcity": 9}, "/capcity", 'Did you mean "capacity" inside "options"?'),
    ("plan", {"graph": {}, "option": {}}, "/option", 'Did you mean "options"?'),
    ("plan", {"grpah": {}}, "", '"graph" is missing. Is "grpah" meant for it?'),
)  # fmt: skip

MISPLACED_IN_JOBS: tuple[tuple[Mapping[str, Any], str, str], ...] = (
    ({"task": "plan", "request": {"graph": {}}, "capacity": 9}, "/capacity", 'inside "options"'),
    ({"task": "plan", "request": {"graph": {}, "capacity": 9}}, "/request/capacity", 'inside "options"'),
    ({"task": "plan", "request": GRAPH}, "/request", 'inside "graph"'),
    ({"task": "plan", "like": {}}, "/like", 'inside "request"'),
    ({"task": "plan", "graph": GRAPH}, "/graph", 'a graph itself belongs inside of "request"'),
    (GRAPH, "", 'inside "request", which is missing'),
    ({"task": "dance"}, "/task", '"dance" is not a task'),
    ({"task": "plan"}, "/request", '"graph" is missing'),
    ({"task": "plan", "request": {"graph": {}, "colour": 1}}, "/request/colour", "unknown here"),
    ({"task": "plan", "request": {"graph": {}}, "graph": "0" * 64}, "/graph", "is given twice"),
    ({"task": "plan", "request": {"models": {"a": {}}}, "graph": "0" * 64}, "/graph", "is given twice"),
    ({"task": "plan", "graph": "F" * 64}, "/graph", "is not a digest"),
    ({"task": "import", "request": {}}, "/graph", "needs a stored model"),
    ({"task": "plan", "request": {"graph": {}}, "webhook": {"url": "a"}}, "/webhook", REMOVED["webhook"]),
)


def assert_says(problem: Problem, pointer: str, words: str) -> None:
    assert problem.pointer == pointer
    assert words in f"{problem.detail} {problem.remedy}"


@pytest.mark.parametrize(("task", "request_", "pointer", "words"), MISPLACED)
def test_a_refusal_says_where_a_name_belongs(
    task: str, request_: Mapping[str, Any], pointer: str, words: str
) -> None:
    with pytest.raises(Problem) as caught:
        check_members(request_, *KINDS[task].members)
    assert_says(caught.value, pointer, words)


@pytest.mark.parametrize(("order", "pointer", "words"), MISPLACED_IN_JOBS)
def test_a_job_is_refused_in_the_same_words(order: Mapping[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(Problem) as caught:
        read_order(to_bytes(order))
    assert_says(caught.value, pointer, words)


def test_fields_of_a_document_are_not_misplaced() -> None:
    """`capacity` is a field of a layout problem as well as an option, `batch` one of a graph as well."""
    check_members({"problem": PROBLEM, "options": {"capacity": 64}}, *KINDS["layout"].members)
    check_members({"graph": {**GRAPH, "batch": 2}, "options": {"batch": 2}}, *KINDS["plan"].members)


#: Requests that jobs have: worker's name of the task, request, stored graph; then its parts.
STORED: tuple[tuple[str, bytes, bytes | None, Stored], ...] = (
    # As earlier versions stored them.
    ("plan", b'{"graph":{}}', None, Stored("plan", content=b'{"graph":{}}', inline=True)),
    ("plan", b'{"like":{}}', b"{}", Stored("plan", content=b'{"graph":{},"like":{}}', inline=True)),
    (
        "explain-model", b'{"loss":["mse"]}\n', b"\x08\x07\n",
        Stored("explain", choices={"loss": ["mse"]}, content=b"\x08\x07\n"),
    ),
    # As they are stored now.
    *(
        (work, replace(stored, content=b"").dump(), stored.content, stored)
        for work, stored in (
            ("plan", Stored("plan", {"options": {"batch": 3}}, content=b'{"name":"net"}')),
            ("model", Stored("plan", choices={"dim": ["n=4"]}, content=b"\x08\x07\n")),
        )
    ),
    ("plan", Stored("plan", content=b'{"graph":{}}', inline=True).dump(), None,
     Stored("plan", content=b'{"graph":{}}', inline=True)),
)  # fmt: skip


@pytest.mark.parametrize(("work", "request_", "graph", "parts"), STORED)
def test_jobs_of_every_version_are_read(
    work: str, request_: bytes, graph: bytes | None, parts: Stored
) -> None:
    assert stored_of(work, with_graph(work, request_, graph)) == parts


def test_a_request_of_a_later_version_is_refused() -> None:
    later = Stored("plan").dump().replace(b'"version":1', b'"version":2')
    with pytest.raises(Problem, match=r"Version 2 of 'arenaplan\.request' is not known"):
        stored_of("plan", later)
    with pytest.raises(ArenaplanError):
        Stored.load(later)
