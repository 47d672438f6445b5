"""Jobs of both clients against a scripted service: what is sent, what is heard, what comes of it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from clients import (
    AsyncClient,
    CapacityExceeded,
    Client,
    ConnectionFailed,
    JobCancelled,
    JobEvent,
    JobStatus,
    ProblemError,
    Retry,
    UnexpectedAnswer,
)
from clients.connections import EventReader, ServerEvent

RETRY = Retry(attempts=3, base=1.0, chance=lambda: 1.0)
GRAPH = {"name": "g"}
CERTIFICATE = {"status": "optimal", "proof": "max-load", "lower_bound": 8, "solver": "greedy"}
PLAN = {"digest": "abc", "deterministic": True, "spaces": [["arena", 64, True, 8, CERTIFICATE]]}
PROBLEM = {"type": "/problems/x", "title": "No", "status": 422, "detail": "No."}


def job(state: str = "queued", **more: Any) -> dict[str, Any]:
    return {
        "id": "1f", "task": "plan", "state": state, "created": "2026-01-02T03:04:05.678Z", "started": None,
        "finished": None, "attempts": 0, "progress": None, "error": None, "links": {}, **more,
    }  # fmt: skip


def event(kind: str, number: int, document: dict[str, Any]) -> bytes:
    return f"event: {kind}\nid: {number}\ndata: {json.dumps(document)}\n\n".encode()


RUNNING = job("running", progress={"stage": "layout", "seconds": 0.5, "peak_bytes": 12, "bound_bytes": 8})
DONE = job("succeeded", started="2026-01-02T03:04:06Z", finished="2026-01-02T03:04:07Z", attempts=1)


class Broken(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that breaks off."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __iter__(self) -> Iterator[bytes]:
        yield self._data
        raise httpx.ReadError("broken off")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._data
        raise httpx.ReadError("broken off")


class Service:
    """Answers by method and path, in the order given, the last answer for ever."""

    def __init__(self, **answers: list[httpx.Response] | httpx.Response) -> None:
        self.answers = {name: one if isinstance(one, list) else [one] for name, one in answers.items()}
        self.requests: list[httpx.Request] = []
        self.transport = httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        request.read()
        self.requests.append(request)
        parts = request.url.path.split("/")[2:]
        what = "graphs" if parts[0] == "graphs" else parts[-1].replace("1f", "job")
        waiting = self.answers[f"{request.method.lower()}_{what}"]
        found = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(found.stream, Broken):
            return found
        return httpx.Response(found.status_code, headers=found.headers, content=found.content)

    def sent(self, name: str) -> list[httpx.Request]:
        return [one for one in self.requests if one.url.path.endswith(name)]


#: What a test does with a client, and with what makes a value of the outcome of a call of either kind.
Use = Callable[[Any, Callable[[Any], Awaitable[Any]]], Awaitable[Any]]
Run = Callable[[Service, Use], Awaitable[Any]]


async def _blocking(service: Service, use: Use) -> Any:
    async def outcome(value: Any) -> Any:
        return list(value) if isinstance(value, Iterator) else value

    with Client("http://test", retry=RETRY, transport=service.transport, sleep=lambda _s: None) as client:
        return await use(client, outcome)


async def _asynchronous(service: Service, use: Use) -> Any:
    async def outcome(value: Any) -> Any:
        return [one async for one in value] if hasattr(value, "__aiter__") else await value

    async def sleep(_seconds: float) -> None:
        pass

    async with AsyncClient("http://test", retry=RETRY, transport=service.transport, sleep=sleep) as client:
        return await use(client, outcome)


@pytest.fixture(params=[_blocking, _asynchronous], ids=["blocking", "asynchronous"])
def run(request: pytest.FixtureRequest) -> Run:
    chosen: Run = request.param
    return chosen


ACCEPTED = httpx.Response(202, json=job(), headers={"Location": "/v1/jobs/1f"})


def stream(*pieces: bytes) -> httpx.Response:
    return httpx.Response(200, content=b"".join(pieces), headers={"Content-Type": "text/event-stream"})


async def test_a_job_from_end_to_end(run: Run) -> None:
    news = stream(
        event("state", 1, job()), b": still here\n\n", event("progress", 2, RUNNING), event("end", 3, DONE)
    )
    service = Service(post_jobs=ACCEPTED, get_events=news, get_result=httpx.Response(200, json=PLAN))
    heard: list[JobStatus] = []

    async def use(client: Any, outcome: Any) -> Any:
        made = await outcome(client.jobs.plan(GRAPH, batch=2))
        assert (made.id, "1f" in repr(made)) == ("1f", True)
        return await outcome(made.wait(progress=heard.append))

    result = await run(service, use)
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


async def test_events_that_break_off_go_on_where_they_were(run: Run) -> None:
    headers = {"Content-Type": "text/event-stream"}
    first = httpx.Response(200, stream=Broken(event("state", 7, job())), headers=headers)
    then = [stream(event("progress", 8, RUNNING)), stream(event("end", 9, DONE))]
    service = Service(post_jobs=ACCEPTED, get_events=[first, *then])

    async def use(client: Any, outcome: Any) -> Any:
        return await outcome((await outcome(client.jobs.plan(GRAPH))).events())

    found: list[JobEvent] = await run(service, use)
    assert [one.kind for one in found] == ["state", "progress", "end"]
    assert [one.headers.get("last-event-id") for one in service.sent("/events")] == [None, "7", "8"]


async def test_events_that_only_break_off(run: Run) -> None:
    service = Service(post_jobs=ACCEPTED, get_events=stream())

    async def use(client: Any, outcome: Any) -> Any:
        return await outcome((await outcome(client.jobs.plan(GRAPH))).wait())

    with pytest.raises(ConnectionFailed, match="/v1/jobs/1f/events"):
        await run(service, use)
    assert len(service.sent("/events")) == 3


@pytest.mark.parametrize(
    ("news", "words"),
    [
        (httpx.Response(200, text="<html>"), "without events"),
        (stream(b"event: state\ndata: {}\n\n"), "of another form: KeyError"),
        (stream(b"data: half\n\n"), "of another form"),
    ],
)
async def test_events_of_something_else(run: Run, news: httpx.Response, words: str) -> None:
    service = Service(post_jobs=ACCEPTED, get_events=news)

    async def use(client: Any, outcome: Any) -> Any:
        return await outcome((await outcome(client.jobs.plan(GRAPH))).wait())

    with pytest.raises(UnexpectedAnswer, match=words):
        await run(service, use)


async def test_a_job_that_fails(run: Run) -> None:
    capacity = {
        **PROBLEM,
        "type": "/problems/capacity-exceeded",
        "status": 409,
        "required": 3,
        "available": 2,
    }
    capacity |= {"excess": 1, "live_at_peak": []}
    failed = stream(event("end", 1, job("failed", error=capacity)))
    headers = {"Content-Type": "application/problem+json"}
    ended = {**PROBLEM, "type": "/problems/job-failed", "status": 409, "problem": capacity}
    service = Service(
        post_jobs=ACCEPTED, get_events=failed, get_result=httpx.Response(409, json=ended, headers=headers)
    )
    heard: list[JobStatus] = []

    async def use(client: Any, outcome: Any) -> Any:
        return await outcome((await outcome(client.jobs.plan(GRAPH))).wait(heard.append))

    with pytest.raises(CapacityExceeded, match="No"):
        await run(service, use)
    assert isinstance(heard[0].error, CapacityExceeded)


async def test_a_job_that_was_cancelled(run: Run, tmp_path: Path) -> None:
    gone = {**PROBLEM, "type": "/problems/job-cancelled", "status": 410}
    service = Service(
        post_jobs=ACCEPTED,
        get_job=httpx.Response(200, json=RUNNING),
        delete_job=httpx.Response(202, json=job("cancelled")),
        get_result=httpx.Response(410, json=gone),
    )

    async def use(client: Any, outcome: Any) -> Any:
        made = await outcome(client.jobs.plan(GRAPH))
        assert (await outcome(made.status())).state == "running"
        assert (await outcome(made.cancel())).state == "cancelled"
        with pytest.raises(JobCancelled):
            await outcome(made.save(tmp_path / "plan.json"))
        return await outcome(made.result())

    with pytest.raises(JobCancelled):
        await run(service, use)


async def test_a_result_goes_to_a_file(run: Run, tmp_path: Path) -> None:
    service = Service(post_jobs=ACCEPTED, get_result=httpx.Response(200, json=PLAN))

    async def use(client: Any, outcome: Any) -> Any:
        return await outcome((await outcome(client.jobs.plan(GRAPH))).save(tmp_path / "plan.json"))

    data = httpx.Response(200, json=PLAN).content
    assert await run(service, use) == len(data)
    assert (tmp_path / "plan.json").read_bytes() == data


async def test_what_is_sent_of_each_task(run: Run) -> None:
    service = Service(post_jobs=ACCEPTED)

    async def use(client: Any, outcome: Any) -> None:
        jobs = client.jobs
        await outcome(jobs.plan_program({"p": 1}, parallelism=2, idempotency_key="mine"))
        await outcome(jobs.layout({"b": 1}, alignment=4))
        await outcome(jobs.tradeoff(GRAPH, points=3))
        await outcome(jobs.explain(GRAPH, "1MiB", training=True, scores={"fc": 2}))
        await outcome(jobs.validate(GRAPH, PLAN, steps=2))
        await outcome(jobs.deploy({"format": "g"}, ["infer"]))
        await outcome(jobs.deploy({"a": {"format": "g"}}, ties=["a=b"], capacity=9))

    await run(service, use)
    bodies = [json.loads(one.content) for one in service.requests]
    assert bodies[0] == {
        "task": "program",
        "request": {"program": {"p": 1}, "options": {"parallelism": 2}},
    }
    assert service.requests[0].headers["idempotency-key"] == "mine"
    assert [(body["task"], body["request"]) for body in bodies[1:]] == [
        ("layout", {"problem": {"b": 1}, "options": {"alignment": 4}}),
        ("tradeoff", {"graph": GRAPH, "options": {}, "points": 3}),
        ("explain", {"graph": GRAPH, "options": {"capacity": "1MiB"}, "training": True, "scores": {"fc": 2}}),
        ("validate", {"graph": GRAPH, "plan": PLAN, "steps": 2, "seed": 0}),
        ("plan", {"graph": {"format": "g"}, "options": {}, "entries": ["infer"], "ties": []}),
        (
            "plan",
            {"models": {"a": {"format": "g"}}, "options": {"capacity": 9}, "entries": [], "ties": ["a=b"]},
        ),
    ]


@pytest.mark.parametrize("known", [True, False])
async def test_models_and_large_graphs_are_stored_first(run: Run, tmp_path: Path, known: bool) -> None:
    model = tmp_path / "m.onnx"
    model.write_bytes(b"\x08\x07\x12")
    large = b'{"name": "' + b"g" * (1 << 20) + b'"}'
    service = Service(
        post_jobs=ACCEPTED,
        head_graphs=httpx.Response(200 if known else 404),
        put_graphs=httpx.Response(201),
        get_result=httpx.Response(200, json={"format": "arenaplan.graph"}),
    )

    async def use(client: Any, outcome: Any) -> Any:
        await outcome(client.jobs.plan(large))
        made = await outcome(client.jobs.import_model(model, loss="mse", dim=["n=2"]))
        return await outcome(made.result())

    assert await run(service, use) == {"format": "arenaplan.graph"}
    stored = [one.headers["content-type"] for one in service.requests if one.method == "PUT"]
    assert stored == ([] if known else ["application/json", "application/octet-stream"])
    asked = [json.loads(one.content) for one in service.sent("/v1/jobs")]
    assert asked[0] == {
        "task": "plan",
        "graph": hashlib.sha256(large).hexdigest(),
        "request": {"options": {}},
    }
    assert asked[1]["request"] == {"options": {"loss": "mse", "dim": ["n=2"]}}
    assert asked[1]["graph"] == hashlib.sha256(b"\x08\x07\x12").hexdigest()


async def test_jobs_by_id_and_page_by_page(run: Run) -> None:
    pages = [
        httpx.Response(200, json={"jobs": [job(), job("failed", id="2f")], "next": "/v1/jobs?after=2f"}),
        httpx.Response(200, json={"jobs": [job(id="3f")], "next": None}),
    ]
    service = Service(
        get_jobs=pages, get_job=httpx.Response(200, json=DONE), get_result=httpx.Response(200, json=PLAN)
    )

    async def use(client: Any, outcome: Any) -> Any:
        found = await outcome(client.jobs.list(state="queued"))
        again = await outcome(client.jobs.get("1f"))
        return [one.id for one in found], (await outcome(again.result())).digest

    assert await run(service, use) == (["1f", "2f", "3f"], "abc")
    queries = [dict(one.url.params) for one in service.sent("/v1/jobs")]
    assert queries == [
        {"limit": "100", "state": "queued"},
        {"limit": "100", "state": "queued", "after": "2f"},
    ]


async def test_no_such_job(run: Run) -> None:
    service = Service(get_job=httpx.Response(404, json={**PROBLEM, "status": 404}))

    async def use(client: Any, outcome: Any) -> None:
        await outcome(client.jobs.get("1f"))

    with pytest.raises(ProblemError, match="No"):
        await run(service, use)


# -------------------------------------------------------------------------------------- server-sent events

TEXT = (
    "id: 1\r\nevent: state\r\ndata: a\r\ndata:b\r\n\r\n: quiet\n\ndata: ü\r\r"
    "id: 2\nnone\n\ndata: c\n\ndata: half"
)
EVENTS = [
    ServerEvent("state", "a\nb", "1"),
    ServerEvent("message", "ü", "1"),
    ServerEvent("message", "c", "2"),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_events_in_pieces_of_any_size(size: int) -> None:
    reader, data = EventReader(), TEXT.encode()
    found = [one for k in range(0, len(data), size) for one in reader.feed(data[k : k + size])]
    assert found == EVENTS
