"""Deadlines: what comes after a search has time of its own."""

from __future__ import annotations

from threading import Event

import pytest

from solver.layout import Deadline


def test_time_is_left_for_what_comes_after() -> None:
    deadline = Deadline.after(100.0)
    assert deadline.sooner(10.0).remaining == pytest.approx(90.0, abs=1.0)
    assert deadline.leaving(0.25).remaining == pytest.approx(75.0, abs=1.0)
    assert deadline.leaving(0.0).remaining == pytest.approx(100.0, abs=1.0)


def test_without_a_limit_there_is_nothing_to_leave() -> None:
    assert Deadline().sooner(1.0) == Deadline().leaving(0.5) == Deadline()


def test_what_was_cancelled_stays_so() -> None:
    event = Event()
    part = Deadline.after(100.0).or_when(event).leaving(0.5)
    assert part.remaining > 0
    event.set()
    assert part.remaining == 0
    assert Deadline(None, event).leaving(0.5).expired
