"""Levels of transfers, covers and homes, on programs small enough to follow by hand."""

from __future__ import annotations

import os
import random
import signal
import threading
from dataclasses import replace
from threading import Event

import pytest

from solver.accounting import (
    Gap,
    GapKind,
    HomeItem,
    HomeProblem,
    PagingProblem,
    added_up_homes,
    paging_problem,
)
from solver.layout import Deadline, Layout, Lifespan
from solver.program import COPY, Entry, Exit, HomeRow, Tier, loads
from solver.schedules.homes.refine import Housed, Unhoused, housed, in_banks
from solver.schedules.homes.relaxation import Rows, relaxed
from solver.schedules.homes.search import chosen_homes
from solver.schedules.native import run_native
from solver.schedules.paging import Transfer, timetable
from solver.schedules.paging.cover import greedy, least_moved, needed_only
from solver.schedules.paging.tiers import shortage, tier_by_value
from tests.support.homes import laid_out, least_nanoseconds, tiny_problem
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


# --------------------- Homes against brute force: the least time of accesses, its bound, and layouts that fit


@pytest.mark.parametrize("seed", range(200))
def test_homes_take_the_least_time_within_the_loads(seed: int) -> None:
    problem = tiny_problem(random.Random(seed))
    rows = Rows(problem)
    relaxation = relaxed(problem, rows, Deadline())
    least = least_nanoseconds(problem, layouts=False)
    homes = chosen_homes(problem, rows, relaxation, Deadline())
    assert (least is None) == homes.impossible
    if least is None or homes.homes is None:
        assert least is None
        assert homes.homes is None
        return
    assert problem.nanoseconds(homes.homes) == least == homes.bound
    bound = relaxation.bound
    assert bound.nanoseconds <= least
    assert added_up_homes(problem, bound.rows, bound.denominator) == bound.nanoseconds


@pytest.mark.parametrize("seed", range(60))
def test_any_multipliers_prove_a_bound(seed: int) -> None:
    chance = random.Random(seed)
    problem = tiny_problem(chance)
    least = least_nanoseconds(problem, layouts=False)
    if least is None:
        return
    levels = [span.start for item in problem.items for span in item.spans]
    for _ in range(20):
        rows = [
            HomeRow(chance.randrange(len(problem.capacities)), chance.choice(levels), chance.randrange(30))
            for _ in range(chance.randrange(6))
        ]
        assert added_up_homes(problem, rows, chance.randrange(1, 9)) <= least


def test_multipliers_that_prove_nothing_are_refused() -> None:
    problem = HomeProblem((HomeItem(4, (Lifespan(0, 1),), (1, 2)),), (4, 4))
    with pytest.raises(ValueError, match="multiplier -1"):
        added_up_homes(problem, [HomeRow(0, 0, -1)], 1)
    with pytest.raises(ValueError, match="memory 2"):
        added_up_homes(problem, [HomeRow(2, 0, 1)], 1)
    with pytest.raises(ValueError, match="denominator"):
        added_up_homes(problem, [], 0)


@pytest.mark.parametrize("seed", range(150))
def test_homes_with_layouts_are_those_of_brute_force(seed: int) -> None:
    problem = tiny_problem(random.Random(seed), tight=True)
    least = least_nanoseconds(problem, layouts=True)
    result = housed(problem, [1] * len(problem.items), laid_out(problem), Deadline())
    if least is None:
        assert isinstance(result, Unhoused)
        return
    assert isinstance(result, Housed)
    assert problem.nanoseconds(result.homes) == least
    assert result.bound <= least
    assert result.certificate.nanoseconds <= result.bound
    for k, outcome in enumerate(result.outcomes):
        assert outcome.layout is not None
        assert outcome.layout.peak <= problem.capacities[k]


def test_items_that_have_no_layout_together_are_kept_apart() -> None:
    """At most 20 bytes are live at once, and no layout has fewer than 21: one item goes to slower memory."""
    spans = ((1, 0, 5), (8, 0, 2), (5, 1, 4), (7, 3, 8), (6, 3, 6), (5, 5, 8), (2, 6, 9))
    items = tuple(HomeItem(size, (Lifespan(a, b),), (size, 3 * size)) for size, a, b in spans)
    for most in range(8, 22):
        problem = HomeProblem(items, (most, 100))
        result = housed(problem, [1] * len(items), laid_out(problem), Deadline())
        assert isinstance(result, Housed)
        assert problem.nanoseconds(result.homes) == least_nanoseconds(problem, layouts=True)


def test_lent_bytes_are_others_meanwhile() -> None:
    weight = HomeItem(8, (Lifespan(0, 2), Lifespan(4, 6)), (1, 10))
    other = HomeItem(8, (Lifespan(2, 4),), (1, 10))
    problem = HomeProblem((weight, other), (8, 100))
    rows = Rows(problem)
    homes = chosen_homes(problem, rows, relaxed(problem, rows, Deadline()), Deadline())
    assert homes.homes == (0, 0)


def test_banks_are_filled_in_order_at_the_lowest_offset() -> None:
    items = tuple(HomeItem(size, (Lifespan(0, 2),), (1, 2)) for size in (4, 5, 3))
    problem = HomeProblem(items, (9, 8))
    assert in_banks(problem, (4, 4, 4), (0, 1, 2), [(0, 1)] * 3) == (
        (0, 0, 1),
        (Layout((0, 4), 9), Layout((0,), 3)),
    )
    assert in_banks(problem, (1, 1, 1), (0, 1, 2), [(1,)] * 3) is None


# ----------- Native code in a thread of its own: its answer, its errors, and nobody who waits for it too long


NEVER, OVER = Deadline(), Deadline(at=0.0)


def test_what_it_answers() -> None:
    assert run_native(lambda: 7, lambda: None, NEVER) == 7


def test_what_it_raises() -> None:
    def fail() -> None:
        raise MemoryError("native")

    with pytest.raises(MemoryError, match="native"):
        run_native(fail, lambda: None, NEVER)


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
            run_native(work, asked.set, NEVER)
    finally:
        free.set()
        signal.signal(signal.SIGINT, before)
    assert asked.is_set()
