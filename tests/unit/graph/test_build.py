"""The entry point to a graph: what it accepts, infers, orders and refuses."""

from __future__ import annotations

import numpy as np
import pytest

from solver import errors
from solver.graph import DeclaredOperand, DType, Initializer, Operation, OptimizerSpec, Role, build_graph
from solver.graph.declared import with_sizes
from solver.graph.nodes import graph_nodes, resolve
from solver.graph.order import depends_on, topological_order
from solver.graph.types import Operand, TensorType, TrainableGraph
from tests.support.every import grid
from tests.support.graphs import Sketch

SGD = OptimizerSpec("SGD", {"learning_rate": 0.1})


def op(name: str, inputs: str, outputs: str, type_: str = "Add") -> Operation:
    return Operation(name, type_, tuple(inputs.split()), tuple(outputs.split()))


def two_layers() -> Sketch:
    s = Sketch()
    s.input("x", 2, 3)
    s.label("t", 2, 5)
    for name, shape in (("w1", (3, 4)), ("b1", (4,)), ("w2", (4, 5)), ("b2", (5,))):
        s.parameter(name, *shape)
    s.op("Gemm", ["x", "w1", "b1"], "h", activation="Relu")
    s.op("Gemm", ["h", "w2", "b2"], "y")
    s.op("MeanSquaredError", ["y", "t"], "loss")
    return s


# ------------------------------------------------------------------------------ what a graph holds


def test_types_are_inferred_and_ordered_by_definition() -> None:
    graph = two_layers().graph()
    assert list(graph.operands) == ["x", "t", "w1", "b1", "w2", "b2", "h", "y", "loss"]
    assert str(graph.operands["h"].type) == "float32[2, 4]"
    assert graph.operands["loss"].type == TensorType((), DType.FLOAT32)
    assert {o.role for o in list(graph.operands.values())[6:]} == {Role.INTERMEDIATE}


def test_operations_are_sorted_ties_in_the_given_order() -> None:
    s = two_layers()
    expected = tuple(s.operations)
    s.operations.reverse()
    assert s.graph().operations == expected


def test_graphs_are_values() -> None:
    assert two_layers().graph() == two_layers().graph()
    assert two_layers().graph() != two_layers().graph(trainable=["w1"])


def test_graphs_do_not_change() -> None:
    graph = two_layers().graph()
    with pytest.raises(TypeError):
        graph.operands["new"] = graph.operands["x"]  # type: ignore[index]  # what the test is about
    with pytest.raises(TypeError):
        graph.operations[0].attributes["activation"] = "None"  # type: ignore[index]  # the same


def test_one_loss_in_a_list() -> None:
    s = two_layers()
    graph = build_graph("g", s.operands, s.operations, loss=["loss"], optimizer=SGD)
    assert graph.loss == "loss"


def test_an_output_may_be_any_operand() -> None:
    assert two_layers().graph(outputs=["x", "h"]).outputs == ("x", "h")


@pytest.mark.parametrize("role", [Role.INPUT, Role.CONSTANT, Role.PARAMETER])
def test_an_output_that_no_operation_uses_is_refused_for_that(role: Role) -> None:
    s = two_layers()
    s.add("k", role, (4,), initializer=Initializer("ones") if role is Role.CONSTANT else None)
    with pytest.raises(errors.DanglingOperandError, match=r"'k' .* is used by no operation") as caught:
        s.graph(outputs=["y", "k"])
    assert caught.value.path == ("outputs", 1)


def test_declared_intermediate_of_the_inferred_type() -> None:
    s = two_layers()
    s.operands.append(DeclaredOperand("h", Role.INTERMEDIATE, (2, 4), DType.FLOAT32))
    assert s.graph() == two_layers().graph()


# -------------------------------------------------------------------------------- the trainable set


@grid(
    ("trainable", "expected"),
    [
        ("all", ("w1", "b1", "w2", "b2")),
        (-1, ("w1", "b1", "w2", "b2")),
        (0, ()),
        (1, ("w2", "b2")),
        (2, ("w1", "b1", "w2", "b2")),
        (9, ("w1", "b1", "w2", "b2")),
        (["b2", "w1"], ("w1", "b2")),
        ([], ()),
    ],
)
def test_trainable_set_is_in_order_of_declaration(trainable: object, expected: tuple[str, ...]) -> None:
    graph = two_layers().graph(trainable=trainable)  # type: ignore[arg-type]  # as parametrised
    assert graph.trainable == expected


