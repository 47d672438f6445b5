"""Use-def chains and the verification that always runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.errors import (
    DanglingOperandError,
    DuplicateDefError,
    DuplicateNameError,
    GraphError,
    StateError,
    TrainableError,
    UseBeforeDefError,
)
from solver.graph import TrainingRules
from solver.liveness import use_def_chains, verify_program, verify_reordering
from solver.training import UPDATE, Binding, TrainingOperandIndex, TrainingProgram, TrainingStep, derive
from tests.support.graphs import batch_normalised, chain, convolutional, residual


@pytest.fixture
def program() -> TrainingProgram:
    return derive(residual())


def at(program: TrainingProgram, name: str) -> int:
    return next(t for t, step in enumerate(program.steps) if str(step.index) == name)


def swapped(program: TrainingProgram, step: TrainingStep, position: int) -> TrainingProgram:
    steps = list(program.steps)
    steps[position] = step
    return replace(program, steps=tuple(steps))


def test_a_chain_lists_defs_and_uses_in_execution_order(program: TrainingProgram) -> None:
    chains = use_def_chains(program)
    value, derivative = chains[TrainingOperandIndex("h1")], chains[TrainingOperandIndex("h1", False)]
    assert [str(i) for i in value.defs] == ["fc1:forward"]
    assert [str(i) for i in value.uses] == [
        "fc2:forward", "join:forward", "fc2:calc_gradient", "fc1:calc_gradient",
    ]  # fmt: skip
    assert [str(i) for i in derivative.defs] == [
        "join:calc_derivative", "fc2:calc_derivative.accumulate0",
    ]  # fmt: skip
    assert [str(i) for i in derivative.uses] == ["fc2:calc_derivative.accumulate0", "fc1:calc_gradient"]


def test_every_use_has_a_def_or_comes_from_the_caller(program: TrainingProgram) -> None:
    for index, chain_ in use_def_chains(program).items():
        assert chain_.defs or program.operands[index].is_defined_by_caller


def test_scratch_is_defined_and_used_by_its_step() -> None:
    program = derive(convolutional())
    chains = use_def_chains(program)
    scratch = [b.operand for step in program.steps for b in step.scratch]
    assert scratch
    assert all(chains[i].defs == chains[i].uses and len(chains[i].defs) == 1 for i in scratch)


@pytest.mark.parametrize("graph", [chain(), residual(), convolutional(), convolutional(layout="NCHW")])
def test_derived_programs_verify(graph: object) -> None:
    verify_program(derive(graph))  # type: ignore[arg-type]  # a Graph, through parametrize


def test_use_before_def_names_step_and_operand(program: TrainingProgram) -> None:
    steps = list(program.steps)
    t = at(program, "fc3:forward")
    steps.insert(0, steps.pop(t))
    with pytest.raises(UseBeforeDefError, match=r"fc3:forward uses 'h5' before"):
        verify_program(replace(program, steps=tuple(steps)))


def test_undeclared_reads_are_rejected(program: TrainingProgram) -> None:
    t = at(program, "fc3:forward")
    stranger = Binding("x9", TrainingOperandIndex("stranger"))
    bad = replace(program.steps[t], reads=(*program.steps[t].reads, stranger))
    with pytest.raises(DanglingOperandError, match="'stranger'"):
        verify_program(swapped(program, bad, t))


def test_the_same_step_twice_is_rejected(program: TrainingProgram) -> None:
    with pytest.raises(DuplicateNameError, match="fc1:forward occurs twice"):
        verify_program(replace(program, steps=(*program.steps, program.steps[0])))


def test_a_second_def_that_does_not_read_is_rejected(program: TrainingProgram) -> None:
    t = at(program, "fc2:calc_derivative.accumulate0")
    blind = replace(program.steps[t], reads=program.steps[t].reads[1:])
    with pytest.raises(DuplicateDefError, match="'h1@grad' again"):
        verify_program(swapped(program, blind, t))


def test_scratch_read_by_another_step_is_rejected() -> None:
    program = derive(convolutional())
    owner = next(step for step in program.steps if step.scratch)
    thief = replace(program.steps[-1], scratch=owner.scratch)
    with pytest.raises(GraphError, match="is touched again"):
        verify_program(swapped(program, thief, len(program.steps) - 1))


def test_a_gradient_that_nobody_applies_is_rejected(program: TrainingProgram) -> None:
    steps = tuple(s for s in program.steps if not (s.kernel == UPDATE and s.index.operation == "w3"))
    with pytest.raises(TrainableError, match="'w3' is never applied"):
        verify_program(replace(program, steps=steps))


@pytest.mark.parametrize(
    "rules", [TrainingRules(accumulate=2), TrainingRules(clip_global_norm=1.0), TrainingRules(loss_scale=2.0)]
)
def test_a_gradient_that_is_only_added_to_or_measured_is_not_applied(rules: TrainingRules) -> None:
    program = derive(residual(training=rules))
    steps = tuple(s for s in program.steps if not (s.kernel == UPDATE and s.index.operation == "w3"))
    with pytest.raises(TrainableError, match="'w3' is never applied"):
        verify_program(replace(program, steps=steps))


def test_a_state_is_touched_by_the_step_alone_that_updates_it() -> None:
    program = derive(batch_normalised())
    t = at(program, "norm:calc_gradient")
    reader = program.steps[t]
    curious = replace(reader, reads=(*reader.reads, Binding("x3", TrainingOperandIndex("mean"))))
    with pytest.raises(StateError, match="'mean' is touched by norm:forward and by norm:calc_gradient"):
        verify_program(swapped(program, curious, t))
    verify_program(derive(batch_normalised(mode=0)))


def test_a_reordering_that_reads_another_definition_is_caught(program: TrainingProgram) -> None:
    steps = list(program.steps)
    t = at(program, "w2:apply_gradient")
    steps.insert(at(program, "fc2:calc_derivative"), steps.pop(t))
    with pytest.raises(UseBeforeDefError, match="'w2"):
        verify_reordering(program, replace(program, steps=tuple(steps)))


def test_a_legal_reordering_passes(program: TrainingProgram) -> None:
    steps = list(program.steps)
    t = at(program, "w3:apply_gradient")
    steps.insert(at(program, "fc2b:calc_gradient"), steps.pop(t))
    verify_reordering(program, replace(program, steps=tuple(steps)))
