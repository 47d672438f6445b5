"""The proof: every wrong step, place and order is named by its rule; what changes no value is accepted."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from solver.graph import DType, TensorType, TrainableGraph, TrainingRules
from solver.pipeline import TARGETS
from solver.plan import Plan, PlanOptions
from solver.program import COPY, Access, Binding, Initial, Phase, Program, Space, Step
from solver.training import derive, explicit_program
from solver.verify import prove
from tests.support.damaged import (
    Subject,
    by_hand,
    moved,
    planned,
    settled,
    with_order,
    with_step_changed,
    with_value,
)
from tests.support.derived import at, rebound
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual
from tests.support.operator_graphs import attention, elementwise
from tests.support.programs import AUTO_RECYCLE, independent_pairs
from tests.support.programs import program as explicit
from tests.support.proofs import offset_of
from tests.support.small_plans import paged, placed, repeated


@pytest.fixture(scope="module")
def good() -> Subject:
    return planned(residual())


@pytest.fixture(scope="module")
def apart() -> Subject:
    """Each value has bytes of its own, so that a damage meets one value and not its neighbours."""
    return planned(residual(), PlanOptions(solver="bump"))


# ---------------------------------------------------------------------------------------- right plans


@pytest.mark.parametrize(
    "options",
    [
        PlanOptions(),
        PlanOptions(solver="bump"),
        PlanOptions(update="end"),
        PlanOptions(in_place=True),
        PlanOptions(parallelism=3, in_place=True),
    ],
    ids=lambda options: f"{options.solver}-{options.update}-{options.parallelism}-{options.in_place}",
)
@pytest.mark.parametrize(
    "graph",
    [residual(), convolutional(), attention(), elementwise(), batch_normalised()],
    ids=lambda graph: graph.name,
)
def test_right_plans_have_no_violations(graph: TrainableGraph, options: PlanOptions) -> None:
    found = planned(graph, options)
    assert found.violations(found.plan) == ()


@pytest.mark.parametrize("target", TARGETS)
def test_plans_of_every_target(target: str) -> None:
    found = planned(chain(), PlanOptions(target=target))
    assert found.violations(found.plan) == ()


@pytest.mark.parametrize(
    "rules",
    [
        TrainingRules(accumulate=3),
        TrainingRules(clip_global_norm=1.0, skip_non_finite=True),
        TrainingRules(accumulate=2, clip_global_norm=1.0, loss_scale=8.0),
    ],
)
def test_plans_with_training_rules(rules: TrainingRules) -> None:
    found = planned(residual(training=rules), PlanOptions(in_place=True))
    assert found.violations(found.plan) == ()


# ----------------------------------------------------------- what is reused although it is still needed


@pytest.mark.parametrize("label", ["x", "t"])
def test_an_input_or_label_that_is_overwritten_before_its_last_read(good: Subject, label: str) -> None:
    """In older plans it was said to start late: the caller writes it before the first step all the same."""
    program = good.plan.program
    number = program.by_label[label]
    last = max(t for t, s in enumerate(program.steps) if number in {b.value for b in s.bindings})
    written = [
        program.values[b.value].label
        for step in program.steps[:last]
        for b in step.bindings
        if b.access in (Access.WRITE, Access.SCRATCH)
    ]
    for other in dict.fromkeys(written):
        found = good.rules(moved(good.plan, label, offset_of(good.plan, other)))
        assert found, other
        assert found <= {"undefined", "value", "overlap"}, other


@pytest.mark.parametrize("label", ["w1", "w2", "w1@first_moment", "w3@second_moment"])
@pytest.mark.parametrize("other", ["h1", "h5", "z@grad"])
def test_what_carries_over_cannot_lend_its_bytes(good: Subject, label: str, other: str) -> None:
    """No kind or lifetime of the value changes that."""
    found = good.rules(moved(good.plan, other, offset_of(good.plan, label)))
    assert found
    assert found <= {"undefined", "value", "overlap"}


def test_the_loss_is_there_when_the_caller_reads_it(apart: Subject) -> None:
    """The last derivative is written long after the last step that reads the loss."""
    above = moved(apart.plan, "loss", offset_of(apart.plan, "h1@grad"))
    assert apart.named(above, "value") == {("loss",)}


def test_a_constant_keeps_its_contents() -> None:
    """Nothing reads the frozen weight behind its step; the next iteration does."""
    found = planned(chain((6, 5, 4), trainable=["w2"]))
    there = moved(found.plan, "loss@grad", offset_of(found.plan, "w1"))
    assert found.named(there, "value") == {("w1",)}


def test_an_activation_whose_place_is_taken_before_the_backward_step_reads_it(apart: Subject) -> None:
    """The value that took its place is gone by then, too: its bytes hold nothing behind its last reader."""
    there = moved(apart.plan, "h4", offset_of(apart.plan, "h1"))
    assert apart.named(there, "undefined") == {("h1",)}


def test_bytes_that_are_right_under_another_name_are_nobodys() -> None:
    """The last step finds c where it reads a; but behind the last reader of c its bytes may be anything's."""
    blocks = explicit((("x", "a"), ("a", "b"), ("b", "c"), ("b c", "y")), fed=("x",), kept=("y",))
    found = by_hand(blocks, {"x": 0, "a": 4, "b": 8, "c": 4, "y": 12})
    assert found.violations(found.plan) == ()
    program = found.plan.program
    steps, a, c = program.steps, program.by_label["a"], program.by_label["c"]
    (slot,) = [b.slot for b in steps[3].bindings if b.value == c]
    steps = (*steps[:3], rebound(steps[3], slot, value=a))
    wrong = settled(replace(found.plan, program=replace(program, steps=steps)))
    assert found.named(wrong, "undefined") == {("a",)}


