"""Levels of transfers, covers and homes, on programs small enough to follow by hand."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from solver.accounting import (
    Gap,
    GapKind,
    PagingProblem,
    paging_problem,
)
from solver.layout import Deadline, Lifespan
from solver.program import COPY, Entry, Exit, Tier, loads
from solver.schedules.paging import Transfer, timetable
from solver.schedules.paging.cover import greedy, least_moved, needed_only
from solver.schedules.paging.tiers import shortage, tier_by_value
from tests.support.paged_line import LONG, paged_line
from tests.support.programs import sequential

# ------------------------------------------------------------------------------------------ transfers


def test_with_no_step_ahead_a_transfer_has_a_level_of_its_own() -> None:
    out, back = Transfer(1, 0, True, 1, 10), Transfer(3, 2, False, 1, 10)
    found = timetable([5, 5, 5, 5], [out, back])
    assert found.levels == (0, 2, 3, 5)
    assert found.transfers == ((1, 1), (4, 4))


def test_a_transfer_takes_its_window_until_the_next_one_of_its_channel() -> None:
    first, second = Transfer(1, 3, True, 1, 10), Transfer(2, 4, False, 1, 10)
    assert timetable([5] * 6, [first, second]).transfers == ((1, 2), (3, 4))
    other = replace(second, channel=2)
    assert timetable([5] * 6, [first, other]).transfers == ((1, 3), (2, 4))


def test_what_finds_no_room_in_its_window_lets_the_steps_wait() -> None:
    many = [Transfer(2, 2, False, 1, 1) for _ in range(3)]
    found = timetable([5] * 4, many)
    assert sorted(found.transfers) == [(2, 2), (3, 3), (4, 4)]
    assert found.levels == (0, 1, 2, 5)


def test_what_leaves_goes_before_what_comes() -> None:
    coming, leaving = Transfer(2, 1, False, 1, 1), Transfer(2, 1, True, 2, 1)
    found = timetable([5] * 3, [coming, leaving])
    assert found.transfers == ((3, 3), (2, 2))


def test_the_ends_of_an_iteration() -> None:
    found = timetable([5, 5], [Transfer(0, -1, False, 1, 1), Transfer(2, 1, True, 1, 1)])
    assert found.levels == (1, 2)
    assert found.transfers == ((0, 0), (3, 3))


def test_copies_are_steps_with_a_channel() -> None:
    paged = paged_line(1)
    copies = [step for step in paged.steps if paged.kernel(step) == COPY]
    assert [paged.step_labels[paged.steps.index(step)] for step in copies] == [
        "page_out(a):forward",
        "page_in(a):forward",
    ]
    assert all(paged.operations[step.operation].attributes == {"channel": 1} for step in copies)
    assert max(loads(paged)[1]) == 10_000


# -------------------------------------------------------------------------------------------- covers


TOWER = sequential(
    ("x", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("d c", "e"), ("e b", "f"), ("f a", "g"), fed="x"
)


def test_greedy_answers_have_nothing_to_spare() -> None:
    problem = paging_problem(TOWER, 0)
    capacity = problem.smallest
    taken = greedy(problem, capacity)
    assert needed_only(problem, capacity, taken) == taken
    everything = frozenset(range(len(problem.gaps)))
    assert needed_only(problem, max(problem.loads()), everything) == frozenset()


def test_small_values_do_not_take_the_room_of_large_ones() -> None:
    """Both small ones move more often, so they would have the first memory, and one large one none."""
    span = (Lifespan(1, 9),)
    idle = [
        Gap(v, GapKind.MIDDLE, 0, 9, size, span, v, (1, 0)) for v, size in ((0, 2), (1, 2), (2, 4), (3, 4))
    ]
    idle += [Gap(v, GapKind.MIDDLE, 9, 10, 2, (), v, (10, 9)) for v in (0, 1)]
    problem = PagingProblem(0, 10, (0,) * 10, tuple(idle), (2, 2, 4, 4), (2, 2, 4, 4, 2, 2))
    both = [Tier("fast", 1), Tier("b0", 6, 1, 1), Tier("b1", 6, 1, 1)]
    found = tier_by_value(problem, range(6), both)
    assert found is not None
    assert found[2] != found[3]
    less = [Tier("fast", 1), Tier("b0", 6, 1, 1), Tier("b1", 5, 1, 1)]
    assert tier_by_value(problem, range(6), less) is None
    lacking = shortage(problem, range(6), less)
    assert (lacking.tier, lacking.missing) == (2, 1)
    assert tier_by_value(problem, range(6), [*less[:2], Tier("b1", 6, 1, 1)])


def test_a_capacity_that_is_kept_anyway_moves_nothing() -> None:
    problem = paging_problem(TOWER, 0)
    found = least_moved(problem, max(problem.loads()), Deadline())
    assert (found.taken, found.moved, found.bound, found.complete) == (frozenset(), 0, 0, True)


def test_a_search_that_is_cancelled_has_the_greedy_answer() -> None:
    cancel = threading.Event()
    cancel.set()
    problem = paging_problem(TOWER, 0)
    found = least_moved(problem, problem.smallest, Deadline(cancel=cancel))
    assert not found.complete
    assert max(problem.loads(found.taken)) <= problem.smallest
    assert found.bound <= found.moved


@pytest.mark.parametrize("ahead", [0, 1, 2])
def test_entries_and_exits_stay_where_callers_know_them(ahead: int) -> None:
    paged = paged_line(ahead)
    assert {paged.values[e.value].label for e in paged.entry} == {"x", "t0"}
    assert paged.exit == tuple(Exit(e.value, e.reference) for e in LONG.exit)
    assert paged.entry == tuple(Entry(e.value, e.kind, e.reference) for e in LONG.entry)
