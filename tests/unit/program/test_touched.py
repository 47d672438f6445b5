"""Columns of bindings: what they say of a program, and of the same program in another order."""

from __future__ import annotations

from solver.documents import load_graph
from solver.pipeline import start_of
from solver.plan import PlanOptions
from solver.program import Access, Program, in_order, touched
from tests.support.deep_graphs import residual


def rows(program: Program) -> list[tuple[int, int, Access]]:
    return [(t, b.value, b.access) for t, step in enumerate(program.steps) for b in step.bindings]


def assert_columns(program: Program) -> None:
    found, wanted = touched(program), rows(program)
    assert list(zip(found.step.tolist(), found.value.tolist(), strict=True)) == [row[:2] for row in wanted]
    assert found.reads.tolist() == [access.reads for _, _, access in wanted]
    assert found.defines.tolist() == [access.defines for _, _, access in wanted]
    for access in Access:
        assert found.has(access).tolist() == [row[2] is access for row in wanted]


def test_a_row_stands_for_each_binding() -> None:
    assert_columns(start_of(load_graph(residual(30)), PlanOptions()).reference.program)


def test_another_order_moves_the_rows_of_each_step_together() -> None:
    program = start_of(load_graph(residual(30)), PlanOptions()).reference.program
    assert_columns(in_order(program, [*range(1, len(program.steps), 2), *range(0, len(program.steps), 2)]))


def test_a_program_without_steps_has_no_rows() -> None:
    found = touched(Program("empty", (), (), (), (), (), ()))
    assert len(found.step) == len(found.value) == len(found.access) == 0
