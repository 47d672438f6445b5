"""The buffers of a plan: one for each value or alias set, with kinds, lifetimes and sizes for readers."""

from __future__ import annotations

import pytest

from solver.graph import TrainingRules
from solver.pipeline import plan
from solver.plan import Plan, PlanOptions
from solver.program import Kind, Lifetime
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual


def lifetimes(made: Plan) -> dict[str, Lifetime]:
    return {value.id: value.lifetime for _, buffer in made.buffers() for value in buffer.values}


def test_buffers_are_rounded_up_to_the_alignment() -> None:
    made = plan(chain())
    for _, buffer in made.buffers():
        assert buffer.size % 64 == buffer.offset % 64 == 0
        assert 0 <= buffer.size - buffer.nbytes < 64
        assert buffer.alignment == 64
    assert made.lower_bound > 0


@pytest.mark.parametrize("in_place", [False, True])
def test_each_value_is_in_exactly_one_buffer(in_place: bool) -> None:
    made = plan(residual(), PlanOptions(in_place=in_place))
    labels = [value.id for _, buffer in made.buffers() for value in buffer.values]
    assert sorted(labels) == sorted(value.label for value in made.program.values)
    assert tuple(step.id for step in made.steps) == made.program.step_labels


def test_lifetimes_are_what_holds_values_beyond_a_step() -> None:
    found = lifetimes(plan(chain(outputs=("h2",), optimizer="Adam", trainable=["w2"])))
    assert {found[name] for name in ("w1", "w2", "b1", "w2@first_moment")} == {Lifetime.MAX}
    assert {found[name] for name in ("loss", "h2")} == {Lifetime.EPOCH}
    assert {found[name] for name in ("x", "t", "h1", "h2@grad", "w2@grad")} == {Lifetime.ITERATION}
    assert lifetimes(plan(batch_normalised()))["mean"] is Lifetime.MAX
    accumulated = plan(chain(training=TrainingRules(accumulate=2)))
    assert lifetimes(accumulated)["w1@grad"] is Lifetime.MAX


def test_scratch_lives_inside_a_step_of_one_of_the_passes() -> None:
    made = plan(convolutional())
    scratch = [buffer for _, buffer in made.buffers() if buffer.kind is Kind.SCRATCH]
    inside = {Lifetime.FORWARD_FUNCTION, Lifetime.BACKWARD_FUNCTION}
    assert {buffer.lifetime for buffer in scratch} == inside
    for buffer in scratch:
        assert buffer.lifespan.end == buffer.lifespan.start + 1
        forward = made.steps[buffer.lifespan.start].id.endswith(":forward")
        assert (buffer.lifetime is Lifetime.FORWARD_FUNCTION) == forward


def in_one_buffer(outputs: tuple[str, ...] = ()) -> Plan:
    """z, and what Relu makes of it in the same bytes."""
    s = Sketch("shared")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    s.op("MeanSquaredError", [s.op("Relu", [z], "y"), s.label("t", 3, 4)], "loss")
    return plan(s.graph(outputs=outputs), PlanOptions(in_place=True))


def test_a_buffer_is_kept_as_long_as_its_most_lasting_value() -> None:
    for outputs, expected in (((), Lifetime.ITERATION), (("y",), Lifetime.EPOCH)):
        (buffer,) = [b for _, b in in_one_buffer(outputs).buffers() if b.id == "z"]
        assert [value.id for value in buffer.aliases] == ["z", "y"]
        assert buffer.lifetime is expected
        assert buffer.aliases[0].lifetime is Lifetime.ITERATION


def test_a_view_of_a_weight_is_kept_with_the_weight() -> None:
    s = Sketch("viewed")
    w = s.op("Reshape", [s.parameter("w", 16), s.integers("square", 4, 4)], "matrix")
    s.op("MeanSquaredError", [s.op("Gemm", [s.input("x", 3, 4), w], "y"), s.label("t", 3, 4)], "loss")
    made = plan(s.graph(), PlanOptions(in_place=True))
    (buffer,) = [b for _, b in made.buffers() if b.id == "w"]
    assert [(v.id, v.source, v.view) for v in buffer.aliases] == [("w", None, False), ("matrix", "w", True)]
    assert buffer.lifetime is Lifetime.MAX
    assert buffer.aliases[1].lifetime is Lifetime.ITERATION
    assert (buffer.shape, buffer.kind) == ((16,), Kind.PARAMETER)


def test_a_buffer_has_the_name_kind_and_shape_of_its_first_value() -> None:
    (buffer,) = [b for _, b in in_one_buffer().buffers() if b.id == "z"]
    first = buffer.aliases[0]
    assert (buffer.id, buffer.kind, buffer.shape, buffer.dtype) == (
        first.id,
        first.kind,
        first.shape,
        first.dtype,
    )
    assert buffer.end == buffer.offset + buffer.size
