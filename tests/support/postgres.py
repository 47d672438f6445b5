"""PostgreSQL for tests: one cluster in a temporary directory, reached by a socket in it."""

from __future__ import annotations

import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.server import PATIENCE, die_with_parent

if TYPE_CHECKING:
    import psycopg

__all__ = ["Postgres", "missing_programs", "running_postgres"]

_COUNTER = itertools.count(1)


def missing_programs() -> str | None:
    """Why there can be no PostgreSQL here; None where there can."""
    missing = [name for name in ("initdb", "postgres") if shutil.which(name) is None]
    if os.geteuid() == 0 and not (_user() and shutil.which("setpriv")):
        missing.append("a user that is not root, and setpriv")
    return f"PostgreSQL needs {', '.join(missing)}" if missing else None


def _user() -> pwd.struct_passwd | None:
    """Who runs the server where we are root, for whom it refuses to run."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


class Postgres:
    """A server that can be killed and started again. It trusts whoever reaches it."""

    def __init__(self, directory: Path, *settings: str) -> None:
        self.directory = directory
        self._settings = settings
        self.data = directory / "data"
        self._prefix: list[str] = []
        if os.geteuid() == 0 and (user := _user()):
            os.chown(directory, user.pw_uid, user.pw_gid)
            ids = [f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
            self._prefix = ["setpriv", *ids, "--"]
        self._process: subprocess.Popen[bytes] | None = None
        self._run("initdb", "-D", str(self.data), "-U", "tests", "-A", "trust", "--no-sync", "-E", "UTF8")
        if any(setting.startswith("listen_addresses=") for setting in settings):
            with (self.data / "pg_hba.conf").open("a", encoding="utf-8") as rules:
                rules.write("host all tests samenet trust\n")
        self.start()

    def _run(self, *command: str) -> None:
        done = subprocess.run([*self._prefix, *command], capture_output=True, check=False, cwd=self.directory)
        assert done.returncode == 0, done.stderr.decode()

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        log = (self.directory / "log").open("ab")
        options = [f"unix_socket_directories={self.directory}", "listen_addresses=", *self._settings]
        self._process = subprocess.Popen(
            [*self._prefix, "postgres", "-D", str(self.data), *(f"-c{option}" for option in options)],
            cwd=self.directory, stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=die_with_parent,
        )  # fmt: skip
        log.close()
        import psycopg

        until = time.monotonic() + PATIENCE
        while True:
            try:
                psycopg.connect(self.address("postgres")).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, (self.directory / "log").read_text(encoding="utf-8")
                assert time.monotonic() < until
                time.sleep(0.02)
            else:
                return

    def pause(self) -> None:
        """Let the server and all its processes stand still: connections stay open, and nothing answers."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """End the server and all its processes at once, as the end of a machine does."""
        self._signal(signal.SIGKILL)
        assert self._process is not None
        self._process.wait(PATIENCE)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        children = Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children")
        pids = [int(pid) for pid in children.read_text(encoding="utf-8").split()]
        for pid in (self._process.pid, *pids):
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(PATIENCE)

    def address(self, database: str) -> str:
        return f"postgresql://tests@/{database}?host={self.directory}"

    def connect(self) -> psycopg.Connection[Any]:
        """To the database that every server has."""
        import psycopg

        return psycopg.connect(self.address("postgres"), autocommit=True)

    def new_database(self) -> str:
        """The URL of an empty database."""
        name = f"arenaplan_{next(_COUNTER)}"
        with self.connect() as connection:
            connection.execute(f'create database "{name}"')
        return self.address(name)


@contextmanager
def running_postgres(*settings: str) -> Iterator[Postgres]:
    """A server that is gone afterwards, with all that it held. `settings` are as ``name=value``."""
    with tempfile.TemporaryDirectory(prefix="arenaplan-pg-", dir="/tmp") as directory:
        server = Postgres(Path(directory), *settings)
        try:
            yield server
        finally:
            server.kill()
