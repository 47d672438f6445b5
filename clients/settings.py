"""What a client is made with: arguments first, then the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

import httpx

from clients.exchange import Exchange
from clients.requests import DEFAULT_LIMITS, timeout_of
from clients.retry import Retry

__all__ = ["exchange_with", "http_arguments"]

#: Where `arenaplan serve` listens unless it is told otherwise.
DEFAULT_SERVER: Final = "http://127.0.0.1:8080"


def http_arguments(
    server: str | None,
    timeout: httpx.Timeout | float | None,
    limits: httpx.Limits | None,
    headers: Mapping[str, str] | None,
    api_key: str | None,
    auth: httpx.Auth | None,
) -> dict[str, Any]:
    """The arguments of `httpx.Client` and `httpx.AsyncClient`.

    `ARENAPLAN_SERVER` and `ARENAPLAN_API_KEY` stand in for a server and a key that are not given. A key is
    sent as a bearer token, unless `auth` or a header of the caller's says who asks.
    """
    sent = httpx.Headers(headers)
    key = os.environ.get("ARENAPLAN_API_KEY") if api_key is None else api_key
    if key and auth is None:
        sent.setdefault("Authorization", f"Bearer {key}")
    return {
        "base_url": server or os.environ.get("ARENAPLAN_SERVER") or DEFAULT_SERVER,
        "timeout": timeout_of(timeout),
        "limits": limits or DEFAULT_LIMITS,
        "headers": sent,
        "auth": auth,
    }


def exchange_with(http: httpx.Client | httpx.AsyncClient, retry: Retry | None) -> Exchange:
    return Exchange(http.base_url, retry or Retry())
