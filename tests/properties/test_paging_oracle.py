"""Paging on small programs: as few bytes as trying everything finds, and plans that the proof accepts."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from solver.executor import validate
from solver.graph import TrainableGraph
from solver.layout import Deadline
from solver.passes import Order
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.program import Program, Tier, loads
from solver.schedules.paging import elapsed, in_tiers, level_costs, paging_problem, traffic, with_transfers
from solver.schedules.paging.cover import greedy, least_moved, level_bound
from solver.training import derive, explicit_program
from solver.verify import prove
from tests.support import paging_oracle
from tests.support.random_graphs import random_graphs
from tests.support.small_plans import placed

SEEDS = st.integers(0, 2**32 - 1)


def small(seed: int) -> tuple[list[paging_oracle.Story], Program]:
    rng = random.Random(seed)
    stories = paging_oracle.stories(rng, rng.randint(3, 8), rng.randint(1, 5))
    program = explicit_program(paging_oracle.block_program(stories))
    return stories, replace(program, spaces=tuple(replace(space, alignment=1) for space in program.spaces))


@settings(max_examples=150)
@given(SEEDS, st.sampled_from([0, 1, 2, 4]))
@example(0, 0)
@example(8, 1)
def test_no_way_of_paging_moves_less(seed: int, ahead: int) -> None:
    stories, program = small(seed)
    problem = paging_problem(program, ahead)
    top = max(problem.loads())
    for capacity in sorted({problem.smallest, (problem.smallest + top) // 2, top}):
        found = least_moved(problem, capacity, Deadline())
        assert found.complete
        assert found.moved == found.bound == paging_oracle.least_moved(stories, capacity, ahead)
        assert max(problem.loads(found.taken)) <= capacity
        assert level_bound(problem, capacity) <= found.moved
        fast = greedy(problem, capacity)
        assert max(problem.loads(fast)) <= capacity
        assert sum(problem.cost(fast)) >= found.moved
    assert paging_oracle.least_moved(stories, problem.smallest - 1, ahead) is None


@settings(max_examples=150)
@given(SEEDS, st.sampled_from([0, 1, 2, 4]), st.integers(1, 3), st.floats(0, 1))
def test_what_is_paged_keeps_capacity_and_proof(seed: int, ahead: int, slower: int, share: float) -> None:
    """Whatever gaps are taken, in however many slower tiers."""
    _, program = small(seed)
    rng = random.Random(seed)
    problem = paging_problem(program, ahead)
    taken = frozenset(j for j in range(len(problem.gaps)) if rng.random() < share)
    tiers = [Tier(f"t{k}", 10**6, rng.randint(1, 9) * 10**6, 10**6, 10) for k in range(slower + 1)]
    homes = {problem.gaps[j].value: rng.randint(1, slower) for j in taken}
    paged = with_transfers(in_tiers(program, tiers), problem, taken, homes, tiers)
    assert max(loads(paged)[0]) <= max(problem.loads(taken))
    assert prove(program, placed(paged)) == ()
    moved = traffic(paged)
    assert (moved.moved_in, moved.moved_out) == problem.cost(taken)
    assert elapsed(paged, tiers) >= sum(level_costs(program))


@settings(max_examples=25)
@given(random_graphs(), st.floats(0.0, 1.0), st.booleans())
def test_graphs_train_to_the_same_bits(graph: TrainableGraph, share: float, in_place: bool) -> None:
    program = Order().run(derive(graph))
    low = paging_problem(program, 0).smallest
    size = low + round(share * (max(loads(program)[0]) - low))
    tiers = (Tier("sram", size + size // 4), Tier("flash", 2**30, 10**8, 10**8, 1000))
    made = plan(graph, PlanOptions(tiers=tiers, in_place=in_place))
    assert made.sizes[0] <= size + size // 4
    assert validate(graph, made, steps=2).identical
