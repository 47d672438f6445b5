"""The short way to answers that are kept: before the framework looks at the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.http.content_addressed import ContentAddressed
from service.http.intake import FREE_BYTES
from service.http.scopes import path_of
from service.http.state import State

__all__ = ["KnownAnswers"]


class KnownAnswers:
    """Answers a small JSON body that was answered before; everything else goes on as if this were not here.

    Routing, dependencies and a request object of the framework take most of the time of an answer that only
    has to be sent. Whoever must not have an answer has to be turned away before this is asked.
    """

    def __init__(self, app: ASGIApp, state: State, kinds: Mapping[str, ContentAddressed]) -> None:
        self._app = app
        self._state = state
        self._kinds = kinds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = path_of(scope) if scope["type"] == "http" else ""
        kind = self._kinds.get(path)
        if kind is None or scope["method"] != "POST" or not _is_plain_json(scope):
            await self._app(scope, receive, send)
            return
        message = await receive()
        if _is_whole(message):
            request = Request(scope)
            answer = kind.kept(request, self._state, message.get("body", b""))
            if answer is not None:
                scope["route"] = _Route(path)  # as the framework leaves it for metrics and logs
                await answer(scope, receive, send)
                return

        read: Message | None = message

        async def again() -> Message:
            nonlocal read
            first, read = read, None
            return await receive() if first is None else first

        await self._app(scope, again, send)


@dataclass(frozen=True, slots=True)
class _Route:
    path: str


def _is_whole(message: Message) -> bool:
    """Whether this is all of a body, and one that needs no counting among those of other requests."""
    return (
        message["type"] == "http.request"
        and not message.get("more_body")
        and len(message.get("body", b"")) <= FREE_BYTES
    )


def _is_plain_json(scope: Scope) -> bool:
    """Declared as JSON in the plainest way; all others are judged where bodies are read."""
    telling = (b"content-type", b"content-encoding")
    return [pair for pair in scope["headers"] if pair[0] in telling] == [
        (b"content-type", b"application/json")
    ]
