"""Programs: how they are built, what holds of all of them, and what their steps touch."""

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
from solver.graph import DType, TensorType, TrainableGraph, TrainingRules
from solver.graph.ops.base import InPlace, Node
from solver.graph.types import Operation
from solver.program import (
    UPDATE,
    Access,
    Alias,
    Binding,
    Builder,
    Entry,
    EntryKind,
    Exit,
    Kind,
    Phase,
    Program,
    Space,
    Step,
    UseDefChain,
    check_program,
    in_order,
    touched,
    use_def_chains,
)
from solver.program.build import permission_attributes, permitted
from solver.schedules import rerun
from solver.training import derive, explicit_program
from tests.support.derived import at, rebound, scratch, with_step, with_steps
from tests.support.graphs import batch_normalised, chain, convolutional, residual
from tests.support.programs import program as explicit


def test_a_program_of_nothing() -> None:
    empty = Program("empty", (), (), (), (), (), ())
    assert (empty.period, empty.duration, empty.step_labels, empty.by_label) == (1, 0, (), {})


@pytest.mark.parametrize(
    ("alignments", "expected"),
    [((16,), (64,)), ((1, 128), (64, 128)), ((64,), (64,)), ((128, 256), (128, 256))],
)
def test_alignments_become_multiples_of_64(alignments: tuple[int, ...], expected: tuple[int, ...]) -> None:
    spaces = tuple(Space(f"space{k}", alignment) for k, alignment in enumerate(alignments))
    program = replace(derive(chain()), spaces=spaces)
    aligned = program.at_same_residues()
    assert tuple(space.alignment for space in aligned.spaces) == expected
    assert aligned == replace(program, spaces=aligned.spaces)
    assert (aligned is program) is (alignments == expected)


def test_repetitions_are_counted_and_named() -> None:
    program = derive(chain())
    again = rerun(program, [0, 1, 0, 0, *range(2, len(program.steps))])
    assert again.runs[:5] == (0, 0, 1, 2, 0)
    first = program.step_labels[0]
    assert again.step_labels[:4] == (first, program.step_labels[1], f"{first}.again1", f"{first}.again2")
    assert again.duration == len(program.steps) + 2


def test_copies_repeat_nothing() -> None:
    program = derive(chain())
    copies = with_steps(program, [replace(step, reference=None) for step in program.steps])
    assert set(copies.runs) == {0}


# ----------------------------------- The builder: one binding for each slot, and numbers for what steps touch


BYTES = TensorType((4,), DType.UINT8)


def builder(*labels: str) -> Builder:
    made = Builder("built", [Space("arena", 1)])
    for label in labels:
        made.value(label, BYTES, Kind.ACTIVATION, label)
    return made


def node(name: str, **attributes: str) -> Node:
    return Node(Operation(name, "", (), ()), (), (), (), attributes)


def joined(*bindings: Binding) -> tuple[Binding, ...]:
    """The bindings of a step that is added with these."""
    made = builder("a", "b", "c")
    made.step(made.operation(node("op")), Phase.EXPLICIT, bindings)
    return made.steps[0].bindings


def test_a_value_that_a_slot_reads_and_writes_is_updated() -> None:
    read, write = Binding("x", 0, Access.READ), Binding("x", 0, Access.WRITE)
    update = Binding("x", 0, Access.UPDATE)
    assert joined(read, write) == joined(write, read) == joined(update, update) == (update,)
    assert joined(read, read) == (read,)
    assert joined(write, write) == (write,)


def test_bindings_of_other_slots_or_values_stay() -> None:
    bindings = (Binding("x", 0, Access.READ), Binding("y", 0, Access.WRITE), Binding("z", 1, Access.READ))
    assert joined(*bindings) == bindings
    same_slot = (Binding("x", 0, Access.READ), Binding("x", 1, Access.WRITE))
    assert joined(*same_slot) == same_slot


def test_values_that_no_step_touches_are_left_out_and_the_others_numbered_anew() -> None:
    made = builder("a", "idle", "b", "c")
    for source, target in ((0, 2), (2, 3)):
        bindings = (Binding("x", source, Access.READ), Binding("y", target, Access.WRITE))
        made.step(made.operation(node(f"op{target}")), Phase.EXPLICIT, bindings)
    made.entries = {0: EntryKind.FED, 1: EntryKind.CONSTANT}
    made.exits = {3: None, 1: None}
    program = made.finish(aliases=[Alias(3, 2, 1, view=True)])
    assert [value.label for value in program.values] == ["a", "b", "c"]
    assert [[b.value for b in step.bindings] for step in program.steps] == [[0, 1], [1, 2]]
    assert program.entry == (Entry(0, EntryKind.FED, 0),)
    assert program.exit == (Exit(2, 2),)
    assert program.aliases == (Alias(2, 1, 1, view=True),)
    everything = made.finish(all_values=True)
    assert [value.label for value in everything.values] == ["a", "idle", "b", "c"]
    assert everything.entry == (Entry(0, EntryKind.FED, 0), Entry(1, EntryKind.CONSTANT, 1))


def test_a_label_has_one_value() -> None:
    made = builder("a", "b")
    assert made.value("a", BYTES, Kind.RESULT, "other") == 0
    assert made.value("c", BYTES, Kind.RESULT, "other") == 2


def test_permissions_are_read_as_they_were_written() -> None:
    attributes = permission_attributes({"w0": "r1", "w1": "r0"})
    assert permitted(node("op", **attributes)) == (InPlace("r1", "w0"), InPlace("r0", "w1"))
    assert permission_attributes({}) == {}
    assert permitted(node("op")) == ()


# -------------------------------------- Rules of every program: each mistake is named with its step and value


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


# --------------------------------------------------------------------------------- Use-def chains of programs


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


# ------------------ Columns of bindings: what they say of a program, and of the same program in another order


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
    assert_columns(derive(residual()))


def test_another_order_moves_the_rows_of_each_step_together() -> None:
    program = derive(residual())
    assert_columns(in_order(program, [*range(1, len(program.steps), 2), *range(0, len(program.steps), 2)]))


def test_a_program_without_steps_has_no_rows() -> None:
    found = touched(Program("empty", (), (), (), (), (), ()))
    assert len(found.step) == len(found.value) == len(found.access) == 0
