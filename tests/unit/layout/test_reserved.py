"""Layouts around reserved bytes: the smallest there are, with a bound that holds; and what is refused."""

from __future__ import annotations

import random

import pytest

from solver.documents import (
    dump_buffers,
    dump_layout,
    layout_with_digest,
    load_buffers,
    load_layout,
    load_layout_options,
)
from solver.errors import DocumentError, OptionsError, ProblemError
from solver.layout import (
    Buffer,
    Layout,
    LayoutProblem,
    Lifespan,
    Proof,
    Reserved,
    Status,
    above_reserved,
    check_problem,
    find_violations,
    max_load,
    solve,
)
from solver.layout.check.reference import violations
from solver.placement import place
from tests.support.buffers import smallest, solved


def random_problem(seed: int) -> LayoutProblem:
    """At most five buffers, some pinned or aligned, and at most three reserved ranges."""
    rng = random.Random(seed)
    buffers = []
    for k in range(rng.randint(1, 5)):
        start, alignment = rng.randint(0, 5), rng.choice((1, 1, 1, 2, 4))
        offset = rng.randrange(0, 12, alignment) if rng.random() < 0.25 else None
        size = 0 if rng.random() < 0.05 else rng.randint(1, 6)
        buffers.append(Buffer(f"b{k}", size, Lifespan(start, start + rng.randint(1, 4)), alignment, offset))
    ranges, at = [], 0
    for _ in range(rng.randint(0, 3)):
        low = at + rng.randint(0, 5)
        at = low + rng.randint(1, 4)
        ranges.append(Reserved(low, at))
    rng.shuffle(ranges)
    return LayoutProblem(tuple(buffers), rng.choice((None, rng.randint(3, 20))), tuple(ranges))


@pytest.mark.parametrize("seeds", [range(k, k + 100) for k in range(0, 500, 100)], ids=str)
def test_layouts_are_as_small_as_the_smallest(seeds: range) -> None:
    for seed in seeds:
        problem = random_problem(seed)
        try:
            check_problem(problem)
        except ProblemError:
            assert smallest(problem) is None
            continue
        least, outcome = smallest(problem), solve(problem)
        assert least is not None
        assert max_load(problem).bytes <= outcome.lower_bound <= least
        if problem.capacity is not None and least > problem.capacity:
            assert outcome.status in (Status.INFEASIBLE, Status.UNKNOWN)
        else:
            assert outcome.layout is not None
            assert outcome.layout.peak == least
        if outcome.layout is not None:
            assert not find_violations(LayoutProblem(problem.buffers, None, problem.reserved), outcome.layout)


@pytest.mark.parametrize("solver", ["greedy", "search", "branch-and-bound", "cp-sat", "skyline"])
def test_every_solver_keeps_out(solver: str) -> None:
    for seed in range(8):
        problem = random_problem(seed)
        if any(buffer.offset is not None for buffer in problem.buffers):
            continue
        outcome = solve(LayoutProblem(problem.buffers, None, problem.reserved), solver=solver)
        least = smallest(problem)
        assert least is not None
        if outcome.layout is not None:  # planners of other systems may take no pins
            assert outcome.lower_bound <= least <= outcome.layout.peak


A, B = Buffer("a", 4, Lifespan(0, 2)), Buffer("b", 4, Lifespan(1, 3))


def test_bytes_above_the_topmost_buffer_cost_nothing() -> None:
    outcome = solved(LayoutProblem((A, B), None, (Reserved(8, 100),)))
    assert (outcome.layout.peak, outcome.proof) == (8, Proof.MAX_LOAD)


def test_bytes_below_count_towards_the_peak_and_the_bound() -> None:
    outcome = solved(LayoutProblem((A, B), None, (Reserved(0, 3), Reserved(9, 10))))
    # [3, 7) and [10, 14): there is no room for both between 3 and 9.
    assert (outcome.layout.peak, outcome.lower_bound, outcome.proof) == (14, 14, Proof.SOLVER)


def test_the_load_with_what_is_reserved_below_it() -> None:
    ranges = (Reserved(10, 12), Reserved(0, 3))
    assert [above_reserved(load, ranges) for load in (0, 1, 7, 8, 9)] == [0, 4, 10, 13, 14]


