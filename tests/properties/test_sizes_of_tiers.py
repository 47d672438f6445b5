"""A larger first tier never refuses what a smaller one plans, and no bound is above what a plan moves."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from examples.gallery import GALLERY
from solver.accounting import paging_problem
from solver.accounting.gaps import contents_apart
from solver.documents import load_graph
from solver.errors import CapacityError
from solver.executor import validate
from solver.graph import TrainableGraph
from solver.passes import Order
from solver.pipeline import plan, plan_at, plan_program, plan_requested, reference_of
from solver.plan import Plan, PlanOptions, RequestedOptions, SizeRange
from solver.program import Program, Tier, loads
from solver.reports.records import paging
from solver.training import BlockOperation, BlockProgram, build_program, derive, explicit_program
from solver.verify import prove
from tests.support.programs import block
from tests.support.random_graphs import random_graphs
from tests.support.sizes import with_symbolic_batch


def random_program(seed: int) -> BlockProgram:
    """Up to eight operations on blocks of up to 800 bytes. A third of what they write was written before."""
    rng = random.Random(seed)
    fed, constant = ["x0", "x1"][: rng.randint(1, 2)], ["w0", "w1"][: rng.randint(0, 2)]
    sizes = {name: rng.choice([64, 64 * rng.randint(1, 12), rng.randint(1, 800)]) for name in fed + constant}
    known, made, results = [*constant, *fed], list[str](), list[str]()
    operations = []
    for t in range(rng.randint(3, 8)):
        reads = rng.sample(known, min(len(known), rng.randint(1, 3)))
        if t == 0:
            reads = [*dict.fromkeys((*fed, *reads))]
        writes: dict[str, None] = {}
        for _ in range(rng.choice([1, 1, 1, 2])):
            others = rng.choices([made, constant, []], [3, 1, 6])[0]
            name = rng.choice(others) if others else f"a{len(made)}"
            if name not in sizes:
                made.append(name)
                like = rng.random() < 0.4
                sizes[name] = sizes[reads[0]] if like else rng.choice([64, rng.randint(1, 800)])
                results += [name] * (rng.random() < 0.15)
            writes[name] = None
        known += [name for name in writes if name not in known]
        sources = [name for name in reads if name not in writes]
        targets = [name for name in writes if name not in reads]
        permitted = [(a, b) for a, b in zip(targets, sources, strict=False) if sizes[a] == sizes[b]]
        workspace = rng.choice([0, 0, 0, rng.randint(1, 300)])
        operations.append(
            BlockOperation(f"o{t}", tuple(reads), tuple(writes), "any", tuple(permitted), workspace)
        )
    touched = {name for operation in operations for name in operation.touched}
    blocks = [
        block(name, size, fed=name in fed, kept=name in results)
        for name, size in sizes.items()
        if name in touched
    ]
    return build_program("random", blocks, operations)


FUZZ = int(os.environ.get("ARENAPLAN_FUZZ") or 0)


def moved(made: Plan) -> int:
    """The bytes that a plan moves, which its bound does not exceed."""
    report = paging(made)
    assert report is not None
    assert report.bound <= report.moved
    return report.moved


def check(program: Program, make: Callable[[PlanOptions], Plan], options: PlanOptions, step: int) -> None:
    """Plans with first tiers from too small ones on until nothing is moved."""
    low, top = paging_problem(program, 0).smallest, max(loads(program)[0])
    planned = False
    for size in range(max(low - 256, 64) // 64 * 64, top + 64, step):
        slow = Tier("b", 10**7, 10**9, 10**9)
        try:
            made = make(replace(options, tiers=(Tier("a", size), slow)))
        except CapacityError:
            if planned:
                raise
            continue
        planned = True
        assert made.sizes[0] <= size
        least = moved(made)
    assert planned
    assert least == 0


@settings(max_examples=FUZZ or 8, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
@example(2022, True)
def test_programs_whose_blocks_are_written_again(seed: int, in_place: bool) -> None:
    program = random_program(seed)
    options = PlanOptions(in_place=in_place)
    check(explicit_program(program), lambda asked: plan_program(program, asked), options, 64)


@settings(max_examples=FUZZ or 2, deadline=None)
@given(random_graphs(most_operations=3), st.booleans(), st.booleans())
def test_graphs(graph: TrainableGraph, in_place: bool, recompute: bool) -> None:
    program = Order().run(derive(graph)).at_same_residues()
    step = max(64, (max(loads(program)[0]) - paging_problem(program, 0).smallest) // 6 // 64 * 64)
    options = PlanOptions(in_place=in_place, recompute=recompute, order=recompute)
    check(program, lambda asked: plan(graph, asked, advise=False), options, step)


@settings(max_examples=FUZZ or 60, deadline=None)
@given(st.integers(0, 2**32))
def test_blocks_that_are_written_again_lie_in_place(seed: int) -> None:
    """The proof, which a plan has passed, follows the bytes."""
    plan_program(random_program(seed), PlanOptions(in_place=True))


SIZES = {"x1": 512, "w0": 512, "a0": 663, "a3": 64, "a4": 391, "a5": 64, "a7": 510}


@pytest.mark.parametrize("size", range(1728, 2368, 64))
def test_what_is_paged_in_a_smaller_tier_is_planned_in_a_larger_one(size: int) -> None:
    """The constant comes back to its place, and between the others there is none of its size."""
    operations = [
        BlockOperation("o2", ("w0",), ("a2",), "any"),
        BlockOperation("o3", ("x1", "a0"), ("a3", "a4"), "any"),
        BlockOperation("o4", ("a4", "w0"), ("a5",), "any"),
        BlockOperation("o5", ("a1", "a5", "a3"), ("a6", "a7"), "any", workspace=221),
    ]
    names = ("x1", "w0", "a0", "a1", "a2", "a3", "a4", "a5", "a6", "a7")
    blocks = [
        block(name, SIZES.get(name, 64), fed=name in ("x1", "a0", "a1"), kept=name == "a2") for name in names
    ]
    program = build_program("hole", blocks, operations)
    made = plan_program(program, PlanOptions(tiers=(Tier("a", size), Tier("b", 10**7, 10**9, 10**9))))
    assert made.sizes[0] <= size
    assert moved(made) <= 1152


def renamed(second: str) -> Plan:
    """A chain through two large blocks, the first of them written again, or another one in its place."""
    chain = ("x", "a", "b", "c", "d", second, "y")
    operations = [
        BlockOperation(f"o{k}", (one,), (other,), "any") for k, (one, other) in enumerate(pairwise(chain))
    ]
    large = {"a", "c", second}
    blocks = [
        block(name, 640 if name in large else 64, fed=name == "x", kept=name == "y")
        for name in dict.fromkeys(chain)
    ]
    tiers = (Tier("a", 960), Tier("b", 65536, 10**9, 10**9))
    return plan_program(build_program("chain", blocks, operations), PlanOptions(tiers=tiers))


def test_contents_that_nothing_reads_again_are_not_moved() -> None:
    again, other = renamed("a"), renamed("e")
    assert (moved(again), again.sizes[0]) == (moved(other), other.sizes[0]) == (0, 704)


def test_contents_apart_are_values_of_their_own() -> None:
    program = explicit_program(random_program(7))
    assert contents_apart(contents_apart(program)) == contents_apart(program)


@pytest.mark.parametrize("size", [2_852_096, 2_873_664])
def test_copies_that_begin_late_leave_no_bound_above_what_is_moved(size: int) -> None:
    graph = load_graph(GALLERY["autoencoder"].model().document)
    tiers = (Tier("ram", size), Tier("flash", 2**34, 45 * 10**6, 20 * 10**6))
    made = plan(graph, PlanOptions(tiers=tiers, in_place=True, recompute=True, order=True), advise=False)
    assert 0 < moved(made) <= 700_000


# ------------------------------------------------------------------------------------- plans of several sizes


@given(random_graphs(), st.integers(1, 6), st.integers(0, 5), st.booleans(), st.integers(1, 2))
def test_every_size_is_proved_and_trains_alike(
    fixed: TrainableGraph, least: int, more: int, is_automatic: bool, parallelism: int
) -> None:
    """The plan is no larger than the best of its sizes asks for, and each size is an ordinary plan."""
    graph = with_symbolic_batch(fixed, least + more)
    ranges = (SizeRange("batch", least, least + more),)
    requested = RequestedOptions(automatic=is_automatic, ranges=ranges).having(parallelism=parallelism)
    plan = plan_requested(graph, requested)
    sizes = plan.planned_sizes
    assert sizes is not None
    assert sizes.refused == ()
    assert sizes.proved == tuple((size,) for size in range(least, least + more + 1))
    for (size,) in sizes.proved:
        there = plan_at(plan, graph.at(batch=size))
        assert prove(reference_of(graph.at(batch=size), there.options), there) == ()
        assert there.arena_bytes <= plan.arena_bytes
    assert validate(graph, plan, steps=more + 1, seed=least).identical
