"""Who sends a request: the principal that every route works for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request

__all__ = ["ALL_SCOPES", "ANONYMOUS", "Principal", "is_tenant", "principal_of"]

#: `plan`: all synchronous work, and reading plans; `jobs`, `admin` and `metrics`: what they are called.
ALL_SCOPES: Final = frozenset({"admin", "jobs", "metrics", "plan"})

_TENANT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@|:+=/-]{0,127}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Principal:
    """Somebody known. What they store belongs to `tenant`, and no other tenant sees it."""

    tenant: str
    subject: str
    scopes: frozenset[str]
    key_id: str | None = None


#: Everybody, where nobody has to say who they are.
ANONYMOUS: Final = Principal("default", "anonymous", ALL_SCOPES)


def principal_of(request: Request) -> Principal:
    """Whoever was recognised for this request."""
    principal: Principal = request.scope.get("state", {}).get("principal", ANONYMOUS)
    return principal


def is_tenant(name: str) -> bool:
    """Whether a tenant may have this name: up to 128 letters, digits and ``._@|:+=/-`` in ASCII."""
    return _TENANT.fullmatch(name) is not None
