"""Values in the bytes of others: every wrong claim is named, and every read of what is gone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from solver.graph import DType, TensorType
from solver.plan import Plan, PlanOptions
from solver.program import Alias, Lifetime
from tests.support.damaged import (
    Subject,
    in_one_place,
    moved,
    planned,
    settled,
    with_alias,
    with_order,
    with_step_changed,
    with_value,
)
from tests.support.derived import at, rebound
from tests.support.graphs import Sketch, convolutional, residual
from tests.support.operator_graphs import attention, elementwise
from tests.support.proofs import offset_of


@pytest.fixture(scope="module")
def good() -> Subject:
    return in_one_place()


def number(made: Plan, label: str) -> int:
    return made.program.by_label[label]


def without_alias(made: Plan, label: str) -> Plan:
    aliases = tuple(alias for alias in made.program.aliases if alias.value != number(made, label))
    return replace(made, program=replace(made.program, aliases=aliases))


def with_new_alias(made: Plan, label: str, source: str, step: str, *, view: bool) -> Plan:
    """One value more in the bytes of another one, where it then lies."""
    there = moved(made, label, offset_of(made, source))
    alias = Alias(number(made, label), number(made, source), at(made.program, step), view)
    return settled(replace(there, program=replace(made.program, aliases=(*made.program.aliases, alias))))


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize(
    "graph", [residual(), convolutional(), attention(), elementwise()], ids=lambda graph: graph.name
)
def test_right_plans_have_no_violations(graph: object, parallelism: int) -> None:
    options = PlanOptions(in_place=True, parallelism=parallelism)
    found = planned(graph, options)  # type: ignore[arg-type]  # a Graph, through parametrize
    assert found.violations(found.plan) == ()


def test_the_alias_set_of_the_example(good: Subject) -> None:
    (buffer,) = [b for _, b in good.plan.buffers() if b.id == "z"]
    assert [(a.id, a.source, a.view) for a in buffer.aliases] == [
        ("z", None, False),
        ("y0", "z", False),
        ("y1", "y0", True),
    ]
    (weight,) = [b for _, b in good.plan.buffers() if b.id == "w"]
    assert weight.aliases == ()
    (alone,) = weight.values
    assert (alone.id, alone.source, alone.lifetime) == ("w", None, Lifetime.MAX)


# ------------------------------------------------------------------------- what is read although it is gone


def test_a_step_that_reads_what_was_overwritten(good: Subject) -> None:
    """The branch comes too late: it finds what Relu made of z."""
    late = with_order(good.plan, "branch.op:forward", at(good.plan.program, "y0.op:forward"))
    assert ("loss",) in good.named(late, "value")


def test_a_later_reader_of_the_source(good: Subject) -> None:
    """The trap that the proof is there for: u is read for another product, of what z was."""
    z = number(good.plan, "z")
    late = with_order(good.plan, "branch.op:forward", at(good.plan.program, "h.op:forward"))
    again = with_step_changed(late, "branch.op:forward", lambda s: rebound(s, "x0", value=z))
    assert good.rules(again) == {"value"}


def test_two_that_overwrite_the_same_source(good: Subject) -> None:
    """Where z was, y0 is, when a second kernel is said to work in place of z."""
    s = Sketch("twice")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    a, b = s.op("Relu", [z], "a"), s.op("Tanh", [z], "b")
    s.op("MeanSquaredError", [s.op("Add", [a, b], "sum"), s.label("t", 3, 4)], "loss")
    found = planned(s.graph(), PlanOptions(in_place=True))
    aliases = {found.plan.program.values[alias.value].label for alias in found.plan.program.aliases}
    assert len({"a", "b"} & aliases) == 1, "one of them, the last"
    first = next(label for label in ("a", "b") if label not in aliases)
    both = with_new_alias(found.plan, first, "z", f"{first}.op:forward", view=False)
    assert found.rules(both) <= {"value", "undefined", "overlap"}
    assert found.rules(both)


def test_a_result_that_is_overwritten() -> None:
    s = Sketch("result")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    s.op("MeanSquaredError", [s.op("Relu", [z], "y"), s.label("t", 3, 4)], "loss")
    found = planned(s.graph(outputs=("z",)), PlanOptions(in_place=True))
    over = with_new_alias(found.plan, "y", "z", "y.op:forward", view=False)
    assert found.named(over, "value") == {("z",)}


def test_an_input_that_is_overwritten_before_its_last_read() -> None:
    s = Sketch("input")
    x = s.input("x", 3, 4)
    h = s.op("Gemm", [s.op("Relu", [x], "r"), s.parameter("w", 4, 4)], "h")
    s.op("MeanSquaredError", [s.op("Add", [h, x], "y"), s.label("t", 3, 4)], "loss")
    found = planned(s.graph(), PlanOptions(solver="bump"))
    over = with_new_alias(found.plan, "r", "x", "r.op:forward", view=False)
    assert found.rules(over) == {"value"}


def test_a_weight_that_is_overwritten() -> None:
    s = Sketch("weight")
    w = s.op("Relu", [s.parameter("w", 4, 4)], "r")
    s.op("MeanSquaredError", [s.op("Gemm", [s.input("x", 3, 4), w], "h"), s.label("t", 3, 4)], "loss")
    nothing: list[str] = []
    for trainable in ("all", nothing):
        found = planned(s.graph(trainable=trainable), PlanOptions(in_place=True))
        over = with_new_alias(found.plan, "r", "w", "r.op:forward", view=False)
        assert ("w",) in found.named(over, "value")


# ------------------------------------------------------------------------------------ what is not promised


def test_a_view_that_computes(good: Subject) -> None:
    """Relu does not leave the bytes as they are, whatever the plan says."""
    said = good.said(with_alias(good.plan, "y0", view=True), "alias")
    assert "does not promise that 'y0' is a view of 'z'" in said


def test_a_view_that_is_said_to_overwrite(good: Subject) -> None:
    """The bytes are the same, so that nothing is lost."""
    assert good.violations(with_alias(good.plan, "y1", view=False)) == ()


def test_a_derivative_over_the_one_that_it_is_made_from() -> None:
    """A product reads dY row by row while it writes dX."""
    found = planned(residual(), PlanOptions(solver="bump"))
    claimed = with_new_alias(found.plan, "h3@grad", "h4@grad", "fc2b:calc_derivative", view=False)
    assert "does not promise that 'h3@grad' may overwrite 'h4@grad'" in found.said(claimed, "alias")
    silent = without_alias(claimed, "h3@grad")
    assert {frozenset(n) for n in found.named(settled(silent), "overlap")} == {
        frozenset({"h3@grad", "h4@grad"})
    }


def test_a_source_that_the_step_does_not_bind(good: Subject) -> None:
    said = good.said(with_alias(good.plan, "y1", source=number(good.plan, "z")), "alias")
    assert "'y1.op:forward' does not promise that 'y1' is a view of 'z'" in said


@pytest.mark.parametrize("label", ["y0", "y1"])
@pytest.mark.parametrize("other", ["w", "branch", "x"])
def test_a_source_of_another_buffer(good: Subject, label: str, other: str) -> None:
    assert good.rules(with_alias(good.plan, label, source=number(good.plan, other))) <= {"alias", "form"}
    assert good.rules(with_alias(good.plan, label, source=number(good.plan, other)))


@pytest.mark.parametrize("step", ["z.op:forward", "branch.op:forward", "h.op:forward"])
def test_another_step(good: Subject, step: str) -> None:
    where = at(good.plan.program, step)
    assert good.rules(with_alias(good.plan, "y0", step=where)) <= {"alias", "form"}
    assert good.rules(with_alias(good.plan, "y0", step=where))


def test_what_carries_over_is_defined_in_no_other_bytes(good: Subject) -> None:
    """At the start the bytes hold one of the two."""
    over = with_new_alias(good.plan, "v", "w", "v:apply_gradient", view=False)
    assert {frozenset(names) for names in good.named(over, "overlap")} >= {frozenset({"v", "w"})}
    apart = planned(residual(), PlanOptions(solver="bump"))
    after = with_new_alias(apart.plan, "w3", "w3@grad", "w3:apply_gradient", view=False)
    assert apart.rules(after) == {"alias"}, "an update changes its weight and defines nothing"


def test_bytes_that_are_shared_without_saying_so(good: Subject) -> None:
    names = good.named(settled(without_alias(good.plan, "y0")), "overlap")
    assert {frozenset(pair) for pair in names} == {frozenset({"z", "y0"})}


def test_an_alias_that_lies_elsewhere(good: Subject) -> None:
    assert "not 0 bytes behind 'z'" in good.said(
        moved(good.plan, "y0", offset_of(good.plan, "z") + 64), "alias"
    )


@pytest.mark.parametrize("offset", [-16, 16, 64])
def test_an_alias_of_a_part(good: Subject, offset: int) -> None:
    """No operator promises one yet, at its own address or at another."""
    assert good.rules(with_alias(good.plan, "y1", offset=offset)) == {"alias"}
    there = offset_of(good.plan, "y0") + offset
    assert good.rules(with_alias(moved(good.plan, "y1", there), "y1", offset=offset)) <= {"alias", "place"}
    assert good.rules(with_alias(moved(good.plan, "y1", there), "y1", offset=offset))


def test_another_size_or_type(good: Subject) -> None:
    """Half the size would halve what the buffer needs."""
    for type_ in (
        TensorType((3, 2), DType.FLOAT32),
        TensorType((3, 5), DType.FLOAT32),
        TensorType((3, 4), DType.FLOAT64),
    ):
        for label in ("z", "y0", "y1"):
            assert good.rules(with_value(good.plan, label, type=type_)) == {"step"}


def test_a_kernel_that_promises_nothing() -> None:
    """A transposition promises nothing: it reads where it has written."""
    s = Sketch("turned")
    a = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "a")
    b = s.op("Gemm", ["x", s.parameter("v", 4, 4)], "b")
    s.op(
        "MeanSquaredError",
        [s.op("MatMul", [a, s.op("Transpose", [b], "bt")], "p"), s.label("t", 3, 3)],
        "loss",
    )
    found = planned(s.graph())
    over = with_new_alias(found.plan, "bt", "b", "bt.op:forward", view=False)
    assert found.rules(over) == {"alias"}


def test_an_operand_read_twice_by_the_step_that_would_overwrite_it() -> None:
    s = Sketch("twice")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    q = s.op("Gemm", [z, s.parameter("v", 4, 4)], "q")
    s.op("MeanSquaredError", [s.op("Add", [q, z], "sum"), s.label("t", 3, 4)], "loss")
    found = planned(s.graph(), PlanOptions(in_place=True))
    assert found.violations(found.plan) == ()
    (alias,) = [a for a in found.plan.program.aliases if a.value == number(found.plan, "sum")]
    assert alias.source == number(found.plan, "q")
    both = with_step_changed(
        found.plan, "sum.op:forward", lambda s: rebound(s, "x1", value=number(found.plan, "q"))
    )
    assert found.rules(both) <= {"overlap", "value"}
    assert found.rules(both)


# --------------------------------------------------------------------------------- beside what runs with it


def test_steps_of_one_level_leave_what_another_overwrites_alone(good: Subject) -> None:
    """branch reads z, y0 overwrites it: on one level nothing says which comes first."""
    program = good.plan.program
    t, u = at(program, "branch.op:forward"), at(program, "y0.op:forward")
    assert u == t + 1
    levels = [k if k <= t else k - 1 for k in range(len(program.steps))]
    together = program.reordered(range(len(program.steps)), levels)
    options = replace(good.plan.options, parallelism=2)
    names = good.named(settled(replace(good.plan, program=together, options=options)), "level")
    assert ("z", "y0") in names


def test_a_view_may_be_made_beside_a_reader_of_its_source() -> None:
    s = Sketch("beside")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    flat = s.op("Reshape", [z, s.integers("shape", 4, 3)], "flat")
    a = s.op("Gemm", [z, s.parameter("u", 4, 3)], "a")
    b = s.op("Gemm", [flat, s.parameter("v", 3, 3)], "b")
    s.op(
        "MeanSquaredError",
        [s.op("MatMul", [b, s.op("Transpose", [a], "at")], "sum"), s.label("t", 4, 3)],
        "loss",
    )
    found = planned(s.graph(), PlanOptions(in_place=True, parallelism=2))
    program = found.plan.program
    assert (
        program.steps[at(program, "flat.op:forward")].level
        == program.steps[at(program, "a.op:forward")].level
    )
    assert any(alias.view and program.values[alias.value].label == "flat" for alias in program.aliases)
    assert found.violations(found.plan) == ()
