"""Costs that are given: which step takes which of them, and what is said of costs that are not right."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import OptionsError
from solver.program import MOST_NANOSECONDS, Costs, Program, check_costs, given_costs
from solver.schedules import rerun
from solver.training import derive
from tests.support.derived import at
from tests.support.graphs import chain

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
