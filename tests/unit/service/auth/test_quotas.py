"""Quotas count what they say they count, and say in their headers what is left."""

from __future__ import annotations

import contextlib

import pytest

from service.auth.quotas import Meter, Quotas, hour_of
from service.problems import Problem


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000 * 3600.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def meter(clock: Clock, **limits: int) -> Meter:
    """Of a tenant ``a``; all others may do as they like."""
    return Meter(lambda tenant: Quotas(**limits) if tenant == "a" else Quotas(), clock)


def ask(meter: Meter, tenant: str = "a", *, stored: int | None = None, more: int = 0) -> None:
    with meter.admitted(tenant, stored=stored, more=more):
        pass


def refusal(meter: Meter, *, stored: int | None = None, more: int = 0) -> tuple[str, int]:
    with pytest.raises(Problem) as caught:
        ask(meter, stored=stored, more=more)
    assert caught.value.kind.status == 429
    return caught.value.extensions["quota"], int(caught.value.headers["Retry-After"])


def test_requests_per_minute(clock: Clock) -> None:
    made = meter(clock, requests_per_minute=3)
    for left in (3, 2, 1):
        assert dict(made.headers("a"))["RateLimit"].startswith(f'"requests";r={left};')
        ask(made)
        clock.now += 5
    assert refusal(made) == ("requests", 45)
    assert refusal(made) == ("requests", 45)
    assert made.headers("a") == [
        ("RateLimit-Policy", '"requests";q=3;w=60'), ("RateLimit", '"requests";r=0;t=45')
    ]  # fmt: skip
    ask(made, "b")
    assert made.headers("b") == []
    clock.now += 45
    ask(made)


def test_processor_time_per_hour(clock: Clock) -> None:
    made = meter(clock, cpu_seconds_per_hour=10)
    clock.now += 600
    ask(made)
    made.spend("a", 4.5)
    assert dict(made.headers("a"))["RateLimit"] == '"cpu";r=5;t=3000'
    made.spend("a", 5.5)
    assert refusal(made) == ("cpu", 3000)
    clock.now += 3000
    ask(made)


def test_processor_time_of_all_processes(clock: Clock) -> None:
    """The time of other processes counts once the database has told, and so does unreported time."""
    made, hour = meter(clock, cpu_seconds_per_hour=10), hour_of(clock.now)
    ask(made)
    made.spend("a", 3.0)
    assert made.take_fresh() == {"a": (1, 3.0)}
    made.spend("a", 1.0)
    made.learn(hour, {"a": 3.0 + 5.5})
    ask(made)
    made.spend("a", 0.5)
    assert refusal(made)[0] == "cpu"
    made.learn(hour - 1, {"a": 0.0})
    assert refusal(made)[0] == "cpu"
    taken = made.take_fresh()
    assert taken == {"a": (1, 1.5)}
    made.give_back(taken)
    assert made.take_fresh() == taken
    assert made.take_fresh() == {}


def test_concurrency(clock: Clock) -> None:
    made = meter(clock, concurrent_requests=2)
    with contextlib.ExitStack() as first:
        first.enter_context(made.admitted("a"))
        with made.admitted("a"):
            assert refusal(made) == ("concurrency", 1)
            assert dict(made.headers("a"))["RateLimit"] == '"concurrency";r=0'
        ask(made)
    assert dict(made.headers("a"))["RateLimit"] == '"concurrency";r=2'


def test_storage(clock: Clock) -> None:
    """Bodies that are on their way count as well: two at a time cannot both have the last bytes."""
    made = meter(clock, stored_bytes=100)
    ask(made, stored=60, more=40)
    assert refusal(made, stored=60, more=41)[0] == "storage"
    with made.admitted("a", stored=60, more=30):
        assert refusal(made, stored=60, more=11)[0] == "storage"
    ask(made, stored=60, more=11)
    ask(made)


def test_a_refused_request_counts_nowhere(clock: Clock) -> None:
    made = meter(clock, requests_per_minute=5, concurrent_requests=1)
    with made.admitted("a"):
        for _ in range(10):
            refusal(made)
    assert dict(made.headers("a"))["RateLimit"].startswith('"requests";r=4;')
