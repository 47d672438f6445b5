"""Notes on imported models: with each answer, also with one that is kept, here or by another process."""

from __future__ import annotations

import asyncio
import contextlib

import httpx
import pytest
from sqlalchemy import delete, select

from service.http.app import create_app
from service.settings import Settings
from service.store import Store, open_store, upgrade
from service.store.schema import results
from tests.support.postgres import Postgres
from tests.support.server import PATIENCE
from tests.unit.service.conftest import started

HEADERS = {"Content-Type": "application/onnx"}


async def plan(http: httpx.AsyncClient, model: bytes, **headers: str) -> tuple[str, str | None]:
    """Whether the plan was kept, and the notes."""
    answer = await http.post("/v1/plan?loss=mse", content=model, headers=HEADERS | headers)
    assert answer.status_code == (304 if headers else 200), answer.text
    return answer.headers["x-cache"], answer.headers.get("arenaplan-notes")


async def test_models_of_one_plan_have_notes_of_their_own(http: httpx.AsyncClient) -> None:
    """They are one entry of the cache."""
    assert await plan(http, b"mask is not trained.") == ("miss", '["mask is not trained."]')
    assert await plan(http, b"bias is not trained.") == ("hit", '["bias is not trained."]')
    assert await plan(http, b"") == ("hit", None)
    for _ in range(2):
        assert await plan(http, b"mask is not trained.") == ("hit", '["mask is not trained."]')
        assert await plan(http, b"bias is not trained.") == ("hit", '["bias is not trained."]')
        assert await plan(http, b"") == ("hit", None)
    tag = {"If-None-Match": '"modelled"'}
    assert await plan(http, b"mask is not trained.", **tag) == ("hit", '["mask is not trained."]')
    stored = await http.get("/v1/plans/modelled")
    assert (stored.content, "arenaplan-notes" in stored.headers) == (b"{}", False)


async def test_a_problem_has_the_notes(http: httpx.AsyncClient) -> None:
    answer = await http.post("/v1/plan?capacity=1", content=b"w is not trained.", headers=HEADERS)
    assert (answer.status_code, answer.json()["type"]) == (422, "/problems/shape-mismatch")
    assert answer.headers["arenaplan-notes"] == '["w is not trained."]'
    answer = await http.post("/v1/plan", content=b"problem\nno", headers={"Content-Type": "application/json"})
    assert (answer.status_code, "arenaplan-notes" in answer.headers) == (422, False)


async def until_kept(store: Store, names: set[str]) -> None:
    """Waits for what is written to the database behind the answer."""
    kept: set[str] = set()
    async with asyncio.timeout(PATIENCE):
        while kept != names:
            rows = await store.read(
                lambda connection: connection.execute(select(results.c.name)).scalars().all()
            )
            kept = {name.partition("/")[0] for name in rows}


@pytest.mark.parametrize("notes", ["mask is not trained.", ""])
@pytest.mark.parametrize("lost", [False, True])
async def test_another_process_has_the_same_notes(postgres: Postgres, notes: str, *, lost: bool) -> None:
    """Where they are not in the database beside the plan, the model is imported for them."""
    settings = Settings(workers=1, database_url=postgres.new_database())
    with contextlib.closing(open_store(settings.database_url)) as empty:
        upgrade(empty)
    first, second = (create_app(settings, tasks="tests.support.fake_tasks") for _ in range(2))
    header = f'["{notes}"]' if notes else None
    async with started(first) as http:
        assert await plan(http, notes.encode()) == ("miss", header)
        store = first.state.arenaplan.backend.stored.store
        await until_kept(store, names={"notes", "plans"})
        if lost:
            gone = delete(results).where(results.c.name.like("notes/%"))
            await store.write(lambda connection: connection.execute(gone))
    async with started(second) as http:
        assert await plan(http, notes.encode()) == ("hit", header)
        assert await plan(http, notes.encode()) == ("hit", header)
        text = (await http.get("/metrics")).text
    assert f'arenaplan_cache_requests_total{{outcome="{"equivalent" if lost else "shared"}"}} 1.0' in text
