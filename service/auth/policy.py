"""Which scope a path needs. What is not named here needs one too: new routes are closed until opened."""

from __future__ import annotations

from typing import Final

__all__ = ["needed_scope"]

#: Pages and documents that say nothing about anybody.
_PUBLIC: Final = frozenset(
    {"/", "/docs", "/healthz", "/openapi.json", "/problems", "/readyz", "/redoc", "/v1/schemas"}
)
_PUBLIC_BELOW: Final = ("/page/", "/problems/", "/static-offline-docs/", "/v1/schemas/")
_SCOPES: Final = (("/v1/jobs", "jobs"), ("/v1/graphs", "jobs"), ("/metrics", "metrics"))


def needed_scope(path: str) -> str | None:
    """The scope for a path, without the prefix that a proxy strips; None for what is open to everybody."""
    if path in _PUBLIC or path.startswith(_PUBLIC_BELOW):
        return None
    for place, scope in _SCOPES:
        if path == place or path.startswith(f"{place}/"):
            return scope
    return "plan"
