"""When to try again, and after how long.

Planning is idempotent: the same request has the same answer, so sending it twice does no harm.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import httpx

__all__ = ["Retry"]

#: The service, or something in between, asks for patience: the request did not arrive in time (408), there
#: are too many of them (429), or the service behind it does not answer (502, 503, 504).
_TRANSIENT_STATUS: Final = frozenset({408, 429, 502, 503, 504})
#: What says of an answer that it is the service's own.
_PROBLEM: Final = "application/problem+json"
#: No answer came, and none of these says that a second try would have to fail too. A read that
#: took too long is not among them: it has cost the caller's whole patience already.
_TRANSIENT_ERRORS: Final = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.RemoteProtocolError,
    httpx.ReadError,
)


@dataclass(frozen=True, slots=True)
class Retry:
    """At most `attempts` tries. Pauses double from `base` up to `longest` seconds, of which a random
    half is kept, so that many clients do not come back at once. A Retry-After beyond `longest`
    ends the tries.

    With the defaults they last for 45 seconds at least: longer than the service takes to start again on a
    machine that has other work as well.
    """

    attempts: int = 10
    base: float = 0.25
    longest: float = 30.0
    chance: Callable[[], float] = field(default=random.random, repr=False)

    def after_error(self, attempt: int, error: httpx.TransportError) -> float | None:
        """Seconds to wait after try number `attempt` (from 1), ``None`` to give up."""
        return self._pause(attempt) if isinstance(error, _TRANSIENT_ERRORS) else None

    def after_answer(self, attempt: int, response: httpx.Response) -> float | None:
        """As `after_error`; ``None`` also when the answer stands.

        A 500 of the service itself stands, as it would fail on the same request again; one of something in
        between may pass. A request that the machine has no memory for stands as well.
        """
        own = response.headers.get("Content-Type", "").startswith(_PROBLEM)
        if response.status_code == 500 and own:
            return None
        if response.status_code not in _TRANSIENT_STATUS and response.status_code != 500:
            return None
        if own and _for_want_of_memory(response):
            return None
        asked = _retry_after(response.headers.get("Retry-After"))
        pause = self._pause(attempt)
        if pause is None or asked is None:
            return pause
        return max(asked, pause) if asked <= self.longest else None

    def _pause(self, attempt: int) -> float | None:
        if attempt >= self.attempts:
            return None
        bound = min(self.base * 2.0 ** (attempt - 1), self.longest)
        return bound * (0.5 + 0.5 * self.chance())


def _for_want_of_memory(response: httpx.Response) -> bool:
    try:
        document = response.json()
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("reason") == "memory"


def _retry_after(value: str | None) -> float | None:
    """Seconds, from either form that RFC 9110 allows; ``None`` for neither."""
    if value is None:
        return None
    if value.isdecimal():
        return float(value)
    try:
        then = parsedate_to_datetime(value)
    except ValueError:
        return None
    zone = then if then.tzinfo else then.replace(tzinfo=UTC)
    return max(0.0, (zone - datetime.now(UTC)).total_seconds())
