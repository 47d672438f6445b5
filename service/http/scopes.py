"""Reading requests from their ASGI scopes, which is quicker than through a request object."""

from __future__ import annotations

from typing import Any

from starlette.types import Scope

__all__ = ["header_of", "is_head", "note", "path_of"]


def note(scope: Scope, **facts: Any) -> None:
    """Add facts to the access line of this request."""
    scope["state"]["facts"].update(facts)


def path_of(scope: Scope) -> str:
    """The path without the prefix that a reverse proxy strips."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def header_of(scope: Scope, wanted: bytes) -> str | None:
    """The first header of this name, which is given in lower case; None where there is none."""
    return next((value.decode("latin-1") for name, value in scope["headers"] if name == wanted), None)


def is_head(scope: Scope) -> bool:
    """Whether the caller wants the headers alone."""
    return bool(scope["state"].get("head"))
