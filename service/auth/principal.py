"""The sender of a request, and the scope that each path needs.

Paths that are not named here need a scope, too: new routes are closed until they are opened.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

__all__ = ["ALL_SCOPES", "ANONYMOUS", "Principal", "is_tenant", "needed_scope", "principal_of"]

#: `plan`: all synchronous work, and reading plans; `jobs`, `admin` and `metrics`: what they are called.
ALL_SCOPES: Final = frozenset({"admin", "jobs", "metrics", "plan"})

_TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@|:+=/-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Principal:
    """A known caller. Everything that it stores belongs to `tenant`, and no other tenant sees it."""

    tenant: str
    subject: str
    scopes: frozenset[str]
    key_id: str | None = None


#: The principal of all requests where authentication is off.
ANONYMOUS: Final = Principal("default", "anonymous", ALL_SCOPES)


def principal_of(request: Request) -> Principal:
    """The principal of this request, as the gate has recognised it."""
    principal: Principal = request.scope.get("state", {}).get("principal", ANONYMOUS)
    return principal


def is_tenant(name: str) -> bool:
    """Whether a tenant may have this name: up to 128 letters, digits and ``._@|:+=/-`` in ASCII."""
    return _TENANT.fullmatch(name) is not None


#: Pages and documents that say nothing about anybody.
_PUBLIC: Final = frozenset(
    {"/", "/docs", "/guides", "/healthz", "/openapi.json", "/problems", "/readyz", "/redoc", "/v1/schemas"}
)
_PUBLIC_BELOW: Final = ("/guides/", "/page/", "/problems/", "/static-offline-docs/", "/v1/schemas/")
_SCOPES: Final = (("/v1/jobs", "jobs"), ("/v1/graphs", "jobs"), ("/metrics", "metrics"))


def needed_scope(path: str) -> str | None:
    """The scope for a path, without the prefix that a proxy strips; None for what is open to everybody."""
    if path in _PUBLIC or path.startswith(_PUBLIC_BELOW):
        return None
    for place, scope in _SCOPES:
        if path == place or path.startswith(f"{place}/"):
            return scope
    return "plan"
