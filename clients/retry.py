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

#: Something in between, or the service itself, asks for patience.
_TRANSIENT_STATUS: Final = frozenset({502, 503, 504})
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
    """

    attempts: int = 4
    base: float = 0.25
    longest: float = 30.0
    chance: Callable[[], float] = field(default=random.random, repr=False)

    def after_error(self, attempt: int, error: httpx.TransportError) -> float | None:
        """Seconds to wait after try number `attempt` (from 1), ``None`` to give up."""
        return self._pause(attempt) if isinstance(error, _TRANSIENT_ERRORS) else None

    def after_answer(self, attempt: int, response: httpx.Response) -> float | None:
        """As `after_error`; ``None`` also when the answer stands."""
        if response.status_code not in _TRANSIENT_STATUS:
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