def test_a_place_that_takes_a_part_of_a_value(apart: Subject) -> None:
    """One aligned block away: some bytes are right, and the value is not."""
    start = offset_of(apart.plan, "h1")
    said = apart.said(moved(apart.plan, "h4", start - 64), "undefined")
    assert "reads 'h1' (slot " in said
    assert f"its bytes [{start}, ...) do not hold a whole value" in said


def test_a_fed_block_that_is_overwritten_before_it_is_read() -> None:
    blocks = explicit((("", "a"), ("a", "b"), ("x b", "y")), fed=("x",), kept=("y",))
    found = by_hand(blocks, {"x": 0, "a": 4, "b": 8, "y": 12})
    assert found.violations(found.plan) == ()
    assert found.named(moved(found.plan, "x", 4), "undefined") == {("x",)}
    assert found.named(moved(found.plan, "x", 2), "undefined") == {("x",)}
    assert found.rules(moved(found.plan, "a", 12)) == set(), "a is gone when y is made"


def test_bytes_that_are_free_may_be_used() -> None:
    """Shared bytes are an overlap only where a value is still needed, not wherever whole lives meet."""
    blocks = explicit((("x", "a"), ("a", "b"), ("b", "c"), ("c", "y")), fed=("x",), kept=("y",))
    found = by_hand(blocks, {"x": 0, "a": 4, "b": 8, "c": 12, "y": 16})
    for label, other in (("b", "x"), ("c", "x"), ("c", "a"), ("y", "b")):
        assert found.violations(moved(found.plan, label, offset_of(found.plan, other))) == ()


def test_what_a_step_writes_and_nothing_reads_still_needs_bytes() -> None:
    blocks = explicit((("x", "a rest"), ("a", "y")), fed=("x",), kept=("y",))
    found = by_hand(blocks, {"x": 0, "a": 4, "rest": 8, "y": 12})
    assert found.named(moved(found.plan, "rest", 4), "overlap") == {("a", "rest")}
    later = explicit((("x", "a"), ("a", "rest"), ("a", "y")), fed=("x",), kept=("y",))
    found = by_hand(later, {"x": 0, "a": 4, "rest": 8, "y": 12})
    assert found.named(moved(found.plan, "rest", 6), "overlap") == {("a", "rest")}


