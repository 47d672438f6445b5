"""The independent check of a plan: each rule fires, alone, on the plan that breaks it."""

from __future__ import annotations

import ast
import inspect
from dataclasses import replace
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.layout.model.problem import Lifespan, Proof, Status
from solver.pipeline import plan
from solver.plan import Arena, Certificate, Plan, PlannedBuffer, PlanOptions, verify
from solver.plan import verify as public_verify
from solver.training.program import Lifetime, OperandKind
from tests.support.graphs import convolutional, residual


@pytest.fixture(scope="module")
def good() -> Plan:
    return plan(residual())


def with_arena(found: Plan, **changes: object) -> Plan:
    arena = replace(found.arenas[0], **changes)  # type: ignore[arg-type]  # any field
    return replace(found, arenas=(arena,))


def with_buffer(found: Plan, name: str, **changes: object) -> Plan:
    buffers = tuple(
        replace(b, **changes) if b.id == name else b  # type: ignore[arg-type]  # any field
        for b in found.arenas[0].buffers
    )
    return with_arena(found, buffers=buffers)


def with_certificate(found: Plan, **changes: object) -> Plan:
    certificate = replace(found.arenas[0].certificate, **changes)  # type: ignore[arg-type]  # any field
    return with_arena(found, certificate=certificate)


def rules(found: Plan) -> set[str]:
    return {violation.rule for violation in verify(found)}


def test_right_plans_have_no_violations(good: Plan) -> None:
    assert verify(good) == ()
    assert verify(plan(convolutional())) == ()
    assert verify(plan(convolutional(), PlanOptions(solver="bump"))) == ()


def test_a_buffer_placed_twice(good: Plan) -> None:
    buffers = good.arenas[0].buffers
    assert "unique" in rules(with_arena(good, buffers=(*buffers, buffers[0])))


def test_a_step_that_touches_what_has_no_buffer(good: Plan) -> None:
    buffers = tuple(b for b in good.arenas[0].buffers if b.id != "h1")
    found = verify(with_arena(good, buffers=buffers))
    assert ("declared", ("h1",)) in {(v.rule, v.buffers) for v in found}


@pytest.mark.parametrize(
    ("name", "lifespan", "words"),
    [
        ("h1", Lifespan(0, 3), "touches 'h1'"),
        ("h1", Lifespan(0, 999), r"lives \[0, 999\)"),
        ("w1", Lifespan(0, 20), "carries over"),
        ("loss", Lifespan(7, 20), "read by the caller"),
        ("h2", Lifespan(3, 3), r"lives \[3, 3\)"),
    ],
)
def test_lifespans_that_do_not_cover(good: Plan, name: str, lifespan: Lifespan, words: str) -> None:
    found = [v for v in verify(with_buffer(good, name, lifespan=lifespan)) if v.rule == "lifespan"]
    assert found
    assert any(__import__("re").search(words, v.detail) for v in found)


def test_a_buffer_smaller_than_its_operand(good: Plan) -> None:
    assert "size" in rules(with_buffer(good, "h1", size=4))


@pytest.mark.parametrize("changes", [{"alignment": 48}, {"alignment": 4096, "offset": 64}])
def test_alignment(good: Plan, changes: dict[str, int]) -> None:
    assert "alignment" in rules(with_buffer(good, "h1", **changes))


@pytest.mark.parametrize("offset", [-64, 10**9])
def test_bounds(good: Plan, offset: int) -> None:
    assert "bounds" in rules(with_buffer(good, "h1", offset=offset))


def test_overlap_says_which_bytes_and_steps(good: Plan) -> None:
    weight = next(b for b in good.arenas[0].buffers if b.id == "w1")
    overlap = next(v for v in verify(with_buffer(good, "h1", offset=weight.offset)) if v.rule == "overlap")
    assert "share bytes [" in overlap.detail
    assert "during steps [" in overlap.detail


def test_capacity(good: Plan) -> None:
    options = replace(good.options, capacity=good.arena_bytes - 1)
    assert rules(replace(good, options=options)) == {"capacity"}
    assert rules(replace(good, options=replace(options, capacity=good.arena_bytes))) == set()


def test_claims_about_the_bound(good: Plan) -> None:
    size = good.arenas[0].size
    assert "bound" in rules(with_arena(good, size=size + 64))
    assert "bound" in rules(with_certificate(good, lower_bound=size + 1))
    assert "bound" in rules(with_certificate(good, lower_bound=size - 1))


def test_claims_of_proof(good: Plan) -> None:
    assert "proof" in rules(with_certificate(good, witness_step=0))
    assert "proof" in rules(with_certificate(good, witness_step=None))
    assert "proof" in rules(with_certificate(good, proof=None))
    assert "proof" in rules(with_certificate(good, status=Status.FEASIBLE))
    bump = plan(residual(), PlanOptions(solver="bump"))
    assert "proof" in rules(with_certificate(bump, status=Status.OPTIMAL, proof=Proof.SOLVER))


def test_the_neighbours_only_trap() -> None:
    """Sorted by offset the outer two meet around a short one between them (nntrainer's V2 planner)."""
    overlapping = _arena([(100, 10, 31, 50), (50, 0, 3, 0), (90, 5, 31, 50)])
    found = Plan("g", "0", PlanOptions(), (), (overlapping,), deterministic=True)
    assert {frozenset(v.buffers) for v in verify(found) if v.rule == "overlap"} == {frozenset({"b0", "b2"})}


def _arena(rows: list[tuple[int, int, int, int]]) -> Arena:
    buffers = tuple(
        PlannedBuffer(
            f"b{i}", OperandKind.ACTIVATION, Lifetime.ITERATION, (size,), "uint8",
            size, size, 1, Lifespan(start, end), offset,
        )
        for i, (size, start, end, offset) in enumerate(rows)
    )  # fmt: skip
    top = max((b.end for b in buffers), default=0)
    return Arena("arena", top, Certificate(Status.FEASIBLE, None, 0, None, "test"), buffers)


rows = st.lists(
    st.tuples(st.integers(1, 9), st.integers(0, 12), st.integers(1, 6), st.integers(0, 30)).map(
        lambda r: (r[0], r[1], r[1] + r[2], r[3])
    ),
    max_size=12,
)


@given(rows)
def test_overlaps_are_exactly_the_pairs_that_meet(found: list[tuple[int, int, int, int]]) -> None:
    arena = _arena(found)
    expected = {
        frozenset({a.id, b.id})
        for a, b in combinations(arena.buffers, 2)
        if a.lifespan.overlaps(b.lifespan) and a.offset < b.end and b.offset < a.end
    }
    named = [
        frozenset(v.buffers)
        for v in verify(Plan("g", "0", PlanOptions(), (), (arena,), deterministic=True))
        if v.rule == "overlap"
    ]
    assert set(named) == expected
    assert len(named) == len(expected)


def test_verify_imports_no_solver() -> None:
    module = inspect.getmodule(public_verify)
    assert module is not None
    tree = ast.parse(inspect.getsource(module))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {m for m in modules if m and m.startswith("solver.layout")} == {"solver.layout.model.problem"}
