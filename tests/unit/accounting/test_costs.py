"""Costs of steps: the products of each operator, the bytes of the others, and costs from a table."""

from __future__ import annotations

from solver.accounting import flops_of, roofline, step_costs
from solver.graph import DType, TensorType
from solver.program import Costs, Program
from solver.training import Block, BlockOperation, OperationCost, build_program, derive, explicit_program
from tests.support.derived import at, step
from tests.support.graphs import Sketch, chain, convolutional
from tests.support.operator_graphs import convolved, recurrent
from tests.support.sequence_graphs import GATES, classifier


def flops(program: Program, label: str) -> int:
    return flops_of(program, step(program, label))


def test_a_product_counts_two_for_each_multiplication() -> None:
    program = derive(chain((6, 5, 4), 3))
    assert flops(program, "fc1:forward") == 2 * 3 * 6 * 5
    assert flops(program, "fc2:forward") == 2 * 3 * 5 * 4
    assert flops(program, "fc2:calc_gradient") == flops(program, "fc2:calc_derivative") == 2 * 3 * 5 * 4
    assert flops(program, "mse:forward") == 0
    assert flops(program, "w1:apply_gradient") == 0


def test_products_of_matrices_and_transposed_operands() -> None:
    s = Sketch()
    h = s.op("MatMul", [s.input("x", 4, 6), s.parameter("w", 6, 8)], "h", "mm")
    h = s.op("Gemm", [h, s.parameter("v", 3, 8)], "y", "fc", transB=1)
    s.op("MeanSquaredError", [h, s.label("t", 4, 3)], "loss")
    program = derive(s.graph())
    assert flops(program, "mm:forward") == 2 * 4 * 6 * 8
    assert flops(program, "fc:forward") == 2 * 4 * 8 * 3


def test_explicit_operations_say_what_they_cost() -> None:
    blocks = [
        Block("x", TensorType((80,), DType.UINT8), fed=True),
        Block("y", TensorType((40,), DType.UINT8)),
    ]
    costs = [
        OperationCost(),
        OperationCost(nanoseconds=7),
        OperationCost(flops=90),
        OperationCost(flops=90, bytes=8),
    ]
    operations = [BlockOperation(f"op{k}", ("x",), ("y",), cost=cost) for k, cost in enumerate(costs)]
    program = explicit_program(build_program("p", blocks, operations))
    moved = (80 + 40) // 4
    assert roofline(program) == (2_000 + moved, 7, 2_000 + moved + 3, 2_000 + 2 + 3)
    assert [flops_of(program, step) for step in program.steps] == [0, 0, 90, 90]


def test_convolutions_count_their_groups() -> None:
    program = derive(convolutional())
    for t, found in enumerate(program.steps):
        node = program.operations[found.operation]
        if node.operation.type == "Conv" and program.step_labels[t].endswith(":forward"):
            weights = node.input(1)
            each = weights.elements // weights.shape[0]  # multiplications for one element of the result
            assert flops_of(program, found) == 2 * node.outputs[0].elements * each


def test_products_of_many_matrices_count_each() -> None:
    s = Sketch()
    h = s.op("MatMul", [s.input("x", 3, 4, 6), s.parameter("w", 6, 8)], "h", "mm")
    s.op("MeanSquaredError", [h, s.label("t", 3, 4, 8)], "loss")
    assert flops(derive(s.graph()), "mm:forward") == 2 * 3 * 4 * 6 * 8


def test_a_transposed_convolution_multiplies_each_element_of_its_operand() -> None:
    """Of shape [2, 4, 4, 4], by weights of shape [4, 4, 2, 2]."""
    assert flops(derive(convolved()), "larger.op:forward") == 2 * (2 * 4 * 4 * 4) * (4 * 2 * 2)


def test_a_cell_multiplies_its_operand_and_its_state_for_each_gate() -> None:
    """Forward as backward: 2 rows of 3 elements and states of 4."""
    for type_, gates in GATES.items():
        program = derive(classifier(type_))
        steps = [t for t in program.steps if program.kernel(t) == f"{type_}Cell"]
        first = [t for t in steps if program.operations[t.operation].input(0).shape[-1] == 3]
        assert {flops_of(program, t) for t in first} == {2 * 2 * gates * 4 * (3 + 4)}


def test_every_operator_with_products_has_some() -> None:
    for graph in (convolved(), recurrent(), *map(classifier, GATES)):
        program = derive(graph)
        kinds = {program.kernel(found) for found in program.steps if flops_of(program, found)}
        expected = {"Conv", "ConvTranspose", "Gemm", "MatMul", "LSTMCell", "GRUCell", "RNNCell"}
        assert kinds == expected & {program.kernel(found) for found in program.steps}


def test_the_roofline_adds_products_bytes_and_the_step_itself() -> None:
    program = derive(chain((6, 5, 4), 3))
    cost = roofline(program)
    # x [3, 6], w1 [6, 5], b1 [5], h1 [3, 5] in float32; 180 operations at 30 a nanosecond.
    touched = 4 * (18 + 30 + 5 + 15)
    assert cost[at(program, "fc1:forward")] == 2_000 + 180 // 30 + touched // 4
    assert all(isinstance(each, int) for each in cost)


def test_what_is_updated_is_read_and_written() -> None:
    program = derive(chain((6, 4), 3))
    read, written = 4 * 2 * 24, 4 * 24  # the weight and its gradient; the weight again
    assert roofline(program)[at(program, "w1:apply_gradient")] == 2_000 + (read + written) // 4


def test_without_given_costs_the_roofline_says_what_steps_take() -> None:
    program = derive(chain((6, 4), 3))
    assert step_costs(program) == roofline(program)
    given = Costs(tuple((label, 7) for label in program.step_labels))
    assert step_costs(program, given) == (7,) * len(program.steps)
