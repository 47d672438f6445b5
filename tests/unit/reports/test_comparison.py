"""Growth adds up: every byte of it stands beside an operand, a kind and a layer, or lies idle."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver import pipeline
from solver.plan import PlanOptions, PlanView
from solver.program import COPY, Tier
from solver.reports.comparison import Change, difference, layers
from tests.support.graphs import chain, convolutional
from tests.unit.reports.test_arenas import SMALL, A, D, W, arena, buffer, plan

PLANS: tuple[PlanView, ...] = (
    *(
        pipeline.plan(convolutional(1), options)
        for options in (
            PlanOptions(),
            PlanOptions(in_place=True),
            PlanOptions(alignment=1024),
            PlanOptions(target="onert"),
            PlanOptions(parallelism=3),
        )
    ),
    SMALL,
    plan(0),
    plan(1, arena(0)),
)


@given(st.sampled_from(PLANS), st.sampled_from(PLANS))
def test_it_adds_up(old: PlanView, new: PlanView) -> None:
    found = difference(old, new)
    assert found.growth == new.arena_bytes - old.arena_bytes
    for changes in (found.operands, found.kinds, found.layers):
        assert sum(change.growth for change in changes) + found.idle.growth == found.growth
        assert [abs(change.growth) for change in changes] == sorted(
            (abs(change.growth) for change in changes), reverse=True
        )
        assert all(change.growth for change in changes)


@given(st.sampled_from(PLANS), st.sampled_from(PLANS))
def test_backwards_it_is_the_opposite(old: PlanView, new: PlanView) -> None:
    there, back = difference(old, new), difference(new, old)
    assert back.growth == -there.growth
    assert {(c.name, c.after, c.before) for c in back.operands} == {
        (c.name, c.before, c.after) for c in there.operands
    }


def test_the_same_plan() -> None:
    found = difference(SMALL, SMALL)
    assert (found.operands, found.kinds, found.layers, found.options) == ((), (), (), ())
    assert (found.growth, found.share, found.same_graph) == (0, 0.0, True)


def test_what_costs_what() -> None:
    grown = plan(
        4,
        arena(
            18,
            buffer("w", W, 0, 4, 0, 4),
            buffer("a", A, 4, 10, 0, 2),
            buffer("d", D, 4, 4, 2, 4),
            buffer("c", A, 14, 4, 0, 1),
        ),
    )
    found = difference(SMALL, grown)
    assert found.operands == (Change("a", 4, 10), Change("c", 0, 4), Change("b", 2, 0))
    assert found.kinds == (Change("activation", 6, 14),)
    assert found.idle == Change("idle", 2, 0)
    assert found.share == 0.5
    (one,) = found.arenas
    assert (one.load_before, one.load_after, one.step_before, one.step_after) == (10, 18, "s1", "s0")


def test_options_in_words() -> None:
    other = replace(SMALL, options=PlanOptions(in_place=True, capacity=10_000))
    assert {(o.name, o.before, o.after) for o in difference(SMALL, other).options} == {
        ("in_place", "no", "yes"),
        ("capacity", "not set", "10,000"),
    }


def test_from_nothing() -> None:
    assert difference(plan(0), SMALL).share == float("inf")


def test_arenas_are_compared_by_name() -> None:
    old = plan(1, arena(4, buffer("w", W, 0, 4, 0, 1), name="one"))
    new = plan(1, arena(4, buffer("w", W, 0, 4, 0, 1), name="two"))
    found = difference(old, new)
    assert [(a.name, a.before, a.after) for a in found.arenas] == [("one", 4, 0), ("two", 0, 4)]
    assert found.operands == ()


@pytest.fixture(scope="module")
def trained() -> PlanView:
    return pipeline.plan(chain((3, 2, 1), 1, optimizer="Adam"))


def test_layers(trained: PlanView) -> None:
    """All values of a weight belong to the operation that reads it first."""
    found = layers(trained)
    values = [value.id for _, buffer in trained.buffers() for value in buffer.values]
    assert set(values) <= set(found)
    first = found["w1"]
    assert {found[name] for name in values if name.startswith("w1")} == {first}
    assert first in {step.id.partition(":")[0] for step in trained.steps}


def test_copies_belong_to_the_layer_of_what_they_copy() -> None:
    tiers = (Tier("sram", 20_000), Tier("flash", 2**20, 10**6, 10**6))
    made = pipeline.plan(chain((16,) * 7, 64, optimizer="Adam"), PlanOptions(tiers=tiers))
    found = layers(made)
    steps = {step.id.partition(":")[0] for step in made.steps if step.kernel != COPY}
    copied = [(step.uses[0], step.defs[0]) for step in made.steps if step.kernel == COPY]
    assert copied
    for source, target in copied:
        assert found[source] == found[target]
        assert found[source] in steps
        assert "@" not in found[source]
