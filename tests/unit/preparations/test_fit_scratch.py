"""The scratch budget is made as small as it must be for scratch not to make the peak, and no smaller."""

from __future__ import annotations

import pytest

from examples.gallery import GALLERY
from solver.errors import OptionsError
from solver.executor import validate
from solver.pipeline import plan
from solver.plan import PlanOptions


def facts(made: object) -> dict[str, int]:
    records = {record.name: record.facts for record in made.records}  # type: ignore[attr-defined]  # a plan
    return dict(records["fit_scratch"])


@pytest.mark.parametrize("name", ["lenet5", "transfer", "multi_loss"])
def test_scratch_makes_the_peak(name: str) -> None:
    graph = GALLERY[name].model().graph
    before, made = plan(graph), plan(graph, PlanOptions(fit_scratch=True))
    least = plan(graph, PlanOptions(scratch_budget=1)).sizes[0]
    budget = made.options.scratch_budget
    assert made.sizes[0] <= least + least // 16 < before.sizes[0]
    assert facts(made)["budget_after"] == budget < before.options.scratch_budget
    # Twice the budget would be more than a sixteenth above the least.
    assert plan(graph, PlanOptions(scratch_budget=2 * budget)).sizes[0] > least + least // 16


def test_what_was_chosen_repeats_the_plan() -> None:
    graph = GALLERY["multi_loss"].model().graph
    made = plan(graph, PlanOptions(fit_scratch=True))
    assert plan(graph, PlanOptions(scratch_budget=made.options.scratch_budget)).program == made.program
    assert validate(graph, made, steps=2).identical


def test_scratch_that_makes_no_peak_stays() -> None:
    graph = GALLERY["transformer"].model().graph
    made = plan(graph, PlanOptions(fit_scratch=True))
    assert made.options.scratch_budget == PlanOptions().scratch_budget
    assert made.sizes == plan(graph).sizes


def test_what_rewriting_leaves_is_fitted_again() -> None:
    """LeNet with its activations apart: fused, they take less, and so may scratch."""
    graph = GALLERY["lenet5"].model().graph
    rewritten = plan(graph, PlanOptions(rewrite=True, fit_scratch=True))
    least = plan(graph, PlanOptions(rewrite=True, scratch_budget=1)).sizes[0]
    assert rewritten.sizes[0] <= least + least // 16
    assert len([record for record in rewritten.records if record.name == "fit_scratch"]) == 1


def test_a_capacity_leaves_as_much_scratch_as_it_has_room_for() -> None:
    graph = GALLERY["lenet5"].model().graph
    free = plan(graph, PlanOptions(fit_scratch=True))
    roomy = plan(graph, PlanOptions(fit_scratch=True, capacity=3_000_000))
    tight = plan(graph, PlanOptions(fit_scratch=True, capacity=2_200_000))
    assert tight.sizes[0] <= 2_200_000
    budgets = [p.options.scratch_budget for p in (tight, free, roomy)]
    assert budgets == sorted(set(budgets))


def test_targets_that_say_themselves_what_kernels_need() -> None:
    graph = GALLERY["lenet5"].model().graph
    with pytest.raises(OptionsError, match="says itself what its kernels need"):
        plan(graph, PlanOptions(target="onert", fit_scratch=True))
