"""The service as real processes, on one machine or as a cluster, to be killed in parts."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.chaos.network import Network
from tests.support.postgres import Postgres, running_postgres
from tests.support.server import PATIENCE, ROOT, die_with_parent

__all__ = ["Deployment", "Process", "children", "deployed", "is_running"]

#: Of every process, so that a validation can be as long as a test needs.
SETTINGS = {"drain_seconds": "0", "validate_max_steps": "100000", "log_level": "warning"}


class Process:
    """One command of the project, started again when it was killed. `within` is a command that runs it."""

    def __init__(self, log: Path, *command: str, within: Sequence[str] = (), **settings: str) -> None:
        self._command = [*within, sys.executable, "-m", "service.cli", *command]
        self._log = log
        clean = {name: value for name, value in os.environ.items() if not name.startswith("ARENAPLAN_")}
        given = {f"ARENAPLAN_{name.upper()}": value for name, value in (SETTINGS | settings).items()}
        self._environment = clean | given
        self.start()

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, cwd=ROOT, env=self._environment, stdin=subprocess.DEVNULL, stderr=log,
                preexec_fn=die_with_parent,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(PATIENCE)


def children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        listing = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
        return [int(child) for child in listing.split()]
    return []


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


class Deployment:
    """An API and what runs its jobs. `machines` are those that do; on one machine, the API itself."""

    def __init__(
        self,
        url: str,
        api: Process,
        machines: list[Process],
        postgres: Postgres | None,
        database: str,
        log: Path,
    ) -> None:
        self.url = url
        self.database = database
        self.log = log
        self.api = api
        self.machines = machines
        self.postgres = postgres

    def workers(self) -> list[int]:
        """Processes that plan."""
        return [pid for machine in self.machines for pid in children(machine.pid)]

    def held(self, machine: int) -> set[str]:
        """Jobs that a machine of a cluster runs, as its database has it."""
        import psycopg

        assert self.postgres is not None
        running = "select id from jobs where state = 'running' and owner like %s"
        with psycopg.connect(self.database) as connection:
            owner = f"%:{self.machines[machine].pid}:%"
            return {identity for (identity,) in connection.execute(running, [owner])}

    def kill_worker(self, random: random.Random) -> None:
        """End a process that plans, or, of a cluster, now and then the whole machine, which comes again."""
        if self.postgres is not None and random.random() < 0.3:
            machine = random.choice(self.machines)
            machine.kill()
            machine.start()
        elif pids := self.workers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(random.choice(pids), signal.SIGKILL)

    def kill_api(self) -> None:
        self.api.kill()
        self.api.start()

    def kill_postgres(self) -> None:
        assert self.postgres is not None
        self.postgres.kill()
        self.postgres.start()

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=PATIENCE)

    def wait_until_ready(self) -> None:
        until = time.monotonic() + PATIENCE
        with self.client() as http:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if http.get("/readyz").status_code == 200:
                        return
                assert time.monotonic() < until, "the service does not become ready"
                time.sleep(0.05)


@contextmanager
def deployed(engine: str, *, workers: int = 3, network: Network | None = None) -> Iterator[Deployment]:
    """``embedded``: one process with so many workers; ``cluster``: an API, so many machines, PostgreSQL.

    The machines are those of the network, if there is one; the rest is where we are.
    """
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="arenaplan-chaos-")))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        listening = () if network is None else (f"listen_addresses={network.address}",)
        postgres = stack.enter_context(running_postgres(*listening)) if engine == "cluster" else None
        url = f"sqlite:///{place}/jobs.db" if postgres is None else postgres.new_database()
        if postgres is not None:
            upgrade = [sys.executable, "-m", "service.cli", "database", "upgrade"]
            environment = {**os.environ, "ARENAPLAN_DATABASE_URL": url}
            subprocess.run(upgrade, check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        log = place / "log"
        api = Process(
            log,
            "serve",
            "--port",
            port,
            "--workers",
            str(workers) if postgres is None else "1",
            database_url=url,
        )
        stack.callback(api.kill)
        machines = [api]
        if postgres is not None:
            reached = url if network is None else url.replace("@", f"@{network.address}").partition("?")[0]
            machines = [
                Process(
                    log, "worker", "--workers", "1", database_url=reached,
                    within=() if network is None else network.within(number),
                )
                for number in range(workers)
            ]  # fmt: skip
            for machine in machines:
                stack.callback(machine.kill)
        made = Deployment(f"http://127.0.0.1:{port}", api, machines, postgres, url, log)
        made.wait_until_ready()
        yield made
