"""The values that SINGA's operations keep, and the order in which they run."""

from __future__ import annotations

import pytest

from solver.errors import OptionsError
from solver.graph import TrainableGraph
from solver.pipeline import plan
from solver.plan import Plan, PlannedStep, PlanOptions
from solver.program import Access, Phase
from solver.targets.singa import Sharing, singa_program, unfused
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual
from tests.support.operator_graphs import attention, convolved, elementwise, recurrent
from tests.support.proofs import violations

SINGA = PlanOptions(target="singa")


def steps(
    graph: TrainableGraph, level: Sharing = Sharing.DERIVATIVES_OF_SUMS
) -> dict[str, tuple[set[str], set[str]]]:
    """The values that each step reads and writes."""
    program = singa_program(graph, level)
    label = [value.label for value in program.values]
    return {
        name: ({label[v] for v in reads}, {label[v] for v in writes})
        for name, (reads, writes) in zip(program.step_labels, program.touches(), strict=True)
    }


def small(*, skip: bool = False) -> TrainableGraph:
    """Conv (a), batch normalisation (b), Relu (c), MaxPool (d), perhaps a sum with itself, linear."""
    s = Sketch("small")
    h = s.op("Conv", [s.input("x", 2, 2, 6, 6), s.parameter("k", 4, 2, 3, 3)], "a", "conv", pads=(1, 1, 1, 1))
    statistics = [s.state("mean", 4), s.state("variance", 4)]
    h = s.op(
        "BatchNormalization",
        [h, s.parameter("scale", 4), s.parameter("shift", 4), *statistics],
        "b", "norm", training_mode=1,
    )  # fmt: skip
    h = s.op("Relu", [h], "c", "relu")
    h = s.op("MaxPool", [h], "d", "pool", kernel_shape=(2, 2), strides=(2, 2))
    if skip:
        other = s.op("Conv", [h, s.parameter("k2", 4, 4, 3, 3)], "e", "conv2", pads=(1, 1, 1, 1))
        h = s.op("Add", [other, h], "sum", "add")
    h = s.op("Gemm", [s.op("Flatten", [h], "f", "flatten"), s.parameter("w", 36, 3)], "g", "fc")
    s.op("MeanSquaredError", [h, s.label("t", 2, 3)], "loss", "mse")
    return s.graph(optimizer="SGD", momentum=0.9)


def test_relu_reads_its_input_and_keeps_it() -> None:
    reads, _ = steps(small())["relu:calc_derivative"]
    assert reads == {"b", "c@grad"}


def test_relu_in_place_reads_its_output() -> None:
    reads, _ = steps(small(), Sharing.RELU)["relu:calc_derivative"]
    assert reads == {"c", "c@grad"}


def test_pooling_reads_both_sides_and_saves_nothing() -> None:
    found = steps(small())
    assert found["pool:forward"] == ({"c"}, {"d"})
    assert found["pool:calc_derivative"] == ({"c", "d", "d@grad"}, {"c@grad"})


def test_a_normalisation_has_one_backward_operation() -> None:
    found = steps(small())
    reads, writes = found["norm:calc_derivative"]
    assert writes == {"a@grad", "scale@grad", "shift@grad"}
    assert reads == {"a", "b@grad", "scale", "norm@saved.mean", "norm@saved.inverse_deviation"}
    assert "norm:calc_gradient" not in found


def test_derivatives_come_before_gradients_and_updates_follow_at_once() -> None:
    order = list(steps(small()))
    at = order.index("fc:calc_derivative")
    assert order[at : at + 3] == ["fc:calc_derivative", "fc:calc_gradient", "w:apply_gradient"]


def test_no_operation_has_scratch() -> None:
    for graph in (small(), convolutional(), attention(), elementwise(), recurrent(), convolved()):
        steps = singa_program(graph).steps
        assert not any(b.access is Access.SCRATCH for step in steps for b in step.bindings)


def shared(made: Plan) -> dict[str, str]:
    """By value: the buffer that holds it, where several share one."""
    return {alias.id: buffer.id for _, buffer in made.buffers() for alias in buffer.aliases[1:]}


