"""Running the HTTP service in this process."""

from __future__ import annotations

import asyncio
import atexit
import os
import resource
import signal
import socket
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final, NoReturn

import structlog
import uvicorn
import uvloop
from pydantic import ValidationError

from service.cli.console import Exit, fail
from service.http.app import create_app
from service.http.connections import Admission, guarded
from service.http.state import Phase
from service.logs import configure_logging
from service.problems import Problem
from service.settings import Settings, unknown_settings
from service.store import check_schema, open_store
from service.telemetry.metrics import Reading, watch_log
from service.telemetry.tracing import configure_tracing, wanted

__all__ = ["run", "settings"]

#: More open files than the service ever needs.
_MOST_FILES: Final = 1 << 16


def settings(given: Mapping[str, Any]) -> Settings:
    """Settings from the environment, with `given` on top; ends with a message when one is none or wrong."""
    for name, near in unknown_settings(os.environ).items():
        meant = f"; did you mean {near}?" if near else ". The page Settings of the documentation lists them."
        fail(f"{name} is not a setting{meant}", Exit.USAGE)
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        wrong = f"must be {first['msg']}" if first["type"] == "wanted" else first["msg"]
        fail(f"Setting {name} (ARENAPLAN_{name.upper()}): {wrong}.", Exit.USAGE)


def run(chosen: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C, then let running requests finish."""
    log = configure_logging(chosen.log_level, chosen.log_format)
    if wanted(chosen.otlp_endpoint, os.environ) and (traces := configure_tracing(chosen.otlp_endpoint)):
        atexit.register(traces.close)
    listener = _listen(chosen.host, chosen.port)
    signal.signal(signal.SIGTERM, _leave)
    _check_database(chosen.database_url)
    app = create_app(chosen)
    most = min(chosen.connection_limit, _connections(chosen.workers))
    metrics = app.state.arenaplan.metrics
    admission = Admission(most, chosen.header_seconds, chosen.body_seconds, metrics.refused)
    metrics.watch(
        Reading("arenaplan_connections", "Open connections.", lambda: admission.open),
        Reading("arenaplan_connections_limit", "How many there may be.", lambda: admission.connections),
    )
    watch_log(metrics, log)
    config = uvicorn.Config(
        app,
        http=guarded(admission),
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        root_path=chosen.root_path,
        timeout_graceful_shutdown=chosen.shutdown_seconds,
    )
    server = _Server(config, _url(listener), app.state.arenaplan.phase, chosen.drain_seconds)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(server.serve(sockets=[listener]))


def _check_database(url: str) -> None:
    """End with one sentence where the database cannot be used; an SQLite file that cannot leaves jobs off."""
    if url == "off":
        return
    try:
        store = open_store(url)
        if not store.is_sqlite and (wrong := check_schema(store)):
            fail(wrong, Exit.WRONG)
        store.close()
    except ValueError as error:
        fail(f"ARENAPLAN_DATABASE_URL: {error}", Exit.USAGE)
    except Problem as problem:
        fail(problem.detail, Exit.WRONG)
    except OSError:  # said in the log when it is opened
        return


def _leave(_signal: int, _frame: FrameType | None) -> NoReturn:
    """The server raises the signal again once it has stopped: to be asked to stop is not a failure."""
    raise SystemExit(0)


def _listen(host: str, port: int) -> socket.socket:
    """Raises OSError that names the address."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except OSError as error:
        raise OSError(error.errno, error.strerror, f"{host}:{port}") from error
    return listener


def _url(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _connections(workers: int) -> int:
    """How many connections leave descriptors for everything else; as many files as allowed are asked for.

    Each may have a body on disk. A worker takes two pipes, and its start some more.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, _MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        soft = wanted
    files = _MOST_FILES if soft == resource.RLIM_INFINITY else soft
    return max(1, (files - 48 - 8 * workers) // 2)


class _Server(uvicorn.Server):
    """Says where it listens as an event like any other, and stops in steps.

    Asked to stop, it is ready no longer, but answers for `drain_seconds` more; then the port is closed, and
    what runs may finish. Ctrl-C leaves the first step out.
    """

    def __init__(self, config: uvicorn.Config, url: str, phase: Phase, drain_seconds: float) -> None:
        super().__init__(config)
        self._url = url
        self._phase = phase
        self._drain_seconds = drain_seconds
        self._interrupted = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        structlog.get_logger("service").info("listening", url=self._url, docs=f"{self._url}/docs")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._interrupted |= sig == signal.SIGINT
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._phase.draining = True
        loop = asyncio.get_running_loop()
        until = loop.time() + self._drain_seconds
        while not self._interrupted and loop.time() < until:
            await self.on_tick(0)  # the date of answers
            await asyncio.sleep(min(0.1, self._drain_seconds))
        await super().shutdown(sockets)
