"""Calls that end in time, by a clock of the test's own: every action takes as long as the test says."""

from __future__ import annotations

from collections.abc import Callable

import httpx
import pytest

from clients.deadlines import within
from clients.steps import Machine, Open, Opened, Pause, Read, Request, Send, Steps, open_stream, read, send

ASKED = Request("GET", "/")
ANSWER = httpx.Response(200)


class Late(Exception):
    """What the call raises."""


class Clock:
    """Stands still but for what actions take."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def run(
    steps: Steps[str], seconds: float, clock: Clock, takes: Callable[[Send | Open | Read | Pause], float]
) -> str:
    """Carry the call out; what would take longer than it may ends with the exception of the network."""
    machine = Machine(within(seconds, steps, Late, clock))
    most = float("inf")
    while (action := machine.action) is not None:
        assert isinstance(action, Send | Open | Read | Pause)
        if isinstance(action, Send | Open):
            most = action.request.at_most or 0.0
        long = action.seconds if isinstance(action, Pause) else takes(action)
        if long > most and not isinstance(action, Pause):
            clock.now += most
            machine.failed(httpx.ReadTimeout("too long"))
            continue
        clock.now += long
        pieces = {Send: ANSWER, Open: Opened(ANSWER, None), Read: b"piece", Pause: None}
        machine.done(pieces[type(action)])
    return machine.result


def listening() -> Steps[str]:
    """A stream that never ends, opened again where it breaks off."""
    while True:
        opened = yield from open_stream(ASKED)
        try:
            while True:
                yield from read(opened)
        except httpx.ReadTimeout:
            yield Pause(0.25)


def test_what_is_done_in_time() -> None:
    def call() -> Steps[str]:
        yield from send(ASKED)
        yield Pause(1.0)
        opened = yield from open_stream(ASKED)
        return (yield from read(opened)).decode()

    clock = Clock()
    assert run(call(), 10.0, clock, lambda _: 1.0) == "piece"
    assert clock.now == 104.0


@pytest.mark.parametrize("each", [0.01, 0.3, 1.0, 7.0, 1e9])
@pytest.mark.parametrize("seconds", [0.0, 0.4, 1.0, 10.0, 60.0])
def test_a_stream_ends_in_time(seconds: float, each: float) -> None:
    clock = Clock()
    with pytest.raises(Late):
        run(listening(), seconds, clock, lambda action: each if isinstance(action, Read) else 0.01)
    assert clock.now <= 100.0 + seconds + 0.02


@pytest.mark.parametrize("seconds", [0.4, 10.0])
def test_an_answer_that_does_not_come(seconds: float) -> None:
    for call in (listening(), send_once()):
        clock = Clock()
        with pytest.raises(Late):
            run(call, seconds, clock, lambda _: 1e9)
        assert clock.now == pytest.approx(100.0 + seconds)


def send_once() -> Steps[str]:
    yield from send(ASKED)
    return "never"


def test_a_pause_that_would_be_too_long() -> None:
    def call() -> Steps[str]:
        yield Pause(30.0)
        return "never"

    clock = Clock()
    with pytest.raises(Late):
        run(call(), 10.0, clock, lambda _: 0.0)
    assert clock.now == 100.0


def test_what_the_call_makes_of_a_failure() -> None:
    def call() -> Steps[str]:
        try:
            yield from send(ASKED)
        except httpx.ConnectError:
            return "refused"
        return "answered"

    machine = Machine(within(10.0, call(), Late))
    machine.failed(httpx.ConnectError("refused"))
    assert (machine.action, machine.result) == (None, "refused")
