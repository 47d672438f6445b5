"""The footprint under edits says what adding everything up again would say."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from solver.graph import DType, Operation, TensorType
from solver.graph.ops.base import Node
from solver.layout import Lifespan
from solver.passes.aliases import define_in_place
from solver.pipeline import plan
from solver.plan import PlanOptions
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
from solver.training import derive
from tests.support.graphs import convolutional, residual
from tests.support.random_graphs import random_graphs
from tests.support.small_plans import cases


def peak(program: Program, holds: dict[int, Lifespan] | None = None) -> int:
    return sum(max(curve, default=0) for curve in loads(program, holds))


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


@pytest.mark.parametrize("name", [case.name for case in cases() if "where they lie" in case.name])
def test_views_of_parts_one_by_one_and_all_taken_back(name: str) -> None:
    program = next(case.plan.program for case in cases() if case.name == name)
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
