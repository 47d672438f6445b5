"""Requests with random damage: an answer or one clear problem, never a 5xx, whatever was broken."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.problems import CATALOGUE, MEDIA_TYPE
from tests.support.damaged_documents import damaged_text
from tests.support.damaged_kinds import KINDS

#: What a request of each task costs decides how many there are, one damaged model of each kind included.
TASKS = ("plan", "program", "layout", "validate", "tradeoff", "explain")
MODELS = ("onnx", "onnx, said otherwise", "circle", "circle, said otherwise", "nntrainer", "graph", "plan")
FIXTURE = settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])

SOURCES = cache(lambda kind: KINDS[kind].sources())


@st.composite
def damaged(draw: st.DrawFn, kind: str) -> bytes:
    """An input of a kind with something wrong in it."""
    random = Random(draw(st.integers(0, 2**32)))
    return KINDS[kind].damage(random.choice(SOURCES(kind)), random)


def check(response: httpx.Response) -> None:
    assert response.status_code < 500, response.text
    if response.status_code == 200:
        return
    assert response.headers["content-type"] == MEDIA_TYPE
    document = response.json()
    assert CATALOGUE[document["type"].removeprefix("/problems/")].status == response.status_code
    assert document["detail"]
    assert len(response.content) < 20_000, "a problem must not echo the request"


@pytest.mark.parametrize("task", TASKS)
@FIXTURE
@given(st.data())
def test_requests(http: httpx.Client, task: str, data: st.DataObject) -> None:
    body = data.draw(damaged(f"request: {task}"))
    check(http.post(f"/v1/{task}", content=body, headers={"Content-Type": "application/json"}))


@pytest.mark.parametrize("route", ["/v1/plan?loss=mse", "/v1/explain?loss=mse&capacity=9999"])
@FIXTURE
@given(st.data())
def test_models_and_documents_as_bodies(http: httpx.Client, route: str, data: st.DataObject) -> None:
    body = data.draw(st.sampled_from(MODELS).flatmap(damaged))
    check(http.post(route, content=body, headers={"Content-Type": "application/octet-stream"}))


@FIXTURE
@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_bytes(http: httpx.Client, body: bytes) -> None:
    check(http.post("/plan", content=body, headers={"Content-Type": "application/json"}))


@FIXTURE
@given(st.integers(0, 2**32))
def test_text_of_a_request(http: httpx.Client, seed: int) -> None:
    whole: dict[str, Any] = SOURCES("request: plan")[0]
    body = damaged_text(json.dumps(whole), Random(seed)).encode("utf-8", "surrogatepass")
    check(http.post("/plan", content=body, headers={"Content-Type": "application/json"}))
