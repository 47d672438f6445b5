"""Everything the clients raise.

ClientError
├── ConnectionFailed     no answer: refused, broken off, out of time
├── JobNotFinished       the time to wait for a job is over; the job goes on
├── UnexpectedAnswer     an answer that is none of this service's
├── WrongArgument        an argument of a type that cannot be sent
└── ProblemError         the service says what is wrong (RFC 9457)
    ├── CapacityExceeded the arena does not fit
    └── JobCancelled     the job was ended by a caller
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any


class ClientError(Exception):
    """Base of all errors of the clients."""


class ConnectionFailed(ClientError):
    """No complete answer, after all retries. The cause is the httpx exception."""


class JobNotFinished(ClientError, TimeoutError):
    """The job called `id` had not ended after `seconds`. It goes on, and can be waited for again."""

    def __init__(self, id: str, seconds: float) -> None:
        self.id = id
        self.seconds = seconds
        super().__init__(
            f"Job {id} has not ended within {seconds:g} s, and goes on at the service. wait() for it again, "
            f"now or later, as client.jobs.get({id!r}), or cancel() it."
        )


class UnexpectedAnswer(ClientError):
    """The other side is not this service, or something in between answered for it."""


class WrongArgument(ClientError, TypeError):
    """An argument of a type that cannot be sent; nothing was."""


class ProblemError(ClientError):
    """A problem document. `pointer` leads to the culprit in the request body, `remedy` says what to do."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = dict(document)
        self.type = str(document.get("type", "about:blank"))
        self.title = str(document.get("title", ""))
        status = document.get("status")
        self.status = status if isinstance(status, int) else 0
        self.detail = str(document.get("detail", self.title))
        self.instance: str | None = document.get("instance")
        self.pointer: str | None = document.get("pointer")
        self.remedy: str | None = document.get("remedy")
        place = f"{self.pointer}: " if self.pointer else ""
        super().__init__(f"{place}{self.detail} {self.remedy or ''}".rstrip())


class CapacityExceeded(ProblemError):
    """`required` bytes are needed, `available` were given; `live_at_peak` has (operand, bytes).

    `proved` says that nothing can fit; otherwise nothing that fits was found. `verdict` has what bounds say
    of other schedules, None where the service does not say. Raises ValueError where the document lacks a
    figure.
    """

    def __init__(self, document: Mapping[str, Any]) -> None:
        super().__init__(document)
        try:
            self.required = int(document["required"])
            self.available = int(document["available"])
            self.excess = int(document["excess"])
            live = document["live_at_peak"]
            self.live_at_peak = tuple((str(one["operand"]), int(one["bytes"])) for one in live)
        except (KeyError, TypeError) as error:
            raise ValueError("The problem document lacks a figure.") from error
        self.proved = document.get("proved") is True
        self.verdict: Mapping[str, Any] | None = document.get("verdict")


class JobCancelled(ProblemError):
    """The job was cancelled, so that it has no result."""


def problem_of(document: Mapping[str, Any]) -> ProblemError:
    """The error that a problem document describes; CapacityExceeded only where it has all figures."""
    if str(document["type"]).endswith("/capacity-exceeded"):
        with contextlib.suppress(ValueError):
            return CapacityExceeded(document)
    return ProblemError(document)
