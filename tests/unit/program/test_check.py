"""Rules of every program: each mistake is named with its step and value."""

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
from solver.graph import TrainableGraph, TrainingRules
from solver.program import UPDATE, Access, Binding, Kind, Program, Step, check_program
from solver.training import derive, explicit_program
from tests.support.derived import at, rebound, scratch, with_step, with_steps
from tests.support.graphs import batch_normalised, chain, convolutional, residual
from tests.support.programs import program as explicit


@pytest.fixture
def program() -> Program:
    return derive(residual())


def without_update(program: Program, weight: str) -> Program:
    return with_steps(
        program,
        [
            s
            for s in program.steps
            if program.kernel(s) != UPDATE or program.operations[s.operation].operation.id != weight
        ],
    )


@pytest.mark.parametrize("graph", [chain(), residual(), convolutional(), convolutional(layout="NCHW")])
def test_derived_programs_pass(graph: TrainableGraph) -> None:
    check_program(derive(graph))


def test_explicit_programs_may_write_again_without_reading() -> None:
    """A block is one value, however often it is written."""
    check_program(explicit_program(explicit((("", "x"), ("x", "y"), ("", "x"), ("x", "")))))


def test_use_before_def_names_step_and_operand(program: Program) -> None:
    steps = list(program.steps)
    steps.insert(0, steps.pop(at(program, "fc3:forward")))
    with pytest.raises(UseBeforeDefError, match=r"fc3:forward uses 'h5' before"):
        check_program(with_steps(program, steps))


@pytest.mark.parametrize("number", [-1, 10_000])
def test_undeclared_reads_are_rejected(program: Program, number: int) -> None:
    stranger = Binding("x9", number, Access.READ)
    bad = with_step(program, "fc3:forward", lambda s: replace(s, bindings=(*s.bindings, stranger)))
    with pytest.raises(DanglingOperandError, match=f"fc3:forward touches value {number}"):
        check_program(bad)


def test_the_same_step_twice_is_rejected(program: Program) -> None:
    with pytest.raises(DuplicateNameError, match="fc1:forward occurs twice"):
        check_program(with_steps(program, [*program.steps, program.steps[0]]))


def test_two_values_of_one_label_are_rejected(program: Program) -> None:
    twin = replace(program.values[1], label=program.values[0].label)
    with pytest.raises(DuplicateNameError, match=f"two values {twin.label!r}"):
        check_program(replace(program, values=(program.values[0], twin, *program.values[2:])))


def test_a_second_def_that_does_not_read_is_rejected(program: Program) -> None:
    blind = with_step(
        program, "fc2:calc_derivative.accumulate0", lambda s: rebound(s, "x0", access=Access.WRITE)
    )
    with pytest.raises(DuplicateDefError, match="'h1@grad' again"):
        check_program(blind)


def with_scratch() -> tuple[Program, int]:
    """A program, and the scratch of its first step that has any."""
    program = derive(convolutional())
    owner = next(s for s in program.steps if scratch(program, s))
    return program, next(b.value for b in owner.bindings if b.access is Access.SCRATCH)


@pytest.mark.parametrize("access", Access)
def test_scratch_touched_by_another_step_is_rejected(access: Access) -> None:
    program, value = with_scratch()
    thief = replace(
        program.steps[-1], bindings=(*program.steps[-1].bindings, Binding("thief", value, access))
    )
    with pytest.raises(GraphError, match=r"is touched again|before any step defines it"):
        check_program(with_steps(program, [*program.steps[:-1], thief]))


@pytest.mark.parametrize("access", [Access.WRITE, Access.SCRATCH])
def test_scratch_that_its_step_binds_again_is_rejected(access: Access) -> None:
    program, value = with_scratch()

    def twice(step: Step) -> Step:
        mine = value in {b.value for b in step.bindings}
        return replace(step, bindings=(*step.bindings, Binding("y9", value, access))) if mine else step

    with pytest.raises(GraphError, match="is touched again"):
        check_program(with_steps(program, list(map(twice, program.steps))))


def test_the_only_scratch_of_a_program_is_no_exception() -> None:
    program, value = with_scratch()
    binding = Binding("scratch", value, Access.SCRATCH)
    steps = [replace(step, bindings=(binding,)) for step in program.steps[:2]]
    with pytest.raises(GraphError, match="is touched again"):
        check_program(replace(program, steps=tuple(steps)))


def test_a_gradient_that_no_step_applies_is_rejected(program: Program) -> None:
    with pytest.raises(TrainableError, match="'w3' is never applied"):
        check_program(without_update(program, "w3"))


@pytest.mark.parametrize(
    "rules", [TrainingRules(accumulate=2), TrainingRules(clip_global_norm=1.0), TrainingRules(loss_scale=2.0)]
)
def test_a_gradient_that_is_only_added_to_or_measured_is_not_applied(rules: TrainingRules) -> None:
    with pytest.raises(TrainableError, match="'w3' is never applied"):
        check_program(without_update(derive(residual(training=rules)), "w3"))


def test_a_gradient_that_is_applied_to_another_weight_is_not_applied(program: Program) -> None:
    gradient = program.by_label["w3@grad"]
    crossed = with_step(
        without_update(program, "w3"), "w1:apply_gradient", lambda s: rebound(s, "dx0", value=gradient)
    )
    with pytest.raises(TrainableError, match=r"'w[13]' is never applied"):
        check_program(crossed)


def test_a_state_is_touched_by_the_step_alone_that_updates_it() -> None:
    program = derive(batch_normalised())
    curious = Binding("x3", program.by_label["mean"], Access.READ)
    bad = with_step(program, "norm:calc_gradient", lambda s: replace(s, bindings=(*s.bindings, curious)))
    with pytest.raises(StateError, match="'mean' is touched by norm:forward and by norm:calc_gradient"):
        check_program(bad)
    check_program(derive(batch_normalised(mode=0)))


def test_kinds_are_labels_but_for_gradients_and_states(program: Program) -> None:
    """Calling everything a result hides no mistake of order."""
    results = tuple(replace(value, kind=Kind.RESULT) for value in program.values)
    check_program(replace(program, values=results))
    steps = list(program.steps)
    steps.insert(0, steps.pop(at(program, "fc3:forward")))
    with pytest.raises(UseBeforeDefError):
        check_program(replace(program, values=results, steps=tuple(steps)))
