"""C that trains over HTTP: the archive of a kept plan, and what is refused."""

from __future__ import annotations

import io
import zipfile
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio

from examples.gallery import GALLERY
from service.auth.principal import ANONYMOUS
from service.http.app import create_app
from service.http.state import State
from service.settings import Settings
from solver.c_training import c_training_files
from solver.documents import dump_deployment, dump_plan
from solver.executor import c_files
from solver.pipeline import plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions
from tests.support.deployments import MODELS, deployed, entries
from tests.support.graphs import chain

FOR_C = RequestedOptions(PlanOptions(target="c"))
PLAN: Plan = plan_requested(chain((8, 6, 4), 9, optimizer="Adam"), FOR_C)
#: Its trunk has weights that the graph gives, not the plan.
TRANSFER = GALLERY["transfer"]
INLINE: Plan = plan_requested(TRANSFER.prepare(TRANSFER.build(2)).graph, FOR_C)
OTHER: Plan = plan_requested(chain((8, 6, 4), 9))
SEVERAL = deployed(entries(MODELS["chain"]), target="c")[1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """With a real worker. The plans are kept as if a request had been answered with each."""
    app = create_app(Settings(workers=1))
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://test", timeout=None) as client,
    ):
        state: State = app.state.arenaplan
        for one in (PLAN, INLINE, OTHER):
            state.cache.of(ANONYMOUS.tenant).put(f"plans/{one.digest}", dump_plan(one), f"plan:{one.digest}")
        state.cache.of(ANONYMOUS.tenant).put(
            f"plans/{SEVERAL.digest}", dump_deployment(SEVERAL), f"plan:{SEVERAL.digest}"
        )
        yield client


pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_the_archive_has_the_files_of_the_plan(http: httpx.AsyncClient) -> None:
    path = f"/v1/plans/{PLAN.digest}/c-training"
    answer = await http.get(path)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == f'attachment; filename="{PLAN.digest[:12]}.zip"'
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        assert {name: archive.read(name) for name in archive.namelist()} == c_files(PLAN)
    assert (await http.get(path)).content == answer.content
    tag = answer.headers["etag"]
    assert (await http.get(path, headers={"If-None-Match": tag})).status_code == 304
    head = await http.head(path)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)
    accepted = await http.get(f"/v1/plans/{PLAN.digest}", headers={"Accept": "application/zip"})
    assert accepted.content == answer.content


@pytest.mark.parametrize("entry_point", [None, "infer"])
async def test_entry_points_are_together_or_alone(http: httpx.AsyncClient, entry_point: str | None) -> None:
    query = {} if entry_point is None else {"entry_point": entry_point}
    answer = await http.get(f"/v1/plans/{SEVERAL.digest}/c-training", params=query)
    assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    assert files == c_files(SEVERAL if entry_point is None else SEVERAL[entry_point].plan)
    assert (b"net_step(" in files["net.h"]) == (entry_point is None)


@pytest.mark.parametrize("weights", ["embed", "blob", "none"])
async def test_first_values_are_where_they_are_asked_for(http: httpx.AsyncClient, weights: str) -> None:
    answer = await http.get(f"/v1/plans/{PLAN.digest}/c-training", params={"weights": weights})
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        names = set(archive.namelist())
    assert ("net_weights.c" in names, "net_weights.bin" in names) == (weights == "embed", weights == "blob")


async def test_values_of_the_graph_are_left_to_the_program(http: httpx.AsyncClient) -> None:
    path = f"/v1/plans/{INLINE.digest}/c-training"
    problem = (await http.get(path)).json()
    assert (problem["status"], problem["pointer"]) == (422, "/query/weights")
    assert "are in the graph, not in the plan" in problem["detail"]
    assert "the parameter weights none" in problem["remedy"]
    answer = await http.get(path, params={"weights": "none"})
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert {name: archive.read(name) for name in archive.namelist()} == c_training_files(INLINE)


@pytest.mark.parametrize(
    ("path", "status", "detail", "remedy"),
    [
        (f"{OTHER.digest}/c-training", 422, "is for target 'reference'", "--target c"),
        (f"{PLAN.digest}/c-training?weights=all", 422, "'all'", "the parameter weights embed"),
        (f"{PLAN.digest}/c-header?weights=blob", 422, "c-header has no weights", "Leave `weights` out"),
        (f"{PLAN.digest}/c-training?entry_point=train", 422, "for one program", "Leave out the parameter"),
        (f"{PLAN.digest}/c-training?against={OTHER.digest}", 422, "of one plan", "Leave `against` out"),
        (f"{'0' * 64}/c-training", 404, "is kept here", "Send the request"),
    ],
)
async def test_what_has_no_archive_is_refused(
    http: httpx.AsyncClient, path: str, status: int, detail: str, remedy: str
) -> None:
    answer = await http.get(f"/v1/plans/{path}")
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert detail in answer.json()["detail"]
    assert remedy in answer.json()["remedy"]
