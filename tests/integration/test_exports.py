"""Plans of the service as other files: by route, by Accept, and as a page."""

from __future__ import annotations

import json
import pickle
from typing import Any

import httpx
import pytest

from solver import documents, exporters


@pytest.fixture
def digest(http: httpx.Client, tiny: dict[str, Any]) -> str:
    made = http.post("/v1/plan", json={"graph": tiny})
    assert made.status_code == 200
    return str(made.json()["digest"])


def test_every_exporter_answers(http: httpx.Client, digest: str) -> None:
    plan = documents.load_plan(http.get(f"/v1/plans/{digest}").content)
    for exporter in exporters.EXPORTERS.values():
        found = http.get(f"/v1/plans/{digest}/{exporter.name}")
        assert found.status_code == 200
        assert found.headers["content-type"].partition(";")[0] == exporter.media_type
        assert found.content == exporter.dump(plan)


def test_what_is_said_with_accept(http: httpx.Client, digest: str) -> None:
    def kind(accept: str) -> str:
        found = http.get(f"/v1/plans/{digest}", headers={"Accept": accept})
        assert found.status_code == 200
        return found.headers["content-type"].partition(";")[0]

    assert kind("*/*") == "application/json"
    assert kind("text/x-c") == "text/x-c"
    assert kind("text/csv, application/json;q=0.5") == "text/csv"
    assert kind("text/csv;q=0.2, application/json;q=0.5") == "application/json"
    assert kind("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8") == "text/html"
    assert kind("text/csv;q=x, image/png") == "application/json"


def test_the_page_of_a_plan(http: httpx.Client, digest: str) -> None:
    page = http.get(f"/plans/{digest}")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    again = http.get(f"/plans/{digest}", headers={"If-None-Match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_what_changed(http: httpx.Client, tiny: dict[str, Any], digest: str) -> None:
    other = http.post("/v1/plan", json={"graph": tiny, "options": {"only": ["in_place"]}}).json()["digest"]
    page = http.get(f"/plans/{other}", params={"against": digest})
    assert page.status_code == 200
    assert page.headers["etag"] != http.get(f"/plans/{other}").headers["etag"]
    found = http.get(f"/v1/plans/{other}/difference", params={"against": digest})
    old, new = (documents.load_plan(http.get(f"/v1/plans/{one}").content) for one in (digest, other))
    assert found.json()["growth"] == new.arena_bytes - old.arena_bytes
    assert found.json()["options"] == [{"name": "in_place", "before": "no", "after": "yes"}]


def test_files_can_be_read(http: httpx.Client, digest: str) -> None:
    trace = json.loads(http.get(f"/v1/plans/{digest}/perfetto").content)
    assert trace["otherData"]["digest"] == digest
    snapshot = pickle.loads(http.get(f"/v1/plans/{digest}/memory-viz").content)
    assert [segment["total_size"] for segment in snapshot["segments"]] == [trace["otherData"]["arena_bytes"]]


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/v1/plans/{digest}/elf", 404, "not-found"),
        ("/v1/plans/{digest}/difference", 422, "invalid-request"),
        ("/v1/plans/unknown/c-header", 404, "plan-not-found"),
        ("/plans/unknown", 404, "plan-not-found"),
        ("/plans/{digest}?against=unknown", 404, "plan-not-found"),
        ("/v1/plans/{digest}/c-header?against={digest}", 422, "invalid-request"),
    ],
)
def test_what_is_not_there(http: httpx.Client, digest: str, path: str, status: int, code: str) -> None:
    found = http.get(path.format(digest=digest))
    assert found.status_code == status
    assert found.json()["type"] == f"/problems/{code}"
