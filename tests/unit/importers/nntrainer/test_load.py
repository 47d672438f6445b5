"""Model files of nntrainer: what each section becomes, files that read others, and what refusals name."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from solver.errors import ArenaplanError, BatchError, DocumentError, GraphError
from solver.executor import Trainer, synthetic_batch, validate
from solver.graph import Role, TrainableGraph
from solver.importers.nntrainer import load_nntrainer, load_nntrainer_ini
from solver.importers.options import Imported, ImportOptions
from solver.layout import max_load
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.targets.nntrainer import nntrainer_target
from tests.support.every import grid
from tests.support.graph_facts import assert_facts, facts_of
from tests.support.proofs import violations

MODEL = "[Model]\nType = NeuralNetwork\nLoss = mse\nbatch_size = 4\n[Optimizer]\nType = sgd\n"
ADAM = MODEL.replace("sgd", "adam")
CROSS = MODEL.replace("mse", "cross")


def ini(text: str) -> str:
    """Sections, one a part: ``fc fully_connected unit=5; f flatten`` has a layer fc and a layer f."""
    sections = []
    for name, type_, *entries in map(str.split, text.split(";")):
        keys = "".join(f"{key} = {value}\n" for key, value in (entry.split("=", 1) for entry in entries))
        sections.append(f"[{name}]\nType = {type_}\n{keys}")
    return "".join(sections)


IMAGE, FLAT = "in input Input_Shape=3:8:8;", "in input Input_Shape=1:1:6;"
STEPS, WORDS = "in input Input_Shape=1:5:6;", "in input Input_Shape=1:1:7;"
DENSE, SECOND = "fc fully_connected Unit=5", "fc2 fully_connected Unit=5"
CONV, POINT = "c conv2d filters=2 kernel_size=3,3", "c conv2d filters=2 kernel_size=1"
NORM, EMBEDDING = "bn batch_normalization", "words embedding in_dim=9 out_dim=4"
LSTM, GRU, RNN = (f"rnn {type_} Unit=3" for type_ in ("lstm", "gru", "rnn"))
#: Inputs of cells, and the states before.
X, H, C = "x input Input_Shape=1:1:6;", "h input Input_Shape=1:1:3;", "c input Input_Shape=1:1:3;"


def load(*sections: str, model: str = MODEL, batch: int | None = None) -> TrainableGraph:
    return load_nntrainer_ini((model + ini("".join(sections))).encode(), batch=batch)


# -------------------------------------------------------------------------------------- whole files


@grid("model", ["[Model]\nType = NeuralNetwork\n", "[Model]\nType = NeuralNetwork\nLoss = mse\n", MODEL])
@grid("loss", ["", "; l cross_softmax"])
def test_an_inference_needs_no_optimizer_and_no_loss(model: str, loss: str) -> None:
    text = model + ini(f"{FLAT}{DENSE}; act activation activation=relu{loss}")
    found = load_nntrainer(text.encode(), options=ImportOptions(loss="none", batch=3)).graph
    assert (found.loss, found.trainable, len(found.outputs)) == (None, (), 1)
    with Trainer(found, plan(found)) as trainer:
        x = np.linspace(-1, 1, 18, dtype=np.float32).reshape(3, 6)
        (y,) = trainer.infer({"in": x}).values()
        weight, bias = trainer.read("fc.weight"), trainer.read("fc.bias")
    np.testing.assert_allclose(y, np.maximum(x @ weight.T + bias, 0), rtol=1e-5, atol=1e-6)


CLASSIFIER = """
# A file with everything that the format knows, as its own examples write it.
[Model]
Type = NeuralNetwork\t# Network Type : Regression, KNN, NeuralNetwork
Epochs = 1500\t\t# Epochs
Loss = cross  \t\t# Loss function : mse, cross
# Save_Path = "model.bin"
batch_size = 32

[Optimizer]
Type = adam
beta1 = 0.9
beta2 = 0.999
epsilon = 1e-7

[LearningRateScheduler]
type=constant
Learning_rate = 1e-4

[DataSet]
BufferSize = 100
TrainData = "train.dat"

[inputlayer]
Type = input
Input_Shape = 1:28:28

[c1]
Type = conv2d
input_layers = inputlayer
kernel_size = 5,5
bias_initializer=zeros
Activation=sigmoid
weight_initializer = xavier_uniform
filters = 6
stride = 1,1
padding = 0,0

[p1]
Type=pooling2d
input_layers = c1
pool_size = 2,2
stride =2,2
padding = 0,0
pooling = average

[c2]
Type = conv2d
kernel_size = 5,5
Activation=sigmoid
filters = 12

[p2]
Type=pooling2d
pool_size = 2,2
stride =2,2
pooling = average

[flatten]
Type=flatten

