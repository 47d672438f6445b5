"""Whole models: batches, what is trained, constants that are worked out, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from solver.errors import ArenaplanError, BatchError, DocumentError, GraphError, UnknownOperatorError
from solver.executor import Trainer
from solver.graph import OptimizerSpec, Role
from solver.importers.circle import CircleTraining, load_circle
from solver.pipeline import plan
from tests.support.circle_models import CircleFile, dense

SGD = OptimizerSpec("SGD", {"learning_rate": 0.1})


@pytest.mark.parametrize("identifier", [b"CIR0", b"TFL3"])
def test_a_model_as_it_stands(identifier: bytes) -> None:
    graph = load_circle(dense(identifier)).graph
    assert graph.name == "made"
    assert graph.operands["x"].shape == (1, 4)
    assert graph.trainable == ("w0", "b0", "w1", "b1")
    assert [o.type for o in graph.operations] == ["Gemm", "Gemm", "Softmax", "CategoricalCrossEntropy"]
    assert graph.outputs == ("out",)


def test_the_batch_takes_the_place_of_the_first_dimension() -> None:
    graph = load_circle(dense(), batch=16).graph
    assert graph.operands["x"].shape == (16, 4)
    assert graph.operands["label"].shape == (16, 3)
    with pytest.raises(BatchError, match="The batch is 0"):
        load_circle(dense(), batch=0)


def test_how_it_is_trained() -> None:
    training = CircleTraining(
        SGD, "sparse-categorical-crossentropy", batch=2, reduction="sum", trainable=(1,)
    )
    graph = load_circle(dense(), training=training).graph
    assert graph.trainable == ("w1", "b1")
    assert graph.optimizer == SGD
    assert graph.operands["label"].shape == (2,)
    loss = graph.operations[-1]
    assert loss.attributes == {"reduction": "sum", "from_logits": 0, "epsilon": 1e-20, "sparse": 1}


def test_a_sum_of_squared_errors_is_of_the_means_of_examples() -> None:
    training = CircleTraining(SGD, "mean-squared-error", batch=2, reduction="sum")
    graph = load_circle(dense(), training=training).graph
    assert graph.operations[-1].attributes == {"reduction": "sum_of_means"}


def test_a_softmax_stands_behind_a_model_that_does_not_end_in_one() -> None:
    file = CircleFile()
    x, weight = file.input("x", (1, 2)), file.constant("w", np.eye(2, dtype=np.float32))
    y = file.tensor("y", (1, 2))
    file.operator("FULLY_CONNECTED", [x, weight, -1], [y], "FullyConnectedOptions")
    graph = load_circle(file.write(y)).graph
    assert graph.operations[-1].attributes == {"reduction": "mean", "from_logits": 1, "sparse": 0}
    with Trainer(graph, plan(graph)) as trainer:
        loss = trainer.step({"x": np.array([[-3.0, 1.0]], np.float32), "label": np.array([[1, 0]], "f4")})
    np.testing.assert_allclose(loss, np.log1p(np.exp(4)), rtol=1e-6)


def test_onert_cuts_probabilities_off_at_its_own_bound() -> None:
    """The losses that onert 0.1.0 prints: 20.048588 for p = 2e-9, and 46.051701 for anything below 1e-20."""
    for bias, expected in ((20.0, 20.048587799072266), (60.0, 46.051700592041016)):
        file = CircleFile()
        x, weight = file.input("x", (1, 1)), file.constant("w", np.zeros((3, 1), np.float32))
        y, p = file.tensor("y", (1, 3)), file.tensor("p", (1, 3))
        given = file.constant("b", np.array([-bias, 0, -3], np.float32))
        file.operator("FULLY_CONNECTED", [x, weight, given], [y], "FullyConnectedOptions")
        file.operator("SOFTMAX", [y], [p], "SoftmaxOptions", {"beta": 1.0})
        graph = load_circle(file.write(p)).graph
        with Trainer(graph, plan(graph)) as trainer:
            loss = trainer.step({"x": np.zeros((1, 1), np.float32), "label": np.array([[1, 0, 0]], "f4")})
        np.testing.assert_allclose(loss, expected, rtol=1e-6)


def test_a_set_that_names_an_operator_that_is_not_there() -> None:
    with pytest.raises(GraphError, match="trains operator 9; the model has 3"):
        load_circle(dense(), training=CircleTraining(SGD, "mean-squared-error", trainable=(9,)))


def flattened(*, keras: bool) -> bytes:
    """x [1, 2, 3] -> [1, 6] -> 3 units. As Keras writes Flatten: the batch is read from the shape of x."""
    file = CircleFile()
    x = file.input("x", (1, 2, 3))
    flat = file.tensor("flat", (1, 6))
    if keras:
        shape, first = file.tensor("shape", (3,), "int32"), file.tensor("first", (), "int32")
        file.operator("SHAPE", [x], [shape])
        begin, end, steps = (
            file.constant(n, np.array([v], np.int32)) for n, v in zip("bes", (0, 1, 1), strict=True)
        )
        file.operator(
            "STRIDED_SLICE", [shape, begin, end, steps], [first], "StridedSliceOptions", {"shrinkAxisMask": 1}
        )
        six, sizes = file.constant("six", np.array(6, np.int32)), file.tensor("sizes", (2,), "int32")
        file.operator("PACK", [first, six], [sizes], "PackOptions", {"axis": 0, "valuesCount": 2})
    else:
        sizes = file.constant("sizes", np.array([1, 6], np.int32))
    file.operator("RESHAPE", [x, sizes], [flat], "ReshapeOptions")
    weight, y = file.constant("w", np.ones((3, 6), np.float32)), file.tensor("y", (1, 3))
    file.operator("FULLY_CONNECTED", [flat, weight, -1], [y], "FullyConnectedOptions")
    return file.write(y)


@pytest.mark.parametrize("keras", [False, True])
def test_shapes_follow_the_batch(keras: bool) -> None:
    training = CircleTraining(SGD, "mean-squared-error", batch=5)
    graph = load_circle(flattened(keras=keras), training=training).graph
    assert graph.operands["flat"].shape == (5, 6)
    assert [o.type for o in graph.operations] == ["Reshape", "Gemm", "MeanSquaredError"]


def test_weights_of_half_precision_are_widened() -> None:
    file = CircleFile()
    x, half = file.input("x", (1, 2)), file.constant("half", np.array([[1.5, 2.0]], np.float16))
    whole, y = file.tensor("whole", (1, 2)), file.tensor("y", (1, 1))
    file.operator("DEQUANTIZE", [half], [whole])
    file.operator("FULLY_CONNECTED", [x, whole, -1], [y], "FullyConnectedOptions")
    graph = load_circle(file.write(y), training=CircleTraining(SGD, "mean-squared-error")).graph
    weight = graph.operands["whole"]
    assert weight.role is Role.PARAMETER
    assert weight.initializer is not None
    assert weight.initializer.data == np.array([1.5, 2.0], np.float32).tobytes()


def test_shared_weights_are_one_parameter() -> None:
    file = CircleFile()
    x, weight = file.input("x", (1, 2)), file.constant("w", np.eye(2, dtype=np.float32))
    y, z = file.tensor("y", (1, 2)), file.tensor("z", (1, 2))
    file.operator("FULLY_CONNECTED", [x, weight, -1], [y], "FullyConnectedOptions")
    file.operator("FULLY_CONNECTED", [y, weight, -1], [z], "FullyConnectedOptions")
    assert load_circle(file.write(z)).graph.trainable == ("w",)


def test_an_embedding_is_trained() -> None:
    file = CircleFile()
    ids, table = file.input("ids", (1, 4), "int32"), file.constant("table", np.ones((9, 2), np.float32))
    y = file.tensor("y", (1, 4, 2))
    file.operator("GATHER", [table, ids], [y], "GatherOptions")
    training = CircleTraining(SGD, "mean-squared-error", batch=3)
    graph = load_circle(file.write(y), training=training).graph
    assert graph.trainable == ("table",)
    assert graph.operands["y"].shape == (3, 4, 2)


def test_conditions_and_casts() -> None:
    file = CircleFile()
    x, one = file.input("x", (2, 3)), file.constant("one", np.ones(1, np.float32))
    larger, kept = file.tensor("larger", (2, 3)), file.tensor("kept", (2, 3))
    slope, y = file.constant("slope", np.full(3, 0.5, np.float32)), file.tensor("y", (2, 3))
    file.operator("GREATER", [x, one], [larger])
    file.operator("SELECT_V2", [larger, x, one], [kept])
    file.operator("PRELU", [kept, slope], [y])
    graph = load_circle(file.write(y), training=CircleTraining(SGD, "mean-squared-error")).graph
    given = np.array([[0.0, 2, 3], [1, -5, 4]], np.float32)
    with Trainer(graph, plan(graph)) as trainer:
        trainer.step({"x": given, "label": np.zeros((2, 3), np.float32)})
        np.testing.assert_array_equal(trainer.read("y"), np.maximum(given, 1))


def test_names_that_graphs_do_not_have() -> None:
    file = CircleFile()
    x, weight = file.input("a@b", (1, 2)), file.constant("a@b", np.ones((1, 2), np.float32))
    y = file.tensor("", (1, 1))
    file.operator("FULLY_CONNECTED", [x, weight, -1], [y], "FullyConnectedOptions")
    graph = load_circle(file.write(y), training=CircleTraining(SGD, "mean-squared-error")).graph
    assert {"a_b", "a_b_", "tensor 2"} <= set(graph.operands)


# ----------------------------------------------------------------------------------------- refusals


def test_all_unknown_operators_at_once() -> None:
    file = CircleFile()
    x = file.input("x", (1, 4))
    y, z = file.tensor("y", (1, 4)), file.tensor("z", (1, 4))
    file.operator("SVDF", [x], [y])
    file.operator("RANK", [y], [z])
    with pytest.raises(UnknownOperatorError) as caught:
        load_circle(file.write(z))
    assert "SVDF (operator 0, 'y'), RANK (operator 1, 'z')" in caught.value.message


def test_a_quantized_model() -> None:
    file = CircleFile()
    x = file.input("x", (1, 4))
    weight, y = file.tensor("w", (2, 4), "int8", quantized=True), file.tensor("y", (1, 2))
    file.tensors[weight].buffer = 0
    file.operator("FULLY_CONNECTED", [x, weight, -1], [y], "FullyConnectedOptions")
    with pytest.raises(ArenaplanError, match="'w'"):
        load_circle(file.write(y))
    file = CircleFile()
    x, y = file.input("x", (1, 4), "int16"), file.tensor("y", (1, 4))
    file.scaled(x, [0.1])
    file.operator("PRELU", [x, file.constant("slope", np.ones(4, np.float32))], [y])
    with pytest.raises(GraphError, match="uses 'x', which is quantized INT16"):
        load_circle(file.write(y))


def test_options_that_its_kind_needs() -> None:
    file = CircleFile()
    x, y = file.input("x", (1, 4, 4, 1)), file.tensor("y", (1, 2, 2, 1))
    file.operator("MAX_POOL_2D", [x], [y])
    with pytest.raises(DocumentError, match=r"Operator 0, MAX_POOL_2D \('y'\), has not the options"):
        load_circle(file.write(y))


def test_an_operator_before_its_inputs() -> None:
    file = CircleFile()
    file.input("x", (1, 4))
    y, z = file.tensor("y", (1, 4)), file.tensor("z", (1, 4))
    file.operator("RELU", [y], [z])
    with pytest.raises(UnknownOperatorError, match="reads 'y', which no operator before it defines"):
        load_circle(file.write(z))


def test_an_output_that_is_an_input() -> None:
    file = CircleFile()
    x, y = file.input("x", (1, 4)), file.tensor("y", (1, 4))
    file.operator("RELU", [x], [y])
    with pytest.raises(GraphError, match="'x' is not a tensor that an operator computes"):
        load_circle(file.write(x))


@pytest.mark.parametrize("data", [b"", b"CIR0", b"\x00" * 4 + b"TFL", b"{}", b"\x08\x00\x00\x00ONNXxxxx"])
def test_other_files(data: bytes) -> None:
    with pytest.raises(DocumentError, match="neither a Circle nor a TensorFlow Lite model"):
        load_circle(data)


def test_a_file_that_is_cut_off() -> None:
    whole = dense()
    refused = 0
    for length in range(8, len(whole), 37):
        try:
            load_circle(whole[:length])
        except ArenaplanError:
            refused += 1
    assert refused >= len(range(8, len(whole), 37)) - 1  # the very last bytes are those of a name


def test_equal_masks_are_one_constant() -> None:
    """Converters write a mask for each layer."""
    file, mask = CircleFile(), np.triu(np.full((4, 4), -1e9, np.float32), 1)
    last = file.input("x", (4, 4))
    weight = file.constant("w", np.eye(4, dtype=np.float32))
    for layer in range(3):
        masked, sum_ = file.tensor(f"s{layer}", (4, 4)), file.constant(f"mask{layer}", mask)
        file.operator("ADD", [last, sum_], [masked], "AddOptions")
        last = file.tensor(f"h{layer}", (4, 4))
        file.operator("FULLY_CONNECTED", [masked, weight, -1], [last], "FullyConnectedOptions")
    graph = load_circle(file.write(last)).graph
    assert [o.id for o in graph.operands.values() if o.role is Role.CONSTANT] == ["mask0"]
    assert [o.inputs[1] for o in graph.operations if o.type == "Add"] == ["mask0"] * 3
