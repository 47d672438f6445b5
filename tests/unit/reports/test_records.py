"""The records of a plan in words and figures: steps that it repeats, bytes that it moves between memories."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.documents import dump_plan, load_plan
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from solver.program import Record, Tier
from solver.reports.records import Paging, paging, recomputation
from tests.support.graphs import Sketch, chain


@pytest.fixture(scope="module")
def made() -> Plan:
    """Four wide activations wait for the backward pass; the capacity has room for three."""
    s = Sketch("tower")
    h = s.input("x", 32, 16)
    for k in range(4):
        h = s.op(
            "Gelu", [s.op("Gemm", [h, s.parameter(f"w{k}", 16, 16)], f"h{k}", f"fc{k}")], f"a{k}", f"g{k}"
        )
    s.op("MeanSquaredError", [h, s.label("t", 32, 16)], "loss", "mse")
    graph = s.graph()
    return plan(graph, PlanOptions(capacity=plan(graph).arena_bytes - 2048, recompute=True))


def test_repetitions_name_what_they_define_and_who_reads_it(made: Plan) -> None:
    found = recomputation(made)
    assert found is not None
    assert found.repetitions
    for one in found.repetitions:
        t = made.program.step_labels.index(one.step)
        assert one.step.endswith(".again1")
        assert one.level == made.program.steps[t].level
        assert all(name.endswith("@again1") for name in one.values)
        reader = made.program.step_labels.index(one.reader or "")
        assert reader > t
        assert set(one.values) & set(made.steps[reader].uses)


def test_figures_are_those_of_the_record(made: Plan) -> None:
    found = recomputation(made)
    assert found is not None
    facts = next(record.facts for record in made.records if record.name == "recompute")
    assert (found.extra, found.bound) == (facts["extra_nanoseconds"], facts["bound_nanoseconds"])
    assert found.optimal
    assert found.floor <= found.peak_after <= made.options.capacity <= found.peak_before  # type: ignore[operator]  # it has one
    assert found.step > found.extra > 0


def test_tables_of_a_document_say_the_same(made: Plan) -> None:
    assert recomputation(load_plan(dump_plan(made))) == recomputation(made)


def test_a_plan_without_recomputation_says_nothing() -> None:
    assert recomputation(plan(chain())) is None


def test_a_record_with_other_facts_has_zeros(made: Plan) -> None:
    bare = recomputation(replace(made, records=(Record("recompute", {}),)))
    assert bare is not None
    assert (bare.extra, bare.floor) == (0, 0)
    assert bare.repetitions


@pytest.mark.parametrize(
    ("bound", "checked", "said"),
    [
        (30, 30, "proved to be the least for this order, which can be checked without a solver"),
        (
            30,
            25,
            "proved to be the least for this order, of which 2.50 % can be checked without a solver",
        ),
        (20, 0, "2.00 % at least are proved for this order"),
        (0, 0, "no bound is proved"),
    ],
)
def test_what_is_proved_of_the_cost_is_said(bound: int, checked: int, said: str, made: Plan) -> None:
    found = recomputation(made)
    assert found is not None
    assert replace(found, step=1000, extra=30, bound=bound, checked=checked).proof == said


def test_a_bound_of_hardly_anything_is_none(made: Plan) -> None:
    found = recomputation(made)
    assert found is not None
    assert replace(found, step=10**6, extra=30_000, bound=99, checked=99).proof == "no bound is proved"
    most = replace(found, step=10**6, extra=30_000, bound=100, checked=99)
    assert most.proof == "0.01 % at least are proved for this order"


@pytest.fixture(scope="module")
def moved() -> Paging:
    tiers = (Tier("sram", plan(chain()).arena_bytes), Tier("flash", 2**20, 10**8, 10**8))
    found = paging(plan(chain(), PlanOptions(tiers=tiers)))
    assert found is not None
    return found


def test_a_plan_that_moves_nothing_moves_the_least(moved: Paging) -> None:
    assert moved.moved == moved.bound == 0
    assert moved.proof == "proved to be the least for this order and lookahead 0"


@pytest.mark.parametrize(
    ("bound", "said"),
    [
        (3000, "proved to be the least for this order and lookahead 1"),
        (2500, "proved to be within 20.00 % of the least for this order and lookahead 1"),
        (2999, "proved to be within 0.04 % of the least for this order and lookahead 1"),
        (0, "of which none are proved to be needed for this order and lookahead 1"),
    ],
)
def test_what_is_proved_of_moved_bytes_is_said(bound: int, said: str, moved: Paging) -> None:
    assert replace(moved, lookahead=1, moved_in=2000, moved_out=1000, bound=bound).proof == said
