"""Costs that are measured, by a clock of the tests': nothing here depends on how fast the machine is."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

import pytest

from solver.errors import PlanError
from solver.executor import measured_costs
from solver.graph import TrainingRules
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import Tier, check_costs
from solver.training import derive
from tests.support.graphs import chain


def test_each_step_gets_its_median() -> None:
    graph = chain((6, 5, 4), 3)
    made = plan(graph)
    ticks = count()
    found = measured_costs(graph, made, repeats=3, clock=lambda: next(ticks) ** 2)
    steps = len(made.program.steps)
    # A step takes two ticks, n and n + 1: 2 n + 1 on this clock. Of iterations 1, 2 and 3 the median is 2.
    expected = [2 * 2 * (2 * steps + t) + 1 for t in range(steps)]
    assert sorted(cost for _, cost in found.nanoseconds) == expected
    assert [label for label, _ in found.nanoseconds] == list(derive(graph).step_labels)
    assert "median of 3" in found.about
    check_costs(derive(graph), found)


def test_a_clock_that_stands_still_gives_costs_above_zero() -> None:
    graph = chain((6, 4), 3)
    found = measured_costs(graph, plan(graph), repeats=1, clock=lambda: 0)
    assert {cost for _, cost in found.nanoseconds} == {1}


def test_what_was_measured_can_be_planned_with_and_repeated() -> None:
    graph = chain((16,) * 7, batch=64)
    found = measured_costs(graph, plan(graph), repeats=1)
    peak = plan(graph).arena_bytes
    options = PlanOptions(capacity=peak * 85 // 100, recompute=True, costs=found)
    made = plan(graph, options)
    assert made.options.costs == found
    assert plan(graph, made.options) == made
    facts = next(record.facts for record in made.records if record.name == "recompute")
    assert facts["step_nanoseconds"] == sum(cost for _, cost in found.nanoseconds)


def test_steps_that_are_due_are_measured() -> None:
    graph = chain((6, 4), 3).with_spec(rules=TrainingRules(accumulate=3))
    ticks = count()
    found = measured_costs(graph, plan(graph), repeats=1, clock=lambda: next(ticks))
    assert dict(found.nanoseconds)["w1:apply_gradient"] == 1


@pytest.mark.parametrize(
    "change",
    [
        {"parallelism": 2},
        {"tiers": (Tier("sram", 20_000), Tier("flash", 2**20, 10**6, 10**6))},
        {"recompute": True, "capacity": 38_000},
    ],
)
def test_plans_whose_steps_are_not_single_are_refused(change: dict[str, object]) -> None:
    graph = chain((16,) * 7, batch=64)
    made = plan(graph, replace(PlanOptions(), **change))  # type: ignore[arg-type]  # options by name
    with pytest.raises(PlanError, match="timed one by one") as caught:
        measured_costs(graph, made)
    assert "without recompute, parallelism and tiers" in caught.value.remedy


def test_a_plan_of_another_graph_is_refused() -> None:
    with pytest.raises(PlanError, match="do not belong together"):
        measured_costs(chain((6, 5, 4), 3), plan(chain((6, 4), 3)))
