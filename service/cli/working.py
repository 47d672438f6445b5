"""Running jobs of a database in this process, and looking after the tables of one."""

from __future__ import annotations

import asyncio
import atexit
import os
import signal
from contextlib import suppress
from typing import Final

import structlog
import uvloop

from service.auth.quotas import Quotas
from service.auth.registry import Registry
from service.cli.console import Exit, fail
from service.jobs.backend import open_service_store, open_worker
from service.jobs.health import Health
from service.jobs.pool import WorkerPool
from service.logs import LogWriter, configure_logging
from service.problems import Problem
from service.settings import Settings
from service.store import Store, prepare
from service.telemetry.metrics import watch_log
from service.telemetry.tracing import configure_tracing, wanted

__all__ = ["run_worker"]

_log = structlog.get_logger("service")

#: Between attempts to reach the database before the first one succeeds.
PAUSE_SECONDS: Final = 1.0


def run_worker(chosen: Settings) -> None:
    """Run jobs until SIGTERM or Ctrl-C, then let those finish that run; the rest is given back."""
    log = configure_logging(chosen.log_level, chosen.log_format)
    if wanted(chosen.otlp_endpoint, os.environ) and (traces := configure_tracing(chosen.otlp_endpoint)):
        atexit.register(traces.close)
    if not chosen.database_url.startswith("postgres"):
        fail(
            "A worker takes its jobs from PostgreSQL: set ARENAPLAN_DATABASE_URL. With SQLite, `arenaplan"
            " serve` runs them itself.",
            Exit.USAGE,
        )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_work(chosen, log))


async def _work(chosen: Settings, log: LogWriter) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    health = Health()
    if chosen.worker_health_port is not None:
        await health.serve(chosen.host, chosen.worker_health_port)
    try:
        await _run(chosen, log, stopped, health)
    finally:
        await health.close()


async def _run(chosen: Settings, log: LogWriter, stopped: asyncio.Event, health: Health) -> None:
    """As soon as the database answers, until `stopped`."""
    store = open_service_store(chosen, "worker")
    assert store is not None
    if not await _prepared(store, stopped):
        store.close()
        return
    # Processor time is charged to the tenants of jobs here as it is where they were sent to.
    usage = Registry(store, Quotas(), chosen.usage_days)
    pool = WorkerPool(
        "service.jobs.tasks", chosen.workers, meter=usage.meter.spend, confined=chosen.confine_workers
    )
    pool.watch()
    watch_log(pool.metrics, log)
    pool.metrics.database(lambda: store.trouble is None, lambda: store.failures)
    if chosen.worker_metrics_port is not None:
        pool.metrics.serve(chosen.host, chosen.worker_metrics_port)
    worker = open_worker(store, chosen, pool, health.heard)
    pool.start()
    health.pool = pool
    exchange = asyncio.create_task(usage.run())
    try:
        await worker.start()
        _log.info("worker started", workers=pool.size)
        await stopped.wait()
        _log.info("worker stops")
        await worker.drain(chosen.shutdown_seconds)
        await worker.close()
    finally:
        await pool.close()
        exchange.cancel()
        await usage.close()
        store.close()
    _log.info("worker stopped")


async def _prepared(store: Store, stopped: asyncio.Event) -> bool:
    """True once the database answers: a worker may be started before it. False where it is to stop first.

    Raises ValueError where the tables are of another version.
    """
    while not stopped.is_set():
        try:
            await store.run(lambda: prepare(store))
        except Problem:  # said in the log by the store
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), PAUSE_SECONDS)
        else:
            return True
    return False
