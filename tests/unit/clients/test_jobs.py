"""Jobs of both clients against a scripted service: what is sent, what is heard, what comes of it."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from clients import (
    CapacityExceeded,
    Client,
    ConnectionFailed,
    JobCancelled,
    JobStatus,
    ProblemError,
    UnexpectedAnswer,
)
from tests.support.scripted_service import Broken, Open, Service, event, ok, problem, stream

GRAPH = {"name": "g"}
CERTIFICATE = {"status": "optimal", "proof": "max-load", "lower_bound": 8, "solver": "greedy"}
PLAN = {"digest": "abc", "deterministic": True, "spaces": [["arena", 64, True, 8, CERTIFICATE]]}
PROBLEM = {"type": "/problems/x", "title": "No", "status": 422, "detail": "No."}


def job(state: str = "queued", **more: Any) -> dict[str, Any]:
    return {
        "id": "1f", "task": "plan", "state": state, "created": "2026-01-02T03:04:05.678Z", "started": None,
        "finished": None, "attempts": 0, "progress": None, "error": None, "links": {}, **more,
    }  # fmt: skip


RUNNING = job("running", progress={"stage": "layout", "seconds": 0.5, "peak_bytes": 12, "bound_bytes": 8})
DONE = job("succeeded", started="2026-01-02T03:04:06Z", finished="2026-01-02T03:04:07Z", attempts=1)
ACCEPTED = httpx.Response(202, json=job(), headers={"Location": "/v1/jobs/1f"})


async def test_a_job_from_end_to_end(opened: Open) -> None:
    news = stream(
        event("state", 1, job()), b": still here\n\n", event("progress", 2, RUNNING), event("end", 3, DONE)
    )
    service = Service(post_jobs=ACCEPTED, get_events=news, get_result=ok(PLAN))
    heard: list[JobStatus] = []
    async with opened(service) as client:
        made = await client.jobs.plan(GRAPH, batch=2)
        assert (made.id, "1f" in repr(made)) == ("1f", True)
        result = await made.wait(progress=heard.append)
    assert (result.digest, result.arena_bytes) == ("abc", 8)
    (asked,) = service.sent("/v1/jobs")
    assert json.loads(asked.content) == {"task": "plan", "request": {"graph": GRAPH, "options": {"batch": 2}}}
    assert len(asked.headers["idempotency-key"]) == 32
    assert [status.state for status in heard] == ["queued", "running", "succeeded"]
    progress = heard[1].progress
    assert progress is not None
    assert (progress.stage, progress.seconds, progress.peak_bytes, progress.done) == ("layout", 0.5, 12, None)
    assert heard[2].ended
    assert heard[2].finished is not None
    assert heard[2].finished.isoformat() == "2026-01-02T03:04:07+00:00"


async def test_a_key_makes_the_same_job(opened: Open) -> None:
    service = Service(post_jobs=ACCEPTED)
    async with opened(service) as client:
        await client.jobs.plan_program({"p": 1}, parallelism=2, idempotency_key="mine")
    assert service.requests[0].headers["idempotency-key"] == "mine"
    assert service.body == {
        "task": "program",
        "request": {"program": {"p": 1}, "options": {"parallelism": 2}},
    }


async def test_events_that_break_off_go_on_where_they_were(opened: Open) -> None:
    headers = {"Content-Type": "text/event-stream"}
    first = httpx.Response(200, stream=Broken(event("state", 7, job())), headers=headers)
    then = [stream(event("progress", 8, RUNNING)), stream(event("end", 9, DONE))]
    service = Service(post_jobs=ACCEPTED, get_events=[first, *then])
    async with opened(service) as client:
        news = [news async for news in (await client.jobs.plan(GRAPH)).events()]
    assert [event.kind for event in news] == ["state", "progress", "end"]
    assert [request.headers.get("last-event-id") for request in service.sent("/events")] == [None, "7", "8"]


@pytest.mark.parametrize(
    ("news", "kind", "words", "requests"),
    [
        (stream(), ConnectionFailed, "/v1/jobs/1f/events", 10),
        (httpx.Response(200, text="<html>"), UnexpectedAnswer, "without events", 1),
        (stream(b"event: state\ndata: {}\n\n"), UnexpectedAnswer, "of another form: KeyError", 1),
        (stream(b"data: half\n\n"), UnexpectedAnswer, "of another form", 1),
    ],
)
async def test_events_without_an_end(
    opened: Open, news: httpx.Response, kind: type[Exception], words: str, requests: int
) -> None:
    service = Service(post_jobs=ACCEPTED, get_events=news)
    async with opened(service) as client:
        made = await client.jobs.plan(GRAPH)
        with pytest.raises(kind, match=words):
            await made.wait()
    assert len(service.sent("/events")) == requests


async def test_a_job_that_fails(opened: Open) -> None:
    figures = {"required": 3, "available": 2, "excess": 1, "live_at_peak": []}
    capacity = {**PROBLEM, "type": "/problems/capacity-exceeded", "status": 409, **figures}
    ended = {**PROBLEM, "type": "/problems/job-failed", "status": 409, "problem": capacity}
    failed = stream(event("end", 1, job("failed", error=capacity)))
    service = Service(post_jobs=ACCEPTED, get_events=failed, get_result=problem(ended))
    heard: list[JobStatus] = []
    async with opened(service) as client:
        made = await client.jobs.plan(GRAPH)
        with pytest.raises(CapacityExceeded, match="No"):
            await made.wait(heard.append)
    assert isinstance(heard[0].error, CapacityExceeded)


async def test_a_job_that_was_cancelled(opened: Open, tmp_path: Path) -> None:
    gone = {**PROBLEM, "type": "/problems/job-cancelled", "status": 410}
    service = Service(
        post_jobs=ACCEPTED,
        get_job=ok(RUNNING),
        delete_job=httpx.Response(202, json=job("cancelled")),
        get_result=httpx.Response(410, json=gone),
    )
    async with opened(service) as client:
        made = await client.jobs.plan(GRAPH)
        assert (await made.status()).state == "running"
        assert (await made.cancel()).state == "cancelled"
        with pytest.raises(JobCancelled):
            await made.save(tmp_path / "plan.json")
        with pytest.raises(JobCancelled):
            await made.result()


async def test_a_result_goes_to_a_file(opened: Open, tmp_path: Path) -> None:
    service = Service(post_jobs=ACCEPTED, get_result=ok(PLAN))
    async with opened(service) as client:
        size = await (await client.jobs.plan(GRAPH)).save(tmp_path / "plan.json")
    data = ok(PLAN).content
    assert ((tmp_path / "plan.json").read_bytes(), size) == (data, len(data))


@pytest.mark.parametrize("known", [True, False])
async def test_models_and_large_graphs_are_stored_first(opened: Open, tmp_path: Path, known: bool) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"\x08\x07\x12")
    large = b'{"name": "' + b"g" * (1 << 20) + b'"}'
    service = Service(
        post_jobs=ACCEPTED,
        head_graph=httpx.Response(200 if known else 404),
        put_graph=httpx.Response(201),
        get_result=ok({"format": "arenaplan.graph"}),
    )
    async with opened(service) as client:
        await client.jobs.plan(large)
        made = await client.jobs.import_model(model, loss="mse", dim=["n=2"])
        assert await made.result() == {"format": "arenaplan.graph"}
    stored = [request for request in service.requests if request.method == "PUT"]
    types = [] if known else ["application/json", "application/octet-stream"]
    assert [request.headers["content-type"] for request in stored] == types
    asked = [json.loads(request.content) for request in service.sent("/v1/jobs")]
    digests = [hashlib.sha256(data).hexdigest() for data in (large, b"\x08\x07\x12")]
    options = {"loss": "mse", "dim": ["n=2"]}
    assert asked == [
        {"task": "plan", "graph": digests[0], "request": {"options": {}}},
        {"task": "import", "graph": digests[1], "request": {"options": options}},
    ]


async def test_jobs_by_id_and_page_by_page(opened: Open) -> None:
    pages = [
        ok({"jobs": [job(), job("failed", id="2f")], "next": "/v1/jobs?after=2f"}),
        ok({"jobs": [job(id="3f")], "next": None}),
    ]
    service = Service(get_jobs=[*pages], get_job=ok(DONE), get_result=ok(PLAN))
    async with opened(service) as client:
        assert [status.id async for status in client.jobs.list(state="queued")] == ["1f", "2f", "3f"]
        assert (await (await client.jobs.get("1f")).result()).digest == "abc"
    queries = [dict(request.url.params) for request in service.sent("/v1/jobs")]
    first = {"limit": "100", "state": "queued"}
    assert queries == [first, {**first, "after": "2f"}]


async def test_no_such_job(opened: Open) -> None:
    async with opened(Service(get_job=httpx.Response(404, json={**PROBLEM, "status": 404}))) as client:
        with pytest.raises(ProblemError, match="No"):
            await client.jobs.get("1f")


# -------------------------------------------------------------------------------------- server-sent events

NEWS = [("state", 1, job()), ("progress", 2, {**RUNNING, "task": "\u00fc\u2028"}), ("end", 3, DONE)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_in_pieces_of_any_size(size: int) -> None:
    texts = (f"event: {k}\nid: {n}\ndata: {json.dumps(d, ensure_ascii=False)}\n\n" for k, n, d in NEWS)
    data = ": still here\n\n".join(texts).encode()

    def handle(request: httpx.Request) -> httpx.Response:
        if not request.url.path.endswith("/events"):
            return ok(job())
        pieces = (data[k : k + size] for k in range(0, len(data), size))
        return httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=pieces)

    with Client("http://test", transport=httpx.MockTransport(handle)) as client:
        heard = [(event.kind, event.status.document) for event in client.jobs.get("1f").events()]
    assert heard == [(kind, document) for kind, _, document in NEWS]
