"""Workers take pins, alignments and reserved bytes, and plans to be like."""

from __future__ import annotations

from typing import Any

from service.http.examples import example
from service.jobs.tasks import TASKS
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
