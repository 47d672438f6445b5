"""The values that each onert layer reads backward, its extra tensors, and the graphs that onert refuses."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from solver.errors import OptionsError
from solver.graph import DType, TensorType, TrainableGraph, TrainingRules
from solver.graph.nodes import graph_nodes
from solver.targets.onert import onert_target
from solver.targets.onert.rules import DEPTHWISE_THREADS, backward_reads, extra_tensors, runtime_type
from tests.support.graphs import Sketch, convolutional, residual


def network(extend: Callable[[Sketch, str], str]) -> TrainableGraph:
    """x -> fc -> what `extend` adds -> mean squared error, all [4, 6]."""
    s = Sketch("network")
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", transB=1)
    s.op("MeanSquaredError", [extend(s, h), s.label("t", 4, 6)], "loss", "mse")
    return s.graph()


def reads(graph: TrainableGraph) -> dict[str, tuple[str, ...]]:
    return {name: backward_reads(node) for name, node in graph_nodes(graph).items()}


def extras(graph: TrainableGraph) -> dict[str, dict[str, tuple[int, ...]]]:
    return {
        name: {extra.name: extra.type.shape for extra in extra_tensors(node)}
        for name, node in graph_nodes(graph).items()
    }


@pytest.mark.parametrize(
    ("type_", "expected"),
    [
        ("Add", ("h", "h")),
        ("Mul", ("h", "h")),
        ("Relu", ("y",)),
        ("Softmax", ("y",)),
    ],
)
def test_reads_of_elementwise_layers(type_: str, expected: tuple[str, ...]) -> None:
    inputs = 2 if type_ in ("Add", "Mul") else 1
    graph = network(lambda s, h: s.op(type_, [h] * inputs, "y", "layer"))
    assert reads(graph)["layer"] == expected


def test_fully_connected_reads_its_output_with_an_activation_only() -> None:
    graph = network(
        lambda s, h: s.op("Gemm", [h, s.parameter("w2", 6, 6)], "y", "layer", transB=1, activation="Relu6")
    )
    assert reads(graph)["fc"] == ("x", "w")
    assert reads(graph)["layer"] == ("h", "w2", "y")
    assert "activation_gradient" not in extras(graph)["fc"]
    assert extras(graph)["layer"]["activation_gradient"] == (4, 6)


def test_movement_pooling_and_loss() -> None:
    found = reads(convolutional())
    assert found["pool1"] == found["pool2"] == found["flatten"] == ()
    assert found["cce"] == ("f", "t")
    assert found["conv1"] == ("x", "k1", "a")


def test_extra_tensors_of_layers() -> None:
    found = extras(convolutional())
    assert found["conv1"] == {
        "transposed_weights": (4, 3, 3, 3),
        "conv_back_prop": (2, 8, 8, 4),
        "transposed_gradient": (4, 3, 3, 3),
        "activation_gradient": (2, 8, 8, 4),
    }
    assert found["pool1"] == {"arg_max": (2, 4, 4, 4)}
    assert found["pool2"] == found["flatten"] == found["cce"] == {}
    assert found["fc"] == {
        "transposed_weights": (5, 16),
        "transposed_input": (2, 16),
        "transposed_back_prop": (2, 5),
    }


def test_depthwise_convolution_keeps_a_filter_for_each_example_and_thread() -> None:
    assert extras(convolutional())["conv2"] == {
        "activation_gradient": (2, 4, 4, 4),
        "padded_filter": (2, 4, 3, 3, 1),
        "filter_buffers": (DEPTHWISE_THREADS, 4, 3, 3, 1),
        "filter_dim_buffers": (DEPTHWISE_THREADS, 4),
    }


def test_runtime_types() -> None:
    assert runtime_type(TensorType((3,), DType.INT64)) == TensorType((3,), DType.INT32)
    assert runtime_type(TensorType((3,), DType.FLOAT32)) == TensorType((3,), DType.FLOAT32)


# ---------------------------------------------------------------------------------------- refusals


def refusal(graph: TrainableGraph) -> str:
    with pytest.raises(OptionsError) as caught:
        onert_target(graph)
    assert caught.value.path == ("target",)
    return str(caught.value)


def test_refuses_operators_that_it_cannot_train() -> None:
    assert "'layer' (Sigmoid)" in refusal(network(lambda s, h: s.op("Sigmoid", [h], "y", "layer")))


def test_refuses_other_fused_activations() -> None:
    assert "Tanh" in refusal(residual())


def test_refuses_other_optimizers() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", transB=1)
    s.op("MeanSquaredError", [h, s.label("t", 4, 6)], "loss", "mse")
    assert "AdamW" in refusal(s.graph(optimizer="AdamW"))


@pytest.mark.parametrize(
    "rules", [TrainingRules(clip_global_norm=1.0), TrainingRules(loss_scale=2.0), TrainingRules(accumulate=2)]
)
def test_refuses_training_rules(rules: TrainingRules) -> None:
    assert "training rules" in refusal(convolutional(training=rules))


def test_refuses_a_loss_that_no_loss_operation_defines() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", transB=1)
    for k in range(2):
        s.op("MeanSquaredError", [h, s.label(f"t{k}", 4, 6)], f"part{k}", f"mse{k}")
    s.op("Add", ["part0", "part1"], "loss", "sum")
    assert "2 loss operations" in refusal(s.graph())


def test_refuses_double_precision() -> None:
    s = Sketch(dtype=DType.FLOAT64)
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", transB=1)
    s.op("MeanSquaredError", [h, s.label("t", 4, 6)], "loss", "mse")
    assert "float64" in refusal(s.graph())


def test_refuses_to_pad_with_anything_but_a_constant() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", transB=1)
    h = s.op("Pad", [h, s.integers("pads", 0, 1, 0, 1)], "p", "pad", mode="reflect")
    s.op("MeanSquaredError", [h, s.label("t", 4, 8)], "loss")
    assert "operation 'pad' (Pad) in mode 'reflect'" in refusal(s.graph())


def test_refuses_sparse_labels() -> None:
    s = Sketch()
    h = s.op("Gemm", [s.input("x", 4, 6), s.parameter("w", 6, 6)], "h", "fc", transB=1)
    s.op(
        "CategoricalCrossEntropy",
        [h, s.label("t", 4, dtype=DType.INT64)],
        "loss",
        "cce",
        sparse=1,
        from_logits=1,
    )
    assert "sparse labels" in refusal(s.graph())


@pytest.mark.parametrize(
    ("attributes", "channels", "word"),
    [({"dilations": (2, 2)}, 4, "dilation"), ({"group": 2}, 2, "groups")],
)
def test_refuses_convolutions(attributes: dict[str, object], channels: int, word: str) -> None:
    s = Sketch()
    k = s.parameter("k", 4, 3, 3, channels)
    x = s.input("x", 2, 8, 8, 4)
    y = s.op("Conv", [x, k], "y", "conv", data_layout="NHWC", auto_pad="SAME_UPPER", **attributes)
    s.op("MeanSquaredError", [y, s.label("t", 2, 8, 8, 4)], "loss", "mse")
    assert word in refusal(s.graph())
