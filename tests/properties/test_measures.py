"""The measures that the planner chooses are no worse than any that are chosen by hand and change no bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.gallery import GALLERY
from solver.accounting import level_costs, paging_problem
from solver.documents import dump_plan
from solver.errors import CapacityError
from solver.executor import validate
from solver.graph import TrainableGraph
from solver.passes import Order
from solver.pipeline import plan, plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import Tier, loads
from solver.training import derive
from tests.properties.test_more_freedom import branches, shared_weight
from tests.support.every import ALL, grid, some
from tests.support.random_graphs import random_graphs
from tests.support.usual_networks import gpt

EXAMPLES = int(os.environ.get("ARENAPLAN_FUZZ") or (5 if ALL else 3))

IMPOSSIBLE = 2**63


def by_hand() -> Iterator[dict[str, bool]]:
    """Every choice of the measures that change no bit."""
    for in_place, sub_ranges, order, recompute in product((False, True), repeat=4):
        if in_place or not sub_ranges:
            yield {"in_place": in_place, "sub_ranges": sub_ranges, "order": order, "recompute": recompute}


def nanoseconds(made: Plan) -> int:
    for record in made.records:
        if record.name == "paging":
            return int(record.facts["nanoseconds"])
    return sum(level_costs(made.program))


def chosen(graph: TrainableGraph, options: PlanOptions) -> int:
    """The modelled time of the plan with the measures that the planner chooses."""
    try:
        return nanoseconds(plan_requested(graph, RequestedOptions(options), advise=False))
    except CapacityError:
        return IMPOSSIBLE


def cheapest_by_hand(graph: TrainableGraph, options: PlanOptions) -> int:
    times = [IMPOSSIBLE]
    for measures in by_hand():
        try:
            made = plan(graph, replace(options, **measures), advise=False)  # type: ignore[arg-type]  # flags
        except CapacityError:
            continue
        times.append(nanoseconds(made))
    return min(times)


@settings(max_examples=10 * EXAMPLES)
@given(random_graphs(), st.sampled_from([1, 2]), st.booleans())
def test_the_chosen_measures_never_make_a_plan_larger(
    graph: TrainableGraph, parallelism: int, rewrite: bool
) -> None:
    options = PlanOptions(parallelism=parallelism, rewrite=rewrite)
    made = plan_requested(graph, RequestedOptions(options))
    assert made.arena_bytes <= plan(graph, options).arena_bytes
    assert validate(graph, made, steps=1).identical


@grid("name", GALLERY)
def test_no_network_of_the_gallery_becomes_larger(name: str) -> None:
    graph = GALLERY[name].model().graph
    assert plan_requested(graph).arena_bytes <= plan(graph).arena_bytes


@settings(max_examples=EXAMPLES)
@given(random_graphs(most_operations=6), st.sampled_from([0.6, 0.8, 0.9, 0.96]), st.sampled_from([1, 2, 3]))
def test_no_choice_by_hand_is_cheaper_within_a_capacity(
    graph: TrainableGraph, share: float, parallelism: int
) -> None:
    """Steps of a level run at the same time, so what a capacity takes of that counts as time."""
    options = PlanOptions(parallelism=parallelism)
    options = replace(options, capacity=int(plan(graph, options).arena_bytes * share))
    assert chosen(graph, options) <= cheapest_by_hand(graph, options)


@pytest.mark.parametrize(
    ("make", "share"),
    some(
        [(branches, 0.8), (shared_weight, 0.95), (gpt, 0.8)],
        beside=[(branches, 0.95), (shared_weight, 0.8), (gpt, 0.95)],
    ),
)
def test_no_choice_by_hand_is_cheaper_for_usual_networks(
    make: Callable[[], TrainableGraph], share: float
) -> None:
    graph = make()
    capacity = int(plan(graph).arena_bytes * share)
    options = PlanOptions(capacity=capacity)
    assert chosen(graph, options) <= cheapest_by_hand(graph, options)


@settings(max_examples=EXAMPLES)
@given(random_graphs(most_operations=5), st.floats(0.0, 0.9), st.sampled_from([10**6, 10**9, 10**11]))
def test_no_choice_by_hand_is_faster_with_two_memories(
    graph: TrainableGraph, share: float, bandwidth: int
) -> None:
    program = Order().run(derive(graph)).at_same_residues()
    low, high = paging_problem(program, 0).smallest, max(loads(program)[0])
    fast = Tier("fast", low + int(share * (high - low)))
    tiers = (fast, Tier("slow", 2**30, bandwidth, bandwidth))
    options = PlanOptions(tiers=tiers)
    assert chosen(graph, options) <= cheapest_by_hand(graph, options)


@settings(max_examples=EXAMPLES)
@given(random_graphs(most_operations=6), st.sampled_from([0.4, 0.6, 0.8]), st.sampled_from([1, 2]))
def test_what_is_said_to_be_proved_holds_for_every_choice_by_hand(
    graph: TrainableGraph, share: float, parallelism: int
) -> None:
    for rewrite in (False, True):
        capacity = int(plan(graph, PlanOptions(rewrite=rewrite)).arena_bytes * share)
        options = PlanOptions(capacity=capacity, rewrite=rewrite, parallelism=parallelism)
        try:
            plan_requested(graph, RequestedOptions(options))
        except CapacityError as error:
            for measures in by_hand() if error.proved else ():
                with pytest.raises(CapacityError):
                    plan(graph, replace(options, **measures), advise=False)  # type: ignore[arg-type]  # flags


@settings(max_examples=EXAMPLES)
@given(random_graphs(most_operations=6), st.sampled_from([0.8, 0.9, 1.0, None]))
def test_the_same_request_gives_the_same_plan(graph: TrainableGraph, share: float | None) -> None:
    capacity = None if share is None else int(plan(graph).arena_bytes * share)
    requested = RequestedOptions(PlanOptions(capacity=capacity))
    try:
        made = plan_requested(graph, requested)
    except CapacityError:
        return
    assert dump_plan(plan_requested(graph, requested)) == dump_plan(made)
    exact = plan(graph, made.options)  # which searches for an order longer
    assert (exact.arena_bytes, nanoseconds(exact)) <= (made.arena_bytes, nanoseconds(made))
