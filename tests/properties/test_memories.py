"""Plans of random graphs in random memories: proved, within each memory, and bit for bit."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from solver.documents import dump_plan, load_plan
from solver.errors import CapacityError
from solver.executor import validate
from solver.graph import TrainableGraph
from solver.pipeline import plan_requested
from solver.plan import Plan, PlanOptions, RequestedOptions
from solver.program import Tier
from tests.support.random_graphs import PLANNED, random_graphs


def planned(graph: TrainableGraph, requested: RequestedOptions) -> Plan | CapacityError:
    """The plan, or why there is none."""
    try:
        return plan_requested(graph, requested)
    except CapacityError as error:
        return error


@PLANNED
@given(random_graphs(), st.integers(0, 2**40))
def test_random_plans_in_memories_are_proved_and_keep_bits(graph: TrainableGraph, seed: int) -> None:
    chance = random.Random(seed)
    whole = plan_requested(graph).arena_bytes
    count, paged = chance.choice((1, 2, 2, 3)), chance.random() < 0.3
    share = chance.uniform(0.5, 0.95) if paged else chance.uniform(0.9, 1.6)
    weights = [chance.random() + 0.05 for _ in range(count)]
    memories = tuple(
        Tier(
            f"m{k}",
            max(64, round(whole * share * weight / sum(weights))),
            chance.choice((0, 10**7, 10**9)),
            chance.choice((0, 10**7, 10**9)),
            chance.choice((0, 100)),
        )
        for k, weight in enumerate(weights)
    )
    tiers = (Tier("flash", 4 * whole, 10**7, 10**7, 1000),) if paged else ()
    options = PlanOptions(memories=memories, tiers=tiers, parallelism=chance.choice((1, 1, 2)))
    made = planned(graph, RequestedOptions(options, automatic=chance.random() < 0.7))
    if isinstance(made, CapacityError):
        assert made.remedy
        assert made.path[0] in ("memories", "tiers")
        return
    assert all(size <= memory.bytes for size, memory in zip(made.sizes, memories, strict=False))
    assert load_plan(dump_plan(made)) == made
    report = validate(graph, made, steps=1)
    assert report.identical
    assert not report.violations