def test_scratch_ends_what_was_in_its_bytes() -> None:
    found = planned(convolutional())
    program = found.plan.program
    t, label = next(
        (t, program.values[b.value].label)
        for t, step in enumerate(program.steps)
        for b in step.bindings
        if b.access is Access.SCRATCH and step.phase is Phase.CALC_GRADIENT
    )
    assert t
    assert found.rules(moved(found.plan, label, offset_of(found.plan, "k1"))) <= {"undefined", "value"}
    assert found.rules(moved(found.plan, label, offset_of(found.plan, "k1")))


# ----------------------------------------------------------------------------------------- overlaps


def test_an_overlap_inside_a_step_says_which_slots(good: Subject) -> None:
    there = moved(good.plan, "h2", offset_of(good.plan, "w2"))
    said = good.said(there, "overlap")
    assert "Step 'fc2:forward'" in said
    assert "(slot x1)" in said
    assert "(slot y0)" in said
    assert "reads 'w2'" in said
    assert "that it writes as 'h2'" in said


def test_two_reads_may_share_bytes() -> None:
    blocks = explicit((("x x2", "y"),), fed=("x",), kept=("y",))
    found = by_hand(blocks, {"x": 0, "x2": 4, "y": 8})
    assert found.named(moved(found.plan, "x2", 2), "overlap") == {("x", "x2")}
    made = explicit((("", "a"), ("a", "b"), ("a b", "y")), kept=("y",))
    found = by_hand(made, {"a": 0, "b": 4, "y": 8})
    assert found.named(moved(found.plan, "b", 0), "overlap") == {("a", "b")}


def test_one_value_in_very_many_slots() -> None:
    """It takes a step for each slot, not for each pair of them."""
    s = Sketch("repeated")
    x = s.op("Relu", [s.input("x", 2, 1)], "x1")
    h = s.op("Gemm", [s.op("Concat", [x] * 3_000, "y", axis=1), s.parameter("w", 3_000, 1)], "h")
    s.op("MeanSquaredError", [h, s.label("t", 2, 1)], "loss")
    found = planned(s.graph(), PlanOptions(solver="bump"))
    assert found.violations(found.plan) == ()
    assert found.named(moved(found.plan, "y", offset_of(found.plan, "x1")), "overlap") == {("x1", "y")}


def test_scratch_that_the_step_also_defines() -> None:
    found = planned(convolutional())
    program = found.plan.program
    owner = next(s for s in program.steps if any(b.access is Access.SCRATCH for b in s.bindings))
    scratch = next(b for b in owner.bindings if b.access is Access.SCRATCH)
    result = next(b for b in owner.bindings if b.access is Access.WRITE)
    label = program.step_labels[program.steps.index(owner)]
    names = (program.values[result.value].label, program.values[scratch.value].label)
    there = moved(found.plan, names[1], offset_of(found.plan, names[0]))
    assert {frozenset(n) for n in found.named(there, "overlap")} == {frozenset(names)}
    typed = with_value(found.plan, names[1], type=program.values[result.value].type)
    twice = with_step_changed(typed, label, lambda s: rebound(s, scratch.slot, value=result.value))
    assert found.rules(twice) <= {"overlap", "step"}
    assert found.rules(twice)


def test_one_value_in_two_slots_that_it_writes(good: Subject) -> None:
    program = good.plan.program
    result = program.by_label["h4@grad"]
    both = with_step_changed(good.plan, "square:calc_derivative", lambda s: rebound(s, "dx1", value=result))
    assert good.rules(both) == {"overlap"}


# -------------------------------------------------------------------------------------- order of steps


