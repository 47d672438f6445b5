"""Which operands are defined in the memory of others, and which never."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from solver.graph import Graph
from solver.graph.nodes import graph_nodes
from solver.liveness import use_def_chains
from solver.schedule import training_program
from solver.schedule.in_place import share_in_place
from solver.training import TrainingProgram
from tests.support.graphs import Sketch, residual

Pairs = dict[str, tuple[str, bool]]


def program(graph: Graph, *, workers: int = 1, in_place: bool = True) -> TrainingProgram:
    return training_program(
        graph, scratch_budget=1 << 20, update="immediate", workers=workers, in_place=in_place
    )


def shares(graph: Graph, workers: int = 1) -> Pairs:
    """By operand: whose memory it takes, and whether it is a view."""
    found = program(graph, workers=workers).shares
    return {str(operand): (str(share.source), share.view) for operand, share in found.items()}


def hidden(types: Sequence[str], *, trained_in_front: bool = True, readers: int = 1) -> Graph:
    """x -> Gemm (z) -> `types` one after the other (y0, y1, ...) -> Gemm -> loss. z has `readers`."""
    s = Sketch("hidden")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    h = z
    for k, type_ in enumerate(types):
        inputs = [h, s.integers(f"shape{k}", -1, 4)] if type_ == "Reshape" else [h]
        h = s.op(type_, inputs, f"y{k}")
    h = s.op("Gemm", [h, s.parameter("v", 4, 4)], "out")
    for k in range(1, readers):
        h = s.op("Add", [h, z], f"skip{k}")
    s.op("MeanSquaredError", [h, s.label("t", 3, 4)], "loss")
    return s.graph(trainable="all" if trained_in_front else ("v",))


def test_nothing_is_shared_unless_it_is_asked_for() -> None:
    assert not program(hidden(["Relu"]), in_place=False).shares


def test_an_activation_overwrites_its_input_and_its_derivative() -> None:
    assert shares(hidden(["Relu"])) == {"y0": ("z", False), "z@grad": ("y0@grad", False)}


def test_a_chain_stays_in_one_place() -> None:
    found = shares(hidden(["Relu", "Reshape", "Flatten"]))
    assert [found[name] for name in ("y0", "y1", "y2")] == [("z", False), ("y0", True), ("y1", True)]
    assert found["y0@grad"] == ("y1@grad", True)
    assert found["z@grad"] == ("y0@grad", False)


def test_two_that_read_their_output_cannot_follow_each_other_in_one_place() -> None:
    """The derivative of Relu reads y0, which Tanh would have overwritten."""
    found = shares(hidden(["Relu", "Tanh"]))
    assert found["y0"] == ("z", False)
    assert "y1" not in found


GATED = ["Gelu", "Swish", "HardSwish"]


@pytest.mark.parametrize("type_", GATED)
def test_the_trap_an_activation_whose_derivative_reads_its_input_does_not_overwrite_it(type_: str) -> None:
    graph = hidden([type_])
    found = shares(graph)
    assert "y0" not in found
    chain = use_def_chains(program(graph))
    (z,) = (index for index in chain if str(index) == "z")
    assert "y0.op:calc_derivative" in map(str, chain[z].uses)


@pytest.mark.parametrize("type_", GATED)
def test_the_trap_is_none_where_no_derivative_is_computed(type_: str) -> None:
    assert shares(hidden([type_], trained_in_front=False))["y0"] == ("z", False)


@pytest.mark.parametrize("type_", ["LeakyRelu", "Elu"])
def test_a_slope_that_is_no_function_of_the_output_keeps_the_input(type_: str) -> None:
    s = Sketch("slope")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    s.op(type_, [z], "y", alpha=-0.5)
    s.op("MeanSquaredError", ["y", s.label("t", 3, 4)], "loss")
    assert "y" not in shares(s.graph())


def test_an_operand_that_someone_else_reads_later_is_kept() -> None:
    assert "y0" not in shares(hidden(["Relu"], readers=2))


def test_an_operand_read_earlier_by_someone_else_may_be_overwritten() -> None:
    s = Sketch("earlier")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    other = s.op("Gemm", [s.op("Neg", [z], "n"), s.parameter("v", 4, 4)], "other")
    s.op("Add", [other, s.op("Relu", [z], "y")], "sum")
    s.op("MeanSquaredError", ["sum", s.label("t", 3, 4)], "loss")
    found = shares(s.graph())
    assert "n" not in found
    assert found["y"] == ("z", False)


@pytest.mark.parametrize("position", [0, 1])
def test_a_sum_takes_the_memory_of_the_operand_that_nobody_needs(position: int) -> None:
    """The other operand is read again; the sum of a block and its shortcut is that case."""
    s = Sketch("sum")
    a = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "a")
    b = s.op("Gemm", [a, s.parameter("v", 4, 4)], "b")
    s.op("Add", [b, a] if position == 0 else [a, b], "sum")
    s.op("MeanSquaredError", ["sum", s.label("t", 3, 4)], "loss")
    found = shares(s.graph())
    assert found["sum"] == ("b", False)
    assert found["b@grad"] == ("sum@grad", True)
    assert found["a@grad"] == ("sum@grad", True), "a's derivative grows only after b's was read"


def test_a_sum_that_is_broadcast_does_not_take_the_smaller_memory() -> None:
    s = Sketch("broadcast")
    a = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 1)], "a")
    b = s.op("Gemm", ["x", s.parameter("v", 4, 5)], "b")
    s.op("Add", [a, b], "sum")
    s.op("MeanSquaredError", ["sum", s.label("t", 3, 5)], "loss")
    found = shares(s.graph())
    assert found["sum"] == ("b", False)
    assert "a@grad" not in found


def test_derivatives_that_both_grow_do_not_share() -> None:
    """a and b are read twice each: both derivatives are accumulated into, so one of them is a copy."""
    s = Sketch("grow")
    a = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "a")
    b = s.op("Gemm", ["x", s.parameter("v", 4, 4)], "b")
    p = s.op("MatMul", [a, s.parameter("k", 4, 4)], "p")
    q = s.op("MatMul", [b, s.parameter("l", 4, 4)], "q")
    s.op("Add", [s.op("Add", [a, b], "sum"), s.op("Add", [p, q], "other")], "total")
    s.op("MeanSquaredError", ["total", s.label("t", 3, 4)], "loss")
    found = shares(s.graph())
    assert len({"a@grad", "b@grad"} & found.keys()) <= 1


def test_the_same_operand_twice_is_not_overwritten() -> None:
    s = Sketch("twice")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    s.op("Add", [z, z], "sum")
    s.op("MeanSquaredError", ["sum", s.label("t", 3, 4)], "loss")
    assert "sum" not in shares(s.graph())


def test_a_product_keeps_the_derivative_that_its_second_operand_needs() -> None:
    """dA is written before dY is read for dB, so that only dB may take dY's memory."""
    s = Sketch("product")
    a = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "a")
    b = s.op("Gemm", ["x", s.parameter("v", 4, 4)], "b")
    s.op("Mul", [a, b], "product")
    s.op("MeanSquaredError", ["product", s.label("t", 3, 4)], "loss")
    found = shares(s.graph())
    assert "a@grad" not in found
    assert found["b@grad"] == ("product@grad", False)


