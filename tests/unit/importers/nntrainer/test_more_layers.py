"""Model files of nntrainer: normalisation, dropout, recurrent layers, embeddings, clipping."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.errors import ArenaplanError, DocumentError, GraphError
from solver.executor import Trainer, synthetic_batch, validate
from solver.graph import DType, Operand, Operation, Role, TrainableGraph
from solver.importers.nntrainer import load_nntrainer_ini
from solver.pipeline import plan
from solver.plan import PlanOptions
from tests.support.every import grid
from tests.support.proofs import violations

MODEL = "[Model]\nType = NeuralNetwork\nLoss = mse\nbatch_size = 4\n[Optimizer]\nType = sgd\n"
IMAGE = "[in]\nType = input\nInput_Shape = 3:8:8\n"
FLAT = "[in]\nType = input\nInput_Shape = 1:1:6\n"
STEPS = "[in]\nType = input\nInput_Shape = 1:5:6\n"
WORDS = "[in]\nType = input\nInput_Shape = 1:1:7\n"
DENSE = "[fc]\nType = fully_connected\nUnit = 5\n"
SECOND = DENSE.replace("[fc]", "[fc2]")
NORM = "[bn]\nType = batch_normalization\n"
LSTM = "[rnn]\nType = lstm\nUnit = 3\n"
EMBEDDING = "[words]\nType = embedding\nin_dim = 9\nout_dim = 4\n"


def load(*sections: str, batch: int | None = None) -> TrainableGraph:
    return load_nntrainer_ini("".join(sections).encode(), batch=batch)


def operations(graph: TrainableGraph) -> dict[str, Operation]:
    return {operation.id: operation for operation in graph.operations}


def output(graph: TrainableGraph, name: str) -> Operand:
    return graph.operands[operations(graph)[name].outputs[0]]


def initial(graph: TrainableGraph, name: str) -> str:
    initializer = graph.operands[name].initializer
    assert initializer is not None
    return initializer.kind


# ----------------------------------------------------------------------------------- normalisation


def test_batch_normalization_of_images() -> None:
    layer = NORM + "epsilon = 1e-6\nmomentum = 0.9\nActivation = relu\nbeta_initializer = ones\n"
    graph = load(MODEL, IMAGE, layer)
    operation = operations(graph)["bn"]
    assert operation.inputs == ("in", "bn.gamma", "bn.beta", "bn.mean", "bn.variance")
    assert operation.attributes == {"epsilon": 1e-6, "momentum": 0.9, "training_mode": 1}
    assert [graph.operands[name].shape for name in operation.inputs[1:]] == [(3,)] * 4
    assert [graph.operands[name].role for name in operation.inputs[3:]] == [Role.STATE] * 2
    assert [initial(graph, name) for name in operation.inputs[1:]] == ["ones", "ones", "zeros", "ones"]
    assert operations(graph)["bn.activation"].type == "Relu"
    assert graph.trainable == ("bn.gamma", "bn.beta")


def test_batch_normalization_of_columns_and_its_defaults() -> None:
    graph = load(MODEL, FLAT, DENSE, NORM)
    assert operations(graph)["bn"].attributes == {"epsilon": 1e-3, "momentum": 0.99, "training_mode": 1}
    assert graph.operands["bn.gamma"].shape == (5,)
    assert load(MODEL, FLAT, DENSE, NORM, "axis = 3\n") == graph


def test_a_frozen_normalisation_still_follows_the_batch() -> None:
    graph = load(MODEL, IMAGE, "[c]\nType=conv2d\nfilters=2\nkernel_size=1\n", NORM, "trainable = false\n")
    assert graph.trainable == ("c.weight", "c.bias")
    assert operations(graph)["bn"].attributes["training_mode"] == 1


def test_images_of_one_channel_are_normalised_on_request() -> None:
    """Where nothing is said, nntrainer normalises them column by column."""
    single = IMAGE.replace("3:8:8", "1:8:8") + "[f]\nType = conv2d\nfilters = 1\nkernel_size = 1\n"
    with pytest.raises(DocumentError, match="is 3, for an input of shape"):
        load(MODEL, single, NORM)
    assert load(MODEL, single, NORM, "axis = 1\n").operands["bn.gamma"].shape == (1,)


def test_dropout() -> None:
    graph = load(MODEL, FLAT, DENSE, "[d]\nType = dropout\ndropout_rate = 0.25\n[e]\nType = dropout\n")
    first, second = operations(graph)["d"], operations(graph)["e"]
    assert (first.type, first.attributes["ratio"], second.attributes["ratio"]) == ("Dropout", 0.25, 0.0)
    assert first.attributes["seed"] != second.attributes["seed"]


# --------------------------------------------------------------------------------------- sequences


def cells(graph: TrainableGraph) -> list[Operation]:
    return [operation for operation in graph.operations if operation.type.endswith("Cell")]


@pytest.mark.parametrize(("type_", "gates"), [("lstm", 4), ("gru", 3), ("rnn", 1)])
@pytest.mark.parametrize("returns", [False, True])
def test_recurrent_layers(type_: str, gates: int, returns: bool) -> None:
    layer = LSTM.replace("lstm", type_) + f"return_sequences = {str(returns).lower()}\n"
    graph = load(MODEL, STEPS, layer)
    assert len(cells(graph)) == 5
    assert output(graph, "rnn.states").shape == ((4, 1, 5, 3) if returns else (4, 3))
    shapes = [graph.operands[f"rnn.{name}"].shape for name in ("weight", "recurrent", "bias")]
    assert shapes == [(gates * 3, 6), (gates * 3, 3), (2 * gates * 3,)]
    assert validate(graph, plan(graph), steps=2).identical


def test_a_matrix_is_a_sequence_of_one_step() -> None:
    """As in nntrainer's own LSTM case: the last axis holds all features."""
    graph = load(MODEL, FLAT, LSTM)
    assert len(cells(graph)) == 1
    assert output(graph, "rnn.states").shape == (4, 3)
    again = load(MODEL, FLAT, LSTM, "return_sequences = true\n")
    assert output(again, "rnn.states").shape == (4, 3)


