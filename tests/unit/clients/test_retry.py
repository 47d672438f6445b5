"""How long the clients wait, and when they give up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients import AsyncClient, Client, ProblemError, Retry

FULL = Retry(attempts=10, base=1.0, longest=8.0, chance=lambda: 1.0)


def answer(status: int, retry_after: str | None = None) -> httpx.Response:
    return httpx.Response(status, headers={} if retry_after is None else {"Retry-After": retry_after})


def test_pauses_double_up_to_the_longest() -> None:
    pauses = [FULL.after_answer(attempt, answer(503)) for attempt in range(1, 7)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


@given(st.floats(0, 1), st.integers(1, 9))
def test_chance_takes_up_to_half(chance: float, attempt: int) -> None:
    retry = Retry(attempts=10, base=1.0, longest=8.0, chance=lambda: chance)
    pause, bound = retry.after_answer(attempt, answer(502)), FULL.after_answer(attempt, answer(502))
    assert pause is not None
    assert bound is not None
    assert bound / 2 <= pause <= bound


def problem(status: int, **more: str) -> httpx.Response:
    return httpx.Response(status, json=more, headers={"Content-Type": "application/problem+json"})


def test_a_bug_of_the_service_stands() -> None:
    """The same request would meet it again; a 500 of something in between says nothing of the request."""
    assert FULL.after_answer(1, problem(500)) is None
    assert FULL.after_answer(1, answer(500)) == 1.0


def test_want_of_memory_stands() -> None:
    assert FULL.after_answer(1, problem(503, reason="memory")) is None
    assert FULL.after_answer(1, problem(503)) == 1.0
    broken = httpx.Response(503, text="{", headers={"Content-Type": "application/problem+json"})
    assert FULL.after_answer(1, broken) == 1.0


@pytest.mark.parametrize(
    ("value", "pause"),
    [("5", 5.0), ("0", 1.0), ("9", None), ("soon", 1.0), ("-3", 1.0), ("", 1.0), ("1.5", 1.0)],
)
def test_retry_after(value: str, pause: float | None) -> None:
    """Never earlier than asked, never sooner than the own pause, not at all beyond the longest."""
    assert FULL.after_answer(1, answer(503, value)) == pause


def test_retry_after_as_a_date() -> None:
    past = format_datetime(datetime.now(UTC) - timedelta(hours=1), usegmt=True)
    future = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    assert FULL.after_answer(1, answer(503, past)) == 1.0
    assert FULL.after_answer(1, answer(503, future)) is None
    assert FULL.after_answer(1, answer(503, "Wed, 01 Jan 2020 00:00:00 -0000")) == 1.0  # without a zone


def test_tries_end() -> None:
    assert Retry(attempts=1).after_answer(1, answer(503)) is None
    retry = Retry(attempts=3)
    assert retry.after_answer(2, answer(503)) is not None
    assert retry.after_answer(3, answer(503)) is None
    assert retry.after_error(3, httpx.ConnectError("refused")) is None


# ------------------------------------------------------------------------------- without any choice

#: Everything that httpx may raise for a request that was sent; a new kind needs a decision here.
RETRIED = {httpx.ConnectError, httpx.ConnectTimeout, httpx.ReadError, httpx.RemoteProtocolError}
FINAL = {
    httpx.CloseError, httpx.LocalProtocolError, httpx.PoolTimeout, httpx.ProxyError, httpx.ReadTimeout,
    httpx.UnsupportedProtocol, httpx.WriteError, httpx.WriteTimeout,
}  # fmt: skip


def kinds_of(base: type[Exception]) -> set[type[Exception]]:
    """All classes below `base` that have none below them."""
    below = base.__subclasses__()
    return set().union(*map(kinds_of, below)) if below else {base}


def test_defaults_of_time() -> None:
    """Ten tries; a quarter of a second at first, doubling, at most half a minute; half of it is chance."""
    retry = Retry()
    assert (retry.attempts, retry.base, retry.longest) == (10, 0.25, 30.0)
    for attempt, longest in ((1, 0.25), (2, 0.5), (3, 1.0)):
        pauses = [retry.after_answer(attempt, answer(503)) for _ in range(200)]
        assert all(pause is not None and longest / 2 <= pause <= longest for pause in pauses)
        assert len(set(pauses)) > 1
    assert retry.after_answer(10, answer(503)) is None
    assert retry.after_error(10, httpx.ConnectError("refused")) is None
    assert retry.after_answer(1, answer(503, "30")) == 30.0
    assert retry.after_answer(1, answer(503, "31")) is None


def test_defaults_of_statuses() -> None:
    retried = {status for status in range(100, 600) if Retry().after_answer(1, answer(status)) is not None}
    assert retried == {408, 429, 500, 502, 503, 504}


def test_defaults_of_errors() -> None:
    assert kinds_of(httpx.TransportError) == RETRIED | FINAL
    for kind in kinds_of(httpx.TransportError):
        error = kind("failed")
        assert isinstance(error, httpx.TransportError)
        assert (Retry().after_error(1, error) is not None) == (kind in RETRIED)


async def test_clients_try_ten_times_by_themselves() -> None:
    asked: list[httpx.Request] = []
    pauses: list[float] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(503, json={"type": "/problems/overloaded", "status": 503})

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    with pytest.raises(ProblemError):
        Client("http://test", transport=httpx.MockTransport(refuse), sleep=pauses.append).plan({})
    assert (len(asked), len(pauses)) == (10, 9)
    with pytest.raises(ProblemError):
        await AsyncClient("http://test", transport=httpx.MockTransport(refuse), sleep=pause).plan({})
    assert (len(asked), len(pauses)) == (20, 18)