def test_a_sum_hands_its_derivative_on() -> None:
    s = Sketch("sum")
    a = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "a")
    b = s.op("Tanh", [a], "b")
    s.op("MeanSquaredError", [s.op("Add", [b, a], "sum"), s.label("t", 3, 4)], "loss")
    assert shared(plan(s.graph(), SINGA)) == {"a@grad": "sum@grad", "b@grad": "sum@grad"}


def test_a_derivative_that_grows_while_the_other_is_read_is_a_copy() -> None:
    """The derivative of d grows by what conv2 hands back, before conv2's gradient reads that of e."""
    assert shared(plan(small(skip=True), SINGA)) == {"e@grad": "sum@grad"}


def test_in_place_relu_takes_its_inputs_place_and_nothing_else_does() -> None:
    found = singa_program(small(), Sharing.RELU)
    aliases = {found.values[a.value].label: found.values[a.source].label for a in found.aliases}
    assert aliases == {"c": "b"}


def test_in_place_everything() -> None:
    found = shared(plan(small(skip=True), PlanOptions(target="singa", in_place=True)))
    assert found["c"] == "b"
    assert found["sum"] == "e"
    assert found["b@grad"] == found["a@grad"] == "c@grad"


def test_fused_activations_become_operations() -> None:
    s = Sketch("fused")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z", "fc", activation="Relu6")
    s.op("MeanSquaredError", [z, s.label("t", 3, 4)], "loss", "mse")
    graph = unfused(s.graph())
    assert [(o.id, o.type, o.inputs, o.outputs) for o in graph.operations[:2]] == [
        ("fc", "Gemm", ("x", "w"), ("z@linear",)),
        ("fc@activation", "Clip", ("z@linear",), ("z",)),
    ]
    assert dict(graph.operations[0].attributes) == {}
    assert dict(graph.operations[1].attributes) == {"min": 0.0, "max": 6.0}
    assert graph.operands["z@linear"].type == graph.operands["z"].type


def test_what_fuses_nothing_stays_as_it_is() -> None:
    graph = small()
    assert unfused(graph).operations == graph.operations


@pytest.mark.parametrize("activation", ["Relu", "Relu6", "Sigmoid", "Tanh"])
def test_every_activation_can_stand_alone(activation: str) -> None:
    s = Sketch("alone")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z", "fc", activation=activation)
    s.op("MeanSquaredError", [z, s.label("t", 3, 4)], "loss", "mse")
    assert "fc@activation:calc_derivative" in steps(s.graph())


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    "graph",
    [chain(), residual(), convolutional(), batch_normalised(), attention(), elementwise(), recurrent()],
    ids=lambda graph: graph.name,
)
def test_any_graph_is_planned_and_verified(graph: TrainableGraph, in_place: bool) -> None:
    made = plan(graph, PlanOptions(target="singa", in_place=in_place))
    assert violations(graph, made) == ()
    assert made.arenas[0].name == "arena"
    assert all(buffer.alignment == 4 for _, buffer in made.buffers())


def test_the_alignment_may_be_chosen() -> None:
    made = plan(small(), PlanOptions(target="singa", alignment=256))
    assert {buffer.alignment for _, buffer in made.buffers()} == {256}


def test_a_frozen_graph_has_no_backward_pass() -> None:
    s = Sketch("frozen")
    s.op("MeanSquaredError", [s.op("Relu", [s.input("x", 3, 4)], "y"), s.label("t", 3, 4)], "loss")
    steps = singa_program(s.graph(trainable=())).steps
    assert [step.phase for step in steps] == [Phase.FORWARD, Phase.FORWARD]


def test_it_runs_one_step_at_a_time() -> None:
    with pytest.raises(OptionsError, match="one step at a time"):
        plan(small(), PlanOptions(target="singa", parallelism=2))


def test_a_step_names_its_kernel() -> None:
    made = plan(small(), SINGA)
    update: PlannedStep = next(step for step in made.steps if step.id == "w:apply_gradient")
    assert update.kernel == "Update"
    assert update.uses == ("w", "w@grad", "w@momentum")
