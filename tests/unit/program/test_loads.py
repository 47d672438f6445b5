"""Bytes live on each level of each space."""

from __future__ import annotations

import pytest

from solver.graph import TrainableGraph
from solver.layout import Buffer, LayoutProblem, Lifespan, max_load
from solver.passes import Levels, Order
from solver.pipeline import TARGETS
from solver.plan import PlanOptions
from solver.preparations import Prepared
from solver.preparations.rewriting import Footprint
from solver.program import Program, loads, regions
from solver.training import derive, explicit_program
from tests.support.graphs import chain, convolutional, residual
from tests.support.programs import program
from tests.support.rewriting import footprint


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
        assert Footprint(1, 2, frozenset({"a"})) == Footprint(1, 2, frozenset({"b"}))
        assert Footprint(1, 2, frozenset({"z"})) < Footprint(1, 3)
        assert Footprint(1, 9) < Footprint(2, 0)