[outputlayer]
Type = fully_connected
input_layers=flatten
Unit = 10
Activation = softmax
"""


def test_a_classifier() -> None:
    graph = load_nntrainer_ini(CLASSIFIER.encode())
    assert [(op.id, op.type) for op in graph.operations] == [
        ("c1", "Conv"), ("p1", "AveragePool"), ("c2", "Conv"), ("p2", "AveragePool"), ("flatten", "Flatten"),
        ("outputlayer", "Gemm"), ("outputlayer.activation", "Softmax"), ("loss", "CategoricalCrossEntropy"),
    ]  # fmt: skip
    weights = tuple(f"{x}.{y}" for x in ("c1", "c2", "outputlayer") for y in ("weight", "bias"))
    assert_facts(graph, {"c1() shape": (32, 6, 24, 24), "p2() shape": (32, 12, 4, 4), "trainable": weights})
    assert graph.optimizer is not None
    rules = {"learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7}
    assert (graph.optimizer.type, graph.optimizer.attributes) == ("Adam", rules)
    _, tensors = nntrainer_target(graph).pools
    assert round(max_load(tensors.problem()).bytes / 2**20, 2) == 0.95
    small = load_nntrainer_ini(CLASSIFIER.encode(), batch=2)
    assert validate(small, plan(small), steps=2).identical


@pytest.mark.parametrize(
    ("layers", "shape", "batch", "bound"),
    [
        ("out fully_connected Unit=300", "1:1:150528", 64, 172.34),
        ("; ".join(f"fc{n} fully_connected Unit={n}" for n in (4096, 2048, 100)), "1:1:784", 2048, 80.01),
        (
            "; ".join(f'c{n} conv2d kernel_size=3,3 filters=3 stride=2,2 padding="same"' for n in range(3)),
            "3:224:224", 64, 12.63,
        ),
        ("fc fully_connected Activation=relu Unit=10; out Flatten", "1:1:150528", 64, 5.74),
    ],
    ids=["Linear", "Model_A_Linear", "Model_A_Conv", "Model_C_Linear"],
)  # fmt: skip
def test_published_cases(layers: str, shape: str, batch: int, bound: float) -> None:
    graph = load(f"in input Input_Shape={shape};", layers, batch=batch)
    _, tensors = nntrainer_target(graph).pools
    assert abs(max_load(tensors.problem()).bytes / 2**20 - bound) <= 0.005


def test_plans_for_every_target() -> None:
    graph = load(FLAT, DENSE)
    for target in ("reference", "onert", "nntrainer"):
        assert plan(graph, PlanOptions(target=target)).arena_bytes > 0


# ------------------------------------------------------------------------------------------ layers


def in_all_cells(attribute: str, value: Any) -> dict[str, Any]:
    """The attribute of each of the five cells that a sequence becomes."""
    return {f"rnn.{k}() {attribute}": value for k in range(5)}


#: What is loaded, and facts of the graph.
LAYERS: dict[str, tuple[str, dict[str, Any]]] = {
    "a flat input is a matrix": (FLAT + DENSE, {"in": (4, 6)}),
    "unless images are read": (FLAT + POINT, {"in": (4, 1, 1, 6)}),
    "leading ones are left out": (f"in input Input_Shape=6; {DENSE}", {"in": (4, 6)}),
    "the batch is named": (f"in input Input_Shape=4:1:1:6; {DENSE}", {"in": (4, 6)}),
    "no input layer": (f"{DENSE} Input_Shape=1:1:6", {"fc.in role": "input"}),
    "no bias": (
        FLAT + DENSE + " disable_bias=true weight_initializer=ones",
        {"fc() inputs": ("in", "fc.weight"), "fc.weight": (5, 6), "fc.weight kind": "ones"},
    ),
    "frozen": (
        FLAT + DENSE + " trainable=false; fc2 fully_connected Unit=3",
        {"trainable": ("fc2.weight", "fc2.bias")},
    ),
    "no padding": (IMAGE + CONV + " stride=2", {"c() shape": (4, 2, 3, 3)}),
    "padding valid": (IMAGE + CONV + " stride=2 padding=valid", {"c() shape": (4, 2, 3, 3)}),
    "padding same": (IMAGE + CONV + ' stride=2 padding="same"', {"c() shape": (4, 2, 4, 4)}),
    "padding of all": (IMAGE + CONV + " stride=2 padding=1", {"c() shape": (4, 2, 4, 4)}),
    "padding of two": (IMAGE + CONV + " stride=2 padding=1,1", {"c() shape": (4, 2, 4, 4)}),
    "padding of four": (IMAGE + CONV + " stride=2 padding=0,1,0,1", {"c() shape": (4, 2, 4, 4)}),
    "top, bottom, left, right": (
        IMAGE + CONV + " dilation=2 padding=1,2,3,4",
        {"c() pads": (1, 3, 2, 4), "c() shape": (4, 2, 8 + 3 - 4, 8 + 7 - 4)},
    ),
    "maxima": (
        IMAGE + "c conv2d filters=3 kernel_size=1; p pooling2d pooling=max pool_size=2,2 stride=2,2",
        {"p()": "MaxPool", "p() kernel_shape": (2, 2)},
    ),
    "means": (
        IMAGE + "c conv2d filters=3 kernel_size=1; p pooling2d pooling=average pool_size=2,4",
        {"p()": "AveragePool", "p() kernel_shape": (2, 4)},
    ),
    "maxima of all": (
        IMAGE + "c conv2d filters=3 kernel_size=1; p pooling2d pooling=global_max",
        {"p()": "MaxPool", "p() kernel_shape": (8, 8)},
    ),
    "means of all": (
        IMAGE + "c conv2d filters=3 kernel_size=1; p pooling2d pooling=global_average",
        {"p()": "AveragePool", "p() kernel_shape": (8, 8)},
    ),
    "fused activation": (
        FLAT + DENSE + " Activation=relu; out fully_connected Unit=3",
        {"fc() activation": "Relu"},
    ),
    "own activation": (
        FLAT + DENSE + " Activation=elu; out fully_connected Unit=3",
        {"fc.activation()": "Elu"},
    ),
    "flatten as a property": (
        IMAGE + POINT + " flatten=true;" + DENSE,
        {"c.flatten()": "Flatten", "fc.weight": (5, 128)},
    ),
    "branches, addition and concatenation": (
        IMAGE + "a conv2d filters=2 kernel_size=1; out0 multiout;"
        "b conv2d input_layers=out0 filters=2 kernel_size=1;"
        "c conv2d input_layers=OUT0(0) filters=2 kernel_size=1;"
        "sum addition input_layers=a,b,c Activation=relu; all concat input_layers=sum,out0",
        {
            "b() inputs": ("a.out", "b.weight", "b.bias"),
            "c() inputs": ("a.out", "c.weight", "c.bias"),
            "sum.2() inputs": ("a.out", "b.out"),
            "sum() inputs": ("sum.2.out", "c.out"),
            "all() inputs": ("sum.activation.out", "a.out"),
            "all() shape": (4, 4, 8, 8),
        },
    ),
    "concatenation of flat inputs": (
        FLAT + DENSE + "; fc2 fully_connected Unit=3 input_layers=in; all concat input_layers=fc,fc2",
        {"all() shape": (4, 8)},
    ),
    "concatenation along an axis": (
        FLAT + DENSE + "; fc2 fully_connected Unit=3 input_layers=in; all concat input_layers=fc,fc2 axis=3",
        {"all() shape": (4, 8)},
    ),
    "before their inputs": ("b flatten input_layers=fc;" + FLAT + DENSE, {"ids": ["fc", "b", "loss"]}),
    "outputs of a branch": (
        FLAT + DENSE + "; out multiout; fc3 fully_connected Unit=5 input_layers=out(0);"
        "fc2 fully_connected Unit=5 input_layers=out(1); s addition input_layers=fc3,fc2",
        {
            "fc2() inputs": ("fc.out", "fc2.weight", "fc2.bias"),
            "fc3() inputs": ("fc.out", "fc3.weight", "fc3.bias"),
        },
    ),
    "called like an output": (
        FLAT + "fc(1) fully_connected Unit=5;" + SECOND + " input_layers=fc(1)",
        {"fc2() inputs": ("fc(1).out", "fc2.weight", "fc2.bias")},
    ),
    "normalised images": (
        IMAGE + NORM + " epsilon=1e-6 momentum=0.9 Activation=relu beta_initializer=ones",
        {
            "bn() inputs": ("in", "bn.gamma", "bn.beta", "bn.mean", "bn.variance"),
            "bn() attributes": {"epsilon": 1e-6, "momentum": 0.9, "training_mode": 1},
            **dict.fromkeys(("bn.gamma", "bn.beta", "bn.mean", "bn.variance"), (3,)),
            **dict.fromkeys(("bn.mean role", "bn.variance role"), "state"),
            **dict.fromkeys(("bn.gamma kind", "bn.beta kind", "bn.variance kind"), "ones"),
            "bn.mean kind": "zeros",
            "bn.activation()": "Relu",
            "trainable": ("bn.gamma", "bn.beta"),
        },
    ),
    "normalised columns": (
        FLAT + DENSE + ";" + NORM,
        {
            "bn() attributes": {"epsilon": 1e-3, "momentum": 0.99, "training_mode": 1},
            "bn.gamma": (5,),
        },
    ),
    "a frozen normalisation follows the batch": (
        IMAGE + POINT + ";" + NORM + " trainable=false",
        {"trainable": ("c.weight", "c.bias"), "bn() training_mode": 1},
    ),
    "images of one channel are normalised on request": (
        "in input Input_Shape=1:8:8; f conv2d filters=1 kernel_size=1;" + NORM + " axis=1",
        {"bn.gamma": (1,)},
    ),
    "an LSTM without biases": (STEPS + LSTM + " disable_bias=true", {"rnn.bias": None}),
    "an LSTM with one bias": (STEPS + LSTM + " integrate_bias=true", {"rnn.bias": (12,)}),
    "biases of an LSTM": (STEPS + LSTM + " bias_initializer=ones", {"rnn.bias": (24,)}),
    "a GRU resets behind": (STEPS + GRU, in_all_cells("linear_before_reset", 1)),
    "a GRU resets before": (STEPS + GRU + " reset_after=false", in_all_cells("linear_before_reset", 0)),
    "the activation of an RNN": (
        STEPS + RNN + " hidden_state_activation=relu",
        in_all_cells("nonlinearity", "Relu"),
    ),
    "both directions": (
        STEPS + LSTM + " bidirectional=true return_sequences=true",
        {"rnn.weight": (2, 12, 6), "rnn.states() shape": (4, 1, 5, 6)},
    ),
    "both directions of one step": (FLAT + LSTM + " bidirectional=true", {"rnn.states() shape": (4, 6)}),
    "a GRU cell": (
        X + H + "a grucell Unit=3 input_layers=x,h Activation=relu",
        {"a() attributes": {"linear_before_reset": 1}, "a.activation() shape": (4, 3)},
    ),
    "an RNN cell": (
        X + H + "a rnncell Unit=3 input_layers=x,h Activation=relu",
        {"a() attributes": {"nonlinearity": "Tanh"}, "a.activation() shape": (4, 3)},
    ),
}


@grid("case", LAYERS)
def test_layers(case: str) -> None:
    text, expected = LAYERS[case]
    assert_facts(load(text), expected)


@pytest.mark.parametrize(("scheme", "variance"), [("lecun", 1 / 6), ("he", 2 / 6), ("xavier", 2 / 11)])
@pytest.mark.parametrize("kind", ["normal", "uniform"])
def test_initializers_scale_with_the_fans(scheme: str, variance: float, kind: str) -> None:
    initializer = load(FLAT, f"{DENSE} weight_initializer={scheme}_{kind}").operands["fc.weight"].initializer
    assert initializer is not None
    assert initializer.kind == kind
    assert initializer.scale == pytest.approx(math.sqrt(variance * (3 if kind == "uniform" else 1)))


@grid("word", ["relu", "sigmoid", "tanh", "softmax", "swish", "gelu", "leaky_relu", "elu"])
def test_activation_layers(word: str) -> None:
    type_ = word.title().replace("_", "")
    assert_facts(load(FLAT, DENSE, f"; a Activation Activation={word}"), {"a()": type_})


def test_images_of_one_channel_are_normalised_by_columns_where_nothing_is_said() -> None:
    with pytest.raises(DocumentError, match="is 3, for an input of shape"):
        load("in input Input_Shape=1:8:8; f conv2d filters=1 kernel_size=1;", NORM)
    assert load(FLAT, DENSE, ";", NORM, " axis=3") == load(FLAT, DENSE, ";", NORM)


def test_dropout() -> None:
    facts = facts_of(load(FLAT, DENSE, "; d dropout dropout_rate=0.25; e dropout"))
    assert (facts["d()"], facts["d() ratio"], facts["e() ratio"]) == ("Dropout", 0.25, 0.0)
    assert facts["d() seed"] != facts["e() seed"]


# --------------------------------------------------------------------------------------- sequences


@pytest.mark.parametrize(("type_", "gates"), [("lstm", 4), ("gru", 3), ("rnn", 1)])
@pytest.mark.parametrize("returns", [False, True])
def test_recurrent_layers(type_: str, gates: int, returns: bool) -> None:
    graph = load(STEPS, f"rnn {type_} Unit=3 return_sequences={str(returns).lower()}")
    assert sum(op.type.endswith("Cell") for op in graph.operations) == 5
    shapes = {"rnn.weight": (gates * 3, 6), "rnn.recurrent": (gates * 3, 3), "rnn.bias": (2 * gates * 3,)}
    assert_facts(graph, {"rnn.states() shape": (4, 1, 5, 3) if returns else (4, 3), **shapes})
    assert validate(graph, plan(graph), steps=2).identical


@grid(
    ("text", "cells", "expected"),
    [
        (FLAT + LSTM, 1, {"rnn.states() shape": (4, 3)}),  # as in nntrainer's own case: one step
        (FLAT + LSTM + " return_sequences=true", 1, {"rnn.states() shape": (4, 3)}),
        (
            STEPS + LSTM + " return_sequences=true; second lstm Unit=3;" + DENSE,
            10,
            {"fc.weight": (5, 3)},
        ),
        (STEPS + LSTM + " bidirectional=true return_sequences=true", 10, {}),
        (
            X + "y input Input_Shape=1:1:6;" + H + C
            + "a lstmcell Unit=3 input_layers=x,h,c; b lstmcell Unit=3 input_layers=y,a,a(1)",
            2,
            {
                "a() inputs": ("x", "h", "c", "a.weight", "a.recurrent", "a.bias"),
                "b() inputs": ("y", "a.out", "a.cell", "b.weight", "b.recurrent", "b.bias"),
                "a.bias": (24,),
            },
        ),
        (
            WORDS + EMBEDDING + "; f flatten;" + DENSE,
            0,
            {"in dtype": "int32", "words.weight": (9, 4), "fc.weight": (5, 28)},
        ),
    ],
)  # fmt: skip
def test_sequences_train_in_their_arena(text: str, cells: int, expected: dict[str, Any]) -> None:
    graph = load(text)
    assert sum(op.type.endswith("Cell") for op in graph.operations) == cells
    assert_facts(graph, expected)
    assert validate(graph, plan(graph), steps=2).identical


def test_words_become_a_sequence() -> None:
    graph = load(WORDS, EMBEDDING, " in_length=7;", LSTM, ";", DENSE, model=ADAM)
    assert sum(op.type.endswith("Cell") for op in graph.operations) == 7
    trainer, batch = Trainer(graph, plan(graph)), synthetic_batch(graph, 0, 1)
    losses = [trainer.step(batch) for _ in range(30)]
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]


# ------------------------------------------------------------------------------------------------ split


def test_a_split_has_an_output_for_each_part() -> None:
    parts = "s split axis=2 split_number=3; d addition input_layers=s(0),s(2),s(1); f flatten;"
    graph = load("in input Input_Shape=3:6:4;", parts, DENSE, batch=2)
    (split,) = (o for o in graph.operations if o.type == "Split")
    assert [graph.operands[name].shape for name in split.outputs] == [(2, 3, 2, 4)] * 3
    x = np.random.default_rng(1).standard_normal((2, 3, 6, 4)).astype("f4")
    with Trainer(graph, plan(graph)) as trainer:
        weight, bias = trainer.read("fc.weight"), trainer.read("fc.bias")
        loss = trainer.step({"in": x, "label": np.zeros((2, 5), np.float32)})
    total = (x[:, :, :2] + x[:, :, 2:4] + x[:, :, 4:]).reshape(2, -1)
    np.testing.assert_allclose(loss, np.mean((total @ weight.T + bias) ** 2), rtol=1e-5)


@pytest.mark.parametrize("key", ["axis", "split_dimension"])
def test_a_split_without_a_number_gives_one_part_a_position(key: str) -> None:
    graph = load(FLAT, f"s split {key}=3; j concat input_layers=s(5),s(0);", DENSE)
    (split,) = (o for o in graph.operations if o.type == "Split")
    assert len(split.outputs) == 6
    assert graph.operands["j.out"].shape == (4, 2)


# ---------------------------------------------------------------------------------- model and loss


def test_older_files_name_the_optimizer_in_the_model() -> None:
    keys = "Optimizer=adam\nLearning_rate=1e-2\ndecay_rate=0.9\nbeta1=0.8\n"
    graph = load(FLAT, DENSE, model=f"[Model]\nType=regression\nLoss=mse\n{keys}")
    assert graph.optimizer is not None
    assert graph.optimizer.attributes == {"learning_rate": 0.01, "beta1": 0.8, "epsilon": 1e-7}
    assert graph.operands["in"].shape == (1, 6)


def test_what_is_done_anyway_may_be_said() -> None:
    said = "tensor_format = NCHW\nmodel_tensor_type = FP32-FP32\nmemory_optimization = true\nbatch_size"
    model = MODEL.replace("batch_size", said)
    assert load(FLAT.replace(";", " Bias_initializer=zeros;"), DENSE, model=model) == load(FLAT, DENSE)


def test_the_batch_of_the_caller_wins() -> None:
    assert load(FLAT, DENSE, batch=9).operands["in"].shape == (9, 6)
    with pytest.raises(BatchError):
        load(FLAT, DENSE, batch=0)


def test_cross_entropy_of_a_sigmoid_is_binary() -> None:
    graph = load(FLAT, DENSE, " Activation=sigmoid", model=CROSS)
    assert_facts(graph, {"types": ["Gemm", "Sigmoid", "BinaryCrossEntropy"]})
    steps = [step.id for step in nntrainer_target(graph).steps]
    assert steps[:3] == ["in:forward", "fc:forward", "loss:forward"]


@pytest.mark.parametrize(
    ("type_", "operator"), [("mse", "MeanSquaredError"), ("cross_softmax", "CategoricalCrossEntropy")]
)
def test_losses_may_be_layers(type_: str, operator: str) -> None:
    graph = load(FLAT, DENSE, f"; error {type_}", model=MODEL.replace("Loss = mse\n", ""))
    assert_facts(graph, {"types": ["Gemm", operator]})
    assert nntrainer_target(graph).steps


def test_names_of_loss_and_label_make_way() -> None:
    graph = load(FLAT.replace("in ", "label ", 1), DENSE.replace("fc", "loss"))
    assert_facts(graph, {"label role": "input", "loss": "loss_.out", "label_ role": "label"})


def test_one_norm_for_all_trained_layers_clips_the_gradients() -> None:
    clip = " clip_grad_by_norm=0.5"
    graph = load(FLAT, DENSE, clip, "; r activation Activation=relu;", LSTM, clip)
    assert graph.training.clip_global_norm == 0.5
    assert load(FLAT, DENSE).training.clip_global_norm is None
    frozen = "first fully_connected Unit=5 trainable=false;"
    assert load(FLAT, frozen, DENSE, " clip_grad_by_norm=2").training.clip_global_norm == 2


# ---------------------------------------------------------------------------------------- backbones

#: Two layers without a model, as a backbone is.
BASE = "a fully_connected Unit=4; b fully_connected Unit=3"
BLOCK = "[block]\nbackbone = base.ini\n"


def loaded(folder: Path, *sections: str, **files: str) -> Imported:
    """The file of these sections, beside files of others; sections may be written out."""
    for name, text in {"main": "".join((MODEL, *sections)), **files}.items():
        (folder / f"{name}.ini").write_text(text if text.startswith("[") else ini(text))
    path = folder / "main.ini"
    return load_nntrainer(path.read_bytes(), options=ImportOptions(), path=path)


def refusal(folder: Path, *sections: str, **files: str) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        loaded(folder, *sections, **files)
    return caught.value


def test_the_layers_of_a_backbone_stand_in_its_place(tmp_path: Path) -> None:
    graph = loaded(tmp_path, ini(FLAT[:-1]), f"{BLOCK}trainable = true\n", ini(DENSE), base=BASE).graph
    firsts = {op.id: op.inputs[0] for op in graph.operations}
    assert (firsts["block/a"], firsts["block/b"], firsts["fc"]) == ("in", "block/a.out", "block/b.out")
    whole = load(FLAT, BASE, ";", DENSE)
    assert [o.type for o in graph.operations] == [o.type for o in whole.operations]
    assert [graph.operands[name].shape for name in graph.trainable] == [
        whole.operands[name].shape for name in whole.trainable
    ]
    frozen = loaded(tmp_path, ini(FLAT[:-1]), BLOCK, ini(DENSE), base=BASE).graph
    assert frozen.trainable == ("fc.weight", "fc.bias")


def test_two_backbones_of_one_file_and_one_inside_another(tmp_path: Path) -> None:
    blocks = "[one]\nbackbone = base.ini\n[two]\nbackbone = outer.ini\ntrainable = true\n"
    outer = ini("first fully_connected Unit=7") + "[inner]\nbackbone = base.ini\n"
    graph = loaded(tmp_path, ini(FLAT[:-1]), blocks, ini(DENSE), base=BASE, outer=outer).graph
    firsts = {op.id: op.inputs[0] for op in graph.operations}
    assert (firsts["two/first"], firsts["two/inner/a"]) == ("one/b.out", "two/first.out")
    assert firsts["fc"] == "two/inner/b.out"
    trained = {name.rpartition(".")[0] for name in graph.trainable}
    assert trained == {"two/first", "two/inner/a", "two/inner/b", "fc"}


def test_a_part_of_a_backbone_and_what_it_reads(tmp_path: Path) -> None:
    """InputLayer and OutputLayer cut it; input_layers says what it reads, and it is read by its name."""
    base = BASE + "; c fully_connected Unit=2; d addition input_layers=c,c"
    block = ini(FLAT[:-1]) + f"{BLOCK}InputLayer = b\nOutputLayer = C\ninput_layers = in\n"
    graph = loaded(tmp_path, block, ini("sum fully_connected Unit=1 input_layers=block"), base=base).graph
    assert {name.partition(".")[0] for name in graph.operands if "/" in name} == {"block/b", "block/c"}
    firsts = {op.id: op.inputs[0] for op in graph.operations}
    assert (firsts["block/b"], firsts["sum"]) == ("in", "block/c.out")
    both = ini("unread fully_connected Unit=2; both addition input_layers=unread,block")
    assert_facts(
        loaded(tmp_path, block, both, base=base).graph, {"both() inputs": ("unread.out", "block/c.out")}
    )


def test_a_backbone_with_a_model_and_an_input_of_its_own(tmp_path: Path) -> None:
    """[Model] is ignored there. Its input layer reads the layer before, or takes the section's shape."""
    base = MODEL + ini(FLAT + BASE)
    graph = loaded(tmp_path, ini(FLAT + DENSE), BLOCK, base=base).graph
    assert next(op.inputs[0] for op in graph.operations if op.id == "block/a") == "fc.out"
    graph = loaded(tmp_path, f"{BLOCK}input_shape = 1:1:9\n", ini(DENSE), base=base).graph
    assert graph.operands["block/in"].shape == (4, 9)


