"""Paging on small programs: as few bytes as trying everything finds, and plans that the proof accepts."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from solver.accounting import elapsed, level_costs, paging_problem, traffic
from solver.accounting.gaps import contents_apart
from solver.errors import CapacityError
from solver.graph import TrainableGraph
from solver.layout import Deadline
from solver.passes import Order, Paging
from solver.passes.aliases import define_in_place
from solver.program import RESIDUE, Program, Tier, loads
from solver.schedules.paging import in_tiers, with_transfers
from solver.schedules.paging.cover import greedy, least_moved, level_bound
from solver.training import derive, explicit_program
from solver.verify import prove
from tests.support import paging_oracle
from tests.support.random_graphs import random_graphs
from tests.support.small_plans import placed

#: Examples of each test that tries all ways of paging; 0: as many as stand there.
FUZZ = int(os.environ.get("ARENAPLAN_FUZZ") or 0)

SEEDS = st.integers(0, 2**32 - 1)


def small(
    seed: int, *, unit: int = 1, fed_results: bool = False
) -> tuple[list[paging_oracle.Story], Program]:
    """Values whose sizes are multiples of `unit`, and the program that touches them."""
    rng = random.Random(seed)
    stories = paging_oracle.stories(rng, rng.randint(3, 8), rng.randint(1, 5), fed_results=fed_results)
    stories = [replace(story, size=story.size * unit) for story in stories]
    program = explicit_program(paging_oracle.block_program(stories))
    return stories, replace(program, spaces=tuple(replace(space, alignment=1) for space in program.spaces))


def paged_facts(
    program: Program, tiers: tuple[Tier, ...], *, in_place: bool = False
) -> Mapping[str, int | str | bool] | None:
    """The facts that the pass records; None where it refuses these tiers."""
    try:
        return Paging(tiers=tiers, in_place=in_place).apply(program, Deadline()).facts
    except CapacityError:
        return None


@settings(max_examples=FUZZ or 60)
@given(SEEDS, st.sampled_from([0, 1, 2, 4]))
@example(0, 0)
@example(8, 1)
def test_no_way_of_paging_moves_less(seed: int, ahead: int) -> None:
    stories, program = small(seed)
    problem = paging_problem(contents_apart(program), ahead)
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


@settings(max_examples=FUZZ or 40)
@given(SEEDS, st.integers(1, 3), st.integers(0, 3))
def test_what_plans_say_of_the_least_holds_for_all_ways_of_paging(seed: int, slower: int, step: int) -> None:
    """With several slower tiers, some of them too small, and with inputs that are results."""
    drawn, program = small(seed, unit=RESIDUE, fed_results=True)
    low, top = paging_problem(program, 0).smallest, max(loads(program)[0])
    rng = random.Random(seed)
    sizes = [low + (top - low) * step // 4, *(RESIDUE * rng.choice([7, 20, 1000]) for _ in range(slower))]
    tiers = tuple(Tier(f"t{k}", size, 10**9, 10**9, 10) for k, size in enumerate(sizes))
    facts = paged_facts(program, tiers)
    if facts is None:
        return
    least = paging_oracle.least_moved(drawn, tiers[0].bytes, int(facts["lookahead"]))
    assert facts["bound"] == least
    assert int(facts["moved_in"]) + int(facts["moved_out"]) >= (least or 0)


@settings(max_examples=FUZZ or 20)
@given(random_graphs(most_operations=3), st.sampled_from([0.2, 0.5, 0.8]))
def test_bounds_hold_where_values_are_defined_in_place(graph: TrainableGraph, share: float) -> None:
    """Against all sets of gaps. Aliases are those of the project, so that fewer bytes may be possible."""
    program = Order().run(derive(graph)).at_same_residues()
    low, top = paging_problem(program, 0).smallest, max(loads(define_in_place(program))[0])
    tiers = (Tier("fast", low + round(share * (top - low))), Tier("slow", 2**30, 10**8, 10**8))
    facts = paged_facts(program, tiers, in_place=True)
    if facts is None:
        return
    spread = in_tiers(program, tiers)
    problem = paging_problem(spread, int(facts["lookahead"]))
    assume(len(problem.gaps) <= 9)
    for count in range(len(problem.gaps) + 1):
        for taken in combinations(range(len(problem.gaps)), count):
            if sum(problem.cost(frozenset(taken))) < int(facts["bound"]):
                paged = with_transfers(
                    spread, problem, taken, {problem.gaps[j].value: 1 for j in taken}, tiers
                )
                assert max(loads(define_in_place(paged))[0]) > tiers[0].bytes


@settings(max_examples=FUZZ or 60)
@given(SEEDS, st.sampled_from([0, 1, 2, 4]), st.integers(1, 3), st.floats(0, 1))
def test_what_is_paged_keeps_capacity_and_proof(seed: int, ahead: int, slower: int, share: float) -> None:
    """Any choice of gaps, in any number of slower tiers."""
    _, program = small(seed)
    rng = random.Random(seed)
    apart = contents_apart(program)
    problem = paging_problem(apart, ahead)
    taken = frozenset(j for j in range(len(problem.gaps)) if rng.random() < share)
    tiers = [Tier(f"t{k}", 10**6, rng.randint(1, 9) * 10**6, 10**6, 10) for k in range(slower + 1)]
    homes = {problem.gaps[j].value: rng.randint(1, slower) for j in taken}
    paged = with_transfers(in_tiers(apart, tiers), problem, taken, homes, tiers)
    assert max(loads(paged)[0]) <= max(problem.loads(taken))
    assert prove(program, placed(paged)) == ()
    moved = traffic(paged)
    assert (moved.moved_in, moved.moved_out) == problem.cost(taken)
    assert elapsed(paged, tiers) >= sum(level_costs(program))
