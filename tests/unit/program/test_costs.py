"""Costs that are given: which step takes which of them, and what is said of costs that are not right."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import OptionsError
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import (
    COPY,
    MOST_NANOSECONDS,
    Costs,
    Program,
    Tier,
    check_costs,
    check_tiers,
    dependencies,
    followers,
    given_costs,
    transfer_nanoseconds,
)
from solver.schedules import rerun
from solver.training import derive
from tests.support.derived import at
from tests.support.graphs import chain, tower

PROGRAM = derive(chain((6, 5, 4), 3))
#: A microsecond for the steps of each operation.
USUAL: dict[str, Any] = {PROGRAM.operations[step.operation].operation.id: 1_000 for step in PROGRAM.steps}


def costs(table: dict[str, Any]) -> Costs:
    return Costs(tuple(table.items()))


def test_a_step_comes_before_its_operation() -> None:
    found = given_costs(PROGRAM, costs({**USUAL, "fc1:forward": 5_000}))
    assert found[at(PROGRAM, "fc1:forward")] == 5_000
    assert found[at(PROGRAM, "fc1:calc_gradient")] == 1_000


def test_a_repetition_takes_what_the_step_takes() -> None:
    again: Program = rerun(PROGRAM, [0, 1, 0, *range(2, len(PROGRAM.steps))])
    found = given_costs(again, costs({**USUAL, PROGRAM.step_labels[0]: 5_000}))
    assert found[0] == found[2] == 5_000


def test_costs_of_every_step_are_right() -> None:
    check_costs(PROGRAM, costs(USUAL))
    check_costs(PROGRAM, costs(dict.fromkeys(PROGRAM.step_labels, 0) | {"fc1:forward": 1}))


@pytest.mark.parametrize(
    ("change", "message", "remedy", "place"),
    [
        ({"fc1": None}, "neither the step 'fc1:forward' nor its operation 'fc1'", "arenaplan costs", ()),
        ({"fc1": -1}, "cost of 'fc1' is -1 nanoseconds", "zero or more", ("fc1",)),
        ({"fc1": 1.5}, "cost of 'fc1' is 1.5 nanoseconds", "whole number", ("fc1",)),
        ({"fc1": float("nan")}, "cost of 'fc1' is nan", "whole number", ("fc1",)),
        ({"fc1": True}, "cost of 'fc1' is True", "whole number", ("fc1",)),
        ({"fc1:foward": 1}, "'fc1:foward', which is neither", "Did you mean 'fc1:forward'", ("fc1:foward",)),
        ({"xyzzy": 1}, "'xyzzy', which is neither a step nor an operation", "Remove it", ("xyzzy",)),
        (dict.fromkeys(USUAL, 0), "add up to 0 nanoseconds", "more than zero", ()),
        ({"fc1": MOST_NANOSECONDS + 1}, "add up to", "at most", ()),
    ],
)
def test_wrong_costs_are_named(
    change: dict[str, Any], message: str, remedy: str, place: tuple[str, ...]
) -> None:
    given = {name: cost for name, cost in {**USUAL, **change}.items() if cost is not None}
    with pytest.raises(OptionsError, match=message) as caught:
        check_costs(PROGRAM, costs(given))
    assert caught.value.path == ("costs", "nanoseconds", *place)
    assert remedy in caught.value.remedy


def test_copies_between_memories_have_no_cost_of_their_own() -> None:
    graph = tower()
    tiers = (Tier("fast", plan(graph).arena_bytes * 4 // 5), Tier("slow", 2**24, 10**9, 10**9))
    program = plan(graph, PlanOptions(tiers=tiers)).program
    is_copy = [program.kernel(step) == COPY for step in program.steps]
    table = {program.operations[step.operation].operation.id: 7 for step in program.steps}
    assert any(is_copy)
    assert given_costs(program, costs(table)) == tuple(0 if copy else 7 for copy in is_copy)


# ------------------------------------------------------------------------------------------------ tiers


def test_a_transfer_takes_latency_and_the_slower_of_both_ends() -> None:
    fast, flash = Tier("fast", 1, 10**9, 2 * 10**9), Tier("flash", 10_000, 10**9, 5 * 10**8, 100)
    assert transfer_nanoseconds(fast, flash, 1000) == 100 + 2000
    assert transfer_nanoseconds(flash, fast, 1000) == 100 + 1000
    assert transfer_nanoseconds(Tier("any", 1), flash, 1) == 102
    assert transfer_nanoseconds(Tier("late", 1, latency=30), flash, 1) == 132


@pytest.mark.parametrize(
    "tiers",
    [
        (),
        (Tier("a", 1), Tier("b", 1, 1, 1)),
        (Tier("a", 1, read=1), Tier("b", 1, read=1)),
        (Tier("a", 1, 1, 1), Tier("b", 1), Tier("c", 1)),
    ],
)
def test_one_bandwidth_in_each_direction_is_enough(tiers: tuple[Tier, ...]) -> None:
    check_tiers(tiers)


@pytest.mark.parametrize(
    ("tiers", "message", "path"),
    [
        ((Tier("a", 4096),), "the only tier is 'a'", ("tiers",)),
        ((Tier("a", 4096), Tier("b", 4096)), "how fast tier 'b' is written", ("tiers", 1)),
        ((Tier("a", 4096), Tier("b", 4096, read=1)), "how fast tier 'b' is written", ("tiers", 1)),
        ((Tier("a", 4096, read=1), Tier("b", 4096)), "how fast tier 'b' is read", ("tiers", 1)),
        ((Tier("a", 9), Tier("b", 9, 1, 1), Tier("c", 9)), "how fast tier 'c' is written", ("tiers", 2)),
        (
            (Tier("a", 9), Tier("b", 9, 1, 1), Tier("b", 9, 1, 1)),
            "Tier 2 is called 'b'",
            ("tiers", 2, "name"),
        ),
        ((Tier("a", 4096), Tier("", 4096, 1, 1)), "Tier 1 has no name", ("tiers", 1, "name")),
        ((Tier("a", 0), Tier("b", 4096, 1, 1)), "figure of tier 'a'", ("tiers", 0)),
        ((Tier("a", 1), Tier("b", 4096, -1, 1)), "figure of tier 'b'", ("tiers", 1)),
        ((Tier("a", 1), Tier("b", 4096, 1, -1)), "figure of tier 'b'", ("tiers", 1)),
        ((Tier("a", 1), Tier("b", 4096, 1, 1, -1)), "figure of tier 'b'", ("tiers", 1)),
    ],
)
def test_tiers_that_nothing_can_be_paged_between_are_named(
    tiers: tuple[Tier, ...], message: str, path: tuple[object, ...]
) -> None:
    with pytest.raises(OptionsError, match=message) as caught:
        check_tiers(tiers)
    assert caught.value.path == path
    assert caught.value.remedy


# --------------------------------------------------------------------------- Which steps a step has to follow


Touches = list[tuple[str, str]]


def direct(touches: Touches) -> list[set[int]]:
    return [set(found) for found in dependencies((r.split(), w.split()) for r, w in touches)]


@pytest.mark.parametrize(
    ("touches", "expected"),
    [
        ([("", "a"), ("a", "b")], [set(), {0}]),  # RAW
        ([("a", ""), ("", "a")], [set(), {0}]),  # WAR
        ([("", "a"), ("", "a")], [set(), {0}]),  # WAW
        ([("a", ""), ("a", "")], [set(), set()]),  # two reads leave each other alone
        ([("a", "a"), ("a", "a")], [set(), {0}]),  # in place, twice
        ([("", "a"), ("a", ""), ("a", ""), ("", "a"), ("a", "")], [set(), {0}, {0}, {0, 1, 2}, {3}]),
        ([("a", "b"), ("c", "d")], [set(), set()]),
        ([], []),
    ],
)
def test_by_hand(touches: Touches, expected: list[set[int]]) -> None:
    assert direct(touches) == expected


def test_a_read_follows_the_last_write_alone() -> None:
    """The order of earlier steps follows from the write's own dependencies."""
    assert direct([("", "a"), ("", "a"), ("a", "")])[2] == {1}


def test_no_step_follows_itself() -> None:
    assert direct([("a a", "a a")]) == [set()]


def test_followers_are_the_other_way_round() -> None:
    before = dependencies([((), "a"), ("a", "b"), ("a", "c"), ("bc", "d")])
    assert followers(before) == [[1, 2], [3], [3], []]
    assert followers(()) == []