def test_both_checks_name_who_lies_there() -> None:
    problem, layout = LayoutProblem((A, B), None, (Reserved(2, 5),)), Layout((0, 5), 9)
    assert [(v.rule, v.buffers) for v in violations(problem, layout)] == [("reserved", ("a",))]
    assert [(v.rule, v.buffers) for v in find_violations(problem, layout)] == [("reserved", ("a",))]
    assert not find_violations(problem, Layout((5, 9), 13))


@pytest.mark.parametrize(
    ("ranges", "words"),
    [
        ((Reserved(4, 4),), "4..4 has no bytes"),
        ((Reserved(4, 2),), "4..2 has no bytes"),
        ((Reserved(-1, 2),), "-1..2 has no bytes"),
        ((Reserved(0, 4), Reserved(3, 8)), "0..4 and 3..8 overlap. Reserve 0..8"),
    ],
)
def test_ranges_that_are_none(ranges: tuple[Reserved, ...], words: str) -> None:
    with pytest.raises(ProblemError, match=words):
        solve(LayoutProblem((A,), None, ranges))


def test_a_pin_in_a_range_is_named() -> None:
    pinned = Buffer("a", 4, Lifespan(0, 2), offset=6)
    with pytest.raises(ProblemError, match=r"'a' is pinned at 6, in the reserved range 9\.\.12") as caught:
        solve(LayoutProblem((B, pinned), None, (Reserved(9, 12),)))
    assert caught.value.pointer == "/buffers/1/offset"


def test_documents_keep_ranges_and_leave_them_out_where_there_are_none() -> None:
    problem = LayoutProblem((A, B), 40, (Reserved(0, 3), Reserved(9, 10)))
    assert load_buffers(dump_buffers(problem)) == problem
    assert b"reserved" not in dump_buffers(LayoutProblem((A, B)))
    placed = layout_with_digest(place(problem))
    assert load_layout(dump_layout(placed)) == placed
    assert b"reserved" not in dump_layout(place(LayoutProblem((A, B))))


def test_options_constrain_buffers_by_name() -> None:
    options = load_layout_options(
        {"pins": ["b=8"], "alignments": {"*": "4B"}, "reserved": ["0..3", {"low": 12, "high": 20}]}
    )
    placed = place(LayoutProblem((A, B)), options)
    assert placed.layout.offsets == (4, 8)
    assert placed.problem.reserved == (Reserved(0, 3), Reserved(12, 20))
    assert load_layout(dump_layout(layout_with_digest(placed))).options == options


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pins": {"c": 0}}, "No buffer is called 'c'. The nearest names are"),
        ({"pins": {"*": 0}}, "names 2 buffers"),
        ({"alignments": {"x*": 4}}, "No buffer is called 'x\\*'"),
        ({"reserved": ["fast:0..4"]}, "buffers have one memory"),
    ],
)
def test_names_that_match_nothing(fields: dict[str, object], words: str) -> None:
    with pytest.raises(OptionsError, match=words):
        place(LayoutProblem((A, B)), load_layout_options(fields))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pins": ["b"]}, "is no name with bytes"),
        ({"pins": ["b=x"]}, "'b=x' has no bytes behind the name"),
        ({"pins": ["b=0", "b=4"]}, "'b' has two"),
        ({"pins": {"b": -1}}, "pins"),
        ({"alignments": {"b": 3}}, "power of two"),
        ({"alignments": {"b": 0}}, "power of two"),
        ({"reserved": ["8"]}, r"LOW\.\.HIGH"),
    ],
)
def test_texts_that_say_nothing(fields: dict[str, object], words: str) -> None:
    with pytest.raises((DocumentError, OptionsError), match=words):
        load_layout_options(fields)


def test_the_problem_and_the_options_may_not_disagree() -> None:
    pinned = Buffer("a", 4, Lifespan(0, 2), offset=6)
    with pytest.raises(OptionsError, match="The problem itself pins 'a' at 6"):
        place(LayoutProblem((pinned,)), load_layout_options({"pins": {"a": 8}}))
