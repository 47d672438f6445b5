"""Which steps a step has to follow."""

from __future__ import annotations

import pytest

from solver.program import dependencies, followers

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
