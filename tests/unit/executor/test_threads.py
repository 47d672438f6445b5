"""Threads that run waves: a barrier, the first error, the caller's context, and no thread left behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import pytest

from solver.executor.threads import LevelThreads, turns


def running() -> int:
    return sum(thread.name.startswith("arenaplan-level") for thread in threading.enumerate())


@pytest.fixture
def three() -> Iterator[LevelThreads]:
    threads = LevelThreads(3)
    yield threads
    threads.close()
    assert running() == 0


def fail(error: BaseException) -> None:
    raise error


def test_tasks_run_at_the_same_time(three: LevelThreads) -> None:
    """Each waits for all others: one after the other they would never end."""
    meeting = threading.Barrier(3, timeout=30)
    three.run([meeting.wait] * 3)  # type: ignore[list-item]  # what it returns is not looked at
    assert not meeting.broken


def test_it_returns_when_all_have_ended(three: LevelThreads) -> None:
    done: list[int] = []
    release = threading.Event()

    def late() -> None:
        release.wait(30)
        done.append(1)

    three.run([release.set, late, late])
    assert done == [1, 1]


def test_the_threads_are_kept(three: LevelThreads) -> None:
    seen: set[int] = set()
    for _ in range(20):
        three.run([lambda: seen.add(threading.get_ident())] * 3)
    assert len(seen) <= 3
    assert threading.get_ident() in seen


@pytest.mark.parametrize("place", [0, 1, 2])
def test_an_error_comes_out_as_it_is_after_all_have_ended(three: LevelThreads, place: int) -> None:
    done: list[int] = []
    tasks: list[Callable[[], None]] = [partial(done.append, k) for k in range(3)]
    error = ZeroDivisionError("in a kernel")
    tasks[place] = partial(fail, error)
    with pytest.raises(ZeroDivisionError, match="in a kernel") as caught:
        three.run(tasks)
    assert caught.value is error
    assert sorted(done) == [k for k in range(3) if k != place]


def test_of_several_errors_the_first_in_order(three: LevelThreads) -> None:
    for _ in range(20):
        with pytest.raises(KeyError):
            three.run([lambda: None, partial(fail, KeyError("b")), partial(fail, ValueError("c"))])
        with pytest.raises(IndexError):
            three.run([partial(fail, IndexError("a")), partial(fail, KeyError("b"))])


def test_work_goes_on_after_an_error(three: LevelThreads) -> None:
    with pytest.raises(ValueError, match="once"):
        three.run([lambda: None, partial(fail, ValueError("once"))])
    done: list[int] = []
    three.run([partial(done.append, k) for k in range(3)])
    assert sorted(done) == [0, 1, 2]


def test_numpy_behaves_as_it_does_for_the_caller(three: LevelThreads) -> None:
    seen: list[tuple[str, int]] = []

    def look() -> None:
        seen.append((np.geterr()["over"], np.getbufsize()))

    with np.errstate(over="raise"):
        np.setbufsize(2048)
        three.run([look] * 3)
    assert seen == [("raise", 2048)] * 3


def test_one_worker_needs_no_thread() -> None:
    threads, done = LevelThreads(1), list[int]()
    threads.run([partial(done.append, 1), partial(done.append, 2)])
    threads.close()
    assert (done, running()) == ([1, 2], 0)


def test_closing_ends_the_threads_and_twice_is_fine() -> None:
    threads = LevelThreads(4)
    threads.run([lambda: None] * 4)
    assert 1 <= running() <= 3
    threads.close()
    threads.close()
    assert running() == 0
    with pytest.raises(RuntimeError):
        threads.run([lambda: None] * 2)


def test_threads_end_when_no_longer_referenced() -> None:
    threads = LevelThreads(3)
    threads.run([lambda: None] * 3)
    mine = [t for t in threading.enumerate() if t.name.startswith("arenaplan-level")]
    del threads
    gc.collect()
    for thread in mine:
        thread.join(30)
    assert running() == 0


def test_turns_are_waves() -> None:
    done: list[str] = []
    found, threads = turns([partial(done.append, name) for name in "abcd"], (0, 1, 1, 2))
    assert len(found) == 3
    found[0]()
    assert done == ["a"]
    found[1]()
    assert sorted(done) == ["a", "b", "c"]
    found[2]()
    threads.close()
    assert done[-1] == "d"


def test_no_turns_and_no_threads() -> None:
    assert turns([], ())[0] == []
    turns([lambda: None] * 3, range(3))[1].close()
    assert running() == 0
