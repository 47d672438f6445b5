"""Model files of nntrainer: what each section becomes, and what each refusal names."""

from __future__ import annotations

import math

import numpy as np
import pytest

from solver.errors import ArenaplanError, BatchError, DocumentError, GraphError
from solver.executor import Trainer, validate
from solver.graph import Operand, Operation, Role, TrainableGraph
from solver.importers.nntrainer import load_nntrainer, load_nntrainer_ini
from solver.importers.options import ImportOptions
from solver.layout import max_load
from solver.pipeline import plan
from solver.plan import PlanOptions
from solver.targets.nntrainer import nntrainer_target
from tests.support.every import grid

MODEL = "[Model]\nType = NeuralNetwork\nLoss = mse\nbatch_size = 4\n[Optimizer]\nType = sgd\n"
IMAGE = "[in]\nType = input\nInput_Shape = 3:8:8\n"
FLAT = "[in]\nType = input\nInput_Shape = 1:1:6\n"
DENSE = "[fc]\nType = fully_connected\nUnit = 5\n"


@grid("model", ["[Model]\nType = NeuralNetwork\n", "[Model]\nType = NeuralNetwork\nLoss = mse\n", MODEL])
@grid("loss", ["", "[l]\ntype = cross_softmax\n"])
def test_an_inference_needs_no_optimizer_and_no_loss(model: str, loss: str) -> None:
    text = f"{model}{FLAT}{DENSE}[act]\ntype = activation\nactivation = relu\n{loss}"
    options = ImportOptions(loss="none", batch=3)
    found = load_nntrainer(text.encode(), options=options).graph
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


def load(*sections: str, batch: int | None = None) -> TrainableGraph:
    return load_nntrainer_ini("".join(sections).encode(), batch=batch)


def operations(graph: TrainableGraph) -> dict[str, Operation]:
    return {operation.id: operation for operation in graph.operations}


def output(graph: TrainableGraph, name: str) -> Operand:
    return graph.operands[operations(graph)[name].outputs[0]]


# -------------------------------------------------------------------------------------- whole files


def test_a_classifier() -> None:
    graph = load(CLASSIFIER)
    assert [(op.id, op.type) for op in graph.operations] == [
        ("c1", "Conv"), ("p1", "AveragePool"), ("c2", "Conv"), ("p2", "AveragePool"), ("flatten", "Flatten"),
        ("outputlayer", "Gemm"), ("outputlayer.activation", "Softmax"), ("loss", "CategoricalCrossEntropy"),
    ]  # fmt: skip
    assert output(graph, "c1").shape == (32, 6, 24, 24)
    assert output(graph, "p2").shape == (32, 12, 4, 4)
    assert graph.optimizer is not None
    assert graph.optimizer.type == "Adam"
    assert graph.optimizer.attributes == {
        "learning_rate": 1e-4, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-7,
    }  # fmt: skip
    assert graph.trainable == tuple(
        f"{x}.{y}" for x in ("c1", "c2", "outputlayer") for y in ("weight", "bias")
    )


def test_its_memory_under_nntrainer() -> None:
    _, tensors = nntrainer_target(load(CLASSIFIER)).pools
    assert round(max_load(tensors.problem()).bytes / 2**20, 2) == 0.95


def test_it_trains_in_its_arena() -> None:
    graph = load(CLASSIFIER, batch=2)
    assert validate(graph, plan(graph), steps=2).identical


@pytest.mark.parametrize(
    ("layers", "shape", "batch", "bound"),
    [
        pytest.param("[out]\nType = fully_connected\nUnit = 300\n", "1:1:150528", 64, 172.34),
        pytest.param(
            "".join(f"[fc{n}]\nType = fully_connected\nUnit = {n}\n" for n in (4096, 2048, 100)),
            "1:1:784", 2048, 80.01,
        ),
        pytest.param(
            "".join(
                f"[c{n}]\nType = conv2d\nkernel_size = 3,3\nfilters = 3\nstride = 2,2\npadding = \"same\"\n"
                for n in range(3)
            ),
            "3:224:224", 64, 12.63,
        ),
        pytest.param(
            "[fc]\nType = fully_connected\nActivation = relu\nUnit = 10\n[out]\nType = Flatten\n",
            "1:1:150528", 64, 5.74,
        ),
    ],
    ids=["Linear", "Model_A_Linear", "Model_A_Conv", "Model_C_Linear"],
)  # fmt: skip
def test_published_cases(layers: str, shape: str, batch: int, bound: float) -> None:
    graph = load(MODEL, f"[in]\nType = input\nInput_Shape = {shape}\n", layers, batch=batch)
    _, tensors = nntrainer_target(graph).pools
    assert abs(max_load(tensors.problem()).bytes / 2**20 - bound) <= 0.005


