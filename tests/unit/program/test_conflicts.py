"""Conflict sets: which operands live at the same time."""

from __future__ import annotations

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from solver.layout import Lifespan
from solver.program import conflict_pairs, conflict_sets

intervals = st.dictionaries(
    st.integers(0, 40),
    st.tuples(st.integers(0, 20), st.integers(1, 8)).map(lambda p: Lifespan(p[0], p[0] + p[1])),
    max_size=14,
)


@given(intervals)
def test_conflict_pairs_are_exactly_the_overlapping_ones(found: dict[int, Lifespan]) -> None:
    expected = {frozenset(p) for p in combinations(found, 2) if found[p[0]].overlaps(found[p[1]])}
    pairs = [frozenset(p) for p in conflict_pairs(found)]
    assert set(pairs) == expected
    assert len(pairs) == len(expected)


@given(intervals)
def test_conflict_sets_are_symmetric(found: dict[int, Lifespan]) -> None:
    sets = conflict_sets(found)
    assert set(sets) == set(found)
    assert all(a in sets[b] and b not in sets[b] for b in sets for a in sets[b])


def test_half_open_lifespans_that_touch_do_not_conflict() -> None:
    assert not list(conflict_pairs({"a": Lifespan(0, 3), "b": Lifespan(3, 5)}))