def test_a_step_before_the_def_of_what_it_reads(good: Subject) -> None:
    early = with_order(good.plan, "fc3:forward", 0)
    assert "reads 'h5'" in good.said(early, "undefined")


def test_an_update_before_the_last_reader_of_the_old_weight(apart: Subject) -> None:
    """The step would read the new weight: every slot holds a value, and the result is another."""
    early = with_order(apart.plan, "w3:apply_gradient", at(apart.plan.program, "fc3:calc_derivative"))
    assert apart.rules(early) == {"value"}


def test_an_order_that_keeps_what_every_step_reads(apart: Subject) -> None:
    """The seed of the backward pass waits for nothing."""
    for position in range(at(apart.plan.program, "cce:calc_derivative")):
        assert apart.violations(with_order(apart.plan, "loss:calc_derivative.seed", position)) == ()
    late = with_order(apart.plan, "loss:calc_derivative.seed", at(apart.plan.program, "fc3:calc_gradient"))
    assert apart.rules(late) == {"undefined"}


@pytest.mark.parametrize(
    "label", ["fc2:forward", "fc2:calc_derivative.accumulate0", "loss:calc_derivative.seed"]
)
def test_a_step_that_is_left_out(good: Subject, label: str) -> None:
    program = good.plan.program
    order = [t for t in range(len(program.steps)) if t != at(program, label)]
    less = settled(replace(good.plan, program=program.reordered(order)))
    assert good.rules(less) <= {"undefined", "value"}
    assert good.rules(less)


def test_an_update_that_is_left_out(good: Subject) -> None:
    program = good.plan.program
    order = [t for t in range(len(program.steps)) if t != at(program, "w2:apply_gradient")]
    less = settled(replace(good.plan, program=program.reordered(order)))
    assert {("w2",), ("w2@first_moment",), ("w2@second_moment",)} == good.named(less, "value")


def test_a_step_that_runs_twice(good: Subject) -> None:
    """Again at once it writes the same contents; an update moves on."""
    for label, expected in (("fc2:forward", set()), ("w2:apply_gradient", {"value"})):
        t = at(good.plan.program, label)
        order = [*range(t + 1), *range(t, len(good.plan.program.steps))]
        twice = settled(replace(good.plan, program=good.plan.program.reordered(order)))
        assert good.rules(twice) == expected, label


def test_micro_batches_without_the_update_are_proved_as_well() -> None:
    """An update that is not due leaves gradients as they are: nothing else may touch them then."""
    found = planned(chain(training=TrainingRules(accumulate=2)))
    assert found.violations(found.plan) == ()
    undue = with_step_changed(found.plan, "w1:apply_gradient", lambda s: replace(s, due=False))
    assert found.rules(undue) == {"step"}
    program = found.plan.program
    order = [t for t in range(len(program.steps)) if t != at(program, "w1:apply_gradient")]
    less = settled(replace(found.plan, program=program.reordered(order)))
    assert ("w1",) in found.named(less, "value")
    assert found.rules(moved(found.plan, "h1", offset_of(found.plan, "w1@grad")))


# ------------------------------------------------------------------------------------ steps themselves


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda s: replace(s, reference=(s.reference or 0) + 1),
            "attributes or condition differ",
        ),
        (lambda s: replace(s, operation=s.operation + 1), "attributes or condition differ"),
        (lambda s: replace(s, phase=Phase.CALC_GRADIENT), "attributes or condition differ"),
        (lambda s: replace(s, part="again"), "attributes or condition differ"),
        (lambda s: replace(s, due=True), "attributes or condition differ"),
        (lambda s: replace(s, reference=None), "neither a copy nor a reference step"),
        (lambda s: replace(s, bindings=s.bindings[:-1]), "binds the slots"),
        (lambda s: replace(s, bindings=s.bindings[::-1]), "binds the slots"),
        (lambda s: rebound(s, "x1", slot="x9"), "binds the slots"),
        (lambda s: rebound(s, "x1", access=Access.UPDATE), "has update access to slot x1, not read"),
        (lambda s: rebound(s, "x1", access=Access.SCRATCH), "has scratch access to slot x1, not read"),
        (lambda s: rebound(s, "y0", access=Access.UPDATE), "has update access to slot y0, not write"),
        (lambda s: rebound(s, "y0", access=Access.READ), "has read access to slot y0, not write"),
    ],
)
def test_a_step_that_is_not_its_reference_step(
    good: Subject, change: Callable[[Step], Step], words: str
) -> None:
    assert words in good.said(with_step_changed(good.plan, "fc2:forward", change), "step")