# ------------------------------------------------------------------------------------------ layers


def test_a_flat_input_is_a_matrix_unless_images_are_read() -> None:
    assert load(MODEL, FLAT, DENSE).operands["in"].shape == (4, 6)
    row = "[in]\nType = input\nInput_Shape = 1:1:6\n[c]\nType = conv2d\nfilters = 2\nkernel_size = 1,1\n"
    assert load(MODEL, row).operands["in"].shape == (4, 1, 1, 6)


def test_shapes_may_leave_leading_ones_out_and_name_the_batch() -> None:
    assert load(MODEL, "[in]\nType = input\nInput_Shape = 6\n", DENSE).operands["in"].shape == (4, 6)
    assert load(MODEL, "[in]\nType=input\nInput_Shape = 4:1:1:6\n", DENSE).operands["in"].shape == (4, 6)


def test_a_first_layer_with_a_shape_needs_no_input_layer() -> None:
    graph = load(MODEL, "[fc]\nType = fully_connected\nUnit = 5\nInput_Shape = 1:1:6\n")
    assert graph.operands["fc.in"].role is Role.INPUT


def test_weights_and_bias() -> None:
    graph = load(MODEL, FLAT, DENSE + "disable_bias = true\nweight_initializer = ones\n")
    assert operations(graph)["fc"].inputs == ("in", "fc.weight")
    weight = graph.operands["fc.weight"]
    assert weight.shape == (5, 6)
    assert weight.initializer is not None
    assert weight.initializer.kind == "ones"


@pytest.mark.parametrize(
    ("word", "kind", "variance"),
    [
        ("lecun_normal", "normal", 1 / 6),
        ("he_normal", "normal", 2 / 6),
        ("xavier_normal", "normal", 2 / 11),
        ("lecun_uniform", "uniform", 1 / 6),
        ("he_uniform", "uniform", 2 / 6),
        ("xavier_uniform", "uniform", 2 / 11),
    ],
)
def test_initializers_scale_with_the_fans(word: str, kind: str, variance: float) -> None:
    graph = load(MODEL, FLAT, DENSE, f"weight_initializer = {word}\n")
    initializer = graph.operands["fc.weight"].initializer
    assert initializer is not None
    assert initializer.kind == kind
    assert initializer.scale == pytest.approx(math.sqrt(variance * (3 if kind == "uniform" else 1)))


def test_frozen_layers() -> None:
    graph = load(MODEL, FLAT, DENSE, "trainable = false\n[fc2]\nType = fully_connected\nUnit = 3\n")
    assert graph.trainable == ("fc2.weight", "fc2.bias")


@pytest.mark.parametrize(
    ("padding", "side"),
    [
        ("", 3),
        ("padding = valid", 3),
        ('padding = "same"', 4),
        ("padding = 1", 4),
        ("padding = 1,1", 4),
        ("padding = 0,1,0,1", 4),
    ],
)
def test_convolution_and_padding(padding: str, side: int) -> None:
    graph = load(MODEL, IMAGE, f"[c]\nType = conv2d\nfilters = 2\nkernel_size = 3,3\nstride = 2\n{padding}\n")
    assert output(graph, "c").shape == (4, 2, side, side)


def test_padding_of_four_sides_is_top_bottom_left_right() -> None:
    layer = "[c]\nType = conv2d\nfilters = 2\nkernel_size = 3,3\ndilation = 2\npadding = 1,2,3,4\n"
    graph = load(MODEL, IMAGE, layer)
    assert operations(graph)["c"].attributes["pads"] == (1, 3, 2, 4)
    assert output(graph, "c").shape == (4, 2, 8 + 3 - 4, 8 + 7 - 4)


