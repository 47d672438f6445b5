"""Ranges of sizes over HTTP: one plan for several sizes, of documents and of models, and its validation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio

from service.http.app import create_app
from service.http.examples import example
from service.settings import Settings
from solver.documents import dump_plan, load_graph, load_plan
from solver.pipeline import plan_requested
from solver.plan import RequestedOptions, SizeRange
from tests.support.onnx_models import perceptron

TINY: dict[str, Any] = example("tiny")["graph"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http() -> AsyncIterator[httpx.AsyncClient]:
    app = create_app(Settings(workers=1))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test", timeout=None) as client,
    ):
        yield client


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("batch", ["1..8", {"from": 1, "to": 8}])
async def test_one_plan_for_a_range(http: httpx.AsyncClient, batch: object) -> None:
    answer = await http.post("/v1/plan", json={"graph": TINY, "options": {"batch": batch}})
    assert answer.status_code == 200, answer.text
    requested = RequestedOptions(ranges=(SizeRange("batch", 1, 8),)).having(batch=8)
    assert answer.content == dump_plan(plan_requested(load_graph(TINY), requested))


async def test_a_range_is_another_request_than_its_largest_size(http: httpx.AsyncClient) -> None:
    ranged, alone = [
        await http.post("/v1/plan", json={"graph": TINY, "options": {"batch": batch}})
        for batch in ("1..8", 8)
    ]
    assert ranged.headers["etag"] != alone.headers["etag"]
    assert load_plan(alone.content).planned_sizes is None


async def test_it_is_validated_at_several_sizes(http: httpx.AsyncClient) -> None:
    plan = (await http.post("/v1/plan", json={"graph": TINY, "options": {"batch": "1..8"}})).json()
    report = await http.post("/v1/validate", json={"graph": TINY, "plan": plan, "steps": 2})
    assert report.status_code == 200, report.text
    assert report.json()["identical"]
    assert {step["size"] for step in report.json()["steps"]} > {"batch 8"}


async def test_a_model_of_another_tool(http: httpx.AsyncClient) -> None:
    answer = await http.post(
        "/v1/plan",
        content=perceptron().SerializeToString(),
        params={"loss": "mse", "dim": "n=1..4"},
        headers={"content-type": "application/onnx"},
    )
    assert answer.status_code == 200, answer.text
    sizes = load_plan(answer.content).planned_sizes
    assert sizes is not None
    assert sizes.ranges == (SizeRange("n", 1, 4),)


@pytest.mark.parametrize(
    ("batch", "pointer", "words"),
    [
        ("8..1", "/options/batch", "upside down"),
        ("0..2", "/options/batch", "positive"),
        ({"from": 1}, "/options/batch/to", "missing"),
        ("1..", "/options/batch", "1..32"),
    ],
)
async def test_a_wrong_range(http: httpx.AsyncClient, batch: object, pointer: str, words: str) -> None:
    answer = await http.post("/v1/plan", json={"graph": TINY, "options": {"batch": batch}})
    assert answer.status_code in (400, 422), answer.text
    problem = answer.json()
    assert problem["pointer"] == pointer
    assert words in f"{problem['detail']} {problem['remedy']}"


@pytest.mark.parametrize(("route", "more"), [("tradeoff", {}), ("explain", {"capacity": 10**6})])
async def test_curves_and_verdicts_are_of_one_size(
    http: httpx.AsyncClient, route: str, more: dict[str, Any]
) -> None:
    answer = await http.post(f"/v1/{route}", json={"graph": TINY, "options": {"batch": "1..8", **more}})
    assert answer.status_code in (400, 422), answer.text
    assert "is of one size" in answer.json()["detail"]