@pytest.mark.parametrize(
    ("block", "key", "what"),
    [
        ("backbone = base.tflite\n", "backbone", "a model of another framework"),
        ("backbone = nothing.ini\n", "backbone", "is not in the folder of the model file"),
        ("backbone = ../base.ini\n", "backbone", "is not in the folder of the model file"),
        ("backbone = main.ini\n", "backbone", "is part of itself"),
        ("backbone = loop.ini\n", "backbone", "is part of itself"),
        ("backbone = empty.ini\n", "backbone", "has no layers"),
        ("backbone = bad.ini\n", "backbone", "which has a mistake: Line 2: 'Unit' is not an entry"),
        ("backbone = base.ini\npreload = true\n", "preload", "reads weights"),
        ("backbone = base.ini\nscalesize = 0.5\n", "scalesize", "scales layers"),
        ("backbone = base.ini\nOutputLayer = z\n", "outputlayer", "is 'z'"),
        ("backbone = base.ini\nInputLayer = b\nOutputLayer = a\n", "outputlayer", "stands before InputLayer"),
        ("backbone = base.ini\nunit = 3\n", "unit", "is not known here"),
    ],
)
def test_refusals_of_backbones_name_key_section_and_line(
    tmp_path: Path, block: str, key: str, what: str
) -> None:
    files = {"base": BASE, "loop": "[x]\nbackbone = loop.ini\n", "empty": MODEL, "bad": "[a]\nUnit\n"}
    error = refusal(tmp_path, ini(FLAT[:-1]), f"[block]\n{block}", ini(DENSE), **files)
    assert what in error.message
    assert error.remedy
    assert error.path[-1] == key
    if what != "is part of itself":  # of a section of the file that is read once more
        line = 11 + [text.partition(" ")[0].lower() for text in block.splitlines()].index(key)
        assert error.message.startswith(f"Line {line}: {key!r} of section 'block' ")