@pytest.mark.parametrize(
    ("pooling", "type_", "kernel"),
    [
        ("pooling = max\npool_size = 2,2\nstride = 2,2", "MaxPool", (2, 2)),
        ("pooling = average\npool_size = 2,4", "AveragePool", (2, 4)),
        ("pooling = global_max", "MaxPool", (8, 8)),
        ("pooling = global_average", "AveragePool", (8, 8)),
    ],
)
def test_pooling(pooling: str, type_: str, kernel: tuple[int, int]) -> None:
    conv = "[c]\nType = conv2d\nfilters = 3\nkernel_size = 1\n"
    operation = operations(load(MODEL, IMAGE, conv, f"[p]\nType = pooling2d\n{pooling}\n"))["p"]
    assert (operation.type, operation.attributes["kernel_shape"]) == (type_, kernel)


@grid(
    ("word", "type_"),
    [
        ("relu", "Relu"),
        ("sigmoid", "Sigmoid"),
        ("tanh", "Tanh"),
        ("softmax", "Softmax"),
        ("swish", "Swish"),
        ("gelu", "Gelu"),
        ("leaky_relu", "LeakyRelu"),
        ("elu", "Elu"),
    ],
)
def test_activation_layers(word: str, type_: str) -> None:
    graph = load(MODEL, FLAT, DENSE, f"[a]\nType = Activation\nActivation = {word}\n")
    assert operations(graph)["a"].type == type_


def test_activations_are_fused_where_that_is_possible() -> None:
    after = "[out]\nType = fully_connected\nUnit = 3\n"
    fused = operations(load(MODEL, FLAT, DENSE, "Activation = relu\n", after))
    assert fused["fc"].attributes["activation"] == "Relu"
    own = operations(load(MODEL, FLAT, DENSE, "Activation = elu\n", after))
    assert own["fc.activation"].type == "Elu"


def test_flatten_as_a_property() -> None:
    graph = load(MODEL, IMAGE, "[c]\nType=conv2d\nfilters=2\nkernel_size=1\nflatten=true\n", DENSE)
    assert operations(graph)["c.flatten"].type == "Flatten"
    assert graph.operands["fc.weight"].shape == (5, 128)


def test_branches_addition_and_concatenation() -> None:
    graph = load(
        MODEL,
        IMAGE,
        "[a]\nType=conv2d\nfilters=2\nkernel_size=1\n[out0]\nType=multiout\n",
        "[b]\nType=conv2d\ninput_layers=out0\nfilters=2\nkernel_size=1\n",
        "[c]\nType=conv2d\ninput_layers=OUT0(0)\nfilters=2\nkernel_size=1\n",
        "[sum]\nType=addition\ninput_layers=a, b, c\nActivation=relu\n",
        "[all]\nType=concat\ninput_layers=sum,out0\n",
    )
    found = operations(graph)
    assert found["b"].inputs[0] == found["c"].inputs[0] == "a.out"
    assert (found["sum.2"].inputs, found["sum"].inputs) == (("a.out", "b.out"), ("sum.2.out", "c.out"))
    assert found["all"].inputs == ("sum.activation.out", "a.out")
    assert output(graph, "all").shape == (4, 4, 8, 8)
    assert nntrainer_target(graph).steps


def test_concatenation_of_flat_inputs() -> None:
    more = "[fc2]\nType=fully_connected\nUnit=3\ninput_layers=in\n[all]\nType=concat\ninput_layers=fc,fc2\n"
    assert output(load(MODEL, FLAT, DENSE, more), "all").shape == (4, 8)
    assert output(load(MODEL, FLAT, DENSE, more + "axis = 3\n"), "all").shape == (4, 8)


def test_layers_may_stand_before_their_inputs() -> None:
    graph = load(MODEL, "[b]\nType=flatten\ninput_layers=fc\n", FLAT, DENSE)
    assert [operation.id for operation in graph.operations] == ["fc", "b", "loss"]


# ---------------------------------------------------------------------------------- model and loss


def test_older_files_name_the_optimizer_in_the_model() -> None:
    model = (
        "[Model]\nType=regression\nLoss=mse\nOptimizer=adam\nLearning_rate=1e-2\ndecay_rate=0.9\nbeta1=0.8\n"
    )
    graph = load(model, FLAT, DENSE)
    assert graph.optimizer is not None
    assert graph.optimizer.attributes == {"learning_rate": 0.01, "beta1": 0.8, "epsilon": 1e-7}
    assert graph.operands["in"].shape == (1, 6)


