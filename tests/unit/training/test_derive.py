"""The training program of a graph: which steps exist, what they read and write."""

from __future__ import annotations

from typing import Any

import pytest

from solver.executor import Trainer, synthetic_batch, validate
from solver.graph import Graph
from solver.liveness import verify_program
from solver.pipeline import plan
from solver.training import (
    ACCUMULATE,
    UPDATE,
    Lifetime,
    OperandKind,
    Phase,
    TrainingOperandIndex,
    TrainingProgram,
    TrainingStep,
    derive,
)
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual
from tests.support.operator_graphs import attention, convolved, elementwise, recurrent


def ids(program: TrainingProgram) -> list[str]:
    return [str(step.index) for step in program.steps]


def step(program: TrainingProgram, name: str) -> TrainingStep:
    return next(s for s in program.steps if str(s.index) == name)


def kinds(program: TrainingProgram, kind: OperandKind) -> set[str]:
    return {o.id for o in program.operands.values() if o.kind is kind}


def test_the_three_way_order_of_a_chain_and_its_updates() -> None:
    program = derive(chain())
    assert ids(program) == [
        "fc1:forward", "fc2:forward", "mse:forward",
        "loss:calc_derivative.seed", "mse:calc_derivative",
        "fc2:calc_gradient", "fc2:calc_derivative", "fc1:calc_gradient",
        "w1:apply_gradient", "b1:apply_gradient", "w2:apply_gradient", "b2:apply_gradient",
    ]  # fmt: skip
    verify_program(program)


def test_backward_steps_read_only_what_the_operators_say() -> None:
    program = derive(chain())
    gradient, derivative = step(program, "fc2:calc_gradient"), step(program, "fc2:calc_derivative")
    assert set(map(str, gradient.uses)) == {"h1", "h2@grad"}
    assert set(map(str, gradient.defs)) == {"w2@grad", "b2@grad"}
    assert set(map(str, derivative.uses)) == {"w2", "h2@grad"}
    assert set(map(str, derivative.defs)) == {"h1@grad"}


def test_a_fused_activation_makes_the_backward_read_its_output() -> None:
    assert "h1" in set(map(str, step(derive(chain()), "fc1:calc_gradient").uses))


def test_no_derivative_of_inputs_and_labels() -> None:
    program = derive(chain())
    assert TrainingOperandIndex("x", is_forward=False) not in program.operands
    assert TrainingOperandIndex("t", is_forward=False) not in program.operands


def test_a_branch_gets_one_def_and_explicit_accumulates() -> None:
    program = derive(residual())
    defs = [str(s.index) for s in program.steps if "h1@grad" in map(str, s.defs)]
    assert defs == ["join:calc_derivative", "fc2:calc_derivative.accumulate0"]
    partial = step(program, "fc2:calc_derivative")
    assert [str(d) for d in partial.defs] == ["h1@fc2.0@grad"]
    accumulate = step(program, "fc2:calc_derivative.accumulate0")
    assert accumulate.kernel == ACCUMULATE
    assert set(map(str, accumulate.uses)) == {"h1@grad", "h1@fc2.0@grad"}


def test_an_operand_read_twice_by_one_operation_gets_both_derivatives() -> None:
    program = derive(residual())
    assert [str(d) for d in step(program, "square:calc_derivative").defs] == ["h4@grad", "h4@square.1@grad"]


def test_tied_weights_stay_tied() -> None:
    program = derive(residual())
    assert [str(s.index) for s in program.steps if s.kernel == UPDATE and s.index.operation == "w2"] == [
        "w2:apply_gradient"
    ]
    gradient_defs = [str(s.index) for s in program.steps if "w2@grad" in map(str, s.defs)]
    assert gradient_defs == ["fc2b:calc_gradient", "fc2:calc_gradient.accumulate1"]


def test_frozen_parameters_have_no_gradient_no_state_and_no_needless_steps() -> None:
    program = derive(chain((6, 5, 4, 3), trainable=["w3", "b3"], optimizer="Adam"))
    assert kinds(program, OperandKind.GRADIENT) == {"w3@grad", "b3@grad"}
    assert kinds(program, OperandKind.OPTIMIZER_VARIABLE) == {
        f"{w}@{v}" for w in ("w3", "b3") for v in ("first_moment", "second_moment")
    }
    backward = [s for s in program.steps if s.index.phase in (Phase.CALC_GRADIENT, Phase.CALC_DERIVATIVE)]
    assert {s.index.operation for s in backward} == {"loss", "mse", "fc3"}
    assert "fc3:calc_derivative" not in ids(program)


def test_a_frozen_layer_in_the_middle_passes_derivatives_on() -> None:
    program = derive(chain((6, 5, 4, 3), trainable=["w1"]))
    assert "fc2:calc_derivative" in ids(program)
    assert "fc2:calc_gradient" not in ids(program)


def test_nothing_trainable_means_forward_only() -> None:
    program = derive(chain(trainable=0))
    assert all(s.index.phase is Phase.FORWARD for s in program.steps)


@pytest.mark.parametrize(("count", "trained"), [(0, set()), (1, {"w3", "b3"}), (2, {"w2", "b2", "w3", "b3"})])
def test_the_trainable_set_counted_from_the_back(count: int, trained: set[str]) -> None:
    program = derive(chain((6, 5, 4, 3), trainable=count))
    assert kinds(program, OperandKind.GRADIENT) == {f"{name}@grad" for name in trained}