def test_mistakes_in_layers_of_a_backbone(tmp_path: Path) -> None:
    error = refusal(tmp_path, ini(FLAT[:-1]), BLOCK, base="a fully_connected Unit=many")
    assert error.message.startswith("Line 3 of base.ini: 'unit' of section 'block/a' is 'many'")
    taken = refusal(tmp_path, ini(FLAT[:-1]), BLOCK, ini("BLOCK/b fully_connected Unit=5"), base=BASE)
    assert "belongs to a layer whose name is taken" in taken.message
    with pytest.raises(DocumentError, match="'backbone' of section 'block' names another file"):
        load_nntrainer_ini((MODEL + ini(FLAT[:-1]) + BLOCK).encode())


@pytest.mark.parametrize("key", ["normalization", "standardization"])
def test_what_an_input_layer_does_to_the_data_is_said(tmp_path: Path, key: str) -> None:
    image, flat, behind = (ini(text) for text in (IMAGE[:-1], FLAT[:-1], f"f flatten; {DENSE}"))
    found = loaded(tmp_path, f"{image}{key} = true\n", behind)
    (note,) = found.notes
    assert note.startswith(f"Line 10: {key} of 'in' is not part of the plan")
    assert found.graph == loaded(tmp_path, image, behind).graph
    assert loaded(tmp_path, f"{image}{key} = false\n", behind).notes == ()
    refused = refusal(tmp_path, flat, f"{ini(DENSE)}{key} = true\n")
    assert refused.path == ("fc", key)
    assert refused.message.startswith(f"Line 13: {key!r} of section 'fc' is done by input layers alone")
    assert loaded(tmp_path, flat, f"{ini(DENSE)}{key} = false\n").notes == ()