def test_other_attributes(good: Subject) -> None:
    """A learning rate, a fused activation, a scratch budget: the kernel is another one."""
    program = good.plan.program
    for label, name in (("w1:apply_gradient", "learning_rate"), ("fc1:forward", "activation")):
        number = program.steps[at(program, label)].operation
        node = program.operations[number]
        value = 0.5 if name == "learning_rate" else "Tanh"
        other = replace(node, attributes={**node.attributes, name: value})
        operations = tuple(other if k == number else n for k, n in enumerate(program.operations))
        assert good.rules(replace(good.plan, program=replace(program, operations=operations))) == {"step"}


def test_slots_that_are_exchanged(good: Subject) -> None:
    """join adds h1 and h2: the sum has the same bits the other way round, and no proof relies on that."""
    program = good.plan.program
    h1, h2 = program.by_label["h1"], program.by_label["h2"]

    def swap(step: Step) -> Step:
        return rebound(rebound(step, "x0", value=h2), "x1", value=h1)

    assert good.rules(with_step_changed(good.plan, "join:forward", swap)) == {"value"}


def test_a_slot_with_another_value_of_the_same_type(good: Subject) -> None:
    other = good.plan.program.by_label["w1"]
    wrong = with_step_changed(good.plan, "fc2b:forward", lambda s: rebound(s, "x1", value=other))
    assert good.rules(wrong) == {"value"}


@pytest.mark.parametrize(
    "type_",
    [
        TensorType((4, 3), DType.FLOAT32),
        TensorType((6, 4), DType.FLOAT32),
        TensorType((4, 6), DType.INT32),
        TensorType((4, 6), DType.FLOAT64),
    ],
)
@pytest.mark.parametrize("label", ["h1", "h1@grad"])
def test_a_value_of_another_type_or_half_its_size(good: Subject, label: str, type_: TensorType) -> None:
    assert good.rules(with_value(good.plan, label, type=type_)) == {"step"}


def test_a_program_for_another_graph() -> None:
    one, other = planned(chain((6, 5, 4))), planned(chain((6, 7, 4)))
    assert prove(one.reference, other.plan)
    assert prove(other.reference, one.plan)
    frozen = planned(chain((6, 5, 4), trainable=["w2"]))
    assert prove(one.reference, frozen.plan)
    assert prove(frozen.reference, one.plan)


def test_steps_without_results_read_what_they_read_in_the_reference() -> None:
    """A step that prints: nothing depends on it, and it must find the same values all the same."""
    blocks = explicit((("", "a"), ("a", "b"), ("a", ""), ("b", "y")), kept=("y",))
    found = by_hand(blocks, {"a": 0, "b": 4, "y": 8})
    assert found.violations(found.plan) == ()
    assert "does not find what it reads" in found.said(
        with_step_changed(
            found.plan, "op2", lambda s: rebound(s, "r0", value=found.plan.program.by_label["b"])
        ),
        "value",
    )


def test_explicit_steps_are_told_apart_by_their_operation() -> None:
    found = by_hand(explicit(independent_pairs(2)), {"workspace": 0, "b0": 4, "b1": 8})
    assert found.violations(found.plan) == ()
    program = found.plan.program
    swapped = settled(replace(found.plan, program=program.reordered([2, 1, 0, 3])))
    assert found.rules(swapped) == {"value"}, "op0 and op2 both write the workspace, but are two operations"