def test_layers_of_sequences_and_what_follows() -> None:
    layers = LSTM + "return_sequences = true\n" + LSTM.replace("[rnn]", "[second]") + DENSE
    graph = load(MODEL, STEPS, layers)
    assert len(cells(graph)) == 10
    assert graph.operands["fc.weight"].shape == (5, 3)
    assert validate(graph, plan(graph), steps=2).identical


@pytest.mark.parametrize(
    ("keys", "shape"),
    [
        ("disable_bias = true\n", None),
        ("integrate_bias = true\n", (12,)),
        ("bias_initializer = ones\n", (24,)),
    ],
)
def test_biases(keys: str, shape: tuple[int, ...] | None) -> None:
    graph = load(MODEL, STEPS, LSTM, keys)
    found = graph.operands.get("rnn.bias")
    assert (None if found is None else found.shape) == shape


@pytest.mark.parametrize(("keys", "after"), [("", 1), ("reset_after = false\n", 0)])
def test_where_a_gru_resets(keys: str, after: int) -> None:
    graph = load(MODEL, STEPS, LSTM.replace("lstm", "gru"), keys)
    assert {cell.attributes["linear_before_reset"] for cell in cells(graph)} == {after}


def test_the_activation_of_an_rnn() -> None:
    graph = load(MODEL, STEPS, LSTM.replace("lstm", "rnn"), "hidden_state_activation = relu\n")
    assert {cell.attributes["nonlinearity"] for cell in cells(graph)} == {"Relu"}


def test_both_directions() -> None:
    graph = load(MODEL, STEPS, LSTM, "bidirectional = true\nreturn_sequences = true\n")
    assert graph.operands["rnn.weight"].shape == (2, 12, 6)
    assert output(graph, "rnn.states").shape == (4, 1, 5, 6)
    assert len(cells(graph)) == 10
    assert output(load(MODEL, FLAT, LSTM, "bidirectional = true\n"), "rnn.states").shape == (4, 6)


