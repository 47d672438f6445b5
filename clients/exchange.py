"""A question and its answer, asked again where that may help."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import httpx

from clients.errors import ConnectionFailed
from clients.requests import address
from clients.retry import Retry
from clients.steps import Close, Opened, Pause, Request, Steps, do, open_stream, read, send

__all__ = ["Exchange"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Exchange:
    """Where the service is, and when a question is asked again."""

    base: httpx.URL
    retry: Retry

    def ask(self, request: Request) -> Steps[httpx.Response]:
        """The first answer that is not a passing failure, or the last of all tries.

        Raises ConnectionFailed where there is none.
        """
        return (yield from self._patiently(request, send, lambda response: response))

    def open(self, request: Request) -> Steps[Opened]:
        """The same of an answer that is read piece by piece, of which the first is not there yet."""
        return (yield from self._patiently(request, open_stream, lambda opened: opened.response))

    def save(self, request: Request, path: Path) -> Steps[httpx.Response]:
        """The same of an answer that goes to a file as it comes; a failure leaves the file as it was."""
        return (yield from self._patiently(request, partial(_saved, path), lambda response: response))

    def _patiently(
        self, request: Request, once: Callable[[Request], Steps[T]], answer: Callable[[T], httpx.Response]
    ) -> Steps[T]:
        attempt = 1
        while True:
            try:
                outcome = yield from once(request)
            except httpx.TransportError as error:
                pause = self.retry.after_error(attempt, error)
                if pause is None:
                    place = address(self.base, request.path.partition("?")[0])
                    reason = str(error) or type(error).__name__
                    raise ConnectionFailed(f"{place}: no answer ({reason})") from error
            else:
                pause = self.retry.after_answer(attempt, answer(outcome))
                if pause is None:
                    return outcome
            yield Pause(pause)
            attempt += 1


def _saved(path: Path, request: Request) -> Steps[httpx.Response]:
    """Writes beside the file, and puts the whole in its place."""
    opened = yield from open_stream(request)
    if not opened.response.is_success:
        return opened.response
    part = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    file = yield from do(lambda: part.open("xb"))
    try:
        while piece := (yield from read(opened)):
            yield from do(partial(file.write, piece))
        file.close()
        part.replace(path)
    finally:
        file.close()
        part.unlink(missing_ok=True)
    yield Close(opened)
    return opened.response