def test_frozen_parameters_stay_frozen_in_all_and_in_the_last() -> None:
    def frozen() -> Sketch:
        s = Sketch()
        s.input("x", 2, 3)
        s.label("t", 2, 4)
        s.parameter("w", 3, 4)
        s.parameter("b", 4, trainable=False)
        s.op("Gemm", ["x", "w", "b"], "y")
        s.op("MeanSquaredError", ["y", "t"], "loss")
        return s

    assert frozen().graph().trainable == ("w",)
    assert frozen().graph(trainable=1).trainable == ("w",)


def test_shared_parameter_counts_for_its_last_reader() -> None:
    s = Sketch()
    s.input("x", 2, 3)
    s.label("t", 2, 3)
    s.parameter("w", 3, 3)
    s.parameter("v", 3, 3)
    s.op("MatMul", ["x", "w"], "a")
    s.op("MatMul", ["a", "v"], "b")
    s.op("MatMul", ["b", "w"], "c")
    s.op("MeanSquaredError", ["c", "t"], "loss")
    assert s.graph(trainable=1).trainable == ("w",)


def test_trainable_must_influence_the_loss() -> None:
    s = two_layers()
    s.parameter("side", 2, 5)
    s.op("Add", ["y", "side"], "unused")
    with pytest.raises(errors.TrainableError, match="'side' does not influence the loss 'loss'"):
        s.graph()
    assert "side" not in s.graph(trainable=["w1"]).trainable


def test_integer_parameter_cannot_be_trained() -> None:
    s = two_layers()
    data = Initializer("values", data=np.array([2, 5], np.int64).tobytes())
    s.add("shape", Role.PARAMETER, (2,), dtype=DType.INT64)
    s.op("Reshape", ["y", "shape"], "z")
    with pytest.raises(errors.ShapeMismatchError, match="must be a constant with inline values"):
        s.graph()
    s.operands[-1] = DeclaredOperand("shape", Role.CONSTANT, (2,), DType.INT64, data)
    assert s.graph().operands["z"].shape == (2, 5)


def test_sparse_classes_are_no_trainable() -> None:
    s = Sketch()
    s.input("x", 2, 3)
    s.add("classes", Role.PARAMETER, (2,), dtype=DType.INT64)
    s.op("CategoricalCrossEntropy", ["x", "classes"], "loss", sparse=1)
    with pytest.raises(errors.TrainableError, match="'classes' is int64; only floating"):
        s.graph()
    assert s.graph(trainable=[]).trainable == ()


# --------------------------------------------------------------------------------- paths of errors


@grid(
    ("operation", "error", "path"),
    [
        (Operation("e", "Nope", ("y",), ("z",)), errors.UnknownOperatorError, ("type",)),
        (Operation("e", "Relu", ("y", "y"), ("z",)), errors.ShapeMismatchError, ("inputs",)),
        (Operation("e", "Relu", ("y",), ("z", "zz")), errors.ShapeMismatchError, ("outputs",)),
        (Operation("e", "Relu", ("y",), ("z",), {"a": 1}), errors.AttributeRuleError, ("attributes", "a")),
        (Operation("e", "Relu", ("q",), ("z",)), errors.DanglingOperandError, ("inputs", 0)),
        (Operation("e", "Relu", ("y",), ("h",)), errors.DuplicateDefError, ("outputs", 0)),
        (Operation("e", "Relu", ("y",), ("",)), errors.GraphError, ("outputs", 0)),
        (Operation("", "Relu", ("y",), ("z",)), errors.GraphError, ("name",)),
        (Operation("a@b", "Relu", ("y",), ("z",)), errors.GraphError, ("name",)),
        (Operation("y.op", "Relu", ("y",), ("z",)), errors.DuplicateNameError, ("name",)),
    ],
)
def test_path_leads_to_the_operation(
    operation: Operation, error: type[errors.GraphError], path: tuple[str | int, ...]
) -> None:
    s = two_layers()
    s.operations.append(operation)
    with pytest.raises(errors.GraphError) as caught:
        s.graph()
    assert type(caught.value) is error
    assert caught.value.path == ("operations", 3, *path)
    assert caught.value.remedy


def test_path_leads_to_the_declaration() -> None:
    s = two_layers()
    s.operands[2] = DeclaredOperand("w1", Role.PARAMETER, (3, -1), DType.FLOAT32, path=("operands", 2))
    with pytest.raises(errors.DimensionError) as caught:
        s.graph()
    assert caught.value.pointer == "/operands/2/shape/1"


