"""Every solver ends soon after it is told to, from any thread, with what it has."""

from __future__ import annotations

import random
import threading
import time
from itertools import count

import pytest

from solver.layout import (
    SOLVERS,
    Buffer,
    Deadline,
    LayoutProblem,
    Lifespan,
    SolveOptions,
    Status,
    find_violations,
    solve,
)
from solver.layout.exact.cp_sat import refine
from solver.layout.greedy.placement import greedy_portfolio
from solver.layout.greedy.skyline import lowest_plateau
from solver.layout.model.instance import Instance
from solver.layout.model.reduce import peel
from tests.support.buffers import random_problem
from tests.support.training_shaped import training_shaped

SEARCHES = ("portfolio", "search", "branch-and-bound", "cp-sat")


class After(threading.Event):
    """An event that is set once it has been asked this often: no test depends on time."""

    def __init__(self, asked: int) -> None:
        super().__init__()
        self._left = asked

    def is_set(self) -> bool:
        self._left -= 1
        return self._left < 0


def hard(buffers: int = 120) -> LayoutProblem:
    """Too tight to be settled within the time of any test, or too large."""
    rng = random.Random(5)
    rows = ((rng.randint(10**6, 10**7), s, s + rng.randint(2, 30)) for s in rng.choices(range(40), k=buffers))
    return LayoutProblem(tuple(Buffer(str(i), size, Lifespan(s, e)) for i, (size, s, e) in enumerate(rows)))


def pinned() -> LayoutProblem:
    """What only local search and CP-SAT take on."""
    p = random_problem(random.Random(3), 60, 30, 10**6, (1, 4, 16))
    return LayoutProblem((*p.buffers, Buffer("pinned", 8, Lifespan(2, 8), 4, 400)))


@pytest.mark.parametrize("asked", [0, 1, 2, 10, 100])
@pytest.mark.parametrize("name", list(SOLVERS))
def test_what_was_found_is_returned_whenever_it_comes(name: str, asked: int) -> None:
    p = hard()
    outcome = solve(p, solver=name, options=SolveOptions(work=None, cancel=After(asked)))
    if outcome.layout is not None:
        assert find_violations(p, outcome.layout) == ()
    else:
        assert outcome.status is Status.UNKNOWN
    if name in SEARCHES:
        assert outcome.layout is not None
        assert outcome.status is Status.OPTIMAL or not outcome.deterministic


@pytest.mark.parametrize("name", SEARCHES)
def test_another_thread_ends_what_would_not_end(name: str) -> None:
    cancel = threading.Event()
    p = pinned() if name == "search" else hard(400)
    outcomes = []

    def run() -> None:
        options = SolveOptions(work=None, cancel=cancel)
        outcomes.append(solve(p, solver=name, options=options))

    thread = threading.Thread(target=run)
    thread.start()
    cancel.set()
    thread.join()
    assert outcomes[0].layout is not None
    assert find_violations(p, outcomes[0].layout) == ()


def test_pins_and_alignments_can_be_cancelled_too() -> None:
    outcome = solve(pinned(), options=SolveOptions(work=None, cancel=After(40)))
    assert outcome.layout is not None
    assert not outcome.deterministic


def test_a_deadline_with_an_event_has_nothing_left_once_it_is_set() -> None:
    cancel = threading.Event()
    deadline = Deadline.after(1000).or_when(cancel)
    before = (deadline.remaining > 0, deadline.expired)
    cancel.set()
    assert (before, (deadline.remaining > 0, deadline.expired)) == ((True, False), (False, True))
    assert Deadline().or_when(None) == Deadline()
    assert Deadline().remaining == float("inf")


def test_cp_sat_is_left_alone_when_it_does_not_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    from solver.layout.exact import cp_sat

    release = threading.Event()
    monkeypatch.setattr(cp_sat.Model, "solve", lambda *_: release.wait())
    p = hard(20)
    start = greedy_portfolio(Instance.of(p), 0, Deadline()).layout
    refined = refine(Instance.of(p), start, 0, Deadline().or_when(After(60)), 1.0)
    release.set()
    assert (refined.layout, refined.proved, refined.cut) == (start, 0, True)


def test_cp_sat_stops_at_once_and_keeps_what_it_found() -> None:
    p = hard(150)
    start = greedy_portfolio(Instance.of(p), 0, Deadline()).layout
    cancel, began = threading.Event(), time.monotonic()
    threading.Timer(0.5, cancel.set).start()
    refined = refine(Instance.of(p), start, 0, Deadline().or_when(cancel), 1e6)
    assert time.monotonic() > began
    assert refined.cut or refined.proved
    assert refined.layout.peak <= start.peak
    assert find_violations(p, refined.layout) == ()


def test_an_error_of_cp_sat_is_raised_in_the_callers_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    from solver.layout.exact import cp_sat

    def broken(*_: object) -> None:
        raise ZeroDivisionError("in the other thread")

    monkeypatch.setattr(cp_sat.Model, "solve", broken)
    p = hard(20)
    start = greedy_portfolio(Instance.of(p), 0, Deadline()).layout
    with pytest.raises(ZeroDivisionError, match="other thread"):
        refine(Instance.of(p), start, 0, Deadline(), 1.0)


def test_a_building_model_hears_of_it() -> None:
    from solver.layout.exact.cp_sat import Model

    p = hard(20)
    start = greedy_portfolio(Instance.of(p), 0, Deadline()).layout
    for asked in (0, 5, 25):
        with pytest.raises(TimeoutError):
            Model(Instance.of(p), start, 0, 0, Deadline().or_when(After(asked)))


def test_the_skyline_gives_up_between_placements() -> None:
    instance = Instance.of(training_shaped(1, buffers=300))
    assert lowest_plateau(instance, "size", 2**62, Deadline().or_when(After(100))) is None
    assert lowest_plateau(instance, "size", 2**62) is not None


def test_what_was_not_yet_peeled_stays_in_the_core() -> None:
    p = training_shaped(1, buffers=600)
    instance, capacity = Instance.of(p), 2 * Instance.of(p).load().max()
    whole = peel(instance, int(capacity))[1]
    answers = count()
    core, peeled = peel(instance, int(capacity), lambda: next(answers) >= 1)
    assert 0 < len(peeled) < len(whole)
    assert sorted([*core, *peeled]) == list(range(len(instance)))