# ---------------------------------------------------------------------------------------- refusals

#: Sections, the place of the mistake as ``section key``, and words of the message. A model that is not the
#: usual one stands first.
REFUSED: dict[str, tuple[str, ...]] = {
    "unknown layer key": (FLAT + DENSE + " units=3", "fc units"),
    "unknown model key": (FLAT + DENSE, "Model batchsize", "", MODEL.replace("batch_size", "batchsize")),
    "unknown optimizer key": (FLAT + DENSE, "Optimizer nesterov", "", MODEL + "nesterov = true\n"),
    "unknown data key": (FLAT + DENSE, "DataSet pixels", "", MODEL + "[DataSet]\npixels = 3\n"),
    "half precision": (
        FLAT + DENSE, "Model model_tensor_type", "",
        MODEL.replace("batch_size", "model_tensor_type = FP16-FP16\nbatch_size"),
    ),
    "no optimizer": (FLAT + DENSE, "Model optimizer", "", MODEL.replace("[Optimizer]\nType = sgd\n", "")),
    "key of another type": (FLAT + DENSE + " filters=3", "fc filters"),
    "unknown layer type": (FLAT + "b attention", "b type"),
    "unknown model type": (FLAT + DENSE, "Model type", "", MODEL.replace("NeuralNetwork", "knn")),
    "unknown loss": (FLAT + DENSE, "Model loss", "", MODEL.replace("mse", "hinge")),
    "unknown optimizer": (FLAT + DENSE, "Optimizer type", "", MODEL.replace("sgd", "lion")),
    "optimizer out of range": (FLAT + DENSE, "Optimizer learning_rate", "", MODEL + "learning_rate = 0\n"),
    "unknown activation": (FLAT + DENSE + " Activation=sine", "fc activation"),
    "activation without one": (FLAT + DENSE + "; a activation", "a activation"),
    "unknown initializer": (FLAT + DENSE + " bias_initializer=twos", "fc bias_initializer"),
    "regulariser": (FLAT + DENSE + " weight_regularizer=l2norm", "fc weight_regularizer"),
    "normalisation": (FLAT + DENSE + " normalization=true", "fc normalization"),
    "no units": (FLAT + "fc fully_connected", "fc unit"),
    "no units at all": (FLAT + "fc fully_connected Unit=0", "fc unit"),
    "no input shape": ("in input;" + DENSE, "in input_shape"),
    "zero in a shape": ("in input Input_Shape=1:1:0;" + DENSE, "in input_shape"),
    "another batch": ("in input Input_Shape=3:1:1:6;" + DENSE, "in input_shape"),
    "unknown input": (FLAT + DENSE + " input_layers=nobody", "fc input_layers"),
    "second output": (FLAT + DENSE + " input_layers=in(1)", "fc input_layers"),
    "two inputs": (FLAT + DENSE + "; b flatten input_layers=in,fc", "b input_layers"),
    "one summand": (FLAT + DENSE + "; b addition", "b input_layers"),
    "unequal summands": (FLAT + DENSE + "; b addition input_layers=in,fc", "b input_layers"),
    "bad axis": (FLAT + DENSE + "; b concat input_layers=fc axis=1", "b axis"),
    "unequal parts": (IMAGE + CONV + "; b concat input_layers=in,c", "b input_layers"),
    "cycle": (FLAT + "a flatten input_layers=b; b flatten input_layers=a", "a input_layers"),
    "image for a dense layer": (IMAGE + DENSE, "fc type"),
    "flat for a convolution": (FLAT + DENSE + ";" + CONV, "c type"),
    "window too large": (IMAGE + CONV.replace("3,3", "9,9"), "c padding"),
    "three paddings": (IMAGE + CONV + " padding=1,1,1", "c padding"),
    "no pooling": (IMAGE + "p pooling2d pool_size=2", "p pooling"),
    "stride of a global pooling": (IMAGE + CONV + "; p pooling2d pooling=global_max stride=2", "p stride"),
    "two outputs": (FLAT + DENSE + "; b fully_connected Unit=5 input_layers=in", "Model loss"),
    "no probabilities": (FLAT + DENSE, "Model loss", "", CROSS),
    "two losses": (FLAT + DENSE + "; b mse", "b type"),
    "loss that is read": (FLAT + "b mse;" + DENSE, "fc input_layers"),
    "loss with a key": (FLAT + DENSE + "; b mse unit=3", "b unit"),
    "another norm": (
        FLAT + DENSE + " clip_grad_by_norm=1;" + SECOND + " clip_grad_by_norm=2", "fc2 clip_grad_by_norm",
    ),
    "a norm for some": (FLAT + DENSE + " clip_grad_by_norm=1;" + SECOND, "fc clip_grad_by_norm"),
    "no norm": (FLAT + DENSE + " clip_grad_by_norm=0", "fc clip_grad_by_norm"),
    "no number": (FLAT + DENSE + " clip_grad_by_norm=much", "fc clip_grad_by_norm"),
    "axis of a normalisation": (IMAGE + NORM + " axis=2", "bn axis"),
    "decay of a normalisation": (IMAGE + NORM + " weight_decay=0.1", "bn weight_decay"),
    "unknown key of a normalisation": (IMAGE + NORM + " gamma=1", "bn gamma"),
    "momentum in words": (IMAGE + NORM + " momentum=high", "bn momentum"),
    "everything dropped": (FLAT + "d dropout dropout_rate=1", "d dropout_rate"),
    "no units of a sequence": (STEPS + "rnn lstm", "rnn unit"),
    "several channels": (IMAGE + LSTM, "rnn type"),
    "other steps": (STEPS + LSTM + " max_timestep=6", "rnn max_timestep"),
    "dropout inside": (STEPS + LSTM + " dropout_rate=0.1", "rnn dropout_rate"),
    "activation of states": (STEPS + LSTM + " hidden_state_activation=relu", "rnn hidden_state_activation"),
    "activation of gates": (STEPS + LSTM + " recurrent_activation=tanh", "rnn recurrent_activation"),
    "activation of an rnn": (STEPS + RNN + " hidden_state_activation=elu", "rnn hidden_state_activation"),
    "directions of a gru": (STEPS + GRU + " bidirectional=true", "rnn bidirectional"),
    "last step of both directions": (STEPS + LSTM + " bidirectional=true", "rnn bidirectional"),
    "regulariser of a sequence": (STEPS + LSTM + " weight_regularizer=l2norm", "rnn weight_regularizer"),
    "embedding of numbers": (FLAT + DENSE + ";" + EMBEDDING, "words input_layers"),
    "embedding of images": (STEPS + EMBEDDING, "words input_layers"),
    "other length": (WORDS + EMBEDDING + " in_length=3", "words in_length"),
    "no words": (WORDS + EMBEDDING.replace("9", "0"), "words in_dim"),
    "cell without states": (FLAT + "a lstmcell Unit=3 input_layers=in", "a input_layers"),
    "states of another width": (
        X + "h input Input_Shape=1:1:4; a grucell Unit=3 input_layers=x,h", "a input_layers",
    ),
    "cell of a sequence": (STEPS + H + "a rnncell Unit=3 input_layers=in,h", "a input_layers"),
    "third output of a cell": (
        X + H + C + "a lstmcell Unit=3 input_layers=x,h,c;" + SECOND + " input_layers=a(2)",
        "fc2 input_layers",
    ),
    "shared weights": (STEPS + LSTM + " shared_from=other", "rnn shared_from"),
    "a split without an axis": (IMAGE + "s split", "s axis", "is missing"),
    "axis 0 of a split": (IMAGE + "s split axis=0", "s axis", "contains 0"),
    "axis 4 of a split": (IMAGE + "s split axis=4", "s axis", "is 4"),
    "parts that do not divide": (
        IMAGE + "s split axis=2 split_number=5", "s split_number", "is 5, and the axis has 8 positions",
    ),
    "a name that the cells need": (
        STEPS + LSTM + "; rnn.2 fully_connected Unit=2", "rnn", "takes the name 'rnn.2'",
    ),
    "a sequence that is too long": (
        "in input Input_Shape=1:999999999:6;" + LSTM, "rnn",
        "takes 999,999,999 steps in time; at most 19,999 more",
    ),
}  # fmt: skip