def test_values_of_the_wrong_length() -> None:
    s = two_layers()
    s.operands[3] = DeclaredOperand(
        "b1",
        Role.PARAMETER,
        (4,),
        DType.FLOAT32,
        Initializer("values", data=b"\0" * 15),
        path=("operands", 3),
    )
    with pytest.raises(errors.ShapeMismatchError, match="16 bytes, but its values decode to 15") as caught:
        s.graph()
    assert caught.value.pointer == "/operands/3/initializer"


def test_inferred_size_beyond_64_bits() -> None:
    s = Sketch()
    s.input("x", 2**31, 1)
    s.input("z", 1, 2**31)
    s.op("Add", ["x", "z"], "y")
    with pytest.raises(errors.DimensionError, match=f"{2**64:,} bytes") as caught:
        s.graph(loss="y")
    assert caught.value.path == ("operations", 0, "outputs", 0)


def test_limit_of_operations() -> None:
    s = two_layers()
    with pytest.raises(errors.TooManyOperationsError, match="3 operations; at most 2"):
        build_graph("g", s.operands, s.operations, loss="loss", optimizer=SGD, max_operations=2)


# ------------------------------------------------------------------------------------------- order


def test_topological_order_of_a_diamond() -> None:
    operations = [op("d", "b c", "d"), op("c", "a", "c"), op("b", "a", "b"), op("a", "x", "a")]
    assert topological_order(operations, {"d": 0, "c": 1, "b": 2, "a": 3}) == [3, 1, 2, 0]


def test_order_of_sorted_operations_is_their_own() -> None:
    operations = [op(f"o{i}", f"v{i // 2}", f"v{i + 1}") for i in range(50)]
    defined = {f"v{i + 1}": i for i in range(50)}
    assert topological_order(operations, defined) == list(range(50))


@pytest.mark.parametrize(
    ("operations", "printed", "culprit"),
    [
        ([op("a", "a", "a")], "a -> a", 0),
        ([op("a", "b", "a"), op("b", "a", "b")], "a -> b -> a", 0),
        ([op("c", "b", "c"), op("a", "b", "a"), op("b", "a", "b")], "b -> a -> b", 2),
        ([op("a", "x c", "a"), op("b", "a", "b"), op("c", "b", "c")], "a -> b -> c -> a", 0),
    ],
)
def test_cycle_is_printed_along_the_data(operations: list[Operation], printed: str, culprit: int) -> None:
    defined = {operation.outputs[0]: i for i, operation in enumerate(operations)}
    with pytest.raises(errors.CyclicGraphError) as caught:
        topological_order(operations, defined)
    assert f"a cycle: {printed}." in caught.value.message
    assert caught.value.path == ("operations", culprit)


def test_long_cycle_is_shortened() -> None:
    operations = [op(f"o{i}", f"v{i}", f"v{(i + 1) % 100}") for i in range(100)]
    with pytest.raises(errors.CyclicGraphError) as caught:
        topological_order(operations, {f"v{(i + 1) % 100}": i for i in range(100)})
    assert "o0 -> o1 -> " in caught.value.message
    assert "-> ... 81 more ... ->" in caught.value.message
    assert "-> o99 -> o0." in caught.value.message


def test_long_chain_needs_no_recursion() -> None:
    operations = [op(f"o{i}", f"v{i}", f"v{i + 1}") for i in range(5000)]
    defined = {f"v{i + 1}": i for i in range(5000)}
    assert topological_order(operations, defined) == list(range(5000))
    assert len(depends_on("v5000", operations, defined)) == 5001


def test_depends_on_follows_inputs_only() -> None:
    operations = [op("a", "x w", "a"), op("b", "a", "b"), op("c", "a v", "c")]
    assert depends_on("b", operations, {"a": 0, "b": 1, "c": 2}) == {"b", "a", "x", "w"}


def test_depends_on_by_some_inputs_only() -> None:
    operations = [op("a", "x w", "a"), op("b", "a v", "b")]
    first = depends_on("b", operations, {"a": 0, "b": 1}, lambda operation: operation.inputs[:1])
    assert first == {"b", "a", "x"}


