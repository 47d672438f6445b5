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
from tests.support.server import Server, running_server

Graph = dict[str, Any]


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
        sizes = [result.arena_bytes for result in results]
        assert sizes == sorted(set(sizes))
        assert await client.fits(tiny, results[0].arena_bytes, batch=20)