def given(name: str, width: int) -> str:
    return f"[{name}]\nType = input\nInput_Shape = 1:1:{width}\n"


def step(type_: str, name: str, *inputs: str) -> str:
    return f"[{name}]\nType = {type_}\nUnit = 3\ninput_layers = {','.join(inputs)}\n"


def test_cells_of_an_lstm_hand_on_both_states() -> None:
    states = given("h", 3) + given("c", 3)
    first = step("lstmcell", "a", "x", "h", "c")
    second = step("lstmcell", "b", "y", "a", "a(1)")
    graph = load(MODEL, given("x", 6), given("y", 6), states, first, second)
    found = operations(graph)
    assert found["a"].inputs == ("x", "h", "c", "a.weight", "a.recurrent", "a.bias")
    assert found["b"].inputs[:3] == ("y", "a.out", "a.cell")
    assert graph.operands["a.bias"].shape == (24,)
    assert validate(graph, plan(graph), steps=2).identical


@pytest.mark.parametrize(
    ("type_", "attributes"), [("grucell", {"linear_before_reset": 1}), ("rnncell", {"nonlinearity": "Tanh"})]
)
def test_cells_with_one_state(type_: str, attributes: dict[str, Any]) -> None:
    graph = load(MODEL, given("x", 6), given("h", 3), step(type_, "a", "x", "h"), "Activation = relu\n")
    assert operations(graph)["a"].attributes == attributes
    assert output(graph, "a.activation").shape == (4, 3)


def test_branches_have_as_many_outputs_as_asked_for() -> None:
    more = SECOND + "input_layers = out(1)\n[s]\nType = addition\ninput_layers = fc3, fc2\n"
    third = DENSE.replace("[fc]", "[fc3]") + "input_layers = out(0)\n"
    graph = load(MODEL, FLAT, DENSE, "[out]\nType = multiout\n", third, more)
    assert operations(graph)["fc2"].inputs[0] == operations(graph)["fc3"].inputs[0] == "fc.out"


def test_a_layer_may_be_called_like_an_output() -> None:
    graph = load(MODEL, FLAT, DENSE.replace("[fc]", "[fc(1)]"), SECOND, "input_layers = fc(1)\n")
    assert operations(graph)["fc2"].inputs[0] == "fc(1).out"


def test_words_become_vectors() -> None:
    graph = load(MODEL, WORDS, EMBEDDING, "[f]\nType = flatten\n", DENSE)
    assert graph.operands["in"].dtype is DType.INT32
    assert graph.operands["words.weight"].shape == (9, 4)
    assert graph.operands["fc.weight"].shape == (5, 28)
    assert validate(graph, plan(graph), steps=2).identical


def test_words_become_a_sequence() -> None:
    graph = load(MODEL.replace("sgd", "adam"), WORDS, EMBEDDING, "in_length = 7\n", LSTM, DENSE)
    assert len(cells(graph)) == 7
    trainer, batch = Trainer(graph, plan(graph)), synthetic_batch(graph, 0, 1)
    losses = [trainer.step(batch) for _ in range(30)]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


# ---------------------------------------------------------------------------------------- clipping


def test_one_norm_for_all_layers_clips_the_gradients() -> None:
    clip = "clip_grad_by_norm = 0.5\n"
    graph = load(MODEL, FLAT, DENSE, clip, "[r]\nType = activation\nActivation = relu\n", LSTM, clip)
    assert graph.training.clip_global_norm == 0.5
    assert load(MODEL, FLAT, DENSE).training.clip_global_norm is None


def test_layers_that_are_not_trained_need_no_norm() -> None:
    frozen = DENSE.replace("[fc]", "[first]") + "trainable = false\n"
    assert load(MODEL, FLAT, frozen, DENSE, "clip_grad_by_norm = 2\n").training.clip_global_norm == 2


# ---------------------------------------------------------------------------------------- refusals

