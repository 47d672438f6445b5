"""Kept plans with entry points: as a document, as other files, and one entry point of them by name."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from service.auth.principal import ANONYMOUS
from service.http.app import create_app
from service.http.state import State
from service.settings import Settings
from solver import pipeline
from solver.documents import dump_deployment, dump_plan
from solver.exporters import EXPORTERS
from solver.exporters.html import dump_report
from solver.plan import Deployment
from solver.reports.comparison import deployment_difference, difference
from tests.support.entry_points import requested, small_deployment
from tests.support.graphs import chain

OLD: Deployment = small_deployment()
NEW = pipeline.plan_deployment("net", [requested("train", chain((8, 6, 4), 9, optimizer="Adam"))])
PLAN = NEW["train"].plan


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """With real workers. What is kept is put there as if a request had been answered with it."""
    app = create_app(Settings(workers=1))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test", timeout=None) as client,
    ):
        state: State = app.state.arenaplan
        kept = {one.digest: dump_deployment(one) for one in (OLD, NEW)} | {PLAN.digest: dump_plan(PLAN)}
        for digest, body in kept.items():
            state.cache.of(ANONYMOUS.tenant).put(f"plans/{digest}", body, f"plan:{digest}")
        yield client


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_all_of_them_and_one(http: httpx.AsyncClient) -> None:
    whole = await http.get(f"/v1/plans/{OLD.digest}")
    assert whole.content == dump_deployment(OLD)
    assert whole.headers["etag"] == f'"{OLD.digest}"'
    one = await http.get(f"/v1/plans/{OLD.digest}", params={"entry_point": "infer"})
    assert one.content == dump_plan(OLD["infer"].plan)
    assert one.headers["content-type"] == "application/json"
    same = await http.get(
        f"/v1/plans/{OLD.digest}",
        params={"entry_point": "infer"},
        headers={"If-None-Match": one.headers["etag"]},
    )
    assert (same.status_code, same.content) == (304, b"")
    other = await http.get(f"/v1/plans/{OLD.digest}/document", params={"entry_point": "train"})
    assert other.content == dump_plan(OLD["train"].plan)
    assert other.headers["etag"] != one.headers["etag"]


@pytest.mark.parametrize("name", EXPORTERS)
async def test_files(http: httpx.AsyncClient, name: str) -> None:
    whole = await http.get(f"/v1/plans/{OLD.digest}/{name}")
    assert whole.content == EXPORTERS[name].dump(OLD)
    one = await http.get(f"/v1/plans/{OLD.digest}/{name}", params={"entry_point": "evaluate"})
    assert one.content == EXPORTERS[name].dump(OLD["evaluate"].plan)
    accepted = await http.get(
        f"/v1/plans/{OLD.digest}",
        params={"entry_point": "evaluate"},
        headers={"Accept": EXPORTERS[name].media_type},
    )
    assert accepted.content == one.content


async def test_differences(http: httpx.AsyncClient) -> None:
    query = {"against": OLD.digest}
    whole = await http.get(f"/v1/plans/{NEW.digest}/difference", params=query)
    assert whole.json()["growth"] == deployment_difference(OLD, NEW).whole.growth
    assert [one["name"] for one in whole.json()["entry_points"]] == ["train", "infer", "evaluate"]
    page = await http.get(f"/plans/{NEW.digest}", params=query)
    assert page.content == dump_report(NEW, OLD)
    one = await http.get(f"/v1/plans/{NEW.digest}/difference", params={**query, "entry_point": "train"})
    assert one.json()["growth"] == difference(OLD["train"].plan, PLAN).growth
    plain = await http.get(f"/v1/plans/{PLAN.digest}/difference", params={**query, "entry_point": "train"})
    assert plain.json() == one.json()


@pytest.mark.parametrize(
    ("path", "detail", "remedy"),
    [
        (f"{OLD.digest}?entry_point=x%2Fy", "There is no entry point 'x/y'.", "Choose from train, infer"),
        (
            f"{OLD.digest}/document",
            "has 3 entry points",
            "Add the parameter entry_point train, or another of",
        ),
        (f"{PLAN.digest}?entry_point=train", "for one program", "Leave out the parameter entry_point."),
        (
            f"{PLAN.digest}/difference?against={OLD.digest}",
            "One plan is of one program",
            "entry_point train to",
        ),
        (f"{PLAN.digest}/c-header?entry_point=é", "has no entry points", "Leave out the parameter"),
    ],
)
async def test_refusals(http: httpx.AsyncClient, path: str, detail: str, remedy: str) -> None:
    answer = await http.get(f"/v1/plans/{path}")
    assert answer.status_code == 422, answer.text
    assert answer.json()["type"] == "/problems/invalid-options"
    assert detail in answer.json()["detail"]
    assert remedy in answer.json()["remedy"]
    assert answer.json()["pointer"] == "/query/entry_point"