@grid("case", REFUSED)
def test_refusals_name_section_and_key(case: str) -> None:
    text, place, *more = REFUSED[case]
    said, model = (*more, *("", MODEL)[len(more) :])
    with pytest.raises(ArenaplanError) as caught:
        load(text, model=model)
    assert said in caught.value.message
    assert isinstance(caught.value, DocumentError | GraphError)
    assert caught.value.path == tuple(place.split(" "))
    assert caught.value.remedy


def test_files_without_a_model_or_layers() -> None:
    for text in (ini("in input"), MODEL):
        with pytest.raises(DocumentError):
            load_nntrainer_ini(text.encode())
    with pytest.raises(DocumentError) as caught:
        load_nntrainer_ini((MODEL + ini(FLAT[:-1]) + "[b]\nUnit = 3\n").encode())
    assert caught.value.path == ("b", "type")
    with pytest.raises(
        DocumentError, match=r"no section \[Model\], which says the loss; it begins with \[a\] in line 1"
    ) as caught:
        load_nntrainer_ini(ini(BASE).encode())
    assert "backbone = FILE" in caught.value.remedy


def test_what_the_graph_refuses_names_the_section() -> None:
    with pytest.raises(GraphError) as caught:
        load(FLAT, "fc fully_connected Unit=999999999999999999")
    assert caught.value.path[0] == "fc"