def test_all_is_minus_one() -> None:
    assert ids(derive(chain(trainable=-1))) == ids(derive(chain()))


def test_shape_operands_take_no_memory() -> None:
    s = Sketch()
    w = s.parameter("w", 4, 6)
    h = s.op("Reshape", [s.input("x", 2, 2, 3), s.integers("shape", 2, 6)], "h")
    y = s.op("Gemm", [h, w], "y", transB=1)
    s.op("MeanSquaredError", [y, s.label("t", 2, 4)], "loss")
    program = derive(s.graph())
    assert TrainingOperandIndex("shape") not in program.operands
    assert TrainingOperandIndex("h", is_forward=False) not in program.operands


def test_a_side_branch_that_does_not_reach_the_loss_has_no_backward() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 2, 3), s.parameter("w", 4, 3)], "h", "fc", transB=1)
    s.op("Softmax", [h], "probabilities", "softmax")
    s.op("MeanSquaredError", [h, s.label("t", 2, 4)], "loss", "mse")
    program = derive(s.graph(outputs=("probabilities",)))
    assert "softmax:forward" in ids(program)
    assert "softmax:calc_derivative" not in ids(program)


def test_several_losses_added_up_share_one_seed() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 2, 3), s.parameter("w", 4, 3)], "h", "fc", transB=1)
    a = s.op("MeanSquaredError", [h, s.label("t", 2, 4)], "a")
    b = s.op("MeanSquaredError", [h, s.label("u", 2, 4)], "b")
    s.op("Add", [a, b], "loss", "sum")
    program = derive(s.graph())
    verify_program(program)
    assert sum(s.index.part == "seed" for s in program.steps) == 1
    assert "h@a.op.0@grad" in {o.id for o in program.operands.values()}


def test_what_an_operation_updates_stands_in_reads_and_writes() -> None:
    program = derive(batch_normalised())
    forward = step(program, "norm:forward")
    for group in (forward.reads, forward.writes):
        assert {b.slot: str(b.operand) for b in group if b.slot in ("x3", "x4")} == {
            "x3": "mean",
            "x4": "variance",
        }
    for name in ("mean", "variance"):
        operand = program.operands[TrainingOperandIndex(name)]
        assert (operand.kind, operand.lifetime) == (OperandKind.STATE, Lifetime.MAX)
        assert operand.is_defined_by_caller
        assert [str(s.index) for s in program.steps if operand.index in s.touched()] == ["norm:forward"]
    verify_program(program)


def test_a_frozen_normalisation_reads_its_states_on_both_passes() -> None:
    program = derive(batch_normalised(mode=0))
    assert not {"mean", "variance"} & {str(i) for s in program.steps for i in s.defs}
    assert {"mean", "variance"} <= set(map(str, step(program, "norm:calc_gradient").uses))
    assert "variance" in set(map(str, step(program, "norm:calc_derivative").uses))


def pooled(**hyper: Any) -> Graph:
    """A convolution, max pooling and a layer behind it."""
    s = Sketch("pooled")
    h = s.op("Conv", [s.input("x", 2, 1, 4, 4), s.parameter("k", 3, 1, 1, 1)], "h", "conv")
    h = s.op("MaxPool", [h], "p", "pool", kernel_shape=(2, 2), strides=(2, 2))
    h = s.op("Gemm", [s.op("Flatten", [h], "f"), s.parameter("w", 12, 2)], "y", "fc")
    s.op("MeanSquaredError", [h, s.label("t", 2, 2)], "loss", "mse")
    return s.graph(**hyper)


def test_what_no_backward_step_reads_is_not_saved() -> None:
    assert kinds(derive(pooled()), OperandKind.SAVED) == {"pool@saved.arg_max"}
    frozen = derive(pooled(trainable=["w"]))
    assert kinds(frozen, OperandKind.SAVED) == set()
    assert [b.slot for b in step(frozen, "pool:forward").writes] == ["y0"]
    verify_program(frozen)


def test_pooling_finds_the_same_without_saving_where() -> None:
    graphs = pooled(), pooled(trainable=["w"])
    trainers = [Trainer(graph, plan(graph)) for graph in graphs]
    batch = synthetic_batch(graphs[0], 0, 1)
    assert trainers[0].step(batch) == trainers[1].step(batch)
    assert all(validate(graph, plan(graph), steps=2).identical for graph in graphs)


@pytest.mark.parametrize(
    "graph",
    [
        *(chain(), residual(), convolutional(), batch_normalised(), pooled(), pooled(trainable=["w"])),
        *(residual(trainable=["w3"]), residual(trainable=["w1"]), convolutional(trainable=["k2"])),
        *(elementwise(), attention(), recurrent(), convolved(), convolved(trainable=["k4"])),
    ],
    ids=lambda g: f"{g.name}-{len(g.trainable)}",
)
def test_every_derivative_that_is_computed_is_read(graph: Graph) -> None:
    """No dead derivatives: each leads on to the gradient of a trained parameter, and that to an update."""
    program = derive(graph)
    backward = (OperandKind.DERIVATIVE, OperandKind.PARTIAL, OperandKind.GRADIENT)
    read = {operand for s in program.steps for operand in s.uses}
    assert {index for index, o in program.operands.items() if o.kind in backward} <= read
