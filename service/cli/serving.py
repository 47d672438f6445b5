"""Running the HTTP service in this process."""

from __future__ import annotations

import signal
import socket
from collections.abc import Mapping
from types import FrameType
from typing import Any, NoReturn

import structlog
import uvicorn
from pydantic import ValidationError

from service.cli.console import Exit, fail
from service.http.app import create_app
from service.logs import configure_logging
from service.settings import Settings

__all__ = ["run", "settings"]


def settings(given: Mapping[str, Any]) -> Settings:
    """Settings from the environment, with `given` on top; ends with a message when one is wrong."""
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        wrong = f"must be {first['msg']}" if first["type"] == "wanted" else first["msg"]
        fail(f"Setting {name} (ARENAPLAN_{name.upper()}): {wrong}.", Exit.USAGE)


def run(chosen: Settings) -> None:
    """Serve until SIGTERM or Ctrl-C, then let running requests finish."""
    configure_logging(chosen.log_level, chosen.log_format)
    listener = _listen(chosen.host, chosen.port)
    signal.signal(signal.SIGTERM, _leave)
    config = uvicorn.Config(
        create_app(chosen),
        log_config=None,
        access_log=False,
        server_header=False,
        root_path=chosen.root_path,
        timeout_graceful_shutdown=chosen.shutdown_seconds,
    )
    server = _Server(config, _url(listener))
    server.run(sockets=[listener])


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


class _Server(uvicorn.Server):
    """Says where it listens as an event like any other."""

    def __init__(self, config: uvicorn.Config, url: str) -> None:
        super().__init__(config)
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        structlog.get_logger("service").info("listening", url=self._url, docs=f"{self._url}/docs")