def test_a_block_moved_onto_any_other_that_is_needed() -> None:
    blocks = explicit_program(explicit(AUTO_RECYCLE, kept=("dx",)))
    found = by_hand(blocks, {value.label: 64 * k for k, value in enumerate(blocks.values)}, alignment=64)
    assert found.violations(found.plan) == ()
    for label in ("in", "b1", "b2"):
        for other in ("in", "b1", "b2", "out", "dx"):
            if label != other:
                assert found.rules(moved(found.plan, label, offset_of(found.plan, other))), (label, other)


# ------------------------------------------------------------------------- repeated steps and addresses


class TestRepeatedSteps:
    """A repetition computes the same bits where it finds the same values, at the same residues modulo 64."""

    def subject(self) -> Subject:
        reference = derive(batch_normalised())
        backward = at(reference, "loss:calc_derivative.seed")
        return Subject(reference, placed(repeated(reference, at(reference, "norm:forward"), backward)))

    def test_a_repetition_is_accepted_and_does_not_update_twice(self) -> None:
        found = self.subject()
        assert found.violations(found.plan) == ()
        program = found.plan.program
        reference = program.steps[at(program, "norm:forward")].reference
        _, again = [s for s in program.steps if s.reference == reference]
        accesses = {b.slot: b.access for b in again.bindings}
        assert (accesses["x3"], accesses["x4"]) == (Access.SCRATCH, Access.SCRATCH)

    def test_a_repetition_that_updates_again(self) -> None:
        found = self.subject()
        program = found.plan.program
        original = program.steps[at(program, "norm:forward")]
        t = max(t for t, s in enumerate(program.steps) if s.reference == original.reference)
        updated = {b.slot: b for b in original.bindings if b.access is Access.UPDATE}
        bindings = tuple(updated.get(b.slot, b) for b in program.steps[t].bindings)
        steps = list(program.steps)
        steps[t] = replace(steps[t], bindings=bindings)
        twice = settled(replace(found.plan, program=replace(program, steps=tuple(steps))))
        assert ("mean",) in found.named(twice, "value")

    def test_a_repetition_at_another_residue(self) -> None:
        """Vector kernels begin a row at another place there, and may add up in another order."""
        explicit_operations = explicit((("x", "a"), ("a", "b"), ("a b", "y")), fed=("x",), kept=("y",))
        pure = tuple(replace(operation, pure=True) for operation in explicit_operations.operations)
        reference = explicit_program(replace(explicit_operations, operations=pure))
        program = repeated(reference, 0, 2)
        again = program.values[-1].label
        offsets = {"x": 0, "a": 64, "b": 80, "y": 96}
        program = replace(program, spaces=(Space("arena", 4),))
        right = by_hand_of(reference, program, {**offsets, again: 128})
        assert right.violations(right.plan) == ()
        wrong = moved(right.plan, again, 132)
        assert right.named(wrong, "residue") == {(again, "a")}


def by_hand_of(reference: Program, program: Program, offsets: dict[str, int]) -> Subject:
    return Subject(reference, by_hand(program, offsets).plan)


# ------------------------------------------------------------------------------------------- copies


