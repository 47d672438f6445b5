"""States: who may update one, who may read it, what it holds at first."""

from __future__ import annotations

import numpy as np
import pytest

from solver.errors import OptionsError, StateError, TrainableError
from solver.executor import Trainer, synthetic_batch
from solver.executor.initial import initial_value
from solver.graph import DType, Initializer, Role, TrainableGraph
from solver.graph.types import Operand, TensorType
from solver.pipeline import plan
from solver.targets.nntrainer import nntrainer_target
from solver.targets.onert import onert_target
from tests.support.graphs import Sketch, batch_normalised


def sketch(*, roles: tuple[Role, Role] = (Role.STATE, Role.STATE), training: int = 1) -> Sketch:
    s = Sketch()
    s.input("x", 4, 3)
    s.parameter("scale", 3)
    s.parameter("shift", 3)
    for name, role in zip(("mean", "variance"), roles, strict=True):
        initializer = Initializer("ones") if role is Role.CONSTANT else None
        s.add(name, role, (3,), initializer=initializer)
    normalise(s, "x", "y", training=training)
    s.label("t", 4, 3)
    s.op("MeanSquaredError", ["y", "t"], "loss")
    return s


def normalise(s: Sketch, x: str, y: str, *, mean: str = "mean", training: int = 1) -> None:
    inputs = [x, "scale", "shift", mean, "variance"]
    s.op("BatchNormalization", inputs, y, f"{y}.norm", training_mode=training)


def test_states_belong_to_the_graph_and_are_not_trained() -> None:
    graph = sketch().graph()
    assert graph.operands["mean"].role is Role.STATE
    assert graph.trainable == ("scale", "shift")
    with pytest.raises(TrainableError, match="'mean' is not a parameter"):
        sketch().graph(trainable=["mean"])


@pytest.mark.parametrize("role", [Role.CONSTANT, Role.PARAMETER, Role.INPUT])
def test_only_states_are_updated(role: Role) -> None:
    s = sketch(roles=(Role.STATE, role))
    with pytest.raises(
        StateError, match=rf"'y.norm' .* updates 'variance' in place, .* is {role.value}"
    ) as e:
        s.graph()
    assert e.value.path == ("operations", 0, "inputs", 4)
    assert e.value.code == "invalid-state"


@pytest.mark.parametrize("role", [Role.CONSTANT, Role.STATE, Role.INPUT])
def test_what_is_only_read_may_have_any_role(role: Role) -> None:
    graph = sketch(roles=(role, role), training=0).graph()
    assert graph.operands["mean"].role is role


def test_a_state_is_updated_once() -> None:
    s = sketch()
    s.operations.pop()
    normalise(s, "y", "z")
    s.op("MeanSquaredError", ["z", "t"], "loss")
    with pytest.raises(StateError, match=r"'y.norm' .* updates 'mean' in place, and operation 'z.norm'") as e:
        s.graph()
    assert e.value.path == ("operations", 0, "inputs", 3)


def test_no_other_operation_reads_what_is_updated() -> None:
    s = sketch()
    s.op("Neg", ["variance"], "minus", "reader")
    with pytest.raises(StateError, match=r"'variance' in place, and operation 'reader' \(Neg\) reads it"):
        s.graph()


def test_one_state_cannot_be_two_inputs() -> None:
    s = sketch()
    s.operations.clear()
    normalise(s, "x", "y", mean="variance")
    s.op("MeanSquaredError", ["y", "t"], "loss")
    s.operands = [operand for operand in s.operands if operand.id != "mean"]
    with pytest.raises(StateError, match="'variance' in place, and another of its inputs is it"):
        s.graph()


def test_a_state_that_is_not_updated_has_any_number_of_readers() -> None:
    s = sketch(training=0)
    s.operations.pop()
    normalise(s, "y", "z", training=0)
    s.op("MeanSquaredError", ["z", "t"], "loss")
    assert len(s.graph().operations) == 3


@pytest.mark.parametrize(("initializer", "value"), [(None, 0), (Initializer("constant", value=3.0), 3)])
def test_states_start_at_zero_unless_they_say_otherwise(
    initializer: Initializer | None, value: float
) -> None:
    type_ = TensorType((2, 3), DType.FLOAT32)
    found = initial_value(Operand("s", type_, Role.STATE, initializer))
    np.testing.assert_array_equal(found, np.full((2, 3), value))


def test_states_carry_over_and_the_caller_reads_them() -> None:
    graph = batch_normalised()
    trainer = Trainer(graph, plan(graph))
    seen = []
    for step in range(1, 4):
        trainer.step(synthetic_batch(graph, 0, step))
        seen.append(trainer.read("variance"))
    assert not np.array_equal(seen[0], seen[1])
    np.testing.assert_array_less(0, seen[0])
    assert trainer.read("mean").any()


def runtime_graph() -> TrainableGraph:
    """A graph that the runtimes could train, but for a state in it."""
    s = Sketch()
    s.state("offset", 4, 3)
    s.op("Gemm", [s.input("x", 4, 3), s.parameter("w", 3, 3)], "h")
    s.op("Add", ["h", "offset"], "y")
    s.op("MeanSquaredError", ["y", s.label("t", 4, 3)], "loss")
    return s.graph()


def test_onert_has_no_states() -> None:
    with pytest.raises(OptionsError, match="operand 'offset' of role state"):
        onert_target(runtime_graph())


def test_nntrainer_adds_no_states() -> None:
    with pytest.raises(OptionsError, match=r"'offset' of role state|'y\.op' \(Add\) of something"):
        nntrainer_target(runtime_graph())
