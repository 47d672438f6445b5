"""Native code in a thread of its own: its answer, its errors, and nobody who waits for it too long."""

from __future__ import annotations

import os
import signal
from threading import Event

import pytest

from solver.layout import Deadline
from solver.schedules.native import run_native

LONG, OVER = Deadline(), Deadline(at=0.0)


def test_what_it_answers() -> None:
    assert run_native(lambda: 7, lambda: None, LONG) == 7


def test_what_it_raises() -> None:
    def fail() -> None:
        raise MemoryError("native")

    with pytest.raises(MemoryError, match="native"):
        run_native(fail, lambda: None, LONG)


def test_the_deadline_stops_it_and_its_answer_counts() -> None:
    stopped = Event()
    assert run_native(stopped.wait, stopped.set, OVER)


def test_one_that_does_not_stop_is_left_alone() -> None:
    asked, free = Event(), Event()
    assert run_native(free.wait, asked.set, OVER) is None
    assert asked.is_set()
    free.set()


def test_an_interrupt_does_not_wait_for_it() -> None:
    asked, free = Event(), Event()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        free.wait()

    # Whoever starts the tests in the background may have the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_native(work, asked.set, LONG)
    finally:
        free.set()
        signal.signal(signal.SIGINT, before)
    assert asked.is_set()
