"""Both clients and their jobs against the real service."""

from __future__ import annotations

import asyncio
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from clients import (
    AsyncClient,
    CapacityExceeded,
    Client,
    JobCancelled,
    JobNotFinished,
    JobStatus,
    PlanResult,
    ProblemError,
)
from service.http.examples import example
from tests.support.server import Server, running_server

Graph = dict[str, Any]

#: A program of two independent pairs of operations, and buffers that just fit their capacity of 12 bytes.
PAIRS: Graph = example("parallel")["program"]
BUFFERS: Graph = example("buffers")["problem"]
ENTRIES: list[Any] = ["train", {"purpose": "infer", "batch": 1, "name": "camera"}]


def test_jobs(server: Server, tiny: Graph, slow: Graph) -> None:
    heard: list[JobStatus] = []
    with Client(server.url) as client:
        job = client.jobs.plan(tiny, batch=3)
        result = job.wait(progress=heard.append)
        assert heard[-1].state == "succeeded"
        assert [event.kind for event in job.events()] == ["end"]
        direct = client.plan(tiny, batch=3)
        assert (direct.document, direct.cached) == (result.document, True)
        with pytest.raises(CapacityExceeded) as caught:
            client.jobs.plan(tiny, capacity=100).wait()
        assert caught.value.required > 100
        waiting = client.jobs.validate(slow, client.plan(slow).document, steps=6)
        with pytest.raises(ProblemError, match="Ask again later"):
            waiting.result()
        waiting.cancel()
        with pytest.raises(JobCancelled):
            waiting.wait()
        assert client.jobs.get(waiting.id).status().state == "cancelled"
        assert {job.id, waiting.id} <= {one.id for one in client.jobs.list()}
        again = client.jobs.plan(tiny, batch=3, idempotency_key="once")
        assert client.jobs.plan(tiny, batch=3, idempotency_key="once").id == again.id


def test_large_graphs_and_files(server: Server, tiny: Graph, tmp_path: Path) -> None:
    """Graphs too large for a job are stored first, within the limit; plans go to files as they come."""
    path = tmp_path / "plan.json"
    with Client(server.url) as client:
        with pytest.raises(ProblemError, match="limit"):
            client.jobs.plan(json.dumps(tiny).encode() + b" " * (1 << 20))
        saved = client.save_plan(tiny, path)
        assert json.loads(path.read_bytes())["digest"] == saved.digest
        assert client.stored_plan(saved.digest).document == json.loads(path.read_bytes())


async def test_waiting_for_so_long(tiny: Graph, slow: Graph) -> None:
    """The time is over, the job goes on, and can be waited for again."""
    with running_server(workers=1, validate_max_steps=10_000) as server:
        with Client(server.url) as client:
            job = client.jobs.validate(slow, client.plan(slow).document, steps=10_000)
            for seconds in (0.0, 0.3):
                with pytest.raises(JobNotFinished, match="goes on") as late:
                    job.wait(timeout=seconds)
                assert (late.value.id, job.status().ended) == (job.id, False)
        async with AsyncClient(server.url) as client:
            again = await client.jobs.get(job.id)
            for seconds in (0.0, 0.3):
                with pytest.raises(TimeoutError, match=job.id):
                    await again.wait(timeout=seconds)
            await again.cancel()
            with pytest.raises(JobCancelled):
                await again.wait(timeout=600)
            small = await client.jobs.plan(tiny, batch=4)
            assert (await small.wait(timeout=600)).digest == (await client.plan(tiny, batch=4)).digest


def test_a_graph_that_is_too_large_for_a_job(tiny: Graph) -> None:
    """The service says that it can be stored first, and the client does so by itself."""
    graph = json.dumps(tiny).encode() + b" " * (5 << 20)
    with running_server(workers=1) as server, server.client() as http, Client(server.url) as client:
        refused = http.post(
            "/v1/jobs",
            content=b'{"task": "plan", "request": {"graph": %s}}' % graph,
            headers={"Content-Type": "application/json"},
        )
        assert (refused.status_code, refused.json()["type"]) == (413, "/problems/body-too-large")
        assert "/v1/graphs/" in refused.json()["remedy"]
        result = client.jobs.plan(graph, batch=7).wait(timeout=600)
        assert result.digest == client.plan(tiny, batch=7).digest
        assert http.head(f"/v1/graphs/{hashlib.sha256(graph).hexdigest()}").status_code == 200


