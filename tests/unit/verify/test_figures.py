"""The figures of a plan, added up again; and buffers that a runtime holds longer than its steps need."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.errors import PlanError
from solver.executor import Trainer
from solver.graph import DType, TensorType
from solver.graph.ops.base import Node
from solver.graph.types import Operation
from solver.layout import Certificate, Lifespan, Proof, Status
from solver.pipeline import plan, reference_of
from solver.plan import Plan, PlanOptions
from solver.preparations import Prepared
from solver.program import Kind, Phase, Program, Space, Step, Value, lives, loads
from solver.reports.arenas import report
from solver.targets import TARGETS
from solver.verify import check_figures, prove
from tests.support.damaged import Subject, planned, settled, with_options
from tests.support.graphs import chain, convolutional, residual


@pytest.fixture(scope="module")
def good() -> Subject:
    return planned(residual())


def with_certificate(made: Plan, **changes: object) -> Plan:
    certificate = replace(made.certificates[0], **changes)  # type: ignore[arg-type]  # any field
    return replace(made, certificates=(certificate,))


def rules(made: Plan) -> set[str]:
    return {violation.rule for violation in check_figures(made)}


# -------------------------------------------------------------------------------- sizes, bounds, capacity


def test_right_figures(good: Subject) -> None:
    assert rules(good.plan) == set()
    for solver in ("greedy", "bump"):
        assert rules(plan(residual(), PlanOptions(solver=solver))) == set()


def test_a_size_that_is_not_where_the_buffers_end(good: Subject) -> None:
    (size,) = good.plan.sizes
    assert rules(replace(good.plan, sizes=(size + 64,))) == {"size", "proof"}
    assert good.rules(replace(good.plan, sizes=(size + 64,))) == {"size", "proof"}
    small = replace(good.plan, sizes=(size - 64,))
    assert "size" in rules(small)


def test_capacity(good: Subject) -> None:
    size = good.plan.arena_bytes
    assert good.said(with_options(good.plan, capacity=size - 1), "capacity") == (
        f"The spaces take {size:,} bytes, the capacity is {size - 1:,}."
    )
    assert good.rules(with_options(good.plan, capacity=size)) == set()


def test_claims_about_the_bound(good: Subject) -> None:
    (size,) = good.plan.sizes
    assert "bound" in rules(with_certificate(good.plan, lower_bound=size + 1))
    assert "bound" in rules(with_certificate(good.plan, lower_bound=size - 1))
    assert "bound" in rules(with_certificate(good.plan, lower_bound=-1))


def test_claims_of_proof(good: Subject) -> None:
    assert good.plan.certificates[0].proof is Proof.MAX_LOAD
    for changes in (
        {"witness_step": 0},
        {"witness_step": None},
        {"witness_step": -1},
        {"witness_step": 10_000},
        {"proof": None},
        {"status": Status.FEASIBLE},
        {"status": Status.UNKNOWN, "proof": None},
        {"status": Status.INFEASIBLE, "proof": None},
    ):
        assert rules(with_certificate(good.plan, **changes)) == {"proof"}, changes


def test_a_layout_above_its_load_is_not_optimal_because_it_says_so() -> None:
    bump = plan(residual(), PlanOptions(solver="bump"))
    found = with_certificate(bump, status=Status.OPTIMAL, proof=Proof.SOLVER)
    assert rules(found) == {"proof"}
    assert "claimed optimal above its lower bound" in next(iter(check_figures(found))).detail


def test_what_rests_on_a_search_is_accepted_and_reported_as_uncheckable() -> None:
    """The bound set to the size, by a complete search or by a lie: adding up cannot tell the two apart."""
    found = planned(residual(), PlanOptions(solver="bump"))
    claimed = with_certificate(
        found.plan,
        status=Status.OPTIMAL,
        proof=Proof.SOLVER,
        lower_bound=found.plan.sizes[0],
        witness_step=None,
    )
    assert found.violations(claimed) == ()
    (arena,) = report(claimed).arenas
    assert not arena.is_checkable
    (right,) = report(plan(residual())).arenas
    assert right.is_checkable


def test_a_bound_below_the_load_of_the_planned_order(good: Subject) -> None:
    (curve,) = loads(good.plan.program)
    least = settled(good.plan)
    assert least.certificates[0].lower_bound == max(curve)
    assert rules(least) == set()
    assert rules(with_certificate(least, lower_bound=max(curve) - 64)) == {"bound"}


def test_every_space_has_figures_of_its_own() -> None:
    made = plan(chain(), PlanOptions(target="onert"))
    assert rules(made) == set()
    for k, size in enumerate(made.sizes):
        sizes = tuple(size + 64 if j == k else old for j, old in enumerate(made.sizes))
        found = list(check_figures(replace(made, sizes=sizes)))
        name = made.program.spaces[k].name
        assert f"Space {name!r} claims {size + 64:,} bytes; its buffers end at {size:,}." in {
            v.detail for v in found
        }


# ------------------------------------------------------------------------------------------ held buffers


def held(rows: list[tuple[int, int, int, int]]) -> Plan:
    """Buffers b0, b1, ... of (size, start, end, offset), held so by a runtime that touches none of them."""
    values = tuple(
        Value(f"b{i}", TensorType((size,), DType.UINT8), Kind.ACTIVATION, "")
        for i, (size, *_) in enumerate(rows)
    )
    node = Node(Operation("idle", "", (), ()), (), (), (), {})
    duration = max(end for _, _, end, _ in rows)
    steps = tuple(Step(0, Phase.EXPLICIT, (), t, t, t) for t in range(duration))
    program = Program("held", (Space("arena", 1),), values, (node,), steps, (), ())
    top = max(offset + size for size, _, _, offset in rows)
    made = Plan(
        graph="held",
        graph_digest="",
        reference_digest="",
        options=PlanOptions(),
        program=program,
        offsets=tuple(row[3] for row in rows),
        sizes=(top,),
        certificates=(Certificate(Status.FEASIBLE, None, 0, None, "test"),),
        deterministic=True,
        holds={i: Lifespan(start, end) for i, (_, start, end, _) in enumerate(rows)},
    )
    return settled(made)


def test_the_neighbours_only_trap() -> None:
    """Sorted by offset the outer two meet around a short one between them (nntrainer's V2 planner)."""
    found = held([(100, 10, 31, 50), (50, 0, 3, 0), (90, 5, 31, 50)])
    (overlap,) = [violation for violation in check_figures(found) if violation.rule == "overlap"]
    assert overlap.buffers == ("b0", "b2")
    assert overlap.detail == "'b0' and 'b2' share bytes [50, 140) while both are held."


rows = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 12), st.integers(1, 6), st.integers(0, 30)).map(
        lambda r: (r[0], r[1], r[1] + r[2], r[3])
    ),
    min_size=1,
    max_size=12,
)


