"""Use-def chains of programs."""

from __future__ import annotations

import pytest

from solver.program import Access, Program, UseDefChain, use_def_chains
from solver.training import derive, explicit_program
from tests.support.graphs import convolutional, residual
from tests.support.programs import program as explicit


@pytest.fixture
def program() -> Program:
    return derive(residual())


def named(program: Program, label: str) -> tuple[list[str], list[str]]:
    """The steps that define a value, and those that use it."""
    found = use_def_chains(program)[program.by_label[label]]
    assert found.value == program.by_label[label]
    return [program.step_labels[t] for t in found.defs], [program.step_labels[t] for t in found.uses]


def test_a_chain_lists_defs_and_uses_in_execution_order(program: Program) -> None:
    assert named(program, "h1") == (
        ["fc1:forward"],
        ["fc2:forward", "join:forward", "fc2:calc_gradient", "fc1:calc_gradient"],
    )
    assert named(program, "h1@grad") == (
        ["join:calc_derivative", "fc2:calc_derivative.accumulate0"],
        ["fc2:calc_derivative.accumulate0", "fc1:calc_gradient"],
    )


def test_every_use_has_a_def_or_comes_from_the_caller(program: Program) -> None:
    entered = {entry.value for entry in program.entry}
    for found in use_def_chains(program):
        assert found.defs or found.value in entered


def test_scratch_is_defined_and_used_by_its_step() -> None:
    program = derive(convolutional())
    chains = use_def_chains(program)
    scratch = [b.value for s in program.steps for b in s.bindings if b.access is Access.SCRATCH]
    assert scratch
    assert all(chains[i].defs == chains[i].uses and len(chains[i].defs) == 1 for i in scratch)


def test_a_value_that_is_touched_twice_by_a_step_has_the_step_once() -> None:
    program = derive(residual())
    assert named(program, "h4")[1].count("square:forward") == 1


def test_what_is_updated_is_defined_and_used() -> None:
    found = explicit_program(explicit((("w", "w"), ("w", "y"))))
    assert use_def_chains(found) == (UseDefChain(0, (0,), (0, 1)), UseDefChain(1, (1,), ()))