# ------------------------------------------------------------------------------------ a whole network


def _convolution(name: str, source: str, filters: int, stride: int) -> str:
    return (
        f"{name} conv2d input_layers={source} kernel_size=3,3 bias_initializer=zeros"
        f" weight_initializer=xavier_uniform filters={filters} stride={stride},{stride} padding=1,1;"
    )


def _normalisation(name: str, source: str) -> str:
    return (
        f"{name} batch_normalization input_layers={source} epsilon=1.0e-6 momentum=0.9 Activation=relu"
        " beta_initializer=zeros gamma_initializer=ones moving_mean_initializer=zeros"
        " moving_variance_initializer=ones;"
    )


def _block(name: str, source: str, filters: int, stride: int) -> str:
    shortcut = source if stride == 1 else f"{name}_short"
    return "".join(
        [
            f"{name}_out output input_layers={source};",
            _convolution(f"{name}_1", f"{name}_out", filters, stride),
            _normalisation(f"{name}_bn", f"{name}_1"),
            _convolution(f"{name}_2", f"{name}_bn", filters, 1),
            "" if stride == 1 else _convolution(shortcut, f"{name}_out", filters, stride),
            f"{name}_add addition input_layers={name}_2,{shortcut};",
            _normalisation(name, f"{name}_add"),
        ]
    )


