"""Kept plans: as documents, as other files, and as C that trains; all entry points, or one by name."""

from __future__ import annotations

import io
import json
import pickle
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
from solver import pipeline
from solver.c_training import c_training_files
from solver.documents import dump_deployment, dump_plan
from solver.executor import c_files
from solver.exporters import EXPORTERS
from solver.exporters.html import dump_report
from solver.plan import Deployment, Plan, PlanOptions, RequestedOptions
from solver.reports.comparison import deployment_difference, difference
from tests.support.deployments import MODELS, deployed, entries
from tests.support.entry_points import requested, small_deployment
from tests.support.graphs import chain
from tests.unit.service.conftest import started

OLD: Deployment = small_deployment()
NEW = pipeline.plan_deployment("net", [requested("train", chain((8, 6, 4), 9, optimizer="Adam"))])
PLAN = NEW["train"].plan

FOR_C = RequestedOptions(PlanOptions(target="c"))
C_PLAN: Plan = pipeline.plan_requested(chain((8, 6, 4), 9, optimizer="Adam"), FOR_C)
#: Its trunk has weights that the graph gives, not the plan.
TRANSFER = GALLERY["transfer"]
INLINE: Plan = pipeline.plan_requested(TRANSFER.prepare(TRANSFER.build(2)).graph, FOR_C)
SEVERAL = deployed(entries(MODELS["chain"]), target="c")[1]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http() -> AsyncIterator[httpx.AsyncClient]:
    """With real workers. What is kept is put there as if a request had been answered with it."""
    app = create_app(Settings(workers=1))
    async with started(app) as client:
        state: State = app.state.arenaplan
        kept = {one.digest: dump_deployment(one) for one in (OLD, NEW, SEVERAL)}
        kept |= {one.digest: dump_plan(one) for one in (PLAN, C_PLAN, INLINE)}
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
    exporter = EXPORTERS[name]
    for plan, query, exported in (
        (PLAN, {}, PLAN),
        (OLD, {}, OLD),
        (OLD, {"entry_point": "evaluate"}, OLD["evaluate"].plan),
    ):
        answer = await http.get(f"/v1/plans/{plan.digest}/{name}", params=query)
        assert answer.content == exporter.dump(exported)
        assert answer.headers["content-type"].partition(";")[0] == exporter.media_type
        accepted = await http.get(
            f"/v1/plans/{plan.digest}", params=query, headers={"Accept": exporter.media_type}
        )
        assert accepted.content == answer.content


@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        ("*/*", "application/json"),
        ("text/x-c", "text/x-c"),
        ("text/csv, application/json;q=0.5", "text/csv"),
        ("text/csv;q=0.2, application/json;q=0.5", "application/json"),
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"),
        ("text/csv;q=x, image/png", "application/json"),
    ],
)
async def test_the_kind_of_file_that_is_accepted(http: httpx.AsyncClient, accept: str, kind: str) -> None:
    answer = await http.get(f"/v1/plans/{PLAN.digest}", headers={"Accept": accept})
    assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, kind)


async def test_files_can_be_read(http: httpx.AsyncClient) -> None:
    trace = json.loads((await http.get(f"/v1/plans/{PLAN.digest}/perfetto")).content)
    assert (trace["otherData"]["digest"], trace["otherData"]["arena_bytes"]) == (
        PLAN.digest,
        PLAN.arena_bytes,
    )
    snapshot = pickle.loads((await http.get(f"/v1/plans/{PLAN.digest}/memory-viz")).content)
    assert [segment["total_size"] for segment in snapshot["segments"]] == [PLAN.arena_bytes]


