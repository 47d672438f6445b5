"""Requests with random damage: an answer or one clear problem, never a 5xx, whatever was broken."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.problems import CATALOGUE, MEDIA_TYPE
from tests.support.server import ROOT

TINY: dict[str, Any] = json.loads((ROOT / "service/http/web/examples/tiny.json").read_bytes())
PARALLEL: dict[str, Any] = json.loads((ROOT / "service/http/web/examples/parallel.json").read_bytes())

#: What a careless or hostile writer might put anywhere.
NUMBERS = [0, 1, -1, 3, 0.5, 2**31, 2**63, -(2**64), 10**40, 1e308]
WORDS = ["", "x", "batch", "h", "y", "Gemm", "Conv", "loss.out", "float64", "\u0000", "@", "ü", "a" * 5000]
SCALARS: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, False, *NUMBERS, *WORDS, [], {}, [[]], [1, -1]]
)
NAMES = st.sampled_from(["extra", "shape", "attributes", "seed", "value"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "x", ""]), inner, max_size=2)
    ),
    max_leaves=5,
)
FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Paths of all values inside `value`."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def parent(document: Any, path: tuple[str | int, ...]) -> Any:
    for part in path[:-1]:
        document = document[part]
    return document


@st.composite
def damaged(draw: st.DrawFn, request: dict[str, Any]) -> dict[str, Any]:
    """The request with up to three values replaced, deleted, doubled or swapped."""
    broken: dict[str, Any] = copy.deepcopy(request)
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(sorted(places(broken), key=str) or [("graph",)]))
        holder, key = parent(broken, path), path[-1]
        match draw(st.sampled_from(["replace", "delete", "double", "add"])):
            case "replace":
                holder[key] = copy.deepcopy(draw(VALUES))
            case "delete":
                del holder[key]
            case "double" if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[int(key)]))
            case _ if isinstance(holder, dict):
                holder[draw(st.sampled_from(["extra", "shape", "attributes", "seed", "value"]))] = (
                    copy.deepcopy(draw(VALUES))
                )
            case _:
                holder.insert(0, copy.deepcopy(draw(VALUES)))
    return broken


def check(response: httpx.Response) -> None:
    assert response.status_code < 500, response.text
    if response.status_code == 200:
        return
    assert response.headers["content-type"] == MEDIA_TYPE
    document = response.json()
    assert CATALOGUE[document["type"].removeprefix("/problems/")].status == response.status_code
    assert document["detail"]
    assert len(response.content) < 20_000, "a problem must not echo the request"


@FIXTURE
@given(damaged({**TINY, "options": {"batch": 2, "alignment": 16, "solver": "greedy", "capacity": 10**6}}))
def test_plan(http: httpx.Client, request: dict[str, Any]) -> None:
    check(http.post("/plan", json=request))


@FIXTURE
@given(st.data())
def test_validate(http: httpx.Client, data: st.DataObject) -> None:
    plan = http.post("/plan", json=TINY).json()
    check(http.post("/validate", json=data.draw(damaged({**TINY, "plan": plan, "steps": 1, "seed": 0}))))


@FIXTURE
@given(
    damaged(
        {**PARALLEL, "options": {"parallelism": 2, "alignment": 16, "solver": "greedy", "capacity": 10**6}}
    )
)
def test_program(http: httpx.Client, request: dict[str, Any]) -> None:
    check(http.post("/program", json=request))


@FIXTURE
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_bytes(http: httpx.Client, body: bytes) -> None:
    check(http.post("/plan", content=body, headers={"Content-Type": "application/json"}))


@FIXTURE
@given(st.binary(max_size=60), st.integers(0, 3000))
def test_bytes_inside_a_request(http: httpx.Client, noise: bytes, at: int) -> None:
    text = json.dumps(TINY).encode()
    body = text[:at] + noise + text[at + len(noise) :]
    check(http.post("/plan", content=body, headers={"Content-Type": "application/json"}))