class TestCopies:
    """A value that leaves for a space which kernels do not reach, and comes back."""

    @pytest.fixture
    def found(self) -> Subject:
        reference = explicit_program(
            explicit((("x", "a"), ("x", "b"), ("b", "c"), ("c", "d"), ("a d", "y")), fed=("x",), kept=("y",))
        )
        return Subject(reference, placed(paged(reference, reference.by_label["a"], 0, 4)))

    def copies(self, made: Plan) -> list[int]:
        return [t for t, step in enumerate(made.program.steps) if step.reference is None]

    def changed(self, made: Plan, t: int, **changes: object) -> Plan:
        steps = list(made.program.steps)
        steps[t] = replace(steps[t], **changes)  # type: ignore[arg-type]  # any field
        return replace(made, program=replace(made.program, steps=tuple(steps)))

    def test_it_comes_back_with_its_contents(self, found: Subject) -> None:
        assert found.violations(found.plan) == ()
        assert len(self.copies(found.plan)) == 2
        assert found.plan.program.kernel(found.plan.program.steps[self.copies(found.plan)[0]]) == COPY

    def test_a_copy_moves_one_type_from_a_read_to_a_write(self, found: Subject) -> None:
        out, _ = self.copies(found.plan)
        source, target = found.plan.program.steps[out].bindings
        for bindings in (
            (target, source),
            (source,),
            (source, target, source),
            (source, replace(target, access=Access.UPDATE)),
            (Binding("x0", source.value, Access.SCRATCH), target),
        ):
            assert found.rules(self.changed(found.plan, out, bindings=bindings)) == {"step"}
        label = found.plan.program.values[target.value].label
        wide = with_value(found.plan, label, type=TensorType((1,), DType.FLOAT32))
        assert "copies" in found.said(wide, "step")

    def test_a_copy_that_is_left_out(self, found: Subject) -> None:
        for gone in self.copies(found.plan):
            order = [t for t in range(len(found.plan.program.steps)) if t != gone]
            less = settled(replace(found.plan, program=found.plan.program.reordered(order)))
            assert found.rules(less) == {"undefined"}

    def test_a_copy_of_something_else(self, found: Subject) -> None:
        _, back = self.copies(found.plan)
        _, target = found.plan.program.steps[back].bindings
        other = found.plan.program.by_label["d"]
        wrong = self.changed(found.plan, back, bindings=(Binding("x0", other, Access.READ), target))
        assert found.rules(wrong) <= {"value", "overlap"}
        assert found.rules(wrong)

    def test_its_ranges_do_not_overlap(self, found: Subject) -> None:
        out, back = self.copies(found.plan)
        _, far = found.plan.program.steps[out].bindings
        _, near = found.plan.program.steps[back].bindings
        same = self.changed(
            found.plan,
            back,
            bindings=(Binding("x0", far.value, Access.READ), Binding("y0", far.value, Access.WRITE)),
        )
        assert near.value != far.value
        assert "overlap" in found.rules(same)

    def test_kernels_do_not_reach_what_is_far_away(self, found: Subject) -> None:
        out, _ = self.copies(found.plan)
        far = found.plan.program.steps[out].bindings[1].value
        t = len(found.plan.program.steps) - 1
        reading = rebound(found.plan.program.steps[t], "r0", value=far)
        assert found.rules(self.changed(found.plan, t, bindings=reading.bindings)) == {"place"}

    @pytest.mark.parametrize("ahead", [1, 2])
    def test_copies_that_take_their_time(self, ahead: int) -> None:
        touches = (("x", "a"), ("x", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f"), ("a f", "y"))
        reference = explicit_program(explicit(touches, fed=("x",), kept=("y",)))
        found = Subject(reference, placed(paged(reference, reference.by_label["a"], 0, 6, ahead)))
        assert found.violations(found.plan) == ()
        out, back = self.copies(found.plan)
        late = self.changed(found.plan, back, until=found.plan.program.steps[back].until + 1)
        assert found.rules(late) == {"level"}, "the last step reads it while it is on its way"
        beyond = self.changed(found.plan, out, until=found.plan.program.duration)
        assert "beyond the end of the iteration" in found.said(beyond, "level")
        both = self.changed(found.plan, out, until=found.plan.program.steps[back].level)
        assert "has the channel" in " ".join(v.detail for v in found.violations(both))


# ------------------------------------------------------------------- numbers that compare equal, bit by bit


@pytest.mark.parametrize(
    ("given", "other"),
    [
        (0.0, -0.0),
        (0, 0.0),
        (0, False),
        (1, True),
        (1.0, 1),
        ((1, 2), (1, 2.0)),
        ((0.0,), (-0.0,)),
        ((), None),
    ],
)
@pytest.mark.parametrize("place", ["attributes", "nested", "constants", "floats"])
def test_attributes_are_compared_by_type_and_bytes(place: str, given: object, other: object) -> None:
    reference = derive(chain((2, 2, 1), 1))

    def holding(value: object) -> Program:
        changes: dict[str, dict[str, Any]] = {
            "attributes": {"attributes": {**reference.operations[0].attributes, "more": value}},
            "nested": {"attributes": {**reference.operations[0].attributes, "more": (1, (2, value))}},
            "constants": {"constants": ((value,), None, None)},
            "floats": {"floats": {0: (value,)}},
        }
        node = replace(reference.operations[0], **changes[place])
        return replace(reference, operations=(node, *reference.operations[1:]))

    assert prove(holding(given), placed(holding(given))) == ()
    for a, b in ((given, other), (other, given)):
        found = prove(holding(a), placed(holding(b)))
        assert [violation.rule for violation in found] == ["step"]


def test_the_same_nan_is_the_same_attribute() -> None:
    reference = derive(chain((2, 2, 1), 1))

    def holding(value: float) -> Program:
        node = replace(reference.operations[0], attributes={"fill": value})
        return replace(reference, operations=(node, *reference.operations[1:]))

    (other,) = struct.unpack("<d", struct.pack("<Q", 0x7FF8_0000_0000_0001))
    assert prove(holding(float("nan")), placed(holding(float("nan")))) == ()
    assert [v.rule for v in prove(holding(math.nan), placed(holding(other)))] == ["step"]


def test_the_sentence_names_the_attribute() -> None:
    reference = derive(chain((2, 2, 1), 1))
    node = reference.operations[0]
    for attributes, words in (
        ({**node.attributes, "alpha": -1.0}, "the attribute 'alpha' is -1.0, not 1.0"),
        ({**node.attributes, "beta": 1}, "the attribute 'beta' is 1, not 1.0"),
        ({**node.attributes, "more": 2}, "the attribute 'more' is 2, not left out"),
    ):
        other = replace(node, attributes=attributes)
        program = replace(reference, operations=(other, *reference.operations[1:]))
        assert words in prove(reference, placed(program))[0].detail


@pytest.mark.parametrize(
    ("given", "other"),
    [
        (Initial("constant", value=0.0), Initial("constant", value=-0.0)),
        (Initial("zeros"), Initial("zeros", value=-0.0)),
        (Initial("normal", scale=1.0), Initial("normal", scale=math.nextafter(1.0, 2.0))),
        (Initial("normal", seed=1), Initial("normal", seed=True)),
        (Initial("normal", seed=0), Initial("normal", seed=False)),
    ],
)
def test_first_contents_are_compared_by_type_and_bytes(given: Initial, other: Initial) -> None:
    reference = derive(chain((2, 2, 1), 1))
    weight = reference.by_label["w1"]

    def holding(initial: Initial) -> Program:
        return replace(reference, initial={**reference.initial, weight: initial})

    assert prove(holding(given), placed(holding(given))) == ()
    assert [v.rule for v in prove(holding(given), placed(holding(other)))] == ["initial"]


def test_first_contents_of_nan_are_themselves_and_whole_numbers_are_floating() -> None:
    reference = derive(chain((2, 2, 1), 1))
    weight = reference.by_label["w1"]
    for given, same in ((math.nan, math.nan), (1, 1.0)):
        one, other = (
            replace(reference, initial={**reference.initial, weight: Initial("constant", value=value)})
            for value in (given, same)
        )
        assert prove(one, placed(other)) == ()