@pytest.mark.parametrize("target", ["reference", "nntrainer"])
def test_a_residual_network(target: str) -> None:
    """Seven residual blocks, as nntrainer writes its ResNet-18: normalised behind each addition."""
    text = IMAGE.replace("8:8", "32:32") + _convolution("first", "in", 64, 1) + _normalisation("b0", "first")
    sizes = ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2))
    for number, (filters, stride) in enumerate(sizes):
        text += _block(f"b{number + 1}", f"b{number}", filters, stride)
    text += (
        "max pooling2d input_layers=b7 pool_size=4,4 stride=4,4 pooling=max;"
        "mean pooling2d input_layers=b7 pool_size=4,4 stride=4,4 pooling=average;"
        "both concat input_layers=max,mean; linear conv2d kernel_size=1,1 filters=10; flatten flatten;"
        "probabilities activation Activation=softmax"
    )
    graph = load(text, model=ADAM.replace("mse", "cross"), batch=8)
    made = plan(graph, PlanOptions(target=target, solver="greedy"))
    assert violations(graph, made) == ()
    states = [operand for operand in graph.operands.values() if operand.role is Role.STATE]
    assert len(states) == 2 * 15
    weights = sum(graph.operands[name].type.elements for name in graph.trainable)
    parameters = [operand for operand in graph.operands.values() if operand.role is Role.PARAMETER]
    assert weights == sum(operand.type.elements for operand in parameters)
    if target == "nntrainer":
        statistics = sum(operand.type.nbytes for operand in states)
        assert made.arenas[0].size == 3 * 4 * weights + statistics
