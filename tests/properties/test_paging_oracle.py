"""Paging on small programs: as few bytes as trying everything finds, and plans that the proof accepts."""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from solver.accounting import (
    HomeItem,
    HomeProblem,
    added_up_homes,
    elapsed,
    level_costs,
    paging_problem,
    traffic,
)
from solver.accounting.gaps import contents_apart
from solver.errors import CapacityError
from solver.graph import TrainableGraph
from solver.layout import Deadline, Lifespan
from solver.passes import Order, Paging
from solver.passes.aliases import define_in_place
from solver.program import RESIDUE, Program, Tier, loads
from solver.schedules.homes.refine import Housed, Unhoused, housed
from solver.schedules.paging import in_tiers, with_transfers
from solver.schedules.paging.cover import greedy, least_moved, level_bound
from solver.training import derive, explicit_program
from solver.verify import prove
from tests.support import paging_oracle
from tests.support.home_peers import PEERS, Placed
from tests.support.homes import laid_out, least_nanoseconds, tiny_problem
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


# ------------------------------------------------------------------------------------------------------ homes


@given(SEEDS, st.booleans())
def test_no_choice_of_homes_with_layouts_takes_less_time(seed: int, tight: bool) -> None:
    problem = tiny_problem(random.Random(seed), tight=tight)
    least = least_nanoseconds(problem, layouts=True)
    result = housed(problem, [1] * len(problem.items), laid_out(problem), Deadline())
    if least is None:
        assert isinstance(result, Unhoused)
        return
    assert isinstance(result, Housed)
    assert problem.nanoseconds(result.homes) == least
    bound = result.certificate
    assert added_up_homes(problem, bound.rows, bound.denominator) == bound.nanoseconds
    assert bound.nanoseconds <= result.bound <= least


def larger_problem(chance: random.Random) -> HomeProblem:
    """Ten to fifty items of many sizes, some of them weights, in memories that just hold them."""
    levels, items = chance.randrange(6, 30), []
    memories = chance.choice((2, 3))
    for _ in range(chance.randrange(10, 50)):
        start = chance.randrange(levels)
        span = Lifespan(start, min(levels, start + chance.randrange(1, 8)))
        if chance.random() < 0.2:
            span = Lifespan(0, levels)
        size = chance.choice((chance.randrange(1, 200), 1 << chance.randrange(8)))
        accesses = chance.randrange(1, 6)
        items.append(HomeItem(size, (span,), tuple(accesses * size * 5**k for k in range(memories))))
    load = max(
        sum(i.size for i in items if i.spans[0].start <= level < i.spans[0].end) for level in range(levels)
    )
    shares = [chance.uniform(0.05, 0.6) for _ in range(memories - 1)]
    rest = max(0.0, 1 - sum(shares)) * chance.uniform(1.0, 1.6) + 0.1
    return HomeProblem(tuple(items), tuple(max(1, round(load * share)) for share in (*shares, rest)))


@given(SEEDS)
def test_greedy_planners_of_other_systems_are_never_faster_and_never_fit_alone(seed: int) -> None:
    problem = larger_problem(random.Random(seed))
    result = housed(problem, [1] * len(problem.items), laid_out(problem), Deadline())
    for name, peer in PEERS.items():
        theirs = peer(problem)
        if theirs is None:
            continue
        check_layout(problem, theirs)
        assert isinstance(result, Housed), name
        assert problem.nanoseconds(result.homes) <= problem.nanoseconds([k for k, _ in theirs]), name


def check_layout(problem: HomeProblem, placed: Placed) -> None:
    """What a peer says it has placed lies in its memory, and apart."""
    assert placed is not None
    for i, (item, (k, offset)) in enumerate(zip(problem.items, placed, strict=True)):
        assert offset + item.size <= problem.capacities[k]
        for other, (other_k, other_offset) in zip(problem.items[:i], placed[:i], strict=True):
            if other_k == k and item.spans[0].overlaps(other.spans[0]):
                assert offset + item.size <= other_offset or other_offset + other.size <= offset


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_fills_the_fast_memory_first(name: str) -> None:
    items = tuple(HomeItem(size, (Lifespan(0, 1),), (size, 9 * size)) for size in (4, 3, 2))
    assert PEERS[name](HomeProblem(items, (6, 8))) == [(0, 0), (1, 0), (0, 4)]
    assert PEERS[name](HomeProblem(items, (3, 3))) is None
