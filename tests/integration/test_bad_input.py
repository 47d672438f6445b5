"""Every bad request gets a 4xx with one clear problem and a pointer, never a 500, and the service goes on."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from service.problems import CATALOGUE, MEDIA_TYPE
from solver import documents
from tests.support.every import every
from tests.support.refused_requests import GONE, Row, changed, row
from tests.support.server import ROOT

Document = dict[str, Any]


def checked(response: httpx.Response, code: str, pointer: str | None, words: str = "") -> Document:
    """The problem that a request was answered with."""
    document: Document = response.json()
    assert document["type"] == f"/problems/{code}", document
    assert response.status_code == CATALOGUE[code].status < 500, document
    assert response.headers["content-type"] == MEDIA_TYPE
    assert document.get("pointer") == pointer, document
    assert document["detail"]
    assert document["remedy"]
    assert words in f"{document['detail']} {document['remedy']}", document
    assert "Traceback" not in response.text
    return document


def post(http: httpx.Client, route: str, body: bytes | str) -> httpx.Response:
    return http.post(route, content=body, headers={"Content-Type": "application/json"})


def example(name: str) -> Document:
    document: Document = json.loads((ROOT / f"service/http/web/examples/{name}.json").read_bytes())
    return document


# ------------------------------------------------------------------------------------ not even JSON

TEXTS = {
    "empty": b"",
    "no JSON": b"graph: yes",
    "cut off": b'{"graph": {',
    "two values": b"{} {}",
    "NaN": b'{"graph": NaN}',
    "Infinity": b'{"graph": -Infinity}',
    "beyond float": b'{"graph": 1e999}',
    "duplicate key": b'{"graph": {}, "graph": {}}',
    "duplicate key inside": b'{"graph": {"name": "a", "name": "b"}}',
    "no UTF-8": b'{"graph": "\xff"}',
    "byte order mark": b"\xef\xbb\xbf{}",
    "deep arrays": b"[" * 100_000,
    "deep and closed": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000,
    "endless digits": b'{"graph": ' + b"9" * 100_000 + b"}",
    "half a surrogate": b'{"graph": "\\ud800"}',
    "control character": b'{"graph": "\x00"}',
}


def test_no_strict_json(http: httpx.Client) -> None:
    with every() as case:
        for name, text in TEXTS.items():
            with case(name):
                code = post(http, "/plan", text).json()["type"].removeprefix("/problems/")
                assert code == "invalid-json"
        for route in ("/v1/program", "/v1/layout", "/v1/jobs"):
            with case(route):
                assert post(http, route, b"{").json()["type"] == "/problems/invalid-json"


def test_not_declared_as_json(http: httpx.Client) -> None:
    for route in ("/plan", "/v1/layout"):
        checked(http.post(route, content=b"{}"), "unsupported-media-type", None)


#: Bodies of a route that are no request of it.
INCOMPLETE: tuple[tuple[str, str, str], ...] = (
    ("/plan", "[]", ""),
    ("/plan", '"graph"', ""),
    ("/plan", "null", ""),
    ("/plan", "{}", ""),
    ("/plan", '{"graph": {}, "gaph": 1}', "/gaph"),
    ("/plan", '{"graph": {}, "plan": {}}', "/plan"),
    ("/plan", '{"graph": {}, "a/b~c": 1}', "/a~1b~0c"),
    ("/plan", '{"program": {}, "options": {}}', ""),
    ("/v1/program", "[]", ""),
    ("/v1/program", "{}", ""),
    ("/v1/program", '{"graph": {}}', ""),
    ("/v1/program", '{"program": {}, "graph": {}}', "/graph"),
    ("/v1/layout", "[]", ""),
    ("/v1/layout", "{}", ""),
    ("/v1/layout", '{"buffers": []}', ""),
    ("/v1/layout", '{"problem": {}, "graph": {}}', "/graph"),
    ("/v1/explain", '{"graph": {}}', ""),
)


def test_incomplete_requests(http: httpx.Client) -> None:
    with every() as case:
        for route, text, pointer in INCOMPLETE:
            with case((route, text)):
                checked(post(http, route, text), "invalid-request", pointer)


# ------------------------------------------------------- what only a service refuses, or only JSON says

MANY = [
    {"name": f"relu{k}", "type": "Relu", "inputs": [f"r{k - 1}" if k else "h"], "outputs": [f"r{k}"]}
    for k in range(101)
]

#: Other refusals of plans, layouts, curves and verdicts are rows of the table in `tests/contract`.
PLANS: tuple[Row, ...] = (
    row("too-many-operations", {"graph/operations/+": MANY}, "100", at="/graph/operations"),
    row("invalid-options", {"options/deadline_seconds": 1e6}),
    row("invalid-document", {"options/costs": "measured", "options/capacity": 35_000}, "where training runs"),
    row("invalid-document", {"like": 5}),
    row("invalid-document", {"like": {"format": "arenaplan.graph"}}, at="/like/format"),
    row("invalid-document", {"options": []}),
    row("invalid-document", {"options": "fast"}),
    row("invalid-document", {"options": 1}),
)
PROGRAMS: tuple[Row, ...] = (
    row(
        "too-many-operations",
        {"program/operations": [{"name": f"clean {k}", "writes": ["workspace 0"]} for k in range(101)]},
    ),
    row("invalid-document", {"program": example("tiny")["graph"]}, at="/program/format"),
)
LAYOUTS: tuple[Row, ...] = (
    row("invalid-options", {"options/deadline_seconds": 1e6}),
    row("invalid-document", {"problem": [1]}),
)
TRADEOFFS: tuple[Row, ...] = (
    row("invalid-request", {"points": 1}, "a whole number from 2 to 100"),
    row("invalid-request", {"points": "ten"}, "a whole number"),
    row("invalid-request", {"steps": 3}, "Send one object"),
)
EXPLANATIONS: tuple[Row, ...] = (
    row("invalid-request", {"training": 1}, "true"),
    row("invalid-options", {"options": {}}, "Give a capacity", at="/options/capacity"),
)
VALIDATIONS: tuple[Row, ...] = (
    row("invalid-request", {"plan": GONE}, at=""),
    row("invalid-request", {"steps": 0}),
    row("invalid-request", {"steps": 7}),
    row("invalid-request", {"steps": "five"}),
    row("invalid-request", {"steps": True}),
    row("invalid-request", {"seed": -1}),
    row("invalid-document", {"plan": {}}, at="/plan/format"),
    row("invalid-document", {"plan/version": 9}),
    row("invalid-plan", {"plan/values/0/2": 4096}),
    row("invalid-plan", {"graph/optimizer": {"type": "Adam"}}, at="/plan"),
    row("invalid-loss", {"graph/loss": "none"}),
)

#: Right requests by their route, and what is done to them.
REQUESTS: dict[str, tuple[Document, tuple[Row, ...]]] = {
    "plan": ({**example("tiny"), "options": {}}, PLANS),
    "program": ({**example("parallel"), "options": {}}, PROGRAMS),
    "layout": (example("buffers"), LAYOUTS),
    "tradeoff": ({**example("tiny"), "options": {}}, TRADEOFFS),
    "explain": ({**example("tiny"), "options": {"capacity": 10**6}}, EXPLANATIONS),
    "validate": ({**example("tiny"), "steps": 1}, VALIDATIONS),
}


@pytest.mark.parametrize("route", REQUESTS)
def test_bad_requests(http: httpx.Client, route: str) -> None:
    request, rows = REQUESTS[route]
    if route == "validate":
        request = {**request, "plan": http.post("/v1/plan", json=example("tiny")).json()}
    assert http.post(f"/v1/{route}", json=request).status_code == 200
    with every() as case:
        for code, changes, words, pointer in rows:
            with case(str(changes)[:200]):
                checked(http.post(f"/v1/{route}", json=changed(request, changes)), code, pointer, words)


# -------------------------------------------------------------------------------------- capacities


def test_capacity_below_the_bound(http: httpx.Client, tiny: Document) -> None:
    def plan(**options: object) -> httpx.Response:
        return http.post("/plan", json={"graph": tiny, "options": {"as_written": True, **options}})

    needed = documents.load_plan(plan().content).arena_bytes
    assert plan(capacity=needed).status_code == 200
    for capacity in (0, 1, 1000, needed - 1):
        response = plan(capacity=capacity)
        document = checked(response, "capacity-exceeded", "/options/capacity")
        assert document["available"] == capacity
        assert document["required"] - capacity == document["excess"] > 0
        live = document["live_at_peak"]
        assert sum(one["bytes"] for one in live) == document["required"]
        assert {"w1", "w1@momentum"} & {one["operand"] for one in live}


def test_the_service_is_none_the_worse(http: httpx.Client, tiny: Document) -> None:
    assert http.post("/plan", json={"graph": tiny}).status_code == 200
    assert http.get("/readyz").json()["workers"] == 2
