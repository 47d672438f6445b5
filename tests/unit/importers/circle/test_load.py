"""Circle models by the choices that every importer takes, from the command line's point of view."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from solver.errors import GraphError, OptionsError, TrainableError, UnknownOperatorError
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
    for given in ({"dim": ["x=3"]}, {"output": "out"}, {"class_axis": "1"}, {"batch_norm": "train"}):
        with pytest.raises(OptionsError, match="no dimension but the batch open"):
            load_circle_model(dense(), options=import_options(given))
    with pytest.raises(TrainableError, match="No weight of the model is called 'nothing'"):
        load_circle_model(dense(), options=import_options({"trainable": "nothing"}))


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
