"""The promises of every engine of jobs, on each database that it works with."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import Connection, text, update

from service.jobs.engine import JobEngine
from service.jobs.model import Job, State
from service.jobs.table import Graphs, Results, StoredGraph
from service.problems import Problem
from service.store import Store, open_store, upgrade
from service.store.schema import jobs
from tests.support.engines import finished, new_job, running_engine, table_of
from tests.support.postgres import Postgres
from tests.support.server import is_running


@pytest_asyncio.fixture
async def engine(store: Store) -> AsyncIterator[JobEngine]:
    async with running_engine(store) as running:
        yield running


async def begun(engine: JobEngine, job: Job) -> Job:
    """The job once it runs."""
    while job.state is State.QUEUED:
        job = await engine.changed(job, 60.0)
    return job


async def test_a_job_ends_with_its_result(engine: JobEngine) -> None:
    job, new = await engine.submit(new_job("echo\nhello"))
    assert (job.state, new, job.attempts) == (State.QUEUED, True, 0)
    done = await finished(engine, job)
    assert (done.state, done.attempts, done.error) == (State.SUCCEEDED, 1, None)
    assert done.created <= (done.started or 0) <= (done.finished or 0)
    answer = await engine.table.answer("default", job.id)
    assert answer.body == b"hello"
    assert answer.facts == {"name": "plans/dddddddd", "kept": True}


async def test_a_job_fails_with_its_problem(engine: JobEngine) -> None:
    job, _ = await engine.submit(new_job("problem\nshapes differ"))
    assert (await finished(engine, job)).state is State.FAILED
    with pytest.raises(Problem) as caught:
        await engine.table.answer("default", job.id)
    problem = caught.value
    assert (problem.kind.code, problem.kind.status) == ("job-failed", 409)
    assert "shapes differ" in problem.detail
    cause = problem.extensions["problem"]
    assert (cause["type"], cause["detail"], cause["pointer"]) == (
        "/problems/shape-mismatch",
        "shapes differ",
        "/graph",
    )


async def test_many_jobs(engine: JobEngine) -> None:
    accepted = await asyncio.gather(*(engine.submit(new_job(f"echo\n{k}")) for k in range(20)))
    ended = await asyncio.gather(*(finished(engine, job) for job, _ in accepted))
    answers = [(await engine.table.answer("default", job.id)).body for job in ended]
    assert answers == [b"%d" % k for k in range(20)]


async def test_no_result_before_the_end(engine: JobEngine) -> None:
    job, _ = await engine.submit(new_job("hang"))
    with pytest.raises(Problem) as caught:
        await engine.table.answer("default", job.id)
    assert caught.value.kind.code == "job-not-finished"
    await engine.cancel("default", job.id)


async def test_cancelling_a_job_that_runs_ends_its_process(engine: JobEngine) -> None:
    job, _ = await engine.submit(new_job("hang"))
    while job.progress is None:
        job = await engine.changed(job, 60.0)
    pid = job.progress["pid"]
    assert is_running(pid)
    await engine.cancel("default", job.id)
    assert (await finished(engine, job)).state is State.CANCELLED
    assert not is_running(pid)
    with pytest.raises(Problem) as caught:
        await engine.table.answer("default", job.id)
    assert caught.value.kind.code == "job-cancelled"
    assert (await engine.cancel("default", job.id)).state is State.CANCELLED
    assert (await finished(engine, (await engine.submit(new_job("echo\nnext")))[0])).state is State.SUCCEEDED


async def test_cancelling_a_job_that_waits(store: Store) -> None:
    async with running_engine(store, workers=1) as engine:
        first, _ = await engine.submit(new_job("hang"))
        await begun(engine, first)
        second, _ = await engine.submit(new_job("echo\nnever"))
        assert (await engine.cancel("default", second.id)).state is State.CANCELLED
        await engine.cancel("default", first.id)
        assert (await finished(engine, first)).state is State.CANCELLED
        assert (await engine.table.get("default", second.id)).attempts == 0


async def test_cancelled_by_another_process(engine: JobEngine, store: Store) -> None:
    """Whoever answers the caller is not who runs the job."""
    job, _ = await engine.submit(new_job("hang"))
    job = await begun(engine, job)
    assert (await table_of(store).cancel("default", job.id)).state is State.RUNNING
    assert (await finished(engine, job)).state is State.CANCELLED


async def test_a_job_whose_worker_dies_is_begun_again(store: Store, tmp_path: Path) -> None:
    here = tmp_path / "died"
    async with running_engine(store, confined=False) as engine:  # it leaves a file there
        job, _ = await engine.submit(new_job(f"die-once\n{here}"))
        done = await finished(engine, job)
    assert (done.state, done.attempts) == (State.SUCCEEDED, 2)


async def test_a_job_that_kills_its_workers_fails(engine: JobEngine) -> None:
    job, _ = await engine.submit(new_job("die"))
    done = await finished(engine, job)
    assert (done.state, done.attempts) == (State.FAILED, 3)
    assert done.error is not None
    assert done.error["code"] == "worker-lost"
    assert done.error["detail"].endswith("That was attempt 3, the last.")


async def test_a_job_that_takes_too_long(store: Store) -> None:
    async with running_engine(store, seconds=0.1) as engine:
        done = await finished(engine, (await engine.submit(new_job("hang")))[0])
        assert done.error is not None
        assert (done.state, done.error["code"]) == (State.FAILED, "time-limit")


async def test_a_job_whose_machine_dies_is_begun_again(store: Store) -> None:
    """A claim is taken over as soon as its lease has run out."""
    table = table_of(store)
    job, _ = await table.submit(new_job("echo\nsaved"))
    lost = await table.claim("somebody:who:died")
    assert lost is not None
    assert lost.job.id == job.id
    await store.write(_let_leases_run_out)
    async with running_engine(store) as engine:
        done = await finished(engine, job)
        assert (done.state, done.attempts) == (State.SUCCEEDED, 2)
        assert (await engine.table.answer("default", job.id)).body == b"saved"
    # Not dead after all: what it says now is of no interest.
    assert await table.succeed(lost, b"late", {}) is False
    assert await table.give_back(lost) is False
    assert await table.renew([lost]) == set()
    assert (await table.answer("default", job.id)).body == b"saved"


def _let_leases_run_out(connection: Connection) -> None:
    connection.execute(update(jobs).values(lease=0.0))


async def test_machines_that_die_again_and_again(store: Store) -> None:
    table = table_of(store)
    job, _ = await table.submit(new_job("echo\nnever"))
    for attempt in range(1, 4):
        claim = await table.claim("owner")
        assert claim is not None
        assert claim.job.attempts == attempt
        await store.write(_let_leases_run_out)
        assert await table.rescue() == ([job.id] if attempt < 3 else [])
    with pytest.raises(Problem) as caught:
        await table.answer("default", job.id)
    assert caught.value.kind.status == 409
    assert caught.value.extensions["problem"]["type"] == "/problems/worker-lost"


async def test_a_clock_that_is_set(store: Store) -> None:
    """Set back, it leaves leases that would last for hours: they have run out. What runs here goes on."""
    table = table_of(store)
    job, _ = await table.submit(new_job("echo\nagain"))
    for lease in (0.0, time.time() + 3600):
        assert await table.claim("owner") is not None
        with store.transaction() as connection:
            connection.execute(update(jobs).values(lease=lease))
        assert await table.rescue([job.id]) == []
        assert await table.rescue() == [job.id]
    assert await table.claim("owner") is not None
    assert await table.rescue() == []


async def test_an_engine_that_stops_gives_its_jobs_back(store: Store) -> None:
    async with running_engine(store) as engine:
        job, _ = await engine.submit(new_job("hang"))
        job = await begun(engine, job)
    left = await table_of(store).get("default", job.id)
    assert (left.state, left.attempts) == (State.QUEUED, 0)
    async with running_engine(store) as engine:
        assert (await begun(engine, left)).attempts == 1
        await engine.cancel("default", job.id)
        assert (await finished(engine, left)).state is State.CANCELLED


async def test_the_same_key_is_the_same_job(engine: JobEngine) -> None:
    first = new_job("echo\none", idempotency_key="k", fingerprint="f")
    made = await asyncio.gather(*(engine.submit(first) for _ in range(8)))
    assert len({job.id for job, _ in made}) == 1
    assert sorted(new for _, new in made) == [False] * 7 + [True]
    with pytest.raises(Problem) as caught:
        await engine.submit(new_job("echo\ntwo", idempotency_key="k", fingerprint="g"))
    assert caught.value.kind.code == "idempotency-conflict"
    _, new = await engine.submit(new_job("echo\none", idempotency_key="k", fingerprint="f", tenant="other"))
    assert new


async def test_nobody_sees_the_jobs_of_another_tenant(engine: JobEngine) -> None:
    job, _ = await engine.submit(new_job("echo\nmine"))
    for method in (engine.table.get, engine.table.answer, engine.cancel):
        with pytest.raises(Problem) as caught:
            await method("other", job.id)
        assert caught.value.kind.code == "job-not-found"
    assert await engine.table.page("other") == []
    await finished(engine, job)


async def test_pages(engine: JobEngine) -> None:
    made = [(await engine.submit(new_job(f"echo\n{k}")))[0] for k in range(5)]
    for job in made:
        await finished(engine, job)
    failed = await finished(engine, (await engine.submit(new_job("problem\nno")))[0])
    ids = sorted((job.id for job in (*made, failed)), reverse=True)
    assert [job.id for job in await engine.table.page("default")] == ids
    assert [job.id for job in await engine.table.page("default", limit=2, after=ids[1])] == ids[2:4]
    assert [job.id for job in await engine.table.page("default", state=State.FAILED)] == [failed.id]


async def test_as_many_jobs_as_may(store: Store) -> None:
    async with running_engine(store, limit=2) as engine:
        first, _ = await engine.submit(new_job("hang"))
        await engine.submit(new_job("hang"))
        with pytest.raises(Problem) as caught:
            await engine.submit(new_job("echo\nmore"))
        assert caught.value.kind.code == "too-many-jobs"
        await engine.cancel("default", first.id)
        await finished(engine, first)
        await engine.submit(new_job("echo\nmore"))


async def test_news(engine: JobEngine) -> None:
    job, _ = await engine.submit(new_job("progress"))
    seen = []
    while not job.state.final:
        job = await engine.changed(job, 60.0)
        seen.append((job.state, job.progress and job.progress["stage"]))
    assert (State.RUNNING, "layout") in seen
    assert (await engine.changed(job, 0.0)) == job


async def test_a_request_that_refers_to_a_graph(engine: JobEngine, store: Store) -> None:
    graphs = Graphs(store)
    body = b'{"format": "arenaplan.graph"}'
    digest = hashlib.sha256(body).hexdigest()
    with pytest.raises(Problem) as caught:
        await engine.submit(new_job("{}", graph=digest, work="program"))
    assert caught.value.kind.code == "graph-not-found"
    assert await graphs.put("default", digest, StoredGraph("application/json", body))
    assert not await graphs.put("default", digest, StoredGraph("application/json", body))
    job, _ = await engine.submit(new_job('{"options": {}}', graph=digest, work="program"))
    await graphs.remove("default", digest)
    await finished(engine, job)
    expected = b'{"program":{"format": "arenaplan.graph"},"options": {}}'
    assert (await engine.table.answer("default", job.id)).body == expected


async def test_an_answer_is_computed_once(engine: JobEngine, store: Store) -> None:
    results = Results(store)
    first, _ = await engine.submit(new_job("offer\nthe plan"))
    assert (await finished(engine, first)).state is State.SUCCEEDED
    again, _ = await engine.submit(new_job("offer\nnot the plan"))
    assert (await finished(engine, again)).state is State.SUCCEEDED
    assert (await engine.table.answer("default", again.id)).body == b"the plan"
    assert await results.by_name("default", "plans/offered") == b"the plan"
    assert await results.by_name("other", "plans/offered") is None


async def test_what_has_expired_is_removed(store: Store) -> None:
    async with running_engine(store) as engine:
        job = await finished(engine, (await engine.submit(new_job("echo\nold")))[0])
    await table_of(store).tidy()
    assert (await table_of(store).answer("default", job.id)).body == b"old"
    await store.write(lambda connection: connection.execute(update(jobs).values(expires=0.0)))
    await table_of(store, ttl_seconds=1e11).tidy()
    with pytest.raises(Problem) as caught:
        await table_of(store).answer("default", job.id)
    assert caught.value.kind.code == "job-expired"
    await table_of(store).tidy()
    with pytest.raises(Problem) as caught:
        await table_of(store).get("default", job.id)
    assert caught.value.kind.code == "job-not-found"


async def test_tenants_take_turns(store: Store) -> None:
    """A tenant with many jobs does not keep the one of another waiting."""
    table = table_of(store)
    for k in range(3):
        await table.submit(new_job(f"echo\n{k}", tenant="many"))
    single, _ = await table.submit(new_job("echo\none", tenant="one"))
    claims = [await table.claim("owner") for _ in range(4)]
    tenants = [claim.job.tenant for claim in claims if claim is not None]
    assert tenants == ["many", "one", "many", "many"]
    assert await table.claim("owner") is None
    assert single.tenant == "one"


async def test_tickets_of_dead_workers_are_removed_soon(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker that starts removes dead ones at once, and leaves their tickets in nobody's hands."""
    monkeypatch.setattr("service.jobs.cluster.STALLED_SECONDS", 1.0)
    columns, values = "queue_name, task_name, status", "'jobs', 'x', 'doing'"
    left = text(f"insert into procrastinate.procrastinate_jobs ({columns}) values ({values})")
    count = text("select count(*) from procrastinate.procrastinate_jobs where status = 'doing'")
    with contextlib.closing(open_store(postgres.new_database())) as store:
        upgrade(store)
        async with running_engine(store) as engine:
            submitted, _ = await engine.submit(new_job("echo\n"))
            await finished(engine, submitted)
            await store.write(lambda connection: connection.execute(left))
            async with asyncio.timeout(60.0):
                while await store.read(lambda connection: connection.execute(count).scalar()):
                    pass
