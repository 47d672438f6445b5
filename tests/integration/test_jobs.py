"""Jobs of the real server process: accepted, followed, cancelled, and still there after a kill."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from service.http.schemas import JobDocument
from tests.support.server import running_server

Graph = dict[str, Any]


def events(http: httpx.Client, job: str, **headers: str) -> Iterator[tuple[str, int, dict[str, Any]]]:
    """Kind, id and document of each event of a job."""
    with http.stream("GET", f"{job}/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        event: dict[str, str] = {}
        for line in response.iter_lines():
            name, _, value = line.partition(": ")
            if line:
                event[name] = value
            elif event:
                yield event["event"], int(event["id"]), json.loads(event["data"])
                event = {}


def submit(http: httpx.Client, task: str, **more: Any) -> str:
    """The path of a new job."""
    response = http.post("/v1/jobs", json={"task": task, **more})
    assert response.status_code == 202, response.text
    assert response.headers["retry-after"]
    return str(response.headers["location"])


def finished(http: httpx.Client, job: str) -> dict[str, Any]:
    *_, (kind, _, document) = events(http, job)
    assert kind == "end"
    return document


def put(http: httpx.Client, body: bytes, media_type: str = "application/json") -> str:
    digest = hashlib.sha256(body).hexdigest()
    response = http.put(f"/v1/graphs/{digest}", content=body, headers={"Content-Type": media_type})
    assert response.status_code in (201, 204), response.text
    return digest


def test_a_job_has_the_bytes_of_the_synchronous_route(http: httpx.Client, tiny: Graph) -> None:
    tiny["name"] = "as-a-job"
    job = submit(http, "plan", request={"graph": tiny})
    document = finished(http, job)
    assert (document["state"], document["attempts"], document["error"]) == ("succeeded", 1, None)
    assert document["created"] <= document["started"] <= document["finished"]
    result = http.get(f"{job}/result")
    again = http.post("/v1/plan", json={"graph": tiny})
    assert (again.headers["x-cache"], again.content) == ("hit", result.content)
    assert again.headers["etag"] == result.headers["etag"]
    assert http.get(result.headers["content-location"]).content == result.content
    tag = {"If-None-Match": result.headers["etag"]}
    assert http.get(f"{job}/result", headers=tag).status_code == 304


def test_every_task_with_a_stored_graph(http: httpx.Client, tiny: Graph) -> None:
    """Those with the graph inside of the request are rows of `tests/contract`."""
    digest = put(http, json.dumps(tiny).encode())
    plan = http.post("/v1/plan", json={"graph": tiny}).json()
    requests: tuple[tuple[str, dict[str, Any]], ...] = (
        ("plan", {"options": {"solver": "greedy"}}),
        ("plan", {"entries": ["train", {"purpose": "infer", "batch": 1, "name": "camera"}]}),
        ("tradeoff", {"points": 2}),
        ("explain", {"options": {"capacity": "1MiB"}}),
        ("validate", {"plan": plan, "steps": 1}),
    )
    for task, request in requests:
        job = submit(http, task, graph=digest, request=request)
        assert finished(http, job)["state"] == "succeeded"
        result = http.get(f"{job}/result")
        direct = http.post(f"/v1/{task}", json={"graph": tiny, **request})
        assert result.content == direct.content, task
        for name in ("content-type", "etag"):
            assert result.headers.get(name) == direct.headers.get(name)


def test_stored_graphs(http: httpx.Client, tiny: Graph) -> None:
    body = json.dumps(tiny, indent=5).encode()
    digest = put(http, body)
    assert http.put(f"/v1/graphs/{digest}", json={}).json()["type"] == "/problems/digest-mismatch"
    assert http.head(f"/v1/graphs/{digest}").status_code == 200
    assert http.get(f"/v1/graphs/{digest}").content == body
    assert http.delete(f"/v1/graphs/{digest}").status_code == 204
    for response in (http.head(f"/v1/graphs/{digest}"), http.delete(f"/v1/graphs/{digest}")):
        assert response.status_code == 404
    lost = http.post("/v1/jobs", json={"task": "plan", "graph": digest})
    assert (lost.status_code, lost.json()["type"]) == (404, "/problems/graph-not-found")


def test_a_job_that_cannot_be_done(http: httpx.Client, tiny: Graph) -> None:
    job = submit(http, "plan", request={"graph": tiny, "options": {"capacity": 100}})
    document = finished(http, job)
    assert document["state"] == "failed"
    assert document["error"]["type"] == "/problems/capacity-exceeded"
    result = http.get(f"{job}/result")
    assert (result.status_code, result.headers["content-type"]) == (409, "application/problem+json")
    assert result.json()["type"] == "/problems/job-failed"
    assert result.json()["problem"] == document["error"]
    assert document["error"]["required"] > 100
    body = {"graph": tiny, "options": {"capacity": 100}}
    at_once = http.post("/v1/plan", json=body, headers={"Prefer": "respond-async, wait=60"})
    assert at_once.json()["type"] == "/problems/capacity-exceeded"


def test_what_is_no_job(http: httpx.Client) -> None:
    """What else is refused of an order stands in `tests/unit/service/jobs/test_requests.py`."""
    refused = http.post("/v1/jobs", json={"task": "dance"})
    assert (refused.status_code, refused.json()["pointer"]) == (422, "/task"), refused.text
    missing = "/v1/jobs/" + "0" * 32
    for response in (http.get(missing), http.get(f"{missing}/events"), http.delete(missing)):
        assert (response.status_code, response.json()["type"]) == (404, "/problems/job-not-found")


def test_idempotency_keys(http: httpx.Client, tiny: Graph) -> None:
    body = {"task": "plan", "request": {"graph": tiny, "options": {"batch": 9}}}
    key = {"Idempotency-Key": "order-1"}
    first = http.post("/v1/jobs", json=body, headers=key)
    finished(http, first.headers["location"])
    again = http.post("/v1/jobs", json=body, headers=key)
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.headers["location"] == again.headers["location"]
    other = http.post("/v1/jobs", json={**body, "task": "explain"}, headers=key)
    assert (other.status_code, other.json()["type"]) == (422, "/problems/idempotency-conflict")


def test_answers_in_time_or_a_job(http: httpx.Client, tiny: Graph, slow: Graph) -> None:
    body = {"graph": tiny, "options": {"batch": 11}}
    in_time = http.post("/v1/plan", json=body, headers={"Prefer": "respond-async, wait=60"})
    assert (in_time.status_code, in_time.headers["preference-applied"]) == (200, "wait=60")
    assert in_time.content == http.post("/v1/plan", json=body).content
    plan = http.post("/v1/plan", json={"graph": slow}).json()
    request = {"graph": slow, "plan": plan, "steps": 6}
    later = http.post("/v1/validate", json=request, headers={"Prefer": "respond-async"})
    assert (later.status_code, later.headers["preference-applied"]) == (202, "respond-async")
    assert later.json()["task"] == "validate"
    assert finished(http, later.headers["location"])["state"] == "succeeded"
    refused = http.post(
        "/v1/plan", json={**body, "options": {"capacity": 1}}, headers={"Prefer": "respond-async, wait=60"}
    )
    assert (refused.status_code, refused.json()["type"]) == (409, "/problems/capacity-exceeded")


def test_events_are_as_they_are_described(http: httpx.Client, tiny: Graph) -> None:
    route = http.get("/openapi.json").json()["paths"]["/v1/jobs/{id}/events"]["get"]
    described = route["responses"]["200"]["content"]["text/event-stream"]["schema"]
    fields = described["properties"]
    seen = list(events(http, submit(http, "plan", request={"graph": {**tiny, "name": "described"}})))
    assert described["required"] == list(fields) == ["event", "id", "data"]
    assert {kind for kind, *_ in seen} <= set(fields["event"]["enum"])
    assert all(re.fullmatch(fields["id"]["pattern"], str(number)) for _, number, _ in seen)
    assert fields["data"]["contentSchema"]["$ref"].endswith("/JobDocument")
    for _, _, data in seen:
        JobDocument.model_validate_json(json.dumps(data), strict=True)


def test_pages(http: httpx.Client, tiny: Graph) -> None:
    made = [submit(http, "plan", request={"graph": tiny}).rpartition("/")[2] for _ in range(3)]
    first = http.get("/v1/jobs", params={"limit": 2}).json()
    assert [job["id"] for job in first["jobs"]] == made[:0:-1]
    assert http.get(first["next"]).json()["jobs"][0]["id"] == made[0]
    for id in made:
        finished(http, f"/v1/jobs/{id}")
    assert http.get("/v1/jobs", params={"state": "cancelled", "limit": 1}).status_code == 200
    assert http.get("/v1/jobs", params={"state": "lost"}).status_code == 422


# ------------------------------------------------------------------- with a server for the test alone


def validation(http: httpx.Client, graph: Graph) -> str:
    """A job that takes far longer than any test."""
    plan = http.post("/v1/plan", json={"graph": graph}).json()
    return submit(http, "validate", request={"graph": graph, "plan": plan, "steps": 10_000})


def begun(http: httpx.Client, job: str) -> int:
    """The id of the event that a job has begun."""
    return next(number for _, number, document in events(http, job) if document["state"] == "running")


def test_cancelled_and_nothing_is_left(slow: Graph) -> None:
    with running_server(workers=1, validate_max_steps=10_000) as server, server.client() as http:
        job = validation(http, slow)
        begun(http, job)
        (pid,) = server.worker_pids()
        early = http.get(f"{job}/result")
        assert (early.status_code, early.json()["type"]) == (409, "/problems/job-not-finished")
        assert http.delete(job).status_code in (200, 202)
        assert finished(http, job)["state"] == "cancelled"
        assert pid not in server.worker_pids()
        assert http.delete(job).status_code == 200
        gone = http.get(f"{job}/result")
        assert (gone.status_code, gone.json()["type"]) == (409, "/problems/job-cancelled")


def test_jobs_outlive_the_service(tmp_path: Path, tiny: Graph, slow: Graph) -> None:
    """Killed with one job at work and one that waits: the next service goes on with both."""
    settings = {
        "workers": 1,
        "database_url": f"sqlite:///{tmp_path}/jobs.db",
        "validate_max_steps": 10_000,
    }
    with running_server(**settings) as server, server.client() as http:
        running = validation(http, slow)
        known = begun(http, running)
        waiting = submit(http, "plan", request={"graph": tiny, "options": {"batch": 12}})
        server.kill()
    with running_server(**settings) as server, server.client() as http:
        news = events(http, running, **{"Last-Event-ID": str(known)})
        document = next(document for _, number, document in news if number > known)
        assert document["attempts"] in (1, 2)
        http.delete(running)
        assert finished(http, waiting)["state"] == "succeeded"
        assert finished(http, running)["state"] == "cancelled"


def test_without_a_database(tiny: Graph, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.touch()
    with running_server(workers=1, database_url=f"sqlite:///{blocked}/jobs.db") as server:
        trouble = next(event for event in server.log if event["event"] == "the database cannot be used")
        assert "Not a directory" in trouble["detail"] or "File exists" in trouble["detail"]
        with server.client() as http:
            refused = http.post("/v1/jobs", json={"task": "plan", "request": {"graph": tiny}})
            assert (refused.status_code, refused.json()["type"]) == (503, "/problems/database-unavailable")
            plan = http.post("/v1/plan", json={"graph": tiny}, headers={"Prefer": "respond-async"})
            assert plan.status_code == 200