@pytest.mark.parametrize("trainable", ["all", ["b"], ["w", "b"]])
def test_a_trainable_without_derivative_is_named(trainable: list[str]) -> None:
    """It decides which elements are chosen, so the loss depends on it, but by steps that have no slope."""
    s = Sketch()
    h = s.op("MatMul", [s.input("x", 2, 3), s.parameter("w", 3, 3)], "h")
    condition = s.op("Greater", [h, s.parameter("b", 3)], "condition")
    y = s.op("Where", [condition, h, s.op("Neg", [h], "minus")], "y")
    s.op("MeanSquaredError", [y, s.label("t", 2, 3)], "loss")
    with pytest.raises(errors.TrainableError, match="no derivative with respect to trainable 'b'"):
        s.graph(trainable=trainable)
    assert s.graph(trainable=["w"]).trainable == ("w",)


def test_a_split_names_as_many_outputs_as_it_has() -> None:
    s = Sketch()
    s.op("MatMul", [s.input("x", 2, 3), s.parameter("w", 3, 4)], "h")
    s.operations.append(Operation("cut", "Split", ("h",), ("left", "right"), {"axis": 1}))
    s.op("MeanSquaredError", ["left", s.label("t", 2, 2)], "loss")
    assert s.graph().operands["right"].shape == (2, 2)
    s.operations[1] = Operation("cut", "Split", ("h",), (), {"axis": 1})
    s.operations[2] = Operation("mse", "MeanSquaredError", ("h", "t"), ("loss",))
    with pytest.raises(errors.ShapeMismatchError, match=r"'cut' \(Split\) has 1 output\(s\), not 0"):
        s.graph()


# ------------------------------------------------------------------------------------------- nodes


def node_graph() -> TrainableGraph:
    s = two_layers()
    s.integers("to", 5, 2)
    s.op("Reshape", ["y", "to"], "z")
    return s.graph()


def test_nodes_of_a_graph_know_types_constants_and_attributes() -> None:
    graph = node_graph()
    nodes = graph_nodes(graph, scratch_budget=123)
    assert list(nodes) == [operation.id for operation in graph.operations]
    assert nodes["z.op"].constants == (None, (5, 2))
    assert nodes["h.op"].attributes["activation"] == "Relu"
    assert nodes["y.op"].attributes["activation"] == "None"
    assert nodes["h.op"].outputs == (graph.operands["h"].type,)
    assert nodes["h.op"].scratch_budget == 123


def test_optional_input_that_is_left_out() -> None:
    s = Sketch()
    s.input("x", 2, 3)
    s.label("t", 2, 4)
    s.parameter("w", 3, 4)
    s.op("Gemm", ["x", "w", ""], "y")
    s.op("MeanSquaredError", ["y", "t"], "loss")
    node = graph_nodes(s.graph())["y.op"]
    assert node.inputs[2] is None
    assert not node.has_input(2)
    with pytest.raises(errors.ShapeMismatchError, match=r"'y\.op' \(Gemm\) lacks input 2"):
        node.input(2)


def test_outputs_are_empty_before_inference() -> None:
    operands = {"x": Operand("x", TensorType((2,), DType.FLOAT32), Role.INPUT)}
    assert resolve(Operation("r", "Relu", ("x",), ("y",)), operands).outputs == ()


# ----------------------------------------------------------------------------------- symbolic batch


def test_with_sizes() -> None:
    assert with_sizes(["batch", 3, "batch"], {"batch": 7}, ()) == (7, 3, 7)
    assert with_sizes(["batch", "seq"], {"batch": 7, "seq": 9}, ()) == (7, 9)
    assert with_sizes([2, 3], {}, ()) == (2, 3)
    assert with_sizes([], {}, ()) == ()


@pytest.mark.parametrize(("shape", "batch", "axis"), [([1, "batch"], None, 1), (["N"], 3, 0)])
def test_with_sizes_points_at_the_dimension(shape: list[int | str], batch: int | None, axis: int) -> None:
    with pytest.raises(errors.BatchError) as caught:
        with_sizes(shape, {} if batch is None else {"batch": batch}, ("operands", 4, "shape"))
    assert caught.value.path == ("operands", 4, "shape", axis)


def test_the_trained_parameters_are_known_as_a_set_too() -> None:
    """Also of a graph that is a changed copy of another one."""
    s = two_layers()
    made = s.graph(trainable=["w2", "w1"])
    assert made.trainable == ("w1", "w2")
    assert made.trained == {"w1", "w2"}
    assert made.with_spec(trainable=("b1",)).trained == {"b1"}