def test_what_is_done_anyway_may_be_said() -> None:
    said = "tensor_format = NCHW\nmodel_tensor_type = FP32-FP32\nmemory_optimization = true\nbatch_size"
    graph = load(MODEL.replace("batch_size", said), FLAT, "Bias_initializer = zeros\n", DENSE)
    assert graph == load(MODEL, FLAT, DENSE)


def test_the_batch_of_the_caller_wins() -> None:
    assert load(MODEL, FLAT, DENSE, batch=9).operands["in"].shape == (9, 6)
    with pytest.raises(BatchError):
        load(MODEL, FLAT, DENSE, batch=0)


def test_cross_entropy_of_a_sigmoid_is_binary() -> None:
    graph = load(MODEL.replace("mse", "cross"), FLAT, DENSE, "Activation = sigmoid\n")
    assert [op.type for op in graph.operations] == ["Gemm", "Sigmoid", "BinaryCrossEntropy"]
    assert [step.id for step in nntrainer_target(graph).steps][:3] == [
        "in:forward",
        "fc:forward",
        "loss:forward",
    ]


@pytest.mark.parametrize(
    ("type_", "operator"), [("mse", "MeanSquaredError"), ("cross_softmax", "CategoricalCrossEntropy")]
)
def test_losses_may_be_layers(type_: str, operator: str) -> None:
    graph = load(MODEL.replace("Loss = mse\n", ""), FLAT, DENSE, f"[error]\nType = {type_}\n")
    assert [op.type for op in graph.operations] == ["Gemm", operator]
    assert nntrainer_target(graph).steps


def test_names_of_loss_and_label_make_way() -> None:
    graph = load(MODEL, FLAT.replace("[in]", "[label]"), DENSE.replace("[fc]", "[loss]"))
    assert graph.operands["label"].role is Role.INPUT
    assert graph.loss == "loss_.out"
    assert graph.operands["label_"].role is Role.LABEL


# ---------------------------------------------------------------------------------------- refusals

CONV = "[c]\nType = conv2d\nfilters = 2\nkernel_size = 3,3\n"