#: Sections -> where the mistake is.
REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "another norm": (
        FLAT + DENSE + "clip_grad_by_norm = 1\n" + SECOND + "clip_grad_by_norm = 2\n",
        ("fc2", "clip_grad_by_norm"),
    ),
    "a norm for some": (FLAT + DENSE + "clip_grad_by_norm = 1\n" + SECOND, ("fc", "clip_grad_by_norm")),
    "no norm": (FLAT + DENSE + "clip_grad_by_norm = 0\n", ("fc", "clip_grad_by_norm")),
    "no number": (FLAT + DENSE + "clip_grad_by_norm = much\n", ("fc", "clip_grad_by_norm")),
    "axis of a normalisation": (IMAGE + NORM + "axis = 2\n", ("bn", "axis")),
    "decay of a normalisation": (IMAGE + NORM + "weight_decay = 0.1\n", ("bn", "weight_decay")),
    "unknown key of a normalisation": (IMAGE + NORM + "gamma = 1\n", ("bn", "gamma")),
    "momentum in words": (IMAGE + NORM + "momentum = high\n", ("bn", "momentum")),
    "everything dropped": (FLAT + "[d]\nType = dropout\ndropout_rate = 1\n", ("d", "dropout_rate")),
    "no units": (STEPS + "[rnn]\nType = lstm\n", ("rnn", "unit")),
    "several channels": (IMAGE + LSTM, ("rnn", "type")),
    "other steps": (STEPS + LSTM + "max_timestep = 6\n", ("rnn", "max_timestep")),
    "dropout inside": (STEPS + LSTM + "dropout_rate = 0.1\n", ("rnn", "dropout_rate")),
    "activation of states": (
        STEPS + LSTM + "hidden_state_activation = relu\n",
        ("rnn", "hidden_state_activation"),
    ),
    "activation of gates": (STEPS + LSTM + "recurrent_activation = tanh\n", ("rnn", "recurrent_activation")),
    "activation of an rnn": (
        STEPS + LSTM.replace("lstm", "rnn") + "hidden_state_activation = elu\n",
        ("rnn", "hidden_state_activation"),
    ),
    "directions of a gru": (
        STEPS + LSTM.replace("lstm", "gru") + "bidirectional = true\n",
        ("rnn", "bidirectional"),
    ),
    "last step of both directions": (STEPS + LSTM + "bidirectional = true\n", ("rnn", "bidirectional")),
    "regulariser": (STEPS + LSTM + "weight_regularizer = l2norm\n", ("rnn", "weight_regularizer")),
    "embedding of numbers": (FLAT + DENSE + EMBEDDING, ("words", "input_layers")),
    "embedding of images": (STEPS + EMBEDDING, ("words", "input_layers")),
    "other length": (WORDS + EMBEDDING + "in_length = 3\n", ("words", "in_length")),
    "no words": (WORDS + EMBEDDING.replace("9", "0"), ("words", "in_dim")),
    "cell without states": (FLAT + step("lstmcell", "a", "in"), ("a", "input_layers")),
    "states of another width": (
        given("x", 6) + given("h", 4) + step("grucell", "a", "x", "h"),
        ("a", "input_layers"),
    ),
    "cell of a sequence": (STEPS + given("h", 3) + step("rnncell", "a", "in", "h"), ("a", "input_layers")),
    "third output of a cell": (
        given("x", 6)
        + given("h", 3)
        + given("c", 3)
        + step("lstmcell", "a", "x", "h", "c")
        + SECOND
        + "input_layers = a(2)\n",
        ("fc2", "input_layers"),
    ),
    "shared weights": (STEPS + LSTM + "shared_from = other\n", ("rnn", "shared_from")),
}


@grid("case", REFUSED)
def test_refusals_name_section_and_key(case: str) -> None:
    text, path = REFUSED[case]
    with pytest.raises(ArenaplanError) as caught:
        load(MODEL, text)
    assert isinstance(caught.value, DocumentError | GraphError)
    assert caught.value.path == path
    assert caught.value.remedy


