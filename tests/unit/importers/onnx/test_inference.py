"""ONNX models without a loss: inferences, whose outputs are those of ONNX's reference evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from solver.errors import LossError
from solver.executor import Trainer, synthetic_batch
from solver.graph import TrainableGraph, inference
from solver.importers.onnx import load_onnx
from solver.importers.options import ImportOptions, import_options
from solver.pipeline import plan
from tests.support.onnx_models import imported, model_of, node, nodes_of, perceptron, types_of

RNG = np.random.default_rng(7)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def evaluated(model: onnx.ModelProto, batch: dict[str, Any]) -> Any:
    """The output y as ONNX's reference evaluator computes it."""
    (y,) = ReferenceEvaluator(model).run(["y"], batch)
    return y


def inferred(graph: TrainableGraph, batch: dict[str, Any]) -> Any:
    """The output y as the arena of its plan has it."""
    with Trainer(graph, plan(graph)) as trainer:
        return trainer.infer(batch)["y"]


def stored(model: onnx.ModelProto, folder: Path, **options: Any) -> TrainableGraph:
    """The graph of a model that is a file, whose weights stay there."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    return load_onnx(path.read_bytes(), options=ImportOptions(**options), path=path).graph


def convolutional(*, trains: bool = False) -> onnx.ModelProto:
    """Convolution, batch norm and dropout before a layer of ten classes."""
    mode: Any = {"training_mode": 1} if trains else {}
    nodes = [
        node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("BatchNormalization", ["c", "s", "b", "m", "v"], ["n", "m2", "v2"] if trains else ["n"], **mode),
        node("Relu", ["n"], ["r"]),
        node("Dropout", ["r", "ratio", "trains"], ["d"]),
        node("Flatten", ["d"], ["f"]),
        node("Gemm", ["f", "q", "p"], ["y"], transB=1),
    ]
    weights = {
        "w": floats(4, 3, 3, 3), "s": floats(4), "b": floats(4), "m": floats(4), "v": np.abs(floats(4)) + 0.5,
        "q": floats(10, 16), "p": floats(10),
        "ratio": np.asarray(0.4, np.float32), "trains": np.asarray(trains),
    }  # fmt: skip
    return model_of(nodes, {"x": (2, 3, 2, 2)}, weights)


def test_a_model_without_a_loss_infers_as_onnx_does(tmp_path: Path) -> None:
    model = convolutional()
    graph = stored(model, tmp_path)
    assert (graph.loss, graph.trainable, graph.outputs) == (None, (), ("y",))
    batch = synthetic_batch(graph, 0, 0)
    np.testing.assert_allclose(inferred(graph, batch), evaluated(model, batch), rtol=1e-4, atol=1e-5)


def test_the_inference_of_a_training_model_uses_the_running_statistics(tmp_path: Path) -> None:
    """The same weights as above, exported for training: dropout and batch norm train there."""
    model = convolutional(trains=True)
    trained = stored(model, tmp_path, loss="cross-entropy")
    assert {"Dropout", "BatchNormalization"} <= {*types_of(trained)}
    graph = inference(trained)
    batch = synthetic_batch(graph, 0, 0)
    for made in model.graph.node:
        if made.op_type == "BatchNormalization":
            del made.attribute[:], made.output[1:]
    flag = next(tensor for tensor in model.graph.initializer if tensor.name == "trains")
    flag.CopyFrom(onnx.numpy_helper.from_array(np.asarray(False), "trains"))
    np.testing.assert_allclose(inferred(graph, batch), evaluated(model, batch), rtol=1e-4, atol=1e-5)


def three_outputs() -> onnx.ModelProto:
    """A matrix, the number that it comes to, and an input that goes through."""
    nodes = [*nodes_of("MatMul x w h, Tanh h y"), node("ReduceMean", ["h"], ["mean"], keepdims=0)]
    return model_of(nodes, {"x": (2, 3)}, {"w": floats(3, 4)}, outputs=("y", "mean", "x"))


def test_none_is_a_loss_for_a_model_that_could_have_one() -> None:
    assert imported(three_outputs(), loss=None).graph.loss == "mean"
    assert imported(three_outputs(), loss="none").graph.outputs == ("y", "mean")
    assert import_options({"loss": "none"}).loss == "none"


def test_an_output_that_is_no_number_is_inferred_alone() -> None:
    graph = imported(three_outputs(), loss=None, output="y").graph
    assert (graph.loss, graph.outputs) == (None, ("y",))
    assert types_of(graph) == ["MatMul", "Tanh"]
    both = imported(three_outputs(), loss="none", keep_outputs=("mean", "y")).graph
    assert both.outputs == ("mean", "y")


def test_the_notes_say_that_nothing_is_trained() -> None:
    model = imported(perceptron(), loss=None, dims={"n": 3})
    assert model.summary == "An inference, as no --loss says how it is trained. Its outputs: 'y'."
    assert not any("loss" in note for note in model.notes)


def test_quantised_weights_infer() -> None:
    nodes = [
        node("DequantizeLinear", ["q", "scale"], ["w"]),
        *nodes_of("MatMul x w y"),
    ]
    weights = {"q": RNG.integers(-128, 128, (6, 4)).astype(np.int8), "scale": np.asarray(0.02, np.float32)}
    model = model_of(nodes, {"x": (2, 6)}, weights, opset=19)
    graph = imported(model, loss=None).graph
    batch = synthetic_batch(graph, 0, 0)
    np.testing.assert_allclose(inferred(graph, batch), evaluated(model, batch), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ({"optimizer": "adam"}, "--optimizer"),
        ({"learning_rate": "0.5"}, "--optimizer"),
        ({"micro_batches": 2}, "--micro-batches"),
        ({"trainable": "last:1"}, "--trainable"),
        ({"frozen": "w"}, "--frozen"),
        ({"class_axis": 1}, "--class-axis"),
        ({"loss": "none", "optimizer": "adam"}, "The loss is none, and --optimizer"),
        ({"output": "y", "optimizer": "adam"}, "'y' is not a number, so it is no loss, and --optimizer"),
    ],
)
def test_choices_of_training_need_a_loss(words: dict[str, Any], option: str) -> None:
    options = import_options({**words, "dim": "n=3"})
    with pytest.raises(LossError, match=option) as caught:
        imported(perceptron(), **{name: getattr(options, name) for name in options.__slots__})
    assert "--loss: cross-entropy" in caught.value.remedy
    assert caught.value.remedy.endswith("out, to infer.")