async def test_the_page_of_a_plan(http: httpx.AsyncClient) -> None:
    page = await http.get(f"/plans/{PLAN.digest}")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    again = await http.get(f"/plans/{PLAN.digest}", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    compared = await http.get(f"/plans/{PLAN.digest}", params={"against": C_PLAN.digest})
    assert (compared.status_code, compared.headers["etag"] == page.headers["etag"]) == (200, False)


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
    target = await http.get(f"/v1/plans/{C_PLAN.digest}/difference", params={"against": PLAN.digest})
    assert {"name": "target", "before": "reference", "after": "c"} in target.json()["options"]


# ------------------------------------------------------------------------------- C that trains


def files_of(answer: httpx.Response) -> dict[str, bytes]:
    assert answer.status_code == 200, answer.text
    with zipfile.ZipFile(io.BytesIO(answer.content)) as archive:
        assert archive.testzip() is None
        return {name: archive.read(name) for name in archive.namelist()}


async def test_the_archive_has_the_files_of_the_plan(http: httpx.AsyncClient) -> None:
    path = f"/v1/plans/{C_PLAN.digest}/c-training"
    answer = await http.get(path)
    assert files_of(answer) == c_files(C_PLAN)
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == f'attachment; filename="{C_PLAN.digest[:12]}.zip"'
    assert (await http.get(path)).content == answer.content
    tag = answer.headers["etag"]
    assert (await http.get(path, headers={"If-None-Match": tag})).status_code == 304
    head = await http.head(path)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", tag)
    accepted = await http.get(f"/v1/plans/{C_PLAN.digest}", headers={"Accept": "application/zip"})
    assert accepted.content == answer.content


@pytest.mark.parametrize("entry_point", [None, "infer"])
async def test_entry_points_are_together_or_alone(http: httpx.AsyncClient, entry_point: str | None) -> None:
    query = {} if entry_point is None else {"entry_point": entry_point}
    files = files_of(await http.get(f"/v1/plans/{SEVERAL.digest}/c-training", params=query))
    assert files == c_files(SEVERAL if entry_point is None else SEVERAL[entry_point].plan)
    assert (b"net_step(" in files["net.h"]) == (entry_point is None)


@pytest.mark.parametrize("weights", ["embed", "blob", "none"])
async def test_first_values_are_where_they_are_asked_for(http: httpx.AsyncClient, weights: str) -> None:
    names = files_of(
        await http.get(f"/v1/plans/{C_PLAN.digest}/c-training", params={"weights": weights})
    ).keys()
    assert ("net_weights.c" in names, "net_weights.bin" in names) == (weights == "embed", weights == "blob")


async def test_values_of_the_graph_are_left_to_the_program(http: httpx.AsyncClient) -> None:
    answer = await http.get(f"/v1/plans/{INLINE.digest}/c-training", params={"weights": "none"})
    assert files_of(answer) == c_training_files(INLINE)


# ------------------------------------------------------------------------------------ refusals

ENTRY_POINT = "/query/entry_point"

#: Path below /v1/plans, status and type of the problem, its pointer, words of its detail and its remedy.
REFUSED: tuple[tuple[str, int, str, str | None, str, str], ...] = (
    (
        f"{OLD.digest}?entry_point=x%2Fy", 422, "invalid-options", ENTRY_POINT,
        "There is no entry point 'x/y'.", "Choose from train, infer",
    ),
    (
        f"{OLD.digest}/document", 422, "invalid-options", ENTRY_POINT,
        "has 3 entry points", "Add the parameter entry_point train, or another of",
    ),
    (
        f"{PLAN.digest}?entry_point=train", 422, "invalid-options", ENTRY_POINT,
        "for one program", "Leave out the parameter entry_point.",
    ),
    (
        f"{PLAN.digest}/difference?against={OLD.digest}", 422, "invalid-options", ENTRY_POINT,
        "One plan is of one program", "entry_point train to",
    ),
    (
        f"{PLAN.digest}/c-header?entry_point=é", 422, "invalid-options", ENTRY_POINT,
        "has no entry points", "Leave out the parameter",
    ),
    (
        f"{C_PLAN.digest}/c-training?entry_point=train", 422, "invalid-options", ENTRY_POINT,
        "for one program", "Leave out the parameter",
    ),
    (
        f"{INLINE.digest}/c-training", 422, "invalid-options", "/query/weights",
        "are in the graph, not in the plan", "the parameter weights none",
    ),
    (
        f"{PLAN.digest}/c-training", 422, "invalid-options", "/query",
        "is for target 'reference'", "--target c",
    ),
    (
        f"{C_PLAN.digest}/c-training?weights=all", 422, "invalid-options", "/query/weights",
        "'all'", "the parameter weights embed",
    ),
    (
        f"{C_PLAN.digest}/c-header?weights=blob", 422, "invalid-request", None,
        "c-header has no weights", "Leave `weights` out",
    ),
    (
        f"{C_PLAN.digest}/c-training?against={PLAN.digest}", 422, "invalid-request", None,
        "of one plan", "Leave `against` out",
    ),
    (
        f"{PLAN.digest}/difference", 422, "invalid-request", None, "made of two plans", "Add ?against=",
    ),
    (f"{PLAN.digest}/elf", 404, "not-found", None, "not written as 'elf'", "Choose one of"),
    (f"{'0' * 64}/c-training", 404, "plan-not-found", None, "is kept here", "Send the request"),
    ("unknown/c-header", 404, "plan-not-found", None, "is kept here", "Send the request"),
    (f"{PLAN.digest}/report?against=unknown", 404, "plan-not-found", None, "'unknown'", "Send the request"),
)  # fmt: skip


@pytest.mark.parametrize(("path", "status", "code", "pointer", "detail", "remedy"), REFUSED)
async def test_refusals(
    http: httpx.AsyncClient, path: str, status: int, code: str, pointer: str | None, detail: str, remedy: str
) -> None:
    answer = await http.get(f"/v1/plans/{path}")
    problem = answer.json()
    assert (answer.status_code, problem["type"]) == (status, f"/problems/{code}"), problem
    assert answer.headers["content-type"] == "application/problem+json"
    assert problem.get("pointer") == pointer, problem
    assert detail in problem["detail"]
    assert remedy in problem["remedy"]


@pytest.mark.parametrize("path", ["/plans/unknown", f"/plans/{PLAN.digest}?against=unknown"])
async def test_a_page_of_a_plan_that_is_not_kept(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.get(path)
    assert (answer.status_code, answer.json()["type"]) == (404, "/problems/plan-not-found")