async def test_many_jobs_at_the_same_time(server: Server, tiny: Graph) -> None:
    async with AsyncClient(server.url) as client:

        async def planned(batch: int) -> PlanResult:
            job = await client.jobs.plan(tiny, batch=batch)
            kinds = [event.kind async for event in job.events()]
            assert kinds[-1] == "end"
            return await job.result()

        results = await asyncio.gather(*map(planned, range(20, 26)))
        assert [plan.digest for plan in results] == [
            plan.digest for plan in await asyncio.gather(*(client.plan(tiny, batch=k) for k in range(20, 26)))
        ]
        sizes = [result.arena_bytes for result in results]
        assert sizes == sorted(set(sizes))
        assert await client.fits(tiny, results[0].arena_bytes, batch=20)


def test_every_method(server: Server, tiny: Graph, mnist: Graph, tmp_path: Path) -> None:
    for name, document in (("program", PAIRS), ("buffers", BUFFERS)):
        (tmp_path / f"{name}.json").write_text(json.dumps(document), encoding="utf-8")
    with Client(server.url) as client:
        made = client.plan(tiny, batch=2)
        assert client.ready()  # the plan has waited for a worker, without which the service is starting
        assert client.stored_plan(made.digest).document == made.document
        assert client.fits(tiny, made.arena_bytes, batch=2)
        assert not client.fits(tiny, made.lower_bound // 2, batch=2)
        assert client.validate(tiny, made.document, steps=2).identical

        made = client.plan_program(PAIRS, parallelism=2)
        assert (made.status, made.proof) == ("optimal", "max-load")
        assert client.plan_program(tmp_path / "program.json", {"parallelism": 2}).cached
        assert client.stored_plan(made.digest).document == made.document
        with pytest.raises(ProblemError, match="batch is for graphs"):
            client.plan_program(PAIRS, batch=2)

        layout = client.layout(BUFFERS, solver="greedy")
        assert (layout.peak, layout.lower_bound, layout.proof) == (12, 12, "max-load")
        assert set(layout.offsets) == {buffer["id"] for buffer in BUFFERS["buffers"]}
        assert client.layout(tmp_path / "buffers.json", solver="greedy") == client.stored_layout(
            layout.digest
        )
        with pytest.raises(ProblemError, match="solver"):
            client.layout(BUFFERS, solver="magic")

        curve = client.tradeoff(mnist, points=4)
        assert curve.points[0].extra == 0.0
        assert curve.floor <= curve.points[-1].peak
        verdict = client.explain(mnist, "16.6MB")
        assert (verdict.status, verdict.extra) == ("impossible", None)
        assert verdict.remedies[0].measures == ("rewrite", "1 MiB of scratch")
        assert verdict.remedies[0].options["capacity"] == 16_600_000
        best = client.plan(mnist, verdict.remedies[0].options)
        assert best.arena_bytes == verdict.remedies[0].arena_bytes
        with pytest.raises(ProblemError):
            client.explain(mnist, 1, target="onert")

        with pytest.raises(CapacityExceeded) as caught:
            client.plan(mnist, capacity=17_100_000)
        assert caught.value.available == 17_100_000
        assert caught.value.verdict is not None
        assert caught.value.verdict["recompute"] == "open"
        with pytest.raises(CapacityExceeded) as caught:
            client.plan_program(PAIRS, capacity=1000)
        assert caught.value.verdict is None
        with pytest.raises(CapacityExceeded) as caught:
            client.layout(BUFFERS, capacity=11)
        assert caught.value.excess == 1


def test_entry_points(server: Server, tiny: Graph) -> None:
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
