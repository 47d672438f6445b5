"""Bytes live on each level of each space, and the footprint under edits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from solver.graph import DType, Operation, TensorType, TrainableGraph
from solver.graph.ops.base import Node
from solver.layout import Buffer, LayoutProblem, Lifespan, max_load
from solver.passes import Levels, Order
from solver.passes.aliases import define_in_place
from solver.pipeline import TARGETS, plan
from solver.plan import PlanOptions
from solver.preparations import Prepared
from solver.preparations.rewriting import Footprint as Cost
from solver.program import (
    Access,
    Alias,
    Binding,
    Builder,
    Footprint,
    Kind,
    Phase,
    Program,
    Space,
    loads,
    regions,
)
from solver.training import derive, explicit_program
from tests.support.every import every
from tests.support.graphs import chain, convolutional, residual
from tests.support.programs import program
from tests.support.random_graphs import PLANNED, random_graphs
from tests.support.rewriting import footprint
from tests.support.small_plans import cases


def leveled(graph: TrainableGraph, parallelism: int) -> Program:
    return Levels(parallelism).run(Order().run(derive(graph)))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
@pytest.mark.parametrize("graph", [chain(), residual(), convolutional()], ids=lambda g: g.name)
def test_the_fullest_level_is_the_bound_of_the_layout(graph: TrainableGraph, parallelism: int) -> None:
    made = leveled(graph, parallelism)
    (curve,) = loads(made)
    assert len(curve) == made.duration
    buffers = tuple(
        Buffer(str(region.members[0]), region.size, region.lifespan, 64) for region in regions(made)
    )
    bound = max_load(LayoutProblem(buffers))
    assert max(curve) == bound.bytes
    assert bound.witness_step is not None
    assert curve[bound.witness_step] == bound.bytes


@pytest.mark.parametrize("graph", [chain(), residual(), convolutional()], ids=lambda g: g.name)
def test_each_level_is_the_sum_of_what_lives_there(graph: TrainableGraph) -> None:
    made = leveled(graph, 2)
    for level, load in enumerate(loads(made)[0]):
        there = [r for r in regions(made) if r.lifespan.start <= level < r.lifespan.end]
        assert load == sum(region.size for region in there)


def test_by_hand() -> None:
    """Each block takes 64 bytes: x | x a | a b | b."""
    made = explicit_program(program((("x", ""), ("x", "a"), ("a", "b"), ("b", "")), fed=("x",)))
    assert loads(made) == ((64, 128, 128, 64),)


def test_spaces_are_counted_apart() -> None:
    lowered = TARGETS["onert"].reference(Prepared(convolutional()), PlanOptions(target="onert"))
    found = loads(lowered.program, lowered.holds)
    assert len(found) == len(lowered.program.spaces) == 7
    for space, curve in enumerate(found):
        inside = [r for r in regions(lowered.program, lowered.holds) if r.space == space]
        sizes = (
            sum(r.size for r in inside if r.lifespan.start <= t < r.lifespan.end)
            for t in range(lowered.program.duration)
        )
        assert curve == tuple(sizes)


def test_what_is_held_counts_as_long_as_it_is_held() -> None:
    made = explicit_program(program((("x", ""), ("x", "a"), ("a", "b"), ("b", "")), fed=("x",)))
    assert loads(made, {made.by_label["a"]: Lifespan(0, 4)}) == ((128, 128, 128, 128),)


def test_regions_that_are_known_are_not_computed_again() -> None:
    made = leveled(residual(), 1)
    assert loads(made, placed=regions(made)) == loads(made)
    assert loads(made, placed=()) == ((0,) * made.duration,)


def test_nothing_is_no_load() -> None:
    assert loads(Program("empty", (), (), (), (), (), ())) == ()
    spaces = explicit_program(program((("x", ""),))).spaces
    assert loads(Program("empty", spaces, (), (), (), (), ())) == ((),)


class TestFootprint:
    """The measure of rewriting: bound, then sum; where the peak is compares as equal."""

    def test_only_operations_parameters_and_the_seed_are_named(self) -> None:
        assert footprint(chain((4, 4), 2)).at_peak <= {"fc1", "mse", "loss", "w1", "b1"}

    def test_where_it_is_compares_as_equal(self) -> None:
        assert Cost(1, 2, frozenset({"a"})) == Cost(1, 2, frozenset({"b"}))
        assert Cost(1, 2, frozenset({"z"})) < Cost(1, 3)
        assert Cost(1, 9) < Cost(2, 0)


# ----------------------------------- The footprint under edits says what adding everything up again would say


def peak(program: Program, holds: dict[int, Lifespan] | None = None) -> int:
    return sum(max(curve, default=0) for curve in loads(program, holds))


@PLANNED
@given(random_graphs())
def test_aliases_one_by_one_and_all_taken_back(graph: object) -> None:
    program = derive(graph)  # type: ignore[arg-type]  # a graph, through the strategy
    shared = define_in_place(program)
    footprint, undone = Footprint(program), []
    for k, alias in enumerate(shared.aliases, 1):
        undone.append(footprint.share(alias.value, alias.source))
        assert footprint.peak == peak(replace(program, aliases=shared.aliases[:k]))
        assert alias.value in footprint.region(alias.source).members
    for undo in reversed(undone):
        footprint.restore(undo)
    assert footprint.peak == peak(program)


def test_views_of_parts_one_by_one_and_all_taken_back() -> None:
    with every() as check:
        for case in cases():
            if "where they lie" in case.name:
                with check(case.name):
                    check_views(case.plan.program)


def check_views(program: Program) -> None:
    bare = replace(program, aliases=())
    footprint, undone = Footprint(bare), []
    area = footprint.area
    for k, alias in enumerate(program.aliases, 1):
        undone.append(footprint.share(alias.value, alias.source, alias.offset))
        shared = replace(program, aliases=program.aliases[:k])
        assert footprint.peak == peak(shared)
        assert footprint.area == sum(map(sum, loads(shared)))
        region = footprint.region(alias.value)
        assert region.offsets[0] == min(region.offsets) == 0
    for undo in reversed(undone):
        footprint.restore(undo)
    assert (footprint.peak, footprint.area) == (peak(bare), area)


def test_sharing_bytes_behind_the_beginning_of_a_region() -> None:
    """The region ends with what reaches furthest: 64 bytes into a, d needs more than either has."""
    builder = Builder("parts", [Space("arena", 64)])
    sizes = {"a": 240, "b": 60, "d": 480}
    a, b, d = (
        builder.value(name, TensorType((size // 4,), DType.FLOAT32), Kind.ACTIVATION, name, 0)
        for name, size in sizes.items()
    )
    for t, (source, target) in enumerate([(None, a), (a, b), (b, d)]):
        node = Node(Operation(f"op{t}", "", (), ()), (), (), (), {})
        bindings = [] if source is None else [Binding("x0", source, Access.READ)]
        bindings.append(Binding("y0", target, Access.WRITE))
        builder.step(builder.operation(node), Phase.EXPLICIT, bindings)
    part = Alias(b, a, 1, view=True, offset=64)
    program = builder.finish(aliases=[part])
    footprint = Footprint(program)
    undo = footprint.share(d, b)
    shared = replace(program, aliases=(part, Alias(d, b, 2, view=False)))
    assert footprint.peak == peak(shared) == 64 + 512
    assert footprint.region(d) == regions(shared)[0]
    footprint.restore(undo)
    assert footprint.peak == peak(program)


def test_the_pass_records_what_it_brings() -> None:
    for graph in (convolutional(), residual()):
        made = plan(graph, PlanOptions(in_place=True))
        (record,) = [record for record in made.records if record.name == "aliases"]
        assert record.facts["peak_after"] == made.lower_bound
        assert record.facts["peak_before"] == plan(graph).lower_bound
