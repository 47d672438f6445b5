"""The training program of a graph: which steps exist, what they read and write."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from solver.errors import TrainableError
from solver.executor import Trainer, synthetic_batch, validate
from solver.graph import Initializer, Role, TrainableGraph
from solver.graph.nodes import graph_nodes
from solver.pipeline import plan
from solver.program import (
    ACCUMULATE,
    UPDATE,
    Access,
    EntryKind,
    Initial,
    Kind,
    Phase,
    Program,
    anonymous,
    check_program,
)
from solver.training import derive
from tests.support.derived import entries, exits, of_kind, reads, slots, step, writes
from tests.support.every import grid
from tests.support.graphs import Sketch, batch_normalised, chain, convolutional, residual
from tests.support.one_node import node_of
from tests.support.operator_graphs import attention, convolved, elementwise, recurrent


def ids(program: Program) -> list[str]:
    return list(program.step_labels)


def writers(program: Program, label: str) -> list[str]:
    """The steps that define a value, in order."""
    return [
        name
        for name, found in zip(program.step_labels, program.steps, strict=True)
        if label in writes(program, found)
    ]


def operation(program: Program, name: str) -> str:
    """The operation that a step belongs to."""
    return program.operations[step(program, name).operation].operation.id


def test_the_three_way_order_of_a_chain_and_its_updates() -> None:
    program = derive(chain())
    assert ids(program) == [
        "fc1:forward", "fc2:forward", "mse:forward",
        "loss:calc_derivative.seed", "mse:calc_derivative",
        "fc2:calc_gradient", "fc2:calc_derivative", "fc1:calc_gradient",
        "w1:apply_gradient", "b1:apply_gradient", "w2:apply_gradient", "b2:apply_gradient",
    ]  # fmt: skip
    check_program(program)


def test_backward_steps_read_only_what_the_operators_say() -> None:
    program = derive(chain())
    gradient, derivative = step(program, "fc2:calc_gradient"), step(program, "fc2:calc_derivative")
    assert set(reads(program, gradient)) == {"h1", "h2@grad"}
    assert set(writes(program, gradient)) == {"w2@grad", "b2@grad"}
    assert set(reads(program, derivative)) == {"w2", "h2@grad"}
    assert set(writes(program, derivative)) == {"h1@grad"}


def test_a_fused_activation_makes_the_backward_read_its_output() -> None:
    program = derive(chain())
    assert "h1" in reads(program, step(program, "fc1:calc_gradient"))


def test_no_derivative_of_inputs_and_labels() -> None:
    program = derive(chain())
    assert {"x@grad", "t@grad"}.isdisjoint(program.by_label)


def test_a_branch_gets_one_def_and_explicit_accumulates() -> None:
    program = derive(residual())
    assert writers(program, "h1@grad") == ["join:calc_derivative", "fc2:calc_derivative.accumulate0"]
    partial = step(program, "fc2:calc_derivative")
    assert writes(program, partial) == ["h1@fc2.0@grad"]
    accumulate = step(program, "fc2:calc_derivative.accumulate0")
    assert program.kernel(accumulate) == ACCUMULATE
    assert set(reads(program, accumulate)) == {"h1@grad", "h1@fc2.0@grad"}


def test_an_operand_read_twice_by_one_operation_gets_both_derivatives() -> None:
    program = derive(residual())
    assert writes(program, step(program, "square:calc_derivative")) == ["h4@grad", "h4@square.1@grad"]


def test_tied_weights_stay_tied() -> None:
    program = derive(residual())
    updates = [
        name
        for name, found in zip(program.step_labels, program.steps, strict=True)
        if program.kernel(found) == UPDATE and operation(program, name) == "w2"
    ]
    assert updates == ["w2:apply_gradient"]
    assert writers(program, "w2@grad") == ["fc2b:calc_gradient", "fc2:calc_gradient.accumulate1"]


def test_frozen_parameters_have_no_gradient_no_state_and_no_needless_steps() -> None:
    program = derive(chain((6, 5, 4, 3), trainable=["w3", "b3"], optimizer="Adam"))
    assert of_kind(program, Kind.GRADIENT) == {"w3@grad", "b3@grad"}
    assert of_kind(program, Kind.OPTIMIZER_VARIABLE) == {
        f"{w}@{v}" for w in ("w3", "b3") for v in ("first_moment", "second_moment")
    }
    phases = (Phase.CALC_GRADIENT, Phase.CALC_DERIVATIVE)
    backward = [name for name in ids(program) if step(program, name).phase in phases]
    assert {operation(program, name) for name in backward} == {"loss", "mse", "fc3"}
    assert "fc3:calc_derivative" not in ids(program)


def test_a_frozen_layer_in_the_middle_passes_derivatives_on() -> None:
    program = derive(chain((6, 5, 4, 3), trainable=["w1"]))
    assert "fc2:calc_derivative" in ids(program)
    assert "fc2:calc_gradient" not in ids(program)


def test_nothing_trainable_means_forward_only() -> None:
    program = derive(chain(trainable=0))
    assert all(s.phase is Phase.FORWARD for s in program.steps)


@pytest.mark.parametrize(("count", "trained"), [(0, set()), (1, {"w3", "b3"}), (2, {"w2", "b2", "w3", "b3"})])
def test_the_trainable_set_counted_from_the_back(count: int, trained: set[str]) -> None:
    program = derive(chain((6, 5, 4, 3), trainable=count))
    assert of_kind(program, Kind.GRADIENT) == {f"{name}@grad" for name in trained}


def test_all_is_minus_one() -> None:
    assert ids(derive(chain(trainable=-1))) == ids(derive(chain()))


def test_shape_operands_take_no_memory() -> None:
    s = Sketch()
    w = s.parameter("w", 4, 6)
    h = s.op("Reshape", [s.input("x", 2, 2, 3), s.integers("shape", 2, 6)], "h")
    y = s.op("Gemm", [h, w], "y", transB=1)
    s.op("MeanSquaredError", [y, s.label("t", 2, 4)], "loss")
    program = derive(s.graph())
    assert {"shape", "h@grad"}.isdisjoint(program.by_label)


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
    check_program(program)
    assert sum(s.part == "seed" for s in program.steps) == 1
    assert "h@a.op.0@grad" in program.by_label


def test_what_an_operation_updates_is_one_binding() -> None:
    program = derive(batch_normalised())
    forward = step(program, "norm:forward")
    updated = {b.slot: program.values[b.value].label for b in forward.bindings if b.access is Access.UPDATE}
    assert updated == {"x3": "mean", "x4": "variance"}
    for name in ("mean", "variance"):
        assert program.values[program.by_label[name]].kind is Kind.STATE
        assert entries(program)[name] is EntryKind.CARRIED
        assert name in exits(program)
        touching = [
            label
            for label, found in zip(ids(program), program.steps, strict=True)
            if program.by_label[name] in {b.value for b in found.bindings}
        ]
        assert touching == ["norm:forward"]
    check_program(program)


def test_a_frozen_normalisation_reads_its_states_on_both_passes() -> None:
    program = derive(batch_normalised(mode=0))
    assert not {"mean", "variance"} & {name for s in program.steps for name in writes(program, s)}
    assert {"mean", "variance"} <= set(reads(program, step(program, "norm:calc_gradient")))
    assert "variance" in reads(program, step(program, "norm:calc_derivative"))
    assert {entries(program)[name] for name in ("mean", "variance")} == {EntryKind.CONSTANT}


def pooled(**hyper: Any) -> TrainableGraph:
    """A convolution, max pooling and a layer behind it."""
    s = Sketch("pooled")
    h = s.op("Conv", [s.input("x", 2, 1, 4, 4), s.parameter("k", 3, 1, 1, 1)], "h", "conv")
    h = s.op("MaxPool", [h], "p", "pool", kernel_shape=(2, 2), strides=(2, 2))
    h = s.op("Gemm", [s.op("Flatten", [h], "f"), s.parameter("w", 12, 2)], "y", "fc")
    s.op("MeanSquaredError", [h, s.label("t", 2, 2)], "loss", "mse")
    return s.graph(**hyper)


def test_what_no_backward_step_reads_is_not_saved() -> None:
    assert of_kind(derive(pooled()), Kind.SAVED) == {"pool@saved.arg_max"}
    frozen = derive(pooled(trainable=["w"]))
    assert of_kind(frozen, Kind.SAVED) == set()
    assert slots(step(frozen, "pool:forward"), Access.WRITE) == ["y0"]
    check_program(frozen)


def test_pooling_finds_the_same_without_saving_where() -> None:
    graphs = pooled(), pooled(trainable=["w"])
    trainers = [Trainer(graph, plan(graph)) for graph in graphs]
    batch = synthetic_batch(graphs[0], 0, 1)
    assert trainers[0].step(batch) == trainers[1].step(batch)
    assert all(validate(graph, plan(graph), steps=2).identical for graph in graphs)


@grid(
    "graph",
    [
        *(chain(), residual(), convolutional(), batch_normalised(), pooled(), pooled(trainable=["w"])),
        *(residual(trainable=["w3"]), residual(trainable=["w1"]), convolutional(trainable=["k2"])),
        *(elementwise(), attention(), recurrent(), convolved(), convolved(trainable=["k4"])),
    ],
)
def test_every_derivative_that_is_computed_is_read(graph: TrainableGraph) -> None:
    """No dead derivatives: each leads on to the gradient of a trained parameter, and that to an update."""
    program = derive(graph)
    backward = (Kind.DERIVATIVE, Kind.PARTIAL, Kind.GRADIENT)
    read = {name for s in program.steps for name in reads(program, s)}
    assert {value.label for value in program.values if value.kind in backward} <= read


# ------------------------------------------------------------------------------- entry, exit, reference


def test_what_holds_values_at_the_start_and_what_is_there_at_the_end() -> None:
    program = derive(chain((6, 5, 4), trainable=["w2"], optimizer="Adam", outputs=("h2",)))
    fed, constant, carried = EntryKind.FED, EntryKind.CONSTANT, EntryKind.CARRIED
    assert entries(program) == {
        "x": fed, "t": fed,
        "w1": constant, "b1": constant, "b2": constant,
        "w2": carried, "w2@first_moment": carried, "w2@second_moment": carried,
    }  # fmt: skip
    assert exits(program) == {"loss", "h2", "w2", "w2@first_moment", "w2@second_moment"}
    assert all(entry.value == entry.reference for entry in program.entry)
    assert all(exit_.value == exit_.reference for exit_ in program.exit)


def test_carried_and_constant_values_say_what_they_begin_with() -> None:
    s = Sketch()
    values = Initializer("values", bytes(48))
    h = s.op("Gemm", [s.input("x", 2, 3), s.parameter("w", 3, 4, initializer=values)], "h", "fc")
    h = s.op("Add", [h, s.parameter("b", 4, initializer=Initializer("constant", value=0.5))], "y")
    s.op("MeanSquaredError", [h, s.label("t", 2, 4)], "loss", "mse")
    program = derive(s.graph(optimizer="Adam"))
    initial = {program.values[number].label: given for number, given in program.initial.items()}
    assert set(initial) == {"w", "b"}, "optimizer variables begin with zeros"
    assert initial["w"].scheme == "values"
    assert initial["w"].source == "w"
    assert len(initial["w"].sha256) == 64
    assert initial["b"] == Initial("constant", value=0.5)


@pytest.mark.parametrize("graph", [chain(), residual(), convolutional(), batch_normalised()])
def test_a_derived_program_is_its_own_reference(graph: TrainableGraph) -> None:
    program = derive(graph)
    positions = list(range(len(program.steps)))
    assert [s.reference for s in program.steps] == positions
    assert [(s.level, s.until) for s in program.steps] == [(t, t) for t in positions]
    assert program.period == 1
    assert not program.aliases
    assert not any(s.due for s in program.steps)


def test_values_are_numbered_as_they_are_declared_and_all_are_touched() -> None:
    program = derive(residual())
    first = list(dict.fromkeys(b.value for s in program.steps for b in s.bindings))
    assert sorted(first) == list(range(len(program.values)))
    forward = [b.value for s in program.steps if s.phase is Phase.FORWARD for b in s.bindings]
    new = list(dict.fromkeys(forward))
    assert all(a < b for a, b in pairwise(new))


def test_operations_are_known_by_slots_alone() -> None:
    """The same network under other names has the same kernels: nothing is decided by a name."""
    program = derive(chain())
    for node in program.operations:
        assert all(name[:1] in ("", "x") for name in node.operation.inputs)
        assert all(name[:1] == "y" for name in node.operation.outputs)


def test_the_attributes_of_the_programs_own_steps_say_all_that_they_do() -> None:
    program = derive(chain(optimizer="SGD", momentum=0.9, learning_rate=0.25))
    update = program.operations[step(program, "w1:apply_gradient").operation]
    assert update.attributes["optimizer"] == "SGD"
    assert update.attributes["momentum"] == 0.9
    assert update.attributes["learning_rate"] == 0.25
    other = derive(chain(optimizer="SGD", momentum=0.9, learning_rate=0.5))
    assert update != other.operations[step(other, "w1:apply_gradient").operation]
    seed = program.operations[step(program, "loss:calc_derivative.seed").operation]
    assert seed.attributes["value"] == 1.0


def test_the_scratch_budget_of_the_nodes_decides_the_size_of_scratch() -> None:
    graph = convolutional()
    sizes = []
    for budget in (1, 1 << 20):
        program = derive(graph, graph_nodes(graph, budget))
        sizes.append(sum(v.type.nbytes for v in program.values if v.kind is Kind.SCRATCH))
    assert sizes[0] < sizes[1]
    small = derive(graph, graph_nodes(graph, 1))
    assert small.operations != derive(graph).operations, "the budget is part of the kernel"


def quantised_trunk() -> Sketch:
    """Layers that save what their derivatives read, a quantisation, and a head."""
    s = Sketch("quantised")
    h = s.op("Conv", [s.input("x", 2, 3, 6, 6), s.parameter("k", 4, 3, 3, 3)], "c")
    h = s.op("MaxPool", [h], "p", kernel_shape=(2, 2), strides=(2, 2))
    h = s.op("Flatten", [h], "f")
    h = s.op("LayerNormalization", [h, s.parameter("g", 16, initializer=Initializer("ones"))], "n")
    scale = s.add("scale", Role.CONSTANT, (), initializer=Initializer("constant", value=0.03))
    h = s.op("DequantizeLinear", [s.op("QuantizeLinear", [h, scale], "q"), scale], "d")
    h = s.op("MatMul", [h, s.parameter("head", 16, 3)], "y")
    s.op("MeanSquaredError", [h, s.label("t", 2, 3)], "loss")
    return s


def test_a_frozen_trunk_is_planned_forward_only_and_what_it_saves_dies_at_once() -> None:
    graph = quantised_trunk().graph(trainable=["head"])
    program = derive(graph)
    back = {program.kernel(found) for found in program.steps if found.phase.word.startswith("calc")}
    assert back == {"Seed", "MeanSquaredError", "MatMul"}
    saved = {value for value, found in enumerate(program.values) if found.kind is Kind.SAVED}
    assert saved
    touched = [b.value for found in program.steps for b in found.bindings if b.value in saved]
    assert sorted(touched) == sorted(saved)
    assert validate(graph, plan(graph), steps=2).identical


def test_a_graph_that_needs_a_derivative_of_a_forward_kernel_is_refused() -> None:
    with pytest.raises(TrainableError) as caught:
        quantised_trunk().graph(trainable=["k", "head"])
    assert "'q.op'" in caught.value.message
    assert "QuantizeLinear has a forward kernel only" in caught.value.message
    assert "to train 'k'" in caught.value.message
    assert "--trainable head " in caught.value.remedy
    assert "--freeze-before d." in caught.value.remedy
    with pytest.raises(TrainableError, match="forward kernel only") as caught:
        quantised_trunk().graph(trainable=["k", "g"])
    assert "Train a part that follows it" in caught.value.remedy


def test_slots_of_inputs_that_are_left_out_stay_empty() -> None:
    node = anonymous(node_of("Clip", [(3, 4), None, ()]))
    assert (node.operation.inputs, node.operation.outputs) == (("x0", "", "x2"), ("y0",))
