"""Refusals of schedules: a request that does what they advise is not refused for the same reason again."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from examples.gallery import GALLERY
from solver.accounting import floor, paging_problem, roofline, schedule_problem
from solver.errors import CapacityError
from solver.graph import TrainableGraph, TrainingRules
from solver.passes import Order
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from solver.program import Tier, loads
from solver.training import derive
from tests.support.branching import heads, inception
from tests.support.every import ALL, grid, some
from tests.support.graphs import tower
from tests.support.operator_graphs import attention, convolved, elementwise
from tests.support.sequence_graphs import classifier

FUZZ = int(os.environ.get("ARENAPLAN_FUZZ") or 0)

#: After so many refusals, each with its remedy applied, there is a plan. A first tier may lack something,
#: then several slower ones; and where the layout of a memory decides, what is missing comes bit by bit.
_ROUNDS = 8

PAGED: dict[str, Callable[[], TrainableGraph]] = {
    "tower": lambda: tower(6),
    "adam": lambda: tower(4, optimizer="Adam"),
    "attention": attention,
    "convolved": convolved,
    "elementwise": elementwise,
    "lstm": classifier,
}
MORE: tuple[dict[str, Any], ...] = ({}, {"in_place": True}, {"parallelism": 2}, {"recompute": True})


@cache
def extent(name: str) -> tuple[int, int]:
    """The bytes that one step touches at most, and those of the peak."""
    program = Order().run(derive(PAGED[name]()))
    return paging_problem(program, 0).smallest, max(loads(program)[0])


def planned(graph: TrainableGraph, options: PlanOptions) -> Plan | CapacityError:
    """A plan, or why there is none."""
    try:
        return plan(graph, options)
    except CapacityError as error:
        return error


@settings(max_examples=FUZZ or (10 if ALL else 4))
@given(
    st.sampled_from(list(PAGED)),
    st.sampled_from(MORE),
    st.sampled_from([1, 2, 3, 5, 20]),
    st.floats(-0.2, 0.6),
    st.sampled_from([0.1, 0.3, 0.6, 1.0, 1.5]),
    st.integers(0, 2**32 - 1),
)
def test_tiers_that_do_not_hold_what_they_must_get_there_by_what_is_advised(
    name: str, more: dict[str, Any], slower: int, share: float, room: float, seed: int
) -> None:
    """`share` places the first tier between one step and the peak; slower ones have `room` for the rest."""
    rng, (low, peak) = random.Random(seed), extent(name)
    fast = low + int(share * (peak - low))
    each = max(1, int(room * (peak - fast) / slower))
    tiers = [Tier("fast", fast)]
    tiers += [
        Tier(f"b{k}", max(1, int(each * rng.uniform(0.5, 1.5))), 10**8, 10**8, 10) for k in range(slower)
    ]
    for _ in range(_ROUNDS):
        made = planned(PAGED[name](), PlanOptions(tiers=tuple(tiers), **more))
        if isinstance(made, Plan):
            assert all(size <= tier.bytes for size, tier in zip(made.sizes, tiers, strict=True))
            return
        part, number, field = made.path
        assert (part, field) == ("tiers", "bytes")
        assert isinstance(number, int)
        tier = tiers[number]
        assert made.available == tier.bytes < made.required
        assert repr(tier.name) in made.message
        assert f"Give {tier.name!r} " in made.remedy
        assert made.live_at_peak
        tiers[number] = replace(tier, bytes=made.required)
    pytest.fail(f"Refused {_ROUNDS} times: {tiers}")


def network(name: str) -> TrainableGraph:
    """From the gallery."""
    return GALLERY[name].model().graph


RECOMPUTED: dict[str, tuple[Callable[[], TrainableGraph], dict[str, Any]]] = {
    "plain": (partial(tower, 6), {}),
    "in place": (partial(tower, 6), {"in_place": True}),
    "on levels": (partial(tower, 6), {"parallelism": 2}),
    "any order": (partial(tower, 6), {"order": True}),
    "updates at the end": (partial(tower, 6), {"update": "end"}),
    "dropout": (partial(tower, 6, dropout=True), {}),
    "tied": (partial(tower, 6, tied=True), {}),
    "clipped": (partial(tower, 6, training=TrainingRules(clip_global_norm=0.5)), {}),
    "micro-batches": (partial(tower, 6, training=TrainingRules(accumulate=2)), {}),
    "lstm": (classifier, {}),
    "heads": (partial(heads, 2, 16, 32), {}),
    "inception": (partial(inception, 2, 8, 4), {}),
    "autoencoder": (partial(network, "autoencoder"), {}),
    "bias_only": (partial(network, "bias_only"), {}),
    "lenet5": (partial(network, "lenet5"), {}),
    "transformer": (partial(network, "transformer"), {}),
    "transformer in place": (partial(network, "transformer"), {"in_place": True}),
}


#: Networks whose kind another one has.
ALIKE = ("autoencoder", "bias_only", "lenet5", "transformer in place")


@grid("name", some([name for name in RECOMPUTED if name not in ALIKE], beside=ALIKE))
def test_the_capacity_that_is_advised_is_kept_and_hardly_less_is(name: str) -> None:
    """From the floor on, that is, where recomputation is not refused at once."""
    make, more = RECOMPUTED[name]
    graph = make()
    program = Order(update=more.get("update", "immediate")).run(derive(graph))
    problem = schedule_problem(program, roofline(program), in_place=more.get("in_place", False))
    low = floor(problem).bytes
    with pytest.raises(CapacityError) as caught:
        plan(graph, PlanOptions(capacity=low, recompute=True, **more))
    error = caught.value
    assert low < error.required <= max(loads(program)[0])
    assert f"aise the capacity to {error.required:,}" in error.remedy
    assert f"{low:,} bytes at least are proved" in error.message
    advised = error.required
    assert plan(graph, PlanOptions(capacity=advised, recompute=True, **more)).arena_bytes <= advised
    with pytest.raises(CapacityError) as caught:
        plan(graph, PlanOptions(capacity=advised * 97 // 100, recompute=True, **more))
    # Below the floor that is what is proved; else the search ends where it did.
    assert caught.value.required == (low if caught.value.proved else advised)
