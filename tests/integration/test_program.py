"""`POST /v1/program` through the real server: right plans, the same bytes again, every mistake named."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from clients import AsyncClient, CapacityExceeded, Client, ProblemError
from service.problems import MEDIA_TYPE
from solver import documents
from solver.pipeline import plan_program
from solver.plan import recycling
from tests.support.programs import AUTO_RECYCLE, program
from tests.support.proofs import violations
from tests.support.server import ROOT, Server

Program = dict[str, Any]


@pytest.fixture
def pairs() -> Program:
    """A fresh copy of the two independent pairs that the documentation page sends."""
    request = json.loads((ROOT / "service/http/web/examples/parallel.json").read_bytes())
    found: Program = request["program"]
    return found


def ask(http: httpx.Client, program: Any, **options: Any) -> httpx.Response:
    return http.post("/v1/program", json={"program": program, "options": options})


# ----------------------------------------------------------------------------------------- answers


def test_a_plan_is_that_of_the_core(http: httpx.Client) -> None:
    made = program(AUTO_RECYCLE)
    response = ask(http, json.loads(documents.dump_program(made)))
    assert response.status_code == 200
    found = documents.load_plan(response.content)
    assert found == plan_program(made)
    assert response.headers["etag"] == f'"{found.digest}"'
    assert violations(made, found) == ()
    assert recycling(found).before == ("in", "b1", "b2")


def test_with_a_parallelism_of_2_the_pairs_run_side_by_side(http: httpx.Client, pairs: Program) -> None:
    found = documents.load_plan(ask(http, pairs, parallelism=2).content)
    assert [(step.id, step.level) for step in found.steps] == [
        ("clean 0", 0), ("clean 1", 0), ("use 0", 1), ("use 1", 1),
    ]  # fmt: skip
    assert documents.load_plan(ask(http, pairs).content).arena_bytes < found.arena_bytes


def test_blocks_beyond_two_gib(http: httpx.Client, pairs: Program) -> None:
    pairs["blocks"][0]["bytes"] = 3 * 2**31
    found = documents.load_plan(ask(http, pairs).content)
    assert found.arena_bytes > 3 * 2**31
    assert violations(documents.load_program(pairs), found) == ()


def test_the_same_request_has_the_same_bytes_and_is_kept(http: httpx.Client, pairs: Program) -> None:
    pairs["name"] = "kept"
    first = ask(http, pairs)
    spelled = json.dumps({"options": {"parallelism": 1}, "program": pairs}, indent=3).encode()
    again = http.post("/v1/program", content=spelled, headers={"Content-Type": "application/json"})
    assert again.content == first.content
    assert (first.headers["x-cache"], again.headers["x-cache"]) == ("miss", "hit")
    where = first.headers["content-location"]
    assert where == f"/v1/plans/{first.json()['digest']}"
    assert http.get(where).content == first.content
    tag = {"If-None-Match": first.headers["etag"]}
    assert http.post("/v1/program", json={"program": pairs}, headers=tag).status_code == 304


def test_what_one_route_answered_is_no_answer_of_the_other(http: httpx.Client, pairs: Program) -> None:
    """The same bytes sent to the wrong route are a mistake, however often they were right elsewhere."""
    assert ask(http, pairs).status_code == 200
    body = {"program": pairs, "options": {}}
    checked(http.post("/v1/plan", json=body), 422, "invalid-request", "")
    assert http.post("/v1/program", json=body).status_code == 200


def test_a_deadline_is_an_answer(http: httpx.Client, pairs: Program) -> None:
    found = documents.load_plan(ask(http, pairs, deadline_seconds=0.0).content)
    assert violations(documents.load_program(pairs), found) == ()
    assert found.options.target == "program"


def test_the_plan_of_a_program_cannot_be_trained_in(
    http: httpx.Client, pairs: Program, tiny: dict[str, Any]
) -> None:
    made = ask(http, pairs).json()
    response = http.post("/v1/validate", json={"graph": tiny, "plan": made})
    checked(response, 422, "invalid-plan", "/plan")


# ---------------------------------------------------------------------------------------- mistakes


def checked(response: httpx.Response, status: int, code: str, pointer: str) -> dict[str, Any]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == MEDIA_TYPE
    document: dict[str, Any] = response.json()
    assert document["type"] == f"/problems/{code}", document
    assert document["pointer"] == pointer, document
    assert document["remedy"]
    return document


@pytest.mark.parametrize(
    ("operation", "code", "field"),
    [
        ({"reads": ["workspace 7"]}, "dangling-operand", "reads/0"),
        ({"reads": ["left", "left"]}, "duplicate-name", "reads/1"),
        ({"reads": [], "writes": []}, "invalid-graph", ""),
        ({"name": "clean 0"}, "duplicate-name", "name"),
        ({"name": 7}, "invalid-document", "name"),
        ({"colour": 1}, "invalid-document", "colour"),
    ],
)
def test_bad_operations(
    http: httpx.Client, pairs: Program, operation: dict[str, Any], code: str, field: str
) -> None:
    pairs["operations"][1] |= operation
    checked(ask(http, pairs), 422, code, f"/program/operations/1/{field}".rstrip("/"))


@pytest.mark.parametrize(
    ("changes", "code", "field"),
    [
        ({"bytes": -1}, "invalid-dimension", "/bytes"),
        ({"bytes": 2**63}, "invalid-dimension", "/bytes"),
        ({"shape": [2], "dtype": "float32"}, "invalid-document", ""),
        ({"fed": True}, "use-before-def", "/fed"),
    ],
)
def test_bad_blocks(
    http: httpx.Client, pairs: Program, changes: dict[str, Any], code: str, field: str
) -> None:
    pairs["blocks"][0] |= changes
    checked(ask(http, pairs), 422, code, f"/program/blocks/0{field}")


@pytest.mark.parametrize(
    ("options", "code", "field"),
    [
        ({"batch": 2}, "invalid-options", "batch"),
        ({"update": "end"}, "invalid-options", "update"),
        ({"target": "onert"}, "invalid-options", "target"),
        ({"parallelism": 0}, "invalid-options", "parallelism"),
        ({"parallelism": 65}, "invalid-options", "parallelism"),
        ({"parallelism": 1.5}, "invalid-document", "parallelism"),
        ({"seed": 1}, "invalid-document", "seed"),
    ],
)
def test_bad_options(
    http: httpx.Client, pairs: Program, options: dict[str, Any], code: str, field: str
) -> None:
    checked(ask(http, pairs, **options), 422, code, f"/options/{field}")


def test_too_many_operations(http: httpx.Client, pairs: Program) -> None:
    pairs["operations"] = [{**pairs["operations"][0], "name": f"clean {k}"} for k in range(101)]
    checked(ask(http, pairs), 422, "too-many-operations", "/program/operations")


def test_does_not_fit(http: httpx.Client, pairs: Program) -> None:
    found = checked(ask(http, pairs, capacity=1000), 409, "capacity-exceeded", "/options/capacity")
    assert found["required"] == found["available"] + found["excess"]
    assert {live["operand"] for live in found["live_at_peak"]} >= {"left"}


@pytest.mark.parametrize("body", [[], {}, {"graph": {}}, {"program": {}, "graph": {}}])
def test_incomplete_requests(http: httpx.Client, body: Any) -> None:
    pointer = "/graph" if "program" in body else ""
    checked(http.post("/v1/program", json=body), 422, "invalid-request", pointer)


def test_a_graph_is_no_program(http: httpx.Client, tiny: dict[str, Any]) -> None:
    checked(ask(http, tiny), 422, "invalid-document", "/program/format")


# ------------------------------------------------------------------------------------- other doors


def test_clients(server: Server, pairs: Program, tmp_path: Path) -> None:
    path = tmp_path / "program.json"
    path.write_text(json.dumps(pairs), encoding="utf-8")
    with Client(server.url) as client:
        result = client.plan_program(pairs, parallelism=2)
        assert (result.status, result.proof) == ("optimal", "max-load")
        assert client.plan_program(path, {"parallelism": 2}).cached
        assert client.stored_plan(result.digest).document == result.document
        with pytest.raises(CapacityExceeded):
            client.plan_program(pairs, capacity=1000)
        with pytest.raises(ProblemError, match="batch is for graphs"):
            client.plan_program(pairs, batch=2)


def test_async_client(server: Server, pairs: Program) -> None:
    async def plan_all() -> int:
        async with AsyncClient(server.url) as client:
            several = await asyncio.gather(*(client.plan_program(pairs, alignment=2**k) for k in range(4)))
            return len({result.digest for result in several})

    assert asyncio.run(plan_all()) == 4
