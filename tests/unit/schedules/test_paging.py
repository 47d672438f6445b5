"""Gaps, levels of transfers and clocks, on programs small enough to follow by hand."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from solver.accounting import (
    Gap,
    GapKind,
    PagingProblem,
    Traffic,
    elapsed,
    least_elapsed,
    level_costs,
    paging_problem,
    traffic,
)
from solver.layout import Deadline, Lifespan
from solver.program import COPY, Entry, EntryKind, Exit, Program, Tier, loads, transfer_nanoseconds
from solver.schedules.paging import Transfer, in_tiers, timetable, with_transfers
from solver.schedules.paging.cover import greedy, least_moved, needed_only
from solver.schedules.paging.homes import homes, shortage
from solver.training import explicit_program
from tests.support.programs import program

SRAM, FLASH = Tier("sram", 1000), Tier("flash", 10_000, 10**9, 5 * 10**8, 100)


def made(*touches: tuple[str, str], fed: str = "", kept: str = "", **sizes: int) -> Program:
    """Operations in order; sizes are bytes, 4 where nothing is said."""
    found = explicit_program(program(touches, sizes=sizes, fed=fed.split(), kept=kept.split()))
    return replace(found, spaces=tuple(replace(space, alignment=1) for space in found.spaces))


def gaps(given: Program, ahead: int = 0) -> list[tuple[str, str, tuple[tuple[int, int], ...]]]:
    problem = paging_problem(given, ahead)
    return [
        (given.values[g.value].label, g.kind.value, tuple((s.start, s.end) for s in g.free))
        for g in problem.gaps
    ]


LINE = made(("x", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("d a", "e"), ("e", "f"), fed="x")


def test_gaps_are_between_touches_that_are_not_neighbours() -> None:
    assert gaps(LINE) == [("a", "middle", ((2, 4),))]
    longer = made(("x", "a"), *((f"t{k}", f"t{k + 1}") for k in range(5)), ("t5 a", "e"), fed="x t0")
    assert gaps(longer) == [("a", "middle", ((1, 6),)), ("t0", "head", ((0, 1),))]
    assert gaps(longer, 1) == [("a", "middle", ((2, 5),))]
    assert gaps(longer, 2) == [("a", "middle", ((3, 4),))]


def test_contents_that_are_not_written_meanwhile_are_copied_before_their_gap() -> None:
    # `a` is read on level 1, and copied out meanwhile: nothing has changed it since level 0.
    assert gaps(LINE, 1) == [("a", "middle", ((2, 3),))]
    (gap,) = paging_problem(LINE, 1).gaps
    assert (gap.start, gap.out) == (1, (1, 1))
    # On level 0 it is written, so a copy of two levels ends behind level 2.
    assert gaps(LINE, 2) == []
    # Two gaps with the same contents: only what follows a write has to wait for the copy.
    again = made(
        ("x", "a"),
        *((f"t{k}", f"t{k + 1}") for k in range(3)),
        ("t3 a", "b"),
        ("b", "c"),
        ("c", "d"),
        ("d a", "e"),
        fed="x t0",
    )
    assert [found for found in gaps(again, 1) if found[0] == "a"] == [
        ("a", "middle", ((2, 3),)),
        ("a", "middle", ((5, 6),)),
    ]
    problem = paging_problem(again, 1)
    both = [j for j, gap in enumerate(problem.gaps) if again.values[gap.value].label == "a"]
    paged = with_transfers(
        in_tiers(again, [SRAM, FLASH]), problem, both, {problem.gaps[both[0]].value: 1}, [SRAM, FLASH]
    )
    assert traffic(paged) == Traffic(8, 4, (8, 4))


def test_what_carries_over_has_a_gap_around_the_end() -> None:
    given = made(("x", "a"), ("a w", "b"), ("b", "c"), ("c w", "w"), ("c", "d"), ("d", "e"), fed="x")
    assert gaps(given) == [
        ("w", "middle", ((2, 3),)),
        ("w", "cyclic", ((0, 1), (4, 6))),
    ]
    contents = {g.kind: g.contents for g in paging_problem(given, 0).gaps}
    # What the last step leaves is what the first one of the next iteration finds.
    assert contents[GapKind.MIDDLE] == contents[GapKind.CYCLIC] is not None


def test_what_is_fed_or_never_changes_needs_no_way_out() -> None:
    given = made(("x c", "a"), ("a", "b"), ("b", "d"), ("d x c", "e"), fed="x", x=5, c=7)
    problem = paging_problem(given, 0)
    assert [(given.values[g.value].label, g.contents) for g in problem.gaps] == [
        ("x", None),
        ("c", None),
    ]
    both = frozenset({0, 1})
    assert problem.cost(both) == (12, 0)
    assert problem.loads(both) == [
        load - (12 if level in (1, 2) else 0) for level, load in enumerate(problem.loads())
    ]
    paged = with_transfers(
        in_tiers(given, [SRAM, FLASH]),
        problem,
        both,
        dict.fromkeys((g.value for g in problem.gaps), 1),
        [SRAM, FLASH],
    )
    kinds = [entry.kind for entry in paged.entry if paged.values[entry.value].space]
    assert EntryKind.FED in kinds
    assert len(kinds) == 2
    assert len(paged.entry) == len(given.entry) + 2


def test_a_result_may_end_in_slower_memory() -> None:
    given = made(("x", "a"), ("a", "b"), ("x", "c"), ("c b", "d"), fed="x", kept="a", a=9)
    problem = paging_problem(given, 0)
    (number,) = (j for j, g in enumerate(problem.gaps) if g.kind is GapKind.TAIL)
    assert problem.gaps[number].free == (Lifespan(2, 4),)
    assert problem.cost(frozenset({number})) == (0, 9)
    paged = with_transfers(
        in_tiers(given, [SRAM, FLASH]), problem, [number], {problem.gaps[number].value: 1}, [SRAM, FLASH]
    )
    (exit_,) = (e for e in paged.exit if paged.values[e.value].label == "a")
    assert paged.values[exit_.value].space == 1
    assert traffic(paged).written == (0, 9)


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


# -------------------------------------------------------------------------------------------- clocks


def test_a_transfer_takes_latency_and_the_slower_of_both_ends() -> None:
    fast = Tier("fast", 1, 10**9, 2 * 10**9)
    assert transfer_nanoseconds(fast, FLASH, 1000) == 100 + 2000
    assert transfer_nanoseconds(FLASH, fast, 1000) == 100 + 1000
    assert transfer_nanoseconds(Tier("any", 1), FLASH, 1) == 102


def paged_line(ahead: int) -> Program:
    problem = paging_problem(LONG, ahead)
    (number,) = (j for j, g in enumerate(problem.gaps) if LONG.values[g.value].label == "a")
    homes = {problem.gaps[number].value: 1}
    return with_transfers(in_tiers(LONG, [SRAM, FLASH]), problem, [number], homes, [SRAM, FLASH])


LONG = made(("x", "a"), *((f"t{k}", f"t{k + 1}") for k in range(8)), ("t8 a", "e"), fed="x t0", a=10_000)


def test_steps_wait_for_transfers_that_nothing_hides() -> None:
    alone = sum(level_costs(LONG))
    out, back = transfer_nanoseconds(SRAM, FLASH, 10_000), transfer_nanoseconds(FLASH, SRAM, 10_000)
    assert elapsed(paged_line(0), [SRAM, FLASH]) == alone + out + back
    times = [elapsed(paged_line(ahead), [SRAM, FLASH]) for ahead in (0, 1, 2, 3)]
    assert times == sorted(times, reverse=True)
    assert times[-1] < times[0]
    cheap = [Tier("sram", 1), Tier("flash", 1, 10**12, 10**12)]
    assert elapsed(paged_line(3), cheap) == alone


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


TOWER = made(
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
    found = homes(problem, range(6), both)
    assert found is not None
    assert found[2] != found[3]
    less = [Tier("fast", 1), Tier("b0", 6, 1, 1), Tier("b1", 5, 1, 1)]
    assert homes(problem, range(6), less) is None
    lacking = shortage(problem, range(6), less)
    assert (lacking.tier, lacking.missing) == (2, 1)
    assert homes(problem, range(6), [*less[:2], Tier("b1", 6, 1, 1)])


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


def test_no_iteration_takes_less_than_its_steps_its_repetitions_or_its_transfers() -> None:
    """Four values of 100 bytes are there at once, the first tier has 200; 4 bytes of what moves are fed."""
    big = made(
        ("x", "a"), ("a", "b"), ("b", "c"), ("c b", "d"), ("d a", "e"), fed="x", a=100, b=100, c=100, d=100
    )
    peak = max(loads(big)[0])
    assert peak == 400
    tiers = (Tier("sram", 200), Tier("flash", 10_000, 10**9, 10**9))
    # Nothing is proved: some bytes go out and come in, or something runs again for nothing.
    assert least_elapsed(big, tiers, 50, [(200, 0)]) == 50
    # Where repetitions cost that much, it takes less to move nearly all that is too many.
    assert least_elapsed(big, tiers, 50, [(399, 1000)]) == 2 * (399 - 200 - 4)
    # Where they cost less, it takes less to run steps again, or some of both.
    assert least_elapsed(big, tiers, 50, [(399, 100)]) == 150
    assert least_elapsed(big, tiers, 50, [(300, 900), (399, 60)]) == 2 * (300 - 200 - 4)
    assert least_elapsed(big, (tiers[0], replace(tiers[1], write=10**8)), 50, [(399, 9000)]) == 11 * 195