def test_names_that_the_cells_need() -> None:
    """A section called like a cell of a sequence is found out, and the sequence named."""
    sections: Any = (MODEL, STEPS, LSTM, "[rnn.2]\nType = fully_connected\nUnit = 2\n")
    with pytest.raises(GraphError, match=r"takes the name 'rnn\.2'") as caught:
        load(*sections)
    assert caught.value.path == ("rnn",)


def test_a_sequence_that_is_too_long() -> None:
    with pytest.raises(GraphError, match="takes 999,999,999 steps in time; at most 19,999 more") as caught:
        load(MODEL, STEPS.replace("1:5:6", "1:999999999:6"), LSTM)
    assert caught.value.path == ("rnn",)


# ------------------------------------------------------------------------------------ a whole network


def _convolution(name: str, source: str, filters: int, stride: int) -> str:
    return (
        f"[{name}]\nType=conv2d\ninput_layers={source}\nkernel_size=3,3\nbias_initializer=zeros\n"
        f"weight_initializer=xavier_uniform\nfilters={filters}\nstride={stride},{stride}\npadding=1,1\n"
    )


def _normalisation(name: str, source: str) -> str:
    return (
        f"[{name}]\nType=batch_normalization\ninput_layers={source}\nepsilon=1.0e-6\nmomentum=0.9\n"
        "Activation=relu\nbeta_initializer=zeros\ngamma_initializer=ones\n"
        "moving_mean_initializer=zeros\nmoving_variance_initializer=ones\n"
    )


def _block(name: str, source: str, filters: int, stride: int) -> str:
    shortcut = source if stride == 1 else f"{name}_short"
    parts = [
        f"[{name}_out]\nType=output\ninput_layers={source}\n",
        _convolution(f"{name}_1", f"{name}_out", filters, stride),
        _normalisation(f"{name}_bn", f"{name}_1"),
        _convolution(f"{name}_2", f"{name}_bn", filters, 1),
        "" if stride == 1 else _convolution(shortcut, f"{name}_out", filters, stride),
        f"[{name}_add]\nType=addition\ninput_layers={name}_2,{shortcut}\n",
        _normalisation(name, f"{name}_add"),
    ]
    return "".join(parts)


def residual_network(batch: int) -> TrainableGraph:
    """Seven residual blocks, as nntrainer writes its ResNet-18: normalised behind each addition."""
    text = MODEL.replace("mse", "cross").replace("sgd", "adam") + IMAGE.replace("8:8", "32:32")
    text += _convolution("first", "in", 64, 1) + _normalisation("b0", "first")
    for number, (filters, stride) in enumerate(
        ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2))
    ):
        text += _block(f"b{number + 1}", f"b{number}", filters, stride)
    text += (
        "[max]\nType=pooling2d\ninput_layers=b7\npool_size=4,4\nstride=4,4\npooling=max\n"
        "[mean]\nType=pooling2d\ninput_layers=b7\npool_size=4,4\nstride=4,4\npooling=average\n"
        "[both]\nType=concat\ninput_layers=max,mean\n"
        "[linear]\nType=conv2d\nkernel_size=1,1\nfilters=10\n[flatten]\nType=flatten\n"
        "[probabilities]\nType=activation\nActivation=softmax\n"
    )
    return load(text, batch=batch)


@pytest.mark.parametrize("target", ["reference", "nntrainer"])
def test_a_residual_network(target: str) -> None:
    graph = residual_network(8)
    made = plan(graph, PlanOptions(target=target, solver="greedy"))
    assert violations(graph, made) == ()
    states = [operand for operand in graph.operands.values() if operand.role is Role.STATE]
    assert len(states) == 2 * 15
    weights = sum(graph.operands[name].type.elements for name in graph.trainable)
    assert weights == sum(
        operand.type.elements for operand in graph.operands.values() if operand.role is Role.PARAMETER
    )
    if target == "nntrainer":
        statistics = sum(operand.type.nbytes for operand in states)
        assert made.arenas[0].size == 3 * 4 * weights + statistics
