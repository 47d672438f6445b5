"""The metadata CIRCLE_TRAINING: written, read again, and used."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solver.errors import DocumentError, GraphError, OptionsError
from solver.exporters.circle import training_of_plan, with_training, with_weights
from solver.graph import OptimizerSpec
from solver.importers.circle import CircleTraining, dump_training, load_circle, load_training, weights_of
from solver.pipeline import plan
from tests.support.circle_cases import CASES, written
from tests.support.circle_models import CircleFile, dense

ADAM = OptimizerSpec("Adam", {"learning_rate": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7})

TRAININGS = [
    CircleTraining(ADAM, "categorical-crossentropy", from_logits=True, epochs=5, batch=32),
    CircleTraining(
        OptimizerSpec("SGD", {"learning_rate": 0.5}), "mean-squared-error", trainable=(1, 0), reduction="sum"
    ),
    CircleTraining(ADAM, "sparse-categorical-crossentropy", trainable=(), batch=2),
]


@pytest.mark.parametrize("training", TRAININGS, ids=lambda t: t.loss)
def test_read_as_written(training: CircleTraining) -> None:
    assert load_training(dump_training(training)) == training


def test_a_file_that_says_how_it_is_trained() -> None:
    data = with_training(dense(), TRAININGS[0])
    found = load_circle(data)
    # onert trains nothing of a file that does not list operators, so all three are written
    assert found.training == replace(TRAININGS[0], trainable=(0, 1, 2))
    assert found.graph.trainable == ("w0", "b0", "w1", "b1")
    assert found.graph.operands["x"].shape == (32, 4)
    assert found.graph.optimizer == OptimizerSpec("Adam", {**ADAM.attributes, "epsilon_hat": True})
    # The model ends in a softmax: onert takes its output for probabilities, whatever the file says.
    assert found.graph.operations[-1].attributes["from_logits"] == 0
    # again, in place of its own
    assert load_circle(with_training(data, TRAININGS[2])).training == TRAININGS[2]
    # and what is asked for goes before what the file says
    assert load_circle(data, batch=3, training=TRAININGS[1]).graph.operands["x"].shape == (3, 4)


def test_the_model_itself_stays() -> None:
    data = with_training(dense(), TRAININGS[0])
    before, after = load_circle(dense(), training=TRAININGS[1]), load_circle(data, training=TRAININGS[1])
    assert after.graph.operations == before.graph.operations


def test_nothing_to_train() -> None:
    assert load_circle(dense(), training=TRAININGS[2]).graph.trainable == ()


def test_what_the_metadata_cannot_say() -> None:
    with pytest.raises(OptionsError, match="no optimizer 'RMSProp'"):
        dump_training(CircleTraining(OptimizerSpec("RMSProp"), "mean-squared-error"))


@pytest.mark.parametrize("data", [b"", b"CTR0", b"\x00\x00\x00\x00CTR1", b"\xff\xff\xff\xffCTR0....."])
def test_damaged_metadata(data: bytes) -> None:
    with pytest.raises(DocumentError, match="CIRCLE_TRAINING"):
        load_training(data)


def test_metadata_that_is_cut_off_or_changed() -> None:
    whole = dump_training(TRAININGS[0])
    for length in range(len(whole)):
        try:
            load_training(whole[:length])
        except DocumentError:
            continue
    random = np.random.default_rng(0)
    for _ in range(300):
        changed = bytearray(whole)
        changed[random.integers(8, len(whole))] = random.integers(256)
        try:
            load_training(bytes(changed))
        except DocumentError:
            continue


def test_weights_written_back() -> None:
    for case in CASES:  # weights of depthwise and transposed convolutions have other axes in the file
        data = written(case)
        training = CircleTraining(OptimizerSpec("SGD"), "mean-squared-error")
        weights = load_circle(data, training=training).weights
        found = weights_of(data, weights)
        changed = {name: value + 1 for name, value in found.items()}
        again = with_weights(data, weights, changed)
        assert len(again) == len(data)
        for name, value in weights_of(again, weights).items():
            np.testing.assert_array_equal(value, changed[name])
        assert with_weights(again, weights, found) == data


def test_weights_that_do_not_belong_to_the_file() -> None:
    data = dense()
    weights = load_circle(data).weights
    with pytest.raises(GraphError, match="'other' is not a parameter"):
        with_weights(data, weights, {"other": np.zeros(1)})
    with pytest.raises(GraphError, match=r"'w0' has shape \[4\], its place in the file \[8, 4\]"):
        with_weights(data, weights, {"w0": np.zeros(4, np.float32)})


def test_trained_weights_go_back_in_half_precision_and_not_into_sparse_tensors() -> None:
    file = CircleFile()
    x, half = file.input("x", (1, 2)), file.constant("half", np.array([[1.5, 2.0]], np.float16))
    whole, y = file.tensor("whole", (1, 2)), file.tensor("y", (1, 1))
    file.operator("DEQUANTIZE", [half], [whole])
    file.operator("FULLY_CONNECTED", [x, whole, -1], [y], "FullyConnectedOptions")
    data = file.write(y)
    weights = load_circle(data, training=TRAININGS[1]).weights
    trained = np.array([[0.1, -3.0]], np.float32)
    again = with_weights(data, weights, {"whole": trained})
    assert len(again) == len(data)
    np.testing.assert_array_equal(
        weights_of(again, weights)["whole"], trained.astype(np.float16).astype("f4")
    )

    file = CircleFile()
    x, y = file.input("x", (1, 4)), file.tensor("y", (1, 2))
    sparse = file.sparse("w", np.ones(3, "f4"), (0, 1), [2, ((0, 2, 3), (1, 3, 0))], shape=(2, 4))
    file.operator("FULLY_CONNECTED", [x, sparse, -1], [y], "FullyConnectedOptions")
    weights = load_circle(file.write(y)).weights
    with pytest.raises(GraphError, match="'w' is stored sparse"):
        with_weights(file.write(y), weights, {"w": np.ones((2, 4), np.float32)})


def test_which_of_several_outputs_is_trained_has_no_place_in_the_metadata() -> None:
    file = CircleFile()
    x, outputs = file.input("x", (1, 2)), []
    for k in range(2):
        outputs.append(file.tensor(f"y{k}", (1, 2)))
        weight = file.constant(f"w{k}", np.eye(2, dtype=np.float32))
        file.operator("FULLY_CONNECTED", [x, weight, -1], [outputs[-1]], "FullyConnectedOptions")
    data = file.write(*outputs)
    made = plan(load_circle(data, training=TRAININGS[1]).graph)
    with pytest.raises(OptionsError, match=r"which of the outputs is trained \('y0', 'y1'\)"):
        training_of_plan(made, data)
