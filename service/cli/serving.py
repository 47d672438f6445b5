"""Running the HTTP service in this process."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import resource
import signal
import socket
import ssl
import sys
from types import FrameType
from typing import Final

import structlog
import uvicorn
import uvloop
from fastapi import FastAPI

from service.cli.console import Exit, fail
from service.http.app import create_app
from service.http.connections import BoundedProtocol
from service.http.state import State
from service.jobs.backend import open_service_store
from service.logs import configure_logging
from service.problems import Problem
from service.settings import Settings
from service.store import check_schema
from service.telemetry.metrics import Reading, watch_log
from service.telemetry.tracing import configure_tracing, wanted

__all__ = ["run"]

#: More open files than the service ever needs.
_MOST_FILES: Final = 1 << 16
#: An answered connection that is silent for so long is closed.
_KEEP_ALIVE_SECONDS: Final = 5


def run(chosen: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C, then let running requests finish."""
    log = configure_logging(chosen.log_level, chosen.log_format)
    traces = configure_tracing(chosen.otlp_endpoint) if wanted(chosen.otlp_endpoint, os.environ) else None
    listener = _listen(chosen.host, chosen.port)
    loopback = ipaddress.ip_address(listener.getsockname()[0].partition("%")[0]).is_loopback
    if chosen.auth == "off" and not (loopback or chosen.allow_anonymous):
        listener.close()
        fail(
            f"{chosen.host} can be reached from elsewhere, and nobody would have to say who they are. Set"
            " ARENAPLAN_AUTH=keys (or oidc), listen on 127.0.0.1, or say --allow-anonymous"
            " (ARENAPLAN_ALLOW_ANONYMOUS=true) where something else keeps strangers out.",
            Exit.USAGE,
        )
    # The server raises the signal again once it has stopped: to be asked to stop is not a failure.
    signal.signal(signal.SIGTERM, lambda _signal, _frame: sys.exit(0))
    _check_database(chosen)
    app = _application(chosen, chosen.allowed_hosts or ("local" if loopback else "*"))
    most = min(chosen.connection_limit, _connections(chosen.workers))
    config = uvicorn.Config(
        app,
        http=BoundedProtocol,
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=most + 1,  # uvicorn answers 503 from that number on
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        root_path=chosen.root_path,
        timeout_graceful_shutdown=chosen.shutdown_seconds,
        ssl_certfile=chosen.tls_certificate,
        ssl_keyfile=chosen.tls_key,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:  # of the certificate: the rest of it has been checked
        listener.close()
        fail(f"The certificate and its key cannot be read: {error}.", Exit.USAGE)
    server = _Server(config, _url(listener, secure=config.is_ssl), app.state.arenaplan, chosen.drain_seconds)
    metrics = app.state.arenaplan.metrics
    metrics.watch(
        Reading("arenaplan_connections", "Open connections.", lambda: len(server.server_state.connections)),
        Reading("arenaplan_connections_limit", "How many there may be.", lambda: most),
    )
    watch_log(metrics, log)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(server.serve(sockets=[listener]))
    finally:
        # Here, and not when the process ends: one that was interrupted ends at once.
        if traces:
            traces.close()
        log.drain()


def _check_database(chosen: Settings) -> None:
    """End with one sentence where the settings name no database, or one whose tables are of another version.

    A database that cannot be used now leaves plans as they are: the log says so when it is opened.
    """
    try:
        store = open_service_store(chosen, "api")
        if store is None or store.is_sqlite:
            return
        with contextlib.closing(store), contextlib.suppress(Problem):
            if wrong := check_schema(store):
                fail(wrong, Exit.WRONG)
    except ValueError as error:
        fail(f"ARENAPLAN_DATABASE_URL: {error}", Exit.USAGE)


def _application(chosen: Settings, hosts: str) -> FastAPI:
    """Ends with a message where what the settings ask for is not there."""
    try:
        return create_app(chosen, hosts=hosts)
    except ModuleNotFoundError as error:
        fail(f"{error}: pip install 'pyjwt[crypto]>=2.10'", Exit.USAGE)
    except ValueError as error:
        fail(str(error), Exit.USAGE)


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


def _url(listener: socket.socket, *, secure: bool) -> str:
    host, port = listener.getsockname()[:2]
    return f"http{'s' * secure}://{f'[{host}]' if ':' in host else host}:{port}"


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

    def __init__(self, config: uvicorn.Config, url: str, state: State, drain_seconds: float) -> None:
        super().__init__(config)
        self._url = url
        self._state = state
        self._drain_seconds = drain_seconds
        self._interrupted = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        structlog.get_logger("service").info("listening", url=self._url, docs=f"{self._url}/docs")

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._interrupted |= sig == signal.SIGINT
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._state.draining = True
        loop = asyncio.get_running_loop()
        until = loop.time() + self._drain_seconds
        while not self._interrupted and loop.time() < until:
            await self.on_tick(0)  # the date of answers
            await asyncio.sleep(min(0.1, self._drain_seconds))
        await super().shutdown(sockets)