#: Sections -> where the mistake is.
REFUSED: dict[str, tuple[str, tuple[str, ...]]] = {
    "unknown layer key": (MODEL + FLAT + DENSE + "units = 3\n", ("fc", "units")),
    "unknown model key": (MODEL.replace("batch_size", "batchsize") + FLAT + DENSE, ("Model", "batchsize")),
    "unknown optimizer key": (MODEL + "nesterov = true\n" + FLAT + DENSE, ("Optimizer", "nesterov")),
    "unknown data key": (MODEL + "[DataSet]\npixels = 3\n" + FLAT + DENSE, ("DataSet", "pixels")),
    "half precision": (
        MODEL.replace("batch_size", "model_tensor_type = FP16-FP16\nbatch_size") + FLAT + DENSE,
        ("Model", "model_tensor_type"),
    ),
    "no optimizer": (MODEL.replace("[Optimizer]\nType = sgd\n", "") + FLAT + DENSE, ("Model", "optimizer")),
    "key of another type": (MODEL + FLAT + DENSE + "filters = 3\n", ("fc", "filters")),
    "unknown layer type": (MODEL + FLAT + "[b]\nType = attention\n", ("b", "type")),
    "no layer type": (MODEL + FLAT + "[b]\nUnit = 3\n", ("b", "type")),
    "unknown model type": (MODEL.replace("NeuralNetwork", "knn") + FLAT + DENSE, ("Model", "type")),
    "unknown loss": (MODEL.replace("mse", "hinge") + FLAT + DENSE, ("Model", "loss")),
    "unknown optimizer": (MODEL.replace("sgd", "lion") + FLAT + DENSE, ("Optimizer", "type")),
    "optimizer out of range": (MODEL + "learning_rate = 0\n" + FLAT + DENSE, ("Optimizer", "learning_rate")),
    "unknown activation": (MODEL + FLAT + DENSE + "Activation = sine\n", ("fc", "activation")),
    "activation without one": (MODEL + FLAT + DENSE + "[a]\nType = activation\n", ("a", "activation")),
    "unknown initializer": (MODEL + FLAT + DENSE + "bias_initializer = twos\n", ("fc", "bias_initializer")),
    "regulariser": (MODEL + FLAT + DENSE + "weight_regularizer = l2norm\n", ("fc", "weight_regularizer")),
    "normalisation": (MODEL + FLAT + DENSE + "normalization = true\n", ("fc", "normalization")),
    "no units": (MODEL + FLAT + "[fc]\nType = fully_connected\n", ("fc", "unit")),
    "no units at all": (MODEL + FLAT + DENSE.replace("5", "0"), ("fc", "unit")),
    "no input shape": (MODEL + "[in]\nType = input\n" + DENSE, ("in", "input_shape")),
    "zero in a shape": (MODEL + FLAT.replace("6", "0") + DENSE, ("in", "input_shape")),
    "another batch": (MODEL + FLAT.replace("1:1:6", "3:1:1:6") + DENSE, ("in", "input_shape")),
    "unknown input": (MODEL + FLAT + DENSE + "input_layers = nobody\n", ("fc", "input_layers")),
    "second output": (MODEL + FLAT + DENSE + "input_layers = in(1)\n", ("fc", "input_layers")),
    "two inputs": (MODEL + FLAT + DENSE + "[b]\nType=flatten\ninput_layers=in,fc\n", ("b", "input_layers")),
    "one summand": (MODEL + FLAT + DENSE + "[b]\nType=addition\n", ("b", "input_layers")),
    "unequal summands": (
        MODEL + FLAT + DENSE + "[b]\nType=addition\ninput_layers=in,fc\n",
        ("b", "input_layers"),
    ),
    "bad axis": (MODEL + FLAT + DENSE + "[b]\nType=concat\ninput_layers=fc\naxis=1\n", ("b", "axis")),
    "unequal parts": (
        MODEL + IMAGE + CONV + "[b]\nType=concat\ninput_layers=in,c\n",
        ("b", "input_layers"),
    ),
    "cycle": (
        MODEL + FLAT + "[a]\nType=flatten\ninput_layers=b\n[b]\nType=flatten\ninput_layers=a\n",
        ("a", "input_layers"),
    ),
    "image for a dense layer": (MODEL + IMAGE + DENSE, ("fc", "type")),
    "flat for a convolution": (MODEL + FLAT + DENSE + CONV, ("c", "type")),
    "window too large": (MODEL + IMAGE + CONV.replace("3,3", "9,9"), ("c", "padding")),
    "three paddings": (MODEL + IMAGE + CONV + "padding = 1,1,1\n", ("c", "padding")),
    "no pooling": (MODEL + IMAGE + "[p]\nType=pooling2d\npool_size=2\n", ("p", "pooling")),
    "stride of a global pooling": (
        MODEL + IMAGE + CONV + "[p]\nType=pooling2d\npooling=global_max\nstride=2\n",
        ("p", "stride"),
    ),
    "two outputs": (MODEL + FLAT + DENSE + DENSE.replace("fc", "b") + "input_layers=in\n", ("Model", "loss")),
    "no probabilities": (MODEL.replace("mse", "cross") + FLAT + DENSE, ("Model", "loss")),
    "two losses": (MODEL + FLAT + DENSE + "[b]\nType = mse\n", ("b", "type")),
    "loss that is read": (MODEL + FLAT + "[b]\nType = mse\n" + DENSE, ("fc", "input_layers")),
    "loss with a key": (MODEL + FLAT + DENSE + "[b]\nType = mse\nunit = 3\n", ("b", "unit")),
}  # fmt: skip


@grid("case", REFUSED)
def test_refusals_name_section_and_key(case: str) -> None:
    text, path = REFUSED[case]
    with pytest.raises(ArenaplanError) as caught:
        load(text)
    assert isinstance(caught.value, DocumentError | GraphError)
    assert caught.value.path == path
    assert caught.value.remedy


@pytest.mark.parametrize("text", ["[in]\nType = input\n", MODEL])
def test_files_without_a_model_or_layers(text: str) -> None:
    with pytest.raises(DocumentError):
        load(text)


def test_what_the_graph_refuses_names_the_section() -> None:
    huge = "[fc]\nType = fully_connected\nUnit = 999999999999999999\n"
    with pytest.raises(GraphError) as caught:
        load(MODEL, FLAT, huge)
    assert caught.value.path[0] == "fc"


def test_plans_for_every_target() -> None:
    graph = load(MODEL, FLAT, DENSE)
    for target in ("reference", "onert", "nntrainer"):
        assert plan(graph, PlanOptions(target=target)).arena_bytes > 0
