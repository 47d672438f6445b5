"""Workers take pins, alignments and reserved bytes, and plans to be like."""

from __future__ import annotations

from typing import Any

import pytest

from service.http.examples import example
from service.jobs.tasks import TASKS
from service.problems import Problem
from solver import documents
from solver.canonical import canonical_json
from tests.unit.service.jobs.test_tasks import Recorder, limits

TINY: dict[str, Any] = example("tiny")["graph"]


def answer(task: str, request: dict[str, Any]) -> tuple[str, bytes]:
    """The key of the answer, and its document."""
    recorder: Any = Recorder()
    TASKS[task](limits(), canonical_json(request), recorder)
    kind, facts, body = recorder.sent[-1]
    assert kind == "result"
    return facts["key"], body


def weights(body: bytes) -> dict[str, int]:
    plan = documents.load_plan(body)
    return {
        value.label: plan.offsets[number]
        for number, value in enumerate(plan.program.values)
        if number in {entry.value for entry in plan.program.entry if entry.kind.value == "carried"}
    }


def test_a_plan_is_like_another_one() -> None:
    first_key, first = answer("plan", {"graph": TINY, "options": {"reserved": ["0..4KiB"]}})
    key, body = answer("plan", {"graph": TINY, "like": _document(first)})
    assert key != first_key
    assert weights(body) == weights(first)
    assert min(weights(body).values()) >= 4096
    late = {"graph": TINY, "like": _document(first), "options": {"deadline_seconds": 30}}
    assert weights(answer("plan", late)[1]) == weights(first)


def _document(body: bytes) -> Any:
    return documents.parse_json(body)


@pytest.mark.parametrize(
    ("request_", "pointer", "words"),
    [
        ({"graph": TINY, "like": {"format": "arenaplan.graph"}}, "/like", ""),
        ({"graph": TINY, "like": 5}, "/like", ""),
        ({"graph": TINY, "options": {"pins": {"no.such": 0}}}, "/options/pins/no.such", "No value is called"),
        ({"graph": TINY, "options": {"reserved": ["4..2"]}}, "/options/reserved/0", "4..2 has no bytes"),
        ({"graph": TINY, "options": {"alignments": {"*": 3}}}, "/options/alignments", "power of two"),
    ],
)
def test_what_is_wrong_is_pointed_to(request_: dict[str, Any], pointer: str, words: str) -> None:
    with pytest.raises(Problem) as caught:
        answer("plan", request_)
    assert words in caught.value.detail + caught.value.remedy
    assert (caught.value.pointer or "").startswith(pointer)


def test_entry_points_are_like_no_other_plan() -> None:
    _, body = answer("plan", {"graph": TINY})
    with pytest.raises(Problem, match="like another plan"):
        answer("plan", {"graph": TINY, "entries": ["train"], "like": _document(body)})


def test_buffers_keep_out_of_reserved_bytes() -> None:
    buffers = [{"id": "a", "size": 4, "start": 0, "end": 2}, {"id": "b", "size": 4, "start": 1, "end": 3}]
    problem = {"format": "arenaplan.buffers", "version": 1, "buffers": buffers}
    options = {"pins": {"b": 8}, "reserved": ["0..3"]}
    _, body = answer("layout", {"problem": problem, "options": options})
    assert documents.load_layout(body).layout.offsets == (3, 8)
