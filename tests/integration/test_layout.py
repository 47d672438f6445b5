"""`POST /v1/layout` through the real server: right layouts, the same bytes again, every mistake named."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from clients import AsyncClient, CapacityExceeded, Client, ProblemError
from service.problems import MEDIA_TYPE
from solver import documents
from solver.importers import load_minimalloc
from solver.layout import LayoutProblem, find_violations
from tests.support.buffers import DATA
from tests.support.server import PATIENCE, ROOT, Server, running_server
from tests.support.training_shaped import training_shaped

Buffers = dict[str, Any]


@pytest.fixture
def buffers() -> Buffers:
    """A fresh copy of the example that the documentation page sends."""
    request = json.loads((ROOT / "service/http/web/examples/buffers.json").read_bytes())
    problem: Buffers = request["problem"]
    return problem


def document_of(problem: LayoutProblem) -> Buffers:
    document: Buffers = json.loads(documents.dump_buffers(problem))
    return document


def place(http: httpx.Client, problem: Any, **options: Any) -> httpx.Response:
    return http.post("/v1/layout", json={"problem": problem, "options": options})


# ----------------------------------------------------------------------------------------- answers


def test_a_layout(http: httpx.Client, buffers: Buffers) -> None:
    response = place(http, buffers)
    assert response.status_code == 200
    made = documents.load_layout(response.content)
    assert response.headers["etag"] == f'"{made.digest}"'
    assert made.layout.peak == 12
    assert made.certificate.proof is not None
    assert find_violations(made.problem, made.layout) == ()
    assert [buffer.id for buffer in made.problem.buffers] == [b["id"] for b in buffers["buffers"]]


def test_gaps(http: httpx.Client) -> None:
    """The second buffer lies where the first one holds nothing."""
    away = one(offset=0, gaps=[])
    away["buffers"][0]["gaps"] = [{"start": 1, "end": 3}]
    away["buffers"][1].update(start=1, end=3)
    made = documents.load_layout(place(http, away).content)
    assert made.layout.peak == made.certificate.lower_bound == 8
    assert find_violations(made.problem, made.layout) == ()


def test_nothing_to_place(http: httpx.Client, buffers: Buffers) -> None:
    assert place(http, {**buffers, "buffers": []}).json()["peak"] == 0


def test_options(http: httpx.Client, buffers: Buffers) -> None:
    response = place(http, buffers, solver="greedy", capacity=2**20, alignment=64)
    made = documents.load_layout(response.content)
    assert (made.options.solver, made.problem.capacity) == ("greedy", 2**20)
    assert all(offset % 64 == 0 for offset in made.layout.offsets)


def test_options_of_the_search(http: httpx.Client, buffers: Buffers) -> None:
    search = {"work": 1000, "seed": 3, "threads": 1, "target_gap": 0.01, "rules": {"peel": False}}
    options = documents.load_layout(place(http, buffers, **search).content).options
    assert (options.work, options.seed, options.threads, options.target_gap) == (1000, 3, 1, 0.01)
    assert (options.rules.peel, options.rules.span) == (False, True)


def test_the_same_request_has_the_same_bytes(http: httpx.Client, buffers: Buffers) -> None:
    buffers["buffers"][0]["id"] = "same bytes"
    first, again = place(http, buffers), place(http, buffers)
    spelled = json.dumps({"options": {}, "problem": buffers}, indent=3)
    other = http.post("/v1/layout", content=spelled, headers={"Content-Type": "application/json"})
    assert first.content == again.content == other.content
    assert [r.headers["x-cache"] for r in (first, again, other)] == ["miss", "hit", "hit"]
    with running_server(workers=1) as fresh, fresh.client() as elsewhere:
        assert place(elsewhere, buffers).content == first.content


def test_entity_tags(http: httpx.Client, buffers: Buffers) -> None:
    made = place(http, buffers)
    where = made.headers["content-location"]
    assert where == f"/v1/layouts/{made.json()['digest']}"
    assert http.get(where).content == made.content
    tag = {"If-None-Match": made.headers["etag"]}
    assert http.get(where, headers=tag).status_code == 304
    assert http.post("/v1/layout", json={"problem": buffers, "options": {}}, headers=tag).status_code == 304


def test_layouts_and_plans_are_kept_apart(http: httpx.Client, buffers: Buffers, tiny: dict[str, Any]) -> None:
    layout = place(http, buffers).json()["digest"]
    plan = http.post("/v1/plan", json={"graph": tiny}).json()["digest"]
    assert http.get(f"/v1/plans/{layout}").json()["type"] == "/problems/plan-not-found"
    assert http.get(f"/v1/layouts/{plan}").json()["type"] == "/problems/layout-not-found"
    assert http.get(f"/v1/plans/{plan}").status_code == 200


def test_a_deadline_is_an_answer(http: httpx.Client) -> None:
    hard = document_of(training_shaped(7, buffers=300))
    response = place(http, hard, deadline_seconds=0.0)
    made = documents.load_layout(response.content)
    assert find_violations(made.problem, made.layout) == ()
    assert made.options.deadline_seconds == 0.0


def test_the_access_line_says_what_was_found(server: Server, http: httpx.Client, buffers: Buffers) -> None:
    buffers["buffers"][0]["id"] = "access line"
    headers = {"X-Request-ID": "layout-line"}
    response = http.post("/v1/layout", json={"problem": buffers}, headers=headers)
    event = server.request_event("layout-line")
    assert (event["digest"], event["arena_bytes"]) == (response.json()["digest"], 12)
    assert event["claim"] == "optimal"


def test_schemas_are_served(http: httpx.Client) -> None:
    names = http.get("/v1/schemas").json()["schemas"]
    assert {"buffers", "layout", "layout_options"} <= set(names)
    assert http.get("/v1/schemas/layout").json()["additionalProperties"] is False


# ---------------------------------------------------------------------------------------- mistakes


def checked(response: httpx.Response, status: int, code: str, pointer: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    document: dict[str, Any] = response.json()
    assert document["type"] == f"/problems/{code}", document
    assert document["pointer"] == pointer, document
    assert document["detail"]
    assert document["remedy"]
    return document


def one(**changes: Any) -> Buffers:
    """A problem whose second buffer is at fault."""
    good = {"id": "good", "size": 8, "start": 0, "end": 4, "offset": 0}
    bad = {"id": "bad", "size": 8, "start": 0, "end": 4}
    return {"format": "arenaplan.buffers", "version": 1, "buffers": [good, {**bad, **changes}]}


BAD: dict[str, tuple[dict[str, Any], str, str]] = {
    # name: changes to the second buffer, problem type, the field at fault
    "a fraction": ({"size": 4.5}, "invalid-document", "size"),
    "a whole fraction": ({"size": 4.0}, "invalid-document", "size"),
    "a word": ({"size": "4"}, "invalid-document", "size"),
    "true": ({"size": True}, "invalid-document", "size"),
    "null": ({"size": None}, "invalid-document", "size"),
    "a negative size": ({"size": -4}, "invalid-problem", "size"),
    "beyond 63 bits": ({"size": 2**63}, "invalid-problem", "size"),
    "a sum beyond 63 bits": ({"size": 2**63 - 1}, "invalid-problem", "size"),
    "a fraction of a step": ({"start": 0.5}, "invalid-document", "start"),
    "a negative step": ({"start": -1}, "invalid-problem", "lifespan"),
    "an empty lifespan": ({"start": 4}, "invalid-problem", "end"),
    "end before start": ({"start": 5}, "invalid-problem", "end"),
    "an id twice": ({"id": "good"}, "invalid-problem", "id"),
    "a number for an id": ({"id": 7}, "invalid-document", "id"),
    "alignment of three": ({"alignment": 3}, "invalid-problem", "alignment"),
    "alignment of zero": ({"alignment": 0}, "invalid-problem", "alignment"),
    "a negative pin": ({"offset": -8}, "invalid-problem", "offset"),
    "pins in conflict": ({"offset": 4}, "invalid-problem", "offset"),
    "a misaligned pin": ({"offset": 24, "alignment": 16}, "invalid-problem", "offset"),
    "a gap outside": ({"gaps": [{"start": 3, "end": 5}]}, "invalid-problem", "gaps"),
    "a gap without an end": ({"gaps": [{"start": 3}]}, "invalid-document", "gaps/0/end"),
    "a gap that keeps more": ({"gaps": [{"start": 1, "end": 2, "high": 9}]}, "invalid-problem", "gaps"),
    "an unknown field": ({"colour": 1}, "invalid-document", "colour"),
}


@pytest.mark.parametrize(("changes", "code", "field"), list(BAD.values()), ids=list(BAD))
def test_bad_buffers(http: httpx.Client, changes: dict[str, Any], code: str, field: str) -> None:
    checked(place(http, one(**changes)), 422, code, f"/problem/buffers/1/{field}")


@pytest.mark.parametrize(
    ("options", "code", "field"),
    [
        ({"solver": "magic"}, "invalid-options", "solver"),
        ({"solver": 1}, "invalid-document", "solver"),
        ({"capacity": -1}, "invalid-options", "capacity"),
        ({"capacity": "1 mile"}, "invalid-document", "capacity"),
        ({"alignment": 3}, "invalid-options", "alignment"),
        ({"deadline_seconds": -1}, "invalid-options", "deadline_seconds"),
        ({"deadline_seconds": 1e6}, "invalid-options", "deadline_seconds"),
        ({"batch": 1}, "invalid-document", "batch"),
        ({"seed": -1}, "invalid-options", "seed"),
        ({"threads": 0}, "invalid-options", "threads"),
        ({"target_gap": -1}, "invalid-options", "target_gap"),
        ({"target_gap": 1e308}, "invalid-options", "target_gap"),
        ({"rules": {"luck": True}}, "invalid-document", "rules/luck"),
    ],
)
def test_bad_options(http: httpx.Client, options: dict[str, Any], code: str, field: str) -> None:
    checked(place(http, one(), **options), 422, code, f"/options/{field}")


@pytest.mark.parametrize(
    ("request_", "pointer"),
    [([], ""), ({}, ""), ({"buffers": []}, ""), ({"problem": one(), "graph": {}}, "/graph")],
)
def test_incomplete_requests(http: httpx.Client, request_: Any, pointer: str) -> None:
    checked(http.post("/v1/layout", json=request_), 422, "invalid-request", pointer)


def test_another_kind_of_document(http: httpx.Client, tiny: dict[str, Any]) -> None:
    checked(place(http, tiny), 422, "invalid-document", "/problem/format")
    checked(place(http, [1]), 422, "invalid-document", "/problem")


def test_no_json(http: httpx.Client) -> None:
    response = http.post("/v1/layout", content=b"{", headers={"Content-Type": "application/json"})
    assert response.json()["type"] == "/problems/invalid-json"
    assert http.post("/v1/layout", content=b"{}").status_code == 415


def test_does_not_fit(http: httpx.Client, buffers: Buffers) -> None:
    of_options = checked(place(http, buffers, capacity=11), 409, "capacity-exceeded", "/options/capacity")
    assert (of_options["required"], of_options["available"], of_options["excess"]) == (12, 11, 1)
    assert sum(live["bytes"] for live in of_options["live_at_peak"]) == 12
    of_problem = place(http, {**buffers, "capacity": 4})
    checked(of_problem, 409, "capacity-exceeded", "/problem/capacity")
    buffers["buffers"][1]["size"] = 13
    of_one = checked(place(http, buffers), 409, "capacity-exceeded", "/problem/capacity")
    assert of_one["detail"] == "Buffer 'hidden' (row 2) alone has 13 bytes; the capacity is 12."
    buffers["buffers"][1]["size"] = 4
    # What is large is grouped in sentences, and a plain number in the fields.
    large = place(http, {**buffers, "capacity": 4000}, alignment=4096)
    assert "8,196 bytes at least; the capacity is 4,000." in large.json()["detail"]
    assert (large.json()["required"], large.json()["proved"]) == (8196, True)
    with_deadline = place(http, buffers, capacity=11, deadline_seconds=1)
    checked(with_deadline, 409, "capacity-exceeded", "/options/capacity")


def test_sizes_as_text(http: httpx.Client, buffers: Buffers) -> None:
    """The same request as with a number of bytes, down to the digest."""
    of_text = place(http, buffers, capacity="1.5KiB")
    assert of_text.status_code == 200
    assert of_text.json()["options"]["capacity"] == 1536
    assert place(http, buffers, capacity=1536).content == of_text.content


def test_what_was_not_found_is_not_proved(http: httpx.Client, buffers: Buffers) -> None:
    """Bump never reuses a byte; that it finds nothing says nothing about other layouts."""
    answer = checked(place(http, buffers, solver="bump"), 409, "capacity-exceeded", "/problem/capacity")
    assert answer["proved"] is False
    assert "12 bytes at least are proved" in answer["detail"]
    assert "is not known" in answer["detail"]
    assert checked(place(http, buffers, capacity=11), 409, "capacity-exceeded", "/options/capacity")["proved"]


# ------------------------------------------------------------------------------------ other callers


def test_clients(server: Server, buffers: Buffers, tmp_path: Path) -> None:
    path = tmp_path / "buffers.json"
    path.write_text(json.dumps(buffers), encoding="utf-8")
    with Client(server.url) as client:
        result = client.layout(buffers, solver="greedy")
        assert (result.peak, result.lower_bound, result.proof) == (12, 12, "max-load")
        assert set(result.offsets) == {buffer["id"] for buffer in buffers["buffers"]}
        assert client.layout(path, solver="greedy") == client.stored_layout(result.digest)
        with pytest.raises(CapacityExceeded) as caught:
            client.layout(buffers, capacity=11)
        assert caught.value.excess == 1
        with pytest.raises(ProblemError, match="solver"):
            client.layout(buffers, solver="magic")


def test_async_client(server: Server, buffers: Buffers) -> None:
    async def ask() -> int:
        async with AsyncClient(server.url) as client:
            several = await asyncio.gather(
                *(client.layout(buffers, capacity=99, alignment=2**k) for k in range(4))
            )
            return len({result.digest for result in several})

    assert asyncio.run(ask()) == 4


def test_command_and_service_make_the_same_bytes(
    http: httpx.Client, buffers: Buffers, tmp_path: Path
) -> None:
    """Through a process, with the problem on standard input and the layout on standard output."""
    command = [sys.executable, "-m", "service.cli", "solve", "-", "--solver", "greedy"]
    run = subprocess.run(
        command,
        cwd=ROOT,
        input=json.dumps(buffers),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=PATIENCE,
        check=True,
    )
    assert run.stderr == ""
    assert json.loads(run.stdout) == place(http, buffers, solver="greedy").json()


@pytest.mark.skipif(not DATA.exists(), reason="the public instances do not stand beside this check-out")
def test_a_public_instance(http: httpx.Client) -> None:
    problem = load_minimalloc((DATA / "minimalloc/B.1048576.csv").read_bytes()).problem
    made = documents.load_layout(place(http, document_of(problem)).content)
    assert made.problem == problem
    assert find_violations(problem, made.layout) == ()
