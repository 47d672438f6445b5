"""Tests a plan's figures of the bytes that it moves between memories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import Tier
from solver.reports.records import Paging, paging
from tests.support.graphs import chain


@pytest.fixture(scope="module")
def moved() -> Paging:
    tiers = (Tier("sram", plan(chain()).arena_bytes), Tier("flash", 2**20, 10**8, 10**8))
    found = paging(plan(chain(), PlanOptions(tiers=tiers)))
    assert found is not None
    return found


def test_a_plan_that_moves_nothing_moves_the_least(moved: Paging) -> None:
    assert moved.moved == moved.bound == 0
    assert moved.proof == "proved to be the least for this order and lookahead 0"


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (3000, "proved to be the least for this order and lookahead 1"),
        (2500, "proved to be within 20.00 % of the least for this order and lookahead 1"),
        (2999, "proved to be within 0.04 % of the least for this order and lookahead 1"),
        (0, "of which none are proved to be needed for this order and lookahead 1"),
    ],
)
def test_what_is_proved_of_moved_bytes_is_said(bound: int, said: str, moved: Paging) -> None:
    assert replace(moved, lookahead=1, moved_in=2000, moved_out=1000, bound=bound).proof == said