def test_what_is_the_callers_is_never_overwritten() -> None:
    s = Sketch("callers")
    x = s.op("Relu", [s.input("x", 3, 4)], "r")
    w = s.op("Relu", [s.parameter("w", 4, 4)], "rw")
    s.op("MeanSquaredError", [s.op("Gemm", [x, w], "y"), s.op("Relu", [s.label("t", 3, 4)], "rt")], "loss")
    assert shares(s.graph()).keys() == {"w@grad"}


def test_a_view_of_the_input_or_of_a_weight_overwrites_nothing() -> None:
    s = Sketch("views")
    x = s.op("Flatten", [s.input("x", 3, 2, 2)], "flat")
    w = s.op("Reshape", [s.parameter("w", 16), s.integers("square", 4, 4)], "matrix")
    s.op("MeanSquaredError", [s.op("Gemm", [x, w], "y"), s.label("t", 3, 4)], "loss")
    found = shares(s.graph())
    assert found == {"flat": ("x", True), "matrix": ("w", True), "w@grad": ("matrix@grad", True)}


def test_results_are_kept() -> None:
    s = Sketch("results")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    s.op("Relu", [z], "y")
    s.op("MeanSquaredError", ["y", s.label("t", 3, 4)], "loss")
    assert "y" in shares(s.graph())
    assert shares(s.graph(outputs=("y",)))["y"] == ("z", False), "a result may take another one's place"
    assert "y" not in shares(s.graph(outputs=("z",)))


def test_a_result_that_is_a_view_keeps_what_it_views() -> None:
    s = Sketch("results")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    flat = s.op("Reshape", [z, s.integers("shape", 2, 6)], "flat")
    s.op("Tanh", [z], "y")
    s.op("MeanSquaredError", ["y", s.label("t", 3, 4)], "loss")
    found = shares(s.graph(outputs=(flat,)))
    assert found["flat"] == ("z", True)
    assert "y" not in found


def test_the_loss_is_not_overwritten() -> None:
    s = Sketch("loss")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    s.op("MeanSquaredError", [z, s.label("t", 3, 4)], "first")
    s.op("Neg", ["first"], "loss")
    s.op("Neg", ["loss"], "after")
    found = shares(s.graph(outputs=("after",)))
    assert found["loss"] == ("first", False)
    assert "after" not in found


def test_what_steps_of_one_wave_read_is_not_overwritten_by_one_of_them() -> None:
    s = Sketch("wave")
    z = s.op("Gemm", [s.input("x", 3, 4), s.parameter("w", 4, 4)], "z")
    other = s.op("ReduceMean", [z], "mean", axes=(1,))
    s.op("Add", [s.op("Relu", [z], "y"), other], "sum")
    s.op("MeanSquaredError", ["sum", s.label("t", 3, 4)], "loss")
    graph = s.graph()
    assert "y" in shares(graph)
    together = program(graph, workers=4)
    times = {str(step.index): time for step, time in zip(together.steps, together.times, strict=True)}
    assert times["mean.op:forward"] == times["y.op:forward"]
    assert "y" not in shares(graph, workers=4)


def test_only_what_is_allowed_is_used() -> None:
    graph = hidden(["Relu", "Flatten"])
    nodes = graph_nodes(graph)
    found = share_in_place(program(graph, in_place=False), nodes, lambda step, promise: promise.view)
    assert found.shares
    assert all(share.view for share in found.shares.values())


def test_storages_list_all_that_share_in_order() -> None:
    found = program(hidden(["Relu", "Reshape"])).storages()
    assert [[str(i) for i in storage] for storage in found.values()] == [
        ["z", "y0", "y1"],
        ["y1@grad", "y0@grad", "z@grad"],
    ]


def test_everything_else_of_the_program_stays_as_it_is() -> None:
    graph = residual()
    shared, alone = program(graph), program(graph, in_place=False)
    assert shared.steps == alone.steps
    assert shared.operands == alone.operands
