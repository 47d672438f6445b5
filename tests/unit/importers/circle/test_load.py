"""Circle models by the choices that every importer takes, from the command line's point of view."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from solver.errors import (
    BatchError,
    DimensionError,
    GraphError,
    LossError,
    OptionsError,
    TrainableError,
    UnknownOperatorError,
)
from solver.executor import Trainer, synthetic_batch
from solver.exporters.circle import with_training
from solver.graph import OptimizerSpec
from solver.importers.circle import CircleTraining, load_circle_model, weights_of
from solver.importers.circle import load_circle as load_whole
from solver.importers.options import ImportOptions, import_options
from solver.importers.registry import find_importer, load_model
from solver.pipeline import plan
from tests.support.circle_cases import CASES, written
from tests.support.circle_models import CircleFile, dense


def test_found_by_suffix_and_by_its_first_bytes() -> None:
    for path, data in (
        (Path("a.circle"), b""),
        (Path("a.tflite"), b""),
        (None, dense()),
        (None, dense(b"TFL3")),
    ):
        found = find_importer(data, path)
        assert found is not None
        assert found.name == "circle"
    assert found is not None
    imported = load_model(found, dense(), options=ImportOptions(batch=4), path=None, name="net")
    assert imported.graph.name == "net"
    assert imported.graph.operands["x"].shape == (4, 4)
    assert "CategoricalCrossEntropy, Adam: the file does not say how" in imported.notes[0]


def test_the_file_says_how_and_choices_go_first() -> None:
    training = CircleTraining(OptimizerSpec("SGD", {"learning_rate": 0.5}), "mean-squared-error", batch=8)
    data = with_training(dense(), training)
    as_said = load_circle_model(data, options=ImportOptions())
    assert as_said.graph.optimizer == training.optimizer
    assert as_said.graph.operations[-1].type == "MeanSquaredError"
    assert as_said.graph.operands["x"].shape == (8, 4)
    chosen = load_circle_model(
        data,
        options=import_options({"loss": "cross-entropy", "optimizer": "adam", "trainable": "w1,b*"}, batch=2),
    )
    assert chosen.notes == ()
    assert chosen.graph.optimizer == OptimizerSpec("Adam")
    assert chosen.graph.trainable == ("b0", "w1", "b1")
    # The model ends in a softmax, so its output is probabilities and not logits.
    assert chosen.graph.operations[-1].attributes == {"from_logits": 0, "sparse": 1, "epsilon": 1e-20}
    assert chosen.graph.operands["label"].shape == (2,)
    divergence = load_circle_model(data, options=import_options({"loss": "kl-divergence"}))
    assert divergence.graph.operations[-1].attributes == {"from_logits": 0}


def test_choices_that_these_files_do_not_leave() -> None:
    for given in ({"class_axis": "1"}, {"batch_norm": "train"}):
        with pytest.raises(OptionsError, match="its batch normalisation in the weights"):
            load_circle_model(dense(), options=import_options(given))
    with pytest.raises(TrainableError, match="No parameter is called 'nothing'"):
        load_circle_model(dense(), options=import_options({"trainable": "nothing"}))
    with pytest.raises(DimensionError, match=r"no dimension 'x\[7\]'. They have x\[0\], x\[1\]"):
        load_circle_model(dense(), options=import_options({"dim": ["x[7]=3"]}))
    with pytest.raises(BatchError, match=r"The batch is 4, and 'x\[0\]' is 8"):
        load_circle_model(dense(), options=import_options({"dim": ["x[0]=8"]}, batch=4))


def test_the_batch_by_its_place() -> None:
    by_place = load_circle_model(dense(), options=import_options({"dim": ["x[0]=8"], "loss": "mse"}))
    by_name = load_circle_model(dense(), options=import_options({"loss": "mse"}, batch=8))
    assert by_place == by_name


def test_dimensions_that_the_file_leaves_open() -> None:
    file = CircleFile()
    x, filters = file.input("x", (1, 1, 1, 1), signature=(1, -1, 1, 1)), np.ones((2, 4, 1, 1), np.float32)
    weight, y = file.constant("w", filters), file.tensor("y", (1, 1, 1, 2), signature=(1, -1, 1, 2))
    options = {"padding": "VALID", "strideH": 2, "strideW": 1}
    file.operator("CONV_2D", [x, weight, -1], [y], "Conv2DOptions", options)
    data = file.write(y)
    with pytest.raises(DimensionError, match=r"leaves a dimension open: x\[1\]") as caught:
        load_circle_model(data, options=import_options({"loss": "mse"}))
    assert caught.value.remedy == "Give --dim 'x[1]=SIZE'."
    graph = load_circle_model(data, options=import_options({"loss": "mse", "dim": ["x[1]=10"]})).graph
    assert graph.operands["y"].shape == (1, 4, 1, 2)


def two_heads() -> bytes:
    """x [1, 4] -> a trunk of 3 -> "scores" [1, 2], and "kind" [1] of an operator that is not known."""
    file, random = CircleFile(), np.random.default_rng(5)
    x, other = file.input("x", (1, 4)), file.input("other", (1, 4), "int8")
    w = [file.constant(name, random.standard_normal(shape).astype("f4"))
         for name, shape in (("w", (3, 4)), ("w scores", (2, 3)), ("w kind", (5, 3)))]  # fmt: skip
    trunk, scores, kind = (file.tensor(n, (1, k)) for n, k in (("trunk", 3), ("scores", 2), ("all kinds", 5)))
    for source, weight, target in ((x, w[0], trunk), (trunk, w[1], scores), (trunk, w[2], kind)):
        file.operator("FULLY_CONNECTED", [source, weight, -1], [target], "FullyConnectedOptions")
    best = file.tensor("kind", (1,), "int32")
    file.operator("ARG_MAX", [kind, other], [best])
    return file.write(best, scores, kind)


def test_one_of_several_outputs() -> None:
    first = load_circle_model(two_heads(), options=import_options({"loss": "mse"}))
    assert first.graph.outputs == ("scores",)
    assert [o.inputs[1] for o in first.graph.operations[:-1]] == ["w", "w scores"]
    assert first.notes == (
        (
            "The loss is of 'scores'; left out are the outputs 'kind', 'all kinds'."
            " --output-name chooses another."
        ),
        "The loss does not depend on the input 'other': left out.",
    )
    named = load_circle_model(two_heads(), options=import_options({"loss": "mse", "output": "all kinds"}))
    assert named.graph.trainable == ("w", "w kind")
    inside = load_circle_model(two_heads(), options=import_options({"loss": "mse", "output": "trunk"}))
    assert inside.graph.trainable == ("w",)
    assert inside.notes[0] == (
        "The loss is of 'trunk'; left out are the outputs 'kind', 'scores', 'all kinds'."
        " --output-name chooses another."
    )
    with pytest.raises(LossError, match=r"no output 'x'\. Its outputs are kind, scores, all kinds"):
        load_circle_model(two_heads(), options=import_options({"loss": "mse", "output": "x"}))
    with pytest.raises(UnknownOperatorError, match="as --output-name 'all kinds' does"):
        load_circle_model(two_heads(), options=import_options({"loss": "mse", "output": "kind"}))


def written_trunk() -> bytes:
    """x -> "trunk", from which "scores" and "u" are computed; all three are outputs."""
    file, random = CircleFile(), np.random.default_rng(5)
    x, trunk, scores, other = (
        file.input("x", (1, 4)),
        *(file.tensor(n, (1, 3)) for n in ("trunk", "scores", "u")),
    )
    for source, target in ((x, trunk), (trunk, scores), (trunk, other)):
        shape = (3, 4 if source == x else 3)
        weight = file.constant(f"w{target}", random.standard_normal(shape).astype("f4"))
        file.operator("FULLY_CONNECTED", [source, weight, -1], [target], "FullyConnectedOptions")
    return file.write(scores, trunk, other)


def test_outputs_on_the_way_to_the_loss_are_kept() -> None:
    data = written_trunk()
    for asked, kept in (
        ("trunk", ("scores", "trunk")),
        ("all", ("scores", "trunk")),
        ("scores", ("scores",)),
    ):
        options = import_options({"loss": "mse", "keep_outputs": asked})
        assert load_circle_model(data, options=options).graph.outputs == kept
    with pytest.raises(OptionsError, match="'u' is not an output of the model that is computed") as caught:
        load_circle_model(data, options=import_options({"loss": "mse", "keep_outputs": "u"}))
    assert "scores, trunk" in caught.value.remedy


def test_an_inference_has_all_outputs_or_those_that_are_named() -> None:
    data, named = written_trunk(), {"loss": "none"}
    every = load_circle_model(data, options=import_options(named))
    assert (every.graph.loss, every.graph.trainable) == (None, ())
    assert every.graph.outputs == ("scores", "trunk", "u")
    assert every.notes == ()
    one = load_circle_model(data, options=import_options({**named, "output": "u"}))
    assert one.graph.outputs == ("u",)
    assert one.notes == ("Left out are the outputs 'scores', 'trunk'.",)
    two = load_circle_model(data, options=import_options({**named, "keep_outputs": "u,scores"}))
    assert two.graph.outputs == ("u", "scores")
    with pytest.raises(OptionsError, match="'x' is not an output of the model"):
        load_circle_model(data, options=import_options({**named, "keep_outputs": "x"}))
    with pytest.raises(LossError, match="The loss is none, and --optimizer"):
        load_circle_model(data, options=import_options({**named, "optimizer": "adam"}))


def test_an_inference_computes_what_the_training_model_predicts() -> None:
    trained = load_circle_model(dense(), options=import_options({"loss": "mse"}, batch=4)).graph
    graph = load_circle_model(dense(), options=import_options({"loss": "none"}, batch=4)).graph
    batch = synthetic_batch(trained, 0, 0)
    with Trainer(graph, plan(graph)) as inferring, Trainer(trained, plan(trained)) as training:
        outputs = inferring.infer({"x": batch["x"]})
        training.step(batch)
        assert list(outputs) == list(trained.outputs)
        for name, array in outputs.items():
            assert array.tobytes() == training.read(name).tobytes()


def test_only_the_first_subgraph_is_planned() -> None:
    file = CircleFile()
    x, weight = file.input("x", (1, 2)), file.constant("w", np.eye(2, dtype=np.float32))
    y = file.tensor("y", (1, 2))
    file.operator("FULLY_CONNECTED", [x, weight, -1], [y], "FullyConnectedOptions")
    found = load_circle_model(file.write(y, subgraphs=2), options=import_options({"loss": "mse"}))
    assert found.notes == ("The model has 2 subgraphs; only the first one, 'made', is planned.",)


def test_what_is_wider_in_a_plan_than_in_the_file() -> None:
    file = CircleFile()
    x, half = file.input("x", (1, 2)), file.constant("half", np.array([[1.5, 2.0]], np.float16))
    whole, y = file.tensor("whole", (1, 2)), file.tensor("y", (1, 1))
    file.operator("DEQUANTIZE", [half], [whole])
    file.operator("FULLY_CONNECTED", [x, whole, -1], [y], "FullyConnectedOptions")
    (note,) = load_circle_model(file.write(y), options=import_options({"loss": "mse"})).notes
    assert note.startswith("1 weight is stored in 4 bytes (float16) and planned in 8 bytes")


def test_weights_by_reference(tmp_path: Path) -> None:
    for case in (CASES[0], CASES[1]):  # a convolution as the file has it; a depthwise one in another order
        path = tmp_path / f"{case.code}.circle"
        path.write_bytes(written(case))
        graph = load_circle_model(path.read_bytes(), options=import_options({"loss": "mse"}), path=path).graph
        stored = graph.operands["c0"].initializer
        assert stored is not None
        assert (stored.file is not None) == (case.code == "CONV_2D")
        whole = load_whole(
            path.read_bytes(), training=CircleTraining(OptimizerSpec("SGD"), "mean-squared-error")
        )
        values = weights_of(path.read_bytes(), whole.weights)
        with Trainer(graph, plan(graph)) as trainer:
            for name, value in values.items():
                np.testing.assert_array_equal(trainer.read(name), value)
            trainer.step(synthetic_batch(graph, seed=0, step=0))


def test_without_the_weights_of_the_file() -> None:
    graph = load_circle_model(dense(), options=import_options({"weights": "none"})).graph
    kinds = {name: graph.operands[name].initializer for name in graph.trainable}
    assert {name: i.kind for name, i in kinds.items() if i is not None} == {
        "w0": "he_normal",
        "b0": "zeros",
        "w1": "he_normal",
        "b1": "zeros",
    }


def behind_unknown() -> bytes:
    """Two operators that nobody knows, one on a side path, then two layers."""
    file, rng = CircleFile(), np.random.default_rng(1)
    x = file.input("x", (1, 4))
    a, b, c, h, y, out = (file.tensor(name, (1, 4)) for name in ("a", "b", "c", "h", "y", "out"))
    file.operator("ROUND", [x], [a])
    file.operator("HASHTABLE_LOOKUP", [a], [b])
    file.operator("ADD", [b, a], [c], "AddOptions", {"fusedActivationFunction": "NONE"})
    file.operator("TANH", [c], [h])
    for k, (source, target) in enumerate(((h, y), (y, out))):
        weight = file.constant(f"w{k}", rng.standard_normal((4, 4)).astype(np.float32))
        options = {"fusedActivationFunction": "NONE"}
        file.operator("FULLY_CONNECTED", [source, weight, -1], [target], "FullyConnectedOptions", options)
    return file.write(out)


def test_what_follows_a_tensor_is_planned_and_the_refusal_names_one() -> None:
    data = behind_unknown()
    with pytest.raises(UnknownOperatorError, match="HASHTABLE_LOOKUP") as caught:
        load_circle_model(data, options=import_options({"loss": "mse"}, batch=3))
    assert "--freeze-before b, which becomes an input" in caught.value.remedy
    named = load_circle_model(data, options=import_options({"loss": "mse", "freeze_before": "b"}, batch=3))
    assert {"x", "b"} <= set(named.graph.operands)
    found = load_circle_model(data, options=import_options({"loss": "mse", "freeze_before": "c"}, batch=3))
    assert found.notes == ("Frozen before 'c': 3 of 6 operators are not imported.",)
    assert found.graph.operands["c"].shape == (3, 4)
    assert found.graph.trainable == ("w0", "w1")
    with Trainer(found.graph, plan(found.graph)) as trainer:
        assert np.isfinite(trainer.step(synthetic_batch(found.graph, 0, 1)))


@pytest.mark.parametrize(
    ("name", "why"),
    [("x", "it is an input or a constant"), ("z", "no operator"), ("w1", "it is an input or")],
)
def test_a_tensor_that_nothing_can_be_frozen_before_is_named(name: str, why: str) -> None:
    with pytest.raises(GraphError, match=f"frozen before '{name}': {why}"):
        load_circle_model(behind_unknown(), options=import_options({"loss": "mse", "freeze_before": [name]}))


def test_outputs_that_are_inputs_are_named_and_sizes_are_results() -> None:
    file = CircleFile()
    x, other = file.input("x", (2, 3)), file.input("m", (2, 3))
    y, sizes = file.tensor("y", (2, 3)), file.tensor("sizes", (2,), "int32")
    file.operator("RELU", [x], [y])
    file.operator("SHAPE", [x], [sizes])
    model = load_circle_model(file.write(y, other, sizes), options=import_options({"loss": "none"}, batch=4))
    assert model.graph.outputs == ("y", "sizes")
    assert any("Left out are the outputs 'm'" in note for note in model.notes)
    with Trainer(model.graph, plan(model.graph)) as trainer:
        found = trainer.infer({"x": np.ones((4, 3), np.float32)})
    assert found["sizes"].tolist() == [4, 3]