@given(rows)
def test_an_overlap_is_named_where_two_meet_and_nowhere_else(found: list[tuple[int, int, int, int]]) -> None:
    meeting = {
        frozenset({f"b{i}", f"b{j}"})
        for (i, a), (j, b) in combinations(enumerate(found), 2)
        if a[1] < b[2] and b[1] < a[2] and a[3] < b[3] + b[0] and b[3] < a[3] + a[0]
    }
    violations = [violation for violation in check_figures(held(found)) if violation.rule == "overlap"]
    named = {frozenset(violation.buffers) for violation in violations}
    assert named <= meeting
    assert bool(named) == bool(meeting)


def test_what_is_held_is_part_of_the_load() -> None:
    """A runtime that frees late needs more, and its bound says so."""
    found = planned(chain(), PlanOptions(target="nntrainer"))
    assert found.plan.holds
    assert found.violations(found.plan) == ()
    free = replace(found.plan, holds={})
    assert max(loads(free.program)[0]) <= max(loads(free.program, found.plan.holds)[0])


def test_a_buffer_moved_onto_one_that_is_held() -> None:
    """Steps read right values all the same: only the runtime's own rule is broken."""
    found = held([(8, 0, 4, 0), (8, 4, 6, 0)])
    assert rules(found) == set()
    longer = settled(replace(found, holds={0: Lifespan(0, 5), 1: Lifespan(4, 6)}))
    assert rules(longer) == {"overlap", "bound"}, "more is held at once than there is"


# ------------------------------------------------------------------------------------------------------ holds


def test_lives_that_no_target_asked_for_are_named() -> None:
    """They would make a loose layout look as small as it can be."""
    graph = residual()
    made = plan(graph)
    span, number = lives(made.program), made.program.by_label["h1"]
    assert span[number].end < made.duration
    held = settled(replace(made, holds={number: Lifespan(span[number].start, made.duration)}))
    reference = reference_of(graph, made.options)
    assert {violation.rule for violation in prove(reference, held, {})} == {"hold"}
    with pytest.raises(PlanError, match="holds values longer"):
        Trainer(graph, held)


def test_a_runtimes_own_lives_are_right_and_all_of_them_must_be_there() -> None:
    graph = convolutional()
    made = plan(graph, PlanOptions(target="onert"))
    lowered = TARGETS["onert"].reference(Prepared(graph), made.options)
    assert lowered.holds
    assert prove(lowered.program, made, lowered.holds) == ()
    missing = dict(list(lowered.holds.items())[1:])
    short = settled(replace(made, holds=missing))
    assert {violation.rule for violation in prove(lowered.program, short, lowered.holds)} == {"hold"}
