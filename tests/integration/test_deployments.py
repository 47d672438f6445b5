"""Entry points at the real server process: planned, kept, found again, as jobs, in time, and refused."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from clients import AsyncClient, CapacityExceeded, Client, ProblemError
from solver import documents
from solver.pipeline import entry_requests, plan_deployment
from solver.plan import EntrySpec, RequestedOptions
from tests.integration.test_jobs import finished, put, submit
from tests.support.server import Server

Graph = dict[str, Any]

ENTRIES: list[Any] = ["train", {"purpose": "infer", "batch": 1, "name": "camera"}]


def test_the_answer_is_that_of_the_core_and_is_kept(http: httpx.Client, tiny: Graph) -> None:
    specs = [EntrySpec("train"), EntrySpec("infer", batch=1, name="camera")]
    networks = {tiny["name"]: lambda batch: documents.load_graph(tiny, batch=batch)}
    requests = entry_requests(networks, specs, RequestedOptions())
    here = plan_deployment(tiny["name"], requests)
    request = {"graph": tiny, "entries": ENTRIES}
    answer = http.post("/v1/plan", json=request)
    assert answer.status_code == 200, answer.text
    assert answer.content == documents.dump_deployment(here)
    assert answer.headers["etag"] == f'"{here.digest}"'
    assert http.get(f"/v1/plans/{here.digest}").content == answer.content
    tag = {"If-None-Match": answer.headers["etag"]}
    assert http.post("/v1/plan", json=request, headers=tag).status_code == 304
    other_words = {"entries": ["train", "infer:batch=1,name=camera"], "graph": tiny, "ties": []}
    again = http.post("/v1/plan", json=other_words)
    assert (again.headers["x-cache"], again.content) == ("hit", answer.content)


def test_models_are_for_a_plan_with_entry_points(http: httpx.Client, tiny: Graph) -> None:
    made = http.post("/v1/plan", json={"graph": tiny}).json()
    refused = http.post("/v1/validate", json={"models": {"a": tiny}, "plan": made})
    assert (refused.status_code, refused.json()["pointer"]) == (422, "/models")
    assert refused.json()["remedy"] == 'Send that network as "graph".'


def test_a_deployment_is_a_job(http: httpx.Client, tiny: Graph) -> None:
    tiny["name"] = "deployed-as-a-job"
    digest = put(http, json.dumps(tiny).encode())
    direct = http.post("/v1/plan", json={"graph": tiny, "entries": ENTRIES})
    for way in (
        {"request": {"graph": tiny, "entries": ENTRIES}},
        {"graph": digest, "request": {"entries": ENTRIES}},
    ):
        job = submit(http, "plan", **way)
        assert finished(http, job)["state"] == "succeeded"
        result = http.get(f"{job}/result")
        assert (result.content, result.headers["etag"]) == (direct.content, direct.headers["etag"])
    models = {"models": {"a": tiny, "b": tiny}, "ties": ["a.*=b.*"]}
    assert finished(http, submit(http, "plan", request=models))["state"] == "succeeded"
    wrong = submit(http, "plan", request={"graph": tiny, "entries": ["fit"]})
    document = finished(http, wrong)
    assert (document["state"], document["error"]["pointer"]) == ("failed", "/entries/0")
    twice = http.post("/v1/jobs", json={"task": "plan", "graph": digest, "request": {"models": {"a": tiny}}})
    assert (twice.status_code, twice.json()["pointer"]) == (422, "/graph")


async def test_both_clients(server: Server, tiny: Graph) -> None:
    with Client(server.url) as client:
        deployment = client.deploy(tiny, ENTRIES, batch=4)
        assert list(deployment.entry_points) == ["train", "camera"]
        assert deployment.gap == 0.0
        kept = client.stored_plan(deployment.digest)
        assert (kept.document, kept.cached) == (deployment.document, True)
        job = client.jobs.deploy(tiny, ENTRIES, batch=4)
        assert job.wait().document == deployment.document
        assert client.jobs.get(job.id).result().digest == deployment.digest
        with pytest.raises(CapacityExceeded) as small:
            client.deploy(tiny, ["infer"], capacity=100)
        assert "Entry point 'infer' does not fit" in str(small.value)
        with pytest.raises(ProblemError) as refused:
            client.deploy({"a": tiny, "b": tiny}, ["infer"])
        assert refused.value.pointer == "/entries/0"
    async with AsyncClient(server.url) as asynchronous:
        assert (await asynchronous.deploy(tiny, ENTRIES, batch=4)).document == deployment.document
