"""``arenaplan worker`` as a process: it runs what an API accepts, and tells probes how it is."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any

import httpx
import psycopg

from service.jobs.cluster import API_CONNECTIONS, WORKER_CONNECTIONS
from service.settings import Settings
from service.store import open_store, upgrade
from tests.support.postgres import Postgres
from tests.support.server import PATIENCE, ROOT, die_with_parent, running_server


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def assert_few_connections(url: str) -> None:
    """No more than the settings and `deploy/README.md` say, each with a name."""
    query = (
        "select application_name, count(*) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid() group by 1"
    )
    with psycopg.connect(url) as connection:
        names: dict[str, int] = dict(connection.execute(query).fetchall())
    most = Settings().database_connections
    assert names.keys() == {f"arenaplan {role}" for role in ("api", "worker", "tickets", "news")}
    assert names["arenaplan api"] <= most
    assert names["arenaplan worker"] <= most
    beside = names["arenaplan tickets"] + names["arenaplan news"]
    assert beside <= API_CONNECTIONS + WORKER_CONNECTIONS


def test_probes_of_a_worker(postgres: Postgres, tiny: dict[str, Any]) -> None:
    url, port = postgres.new_database(), free_port()
    store = open_store(url)
    upgrade(store)
    store.close()
    command = [sys.executable, "-m", "service.cli", "worker", "--workers", "1", "--health-port", str(port)]
    with subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "ARENAPLAN_DATABASE_URL": url},
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    ) as process:
        try:
            assert process.stderr is not None
            wanted = {"worker started", "worker warmed up"}
            for line in process.stderr:
                wanted.discard(json.loads(line)["event"])
                if not wanted:
                    break
            probe = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)
            for path, status in (("/healthz", "ok"), ("/readyz", "ready")):
                answer = probe.get(path)
                assert (answer.status_code, answer.json()) == (200, {"status": status})
            with running_server(workers=1, database_url=url) as server, server.client() as http:
                job = http.post("/v1/jobs", json={"task": "plan", "request": {"graph": tiny}})
                with http.stream("GET", job.json()["links"]["events"]) as events:
                    assert "event: end" in list(events.iter_lines())
                assert http.get(job.json()["links"]["result"]).status_code == 200
                assert_few_connections(url)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0
        finally:
            process.kill()
