"""The gaps in which values may leave, on programs small enough to follow by hand."""

from __future__ import annotations

from dataclasses import replace

from solver.accounting import GapKind, Traffic, paging_problem, traffic
from solver.layout import Lifespan
from solver.program import EntryKind, Program, Tier
from solver.schedules.paging import in_tiers, with_transfers
from tests.support.programs import sequential

SRAM, FLASH = Tier("sram", 1000), Tier("flash", 10_000, 10**9, 5 * 10**8, 100)


def gaps(given: Program, ahead: int = 0) -> list[tuple[str, str, tuple[tuple[int, int], ...]]]:
    problem = paging_problem(given, ahead)
    return [
        (given.values[g.value].label, g.kind.value, tuple((s.start, s.end) for s in g.free))
        for g in problem.gaps
    ]


LINE = sequential(("x", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("d a", "e"), ("e", "f"), fed="x")


def test_gaps_are_between_touches_that_are_not_neighbours() -> None:
    assert gaps(LINE) == [("a", "middle", ((2, 4),))]
    longer = sequential(("x", "a"), *((f"t{k}", f"t{k + 1}") for k in range(5)), ("t5 a", "e"), fed="x t0")
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
    again = sequential(
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
    given = sequential(("x", "a"), ("a w", "b"), ("b", "c"), ("c w", "w"), ("c", "d"), ("d", "e"), fed="x")
    assert gaps(given) == [
        ("w", "middle", ((2, 3),)),
        ("w", "cyclic", ((0, 1), (4, 6))),
    ]
    contents = {g.kind: g.contents for g in paging_problem(given, 0).gaps}
    # What the last step leaves is what the first one of the next iteration finds.
    assert contents[GapKind.MIDDLE] == contents[GapKind.CYCLIC] is not None


def test_what_is_fed_or_never_changes_needs_no_way_out() -> None:
    given = sequential(("x c", "a"), ("a", "b"), ("b", "d"), ("d x c", "e"), fed="x", x=5, c=7)
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
    given = sequential(("x", "a"), ("a", "b"), ("x", "c"), ("c b", "d"), fed="x", kept="a", a=9)
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


def test_loads_and_costs_by_hand() -> None:
    """`a` is touched on levels 0, 1 and 4, so it may be away on levels 2 and 3."""
    problem = paging_problem(LINE, 0)
    assert problem.loads() == [8, 8, 12, 12, 12, 8]
    assert problem.loads(frozenset({0})) == list(problem.fixed) == [8, 8, 8, 8, 12, 8]
    assert problem.smallest == 12
    assert problem.cost(frozenset()) == (0, 0)
    assert problem.cost(frozenset({0})) == (4, 4)


def test_fast_memory_holds_aligned_sizes_and_transfers_move_contents() -> None:
    aligned = replace(LINE, spaces=tuple(replace(space, alignment=64) for space in LINE.spaces))
    problem = paging_problem(aligned, 0)
    assert problem.loads() == [128, 128, 192, 192, 192, 128]
    assert problem.cost(frozenset({0})) == (4, 4)


def test_values_of_steps_that_run_in_some_iterations_are_held() -> None:
    """A copy would have nothing to move in the others; a relaxed problem holds for every way of paging."""
    due = replace(LINE, steps=(replace(LINE.steps[0], due=True), *LINE.steps[1:]))
    assert gaps(due) == []
    assert paging_problem(due, 0).fixed == tuple(paging_problem(LINE, 0).loads())
    assert paging_problem(due, 0, relaxed=True) == paging_problem(LINE, 0)


def test_what_is_fed_and_a_result_is_held() -> None:
    """It would have to be in two places: where the caller feeds it and where the caller finds it."""
    touches = (("x", "a"), ("a", "b"), ("b", "c"), ("c x", "d"))
    both, fed = (sequential(*touches, fed="x", kept=kept) for kept in ("x", ""))
    assert gaps(both) == []
    assert gaps(fed) == [("x", "middle", ((1, 3),))]
    assert [gap.kind for gap in paging_problem(both, 0, relaxed=True).gaps] == [GapKind.MIDDLE]


def test_scratch_and_values_without_bytes_have_no_gaps() -> None:
    nothing = sequential(("x", "a"), ("a", "b"), ("b", "c"), ("c", "d"), ("d a", "e"), fed="x", a=0)
    assert gaps(nothing) == []


def test_what_is_copied_out_goes_before_the_iteration_ends() -> None:
    """`w` is updated on level 6 of 8: with 3 levels ahead a copy would end on level 9."""
    line = [(f"t{k}", f"t{k + 1}") for k in range(8)]
    line[5], line[6] = ("t5 w", "t6"), ("t6 w", "t7 w")
    program = sequential(*line, fed="t0")
    (gap,) = [gap for gap in paging_problem(program, 3).gaps if program.values[gap.value].label == "w"]
    assert (gap.kind, gap.start, gap.end) == (GapKind.CYCLIC, 6, 5)
    assert gap.out == (7, 7)
    assert gap.free == (Lifespan(0, 2),)


def test_a_result_of_the_last_step_has_nowhere_to_go() -> None:
    problem = paging_problem(sequential(("x", "a"), ("a", "b"), fed="x", kept="b"), 0)
    assert (problem.gaps, problem.contents) == ((), (4,)), "contents of a alone, which b is made of"
