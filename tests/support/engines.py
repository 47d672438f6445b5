"""Engines of jobs over fake tasks, of each kind, for the tests that hold all of them to the same promises."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from service.jobs.cluster import ClusterEngine, ClusterWorker
from service.jobs.engine import EmbeddedEngine, JobEngine, Runner
from service.jobs.model import Job, NewJob
from service.jobs.pool import Limits, WorkerPool
from service.jobs.table import JobTable, Results
from service.store import Store

__all__ = ["finished", "new_job", "running_engine", "table_of"]

#: Far beyond what anything takes on a loaded machine; only a failing test waits for it.
PATIENCE = 60.0


def table_of(store: Store, *, limit: int = 1000, ttl_seconds: float = 3600.0) -> JobTable:
    return JobTable(store, limit=limit, ttl_seconds=ttl_seconds, max_attempts=3)


@asynccontextmanager
async def running_engine(
    store: Store,
    *,
    workers: int = 1,
    limit: int = 1000,
    seconds: float = PATIENCE,
    confined: bool = True,
) -> AsyncIterator[JobEngine]:
    """An engine with workers of its own; each job may take so many `seconds`."""
    pool = WorkerPool("tests.support.fake_tasks", workers, confined=confined)
    table = table_of(store, limit=limit)
    runner = Runner(table, Results(store), {}, Limits(seconds))
    pool.start()
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(pool.close)
        engine: JobEngine
        if store.is_sqlite:
            engine = EmbeddedEngine(pool, runner)
        else:
            worker = ClusterWorker(store, pool, runner)
            await worker.start()
            stack.push_async_callback(worker.close)
            engine = ClusterEngine(store, table)
        await engine.start()
        stack.push_async_callback(engine.close)
        yield engine


def new_job(text: str, **more: str) -> NewJob:
    """A job whose worker does what the text says (`tests.support.fake_tasks`)."""
    return replace(NewJob("default", "anonymous", "plan", "plan", text.encode()), **more)  # type: ignore[arg-type]


async def finished(engine: JobEngine, job: Job) -> Job:
    """The job once it has ended."""
    while not job.state.final:
        later = await engine.changed(job, PATIENCE)
        assert later.revision > job.revision, f"no news of {job} in {PATIENCE:g} s"
        job = later
    return job
