"""Quantised trunks with floating heads: results of ONNX, weights as they are stored, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from solver.errors import TrainableError
from solver.executor import Trainer, validate
from solver.graph import DType, TrainableGraph
from solver.importers.onnx import load_onnx
from solver.importers.options import ImportOptions
from solver.pipeline import plan
from solver.program import EntryKind
from tests.support.onnx_models import imported, model_of, node, types_of

RNG = np.random.default_rng(8)


def int8(*shape: int) -> Any:
    return RNG.integers(-127, 128, shape, np.int8)


def scale(*shape: int) -> Any:
    return RNG.uniform(0.005, 0.02, shape).astype(np.float32)


def head() -> dict[str, Any]:
    return {"head.weight": RNG.standard_normal((32, 3)).astype(np.float32) / 8}


ACTIVATION = {"a_scale": np.float32(0.05), "a_zero": np.asarray(3, np.uint8)}


def qdq() -> onnx.ModelProto:
    """Scales of channels, a bias in int32, and activations of uint8."""
    nodes = [
        node("QuantizeLinear", ["x", "a_scale", "a_zero"], ["xq"]),
        node("DequantizeLinear", ["xq", "a_scale", "a_zero"], ["xd"]),
        node("DequantizeLinear", ["conv.weight", "w_scale", "w_zero"], ["wd"], axis=0),
        node("DequantizeLinear", ["conv.bias", "b_scale", "b_zero"], ["bd"], axis=0),
        node("Conv", ["xd", "wd", "bd"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "y_scale", "a_zero"], ["rq"]),
        node("DequantizeLinear", ["rq", "y_scale", "a_zero"], ["rd"]),
        node("Flatten", ["rd"], ["f"]),
        node("MatMul", ["f", "head.weight"], ["y"]),
    ]
    weights = {
        **ACTIVATION, **head(), "conv.weight": int8(2, 3, 3, 3), "w_scale": scale(2),
        "w_zero": np.zeros(2, np.int8), "conv.bias": RNG.integers(-900, 900, 2, np.int32),
        "b_scale": scale(2), "b_zero": np.zeros(2, np.int32), "y_scale": np.float32(0.04),
    }  # fmt: skip
    return model_of(nodes, {"x": (2, 3, 8, 8)}, weights, opset=21)


def qoperators() -> onnx.ModelProto:
    """QLinearConv with scales and zero points of channels, then a product of int8."""
    nodes = [
        node("QuantizeLinear", ["x", "a_scale", "a_zero"], ["xq"]),
        node(
            "QLinearConv",
            ["xq", "a_scale", "a_zero", "conv.weight", "w_scale", "w_zero", "y_scale", "a_zero", "conv.bias"],
            ["cq"], strides=[2, 2], pads=[1, 1, 1, 1],
        ),
        node("Reshape", ["cq", "flat"], ["fq"]),
        node(
            "QLinearMatMul",
            ["fq", "y_scale", "a_zero", "fc", "f_scale", "f_zero", "m_scale", "a_zero"], ["mq"],
        ),
        node("DequantizeLinear", ["mq", "m_scale", "a_zero"], ["m"]),
        node("MatMul", ["m", "head.weight"], ["y"]),
    ]  # fmt: skip
    weights = {
        **ACTIVATION, **head(), "conv.weight": int8(2, 3, 3, 3), "w_scale": scale(2), "w_zero": int8(2),
        "conv.bias": RNG.integers(-900, 900, 2, np.int32), "y_scale": np.float32(0.04),
        "flat": np.array([2, 32]), "fc": int8(32, 32), "f_scale": np.float32(0.01),
        "f_zero": np.asarray(-2, np.int8), "m_scale": np.float32(0.3),
    }  # fmt: skip
    return model_of(nodes, {"x": (2, 3, 8, 8)}, weights, opset=21)


def dynamic() -> onnx.ModelProto:
    """Activations that are quantised by their own range."""
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["xq", "x_scale", "x_zero"]),
        node("MatMulInteger", ["xq", "fc", "x_zero", "f_zero"], ["sums"]),
        node("Cast", ["sums"], ["floats"], to=TensorProto.FLOAT),
        node("Mul", ["x_scale", "f_scale"], ["both"]),
        node("Mul", ["floats", "both"], ["m"]),
        node("MatMul", ["m", "head.weight"], ["y"]),
    ]
    weights = {**head(), "fc": int8(16, 32), "f_scale": np.float32(0.01), "f_zero": int8(32)}
    return model_of(nodes, {"x": (2, 16)}, weights, opset=21)


TRUNKS = {"QDQ": qdq, "QOperators": qoperators, "dynamic": dynamic}


def loss_of(graph: TrainableGraph, model: onnx.ModelProto, fed: str = "x") -> tuple[float, float]:
    """The first loss in training, and that of ONNX's reference evaluator."""
    x = RNG.standard_normal(graph.operands[fed].shape).astype(np.float32)
    label = RNG.standard_normal(graph.operands["label"].shape).astype(np.float32)
    (y,) = ReferenceEvaluator(model).run(None, {fed: x})
    with Trainer(graph, plan(graph)) as trainer:
        return trainer.step({fed: x, "label": label}), float(np.mean((np.asarray(y) - label) ** 2))


@pytest.mark.parametrize("trunk", TRUNKS)
def test_a_quantised_trunk_computes_what_onnx_computes(trunk: str) -> None:
    model = TRUNKS[trunk]()
    graph = imported(model).graph
    assert graph.trainable == ("head.weight",)
    assert graph.operands["label"].shape == (2, 3)
    found, expected = loss_of(graph, model)
    assert found == pytest.approx(expected, rel=1e-5)
    assert validate(graph, plan(graph), steps=2).identical


@pytest.mark.parametrize("trunk", TRUNKS)
def test_weights_stay_as_they_are_stored(trunk: str) -> None:
    program = plan(imported(TRUNKS[trunk]()).graph).program
    kept = [program.values[entry.value] for entry in program.entry if entry.kind is EntryKind.CONSTANT]
    assert {value.type.dtype for value in kept if value.type.elements > 2} <= {DType.INT8, DType.FLOAT32}
    assert not [value for value in kept if value.type.elements > 32 and value.type.dtype is not DType.INT8]


@pytest.mark.parametrize("trunk", TRUNKS)
def test_nothing_goes_back_through_the_trunk(trunk: str) -> None:
    program = plan(imported(TRUNKS[trunk]()).graph).program
    back = {program.kernel(step) for step in program.steps if step.phase.word.startswith("calc")}
    assert back == {"Seed", "MeanSquaredError", "MatMul"}


def test_a_part_behind_the_trunk() -> None:
    graph = imported(qoperators(), freeze_before=("m",)).graph
    assert types_of(graph) == ["MatMul", "MeanSquaredError"]
    quantised = imported(qoperators(), freeze_before=("mq",)).graph
    assert quantised.operands["mq"].dtype is DType.UINT8


def through() -> onnx.ModelProto:
    """A trained product on both sides of a quantisation, and around it."""
    nodes = [
        node("MatMul", ["x", "body.weight"], ["b"]),
        node("QuantizeLinear", ["b", "a_scale", "a_zero"], ["q"]),
        node("DequantizeLinear", ["q", "a_scale", "a_zero"], ["d"]),
        node("Add", ["d", "b"], ["s"]),
        node("MatMul", ["s", "head.weight"], ["y"]),
    ]
    return model_of(
        nodes, {"x": (2, 4)}, {**ACTIVATION, **head(), "body.weight": RNG.random((4, 32), np.float32)}
    )


def test_training_through_a_quantisation_is_refused_with_remedies_that_work() -> None:
    with pytest.raises(TrainableError) as caught:
        imported(through())
    assert "QuantizeLinear" in caught.value.message
    assert "'body.weight'" in caught.value.message
    assert "quantised weights and values are not trained" in caught.value.message
    assert "--trainable head.weight " in caught.value.remedy
    assert "--freeze-before d." in caught.value.remedy
    graph = imported(through(), trainable=("head.weight",)).graph
    assert validate(graph, plan(graph), steps=2).identical
    assert imported(through(), freeze_before=("d", "b")).graph.trainable == ("head.weight",)


def both_as_floats() -> list[onnx.NodeProto]:
    return [node("DequantizeLinear", ["q", *"sz"], ["l"]), node("DequantizeLinear", ["q", *"tz"], ["m"])]


#: Operators of com.microsoft, which ONNX's evaluator does not know, beside the same in ONNX's own.
PAIRS: dict[str, tuple[list[onnx.NodeProto], list[onnx.NodeProto]]] = {
    "QLinearAdd": (
        [node("QLinearAdd", ["q", "s", "z", "q", "t", "z", "u", "z"], ["r"], domain="com.microsoft")],
        [
            *both_as_floats(),
            node("Add", ["l", "m"], ["n"]), node("QuantizeLinear", ["n", "u", "z"], ["r"]),
        ],
    ),
    "QLinearSigmoid": (
        [node("QLinearSigmoid", ["q", "s", "z", "u", "z"], ["r"], domain="com.microsoft")],
        [
            node("DequantizeLinear", ["q", "s", "z"], ["l"]), node("Sigmoid", ["l"], ["n"]),
            node("QuantizeLinear", ["n", "u", "z"], ["r"]),
        ],
    ),
    "QLinearConcat": (
        [
            node("QLinearConcat", ["u", "z", *"qsz", *"qtz"], ["w"], domain="com.microsoft", axis=1),
            node("Slice", ["w", "from", "to", "one"], ["r"]),
        ],
        [
            *both_as_floats(),
            node("Concat", ["l", "m"], ["n"], axis=1), node("QuantizeLinear", ["n", "u", "z"], ["w"]),
            node("Slice", ["w", "from", "to", "one"], ["r"]),
        ],
    ),
    "QGemm": (
        [node("QGemm", [*"qszkt", "kz", *"cuz"], ["r"], domain="com.microsoft", transB=1)],
        [
            node("Transpose", ["k"], ["kt"]),
            node("MatMulInteger", ["q", "kt", "z", "kz"], ["i"]),
            node("Add", ["i", "c"], ["j"]),
            node("Cast", ["j"], ["f"], to=1),
            node("Mul", ["s", "t"], ["st"]),
            node("Div", ["u", "st"], ["v"]),
            node("QuantizeLinear", ["f", "v", "z"], ["r"]),
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("operator", PAIRS)
def test_operators_of_onnx_runtime_are_those_of_onnx_put_together(operator: str) -> None:
    weights = {
        **head(), "s": np.float32(0.05), "t": np.float32(0.03), "u": np.float32(0.09),
        "z": np.asarray(-5, np.int8), "k": int8(32, 32), "kz": np.asarray(0, np.int8),
        "c": RNG.integers(-900, 900, 32, np.int32),
        "from": np.array([16]), "to": np.array([48]), "one": np.array([1]),
    }  # fmt: skip
    losses = []
    for nodes, domains in zip(PAIRS[operator], (["com.microsoft"], []), strict=True):
        behind = [
            node("DequantizeLinear", ["r", "u", "z"], ["d"]),
            node("MatMul", ["d", "head.weight"], ["y"]),
        ]
        first = node("QuantizeLinear", ["x", "s", "z"], ["q"])
        model = model_of([first, *nodes, *behind], {"x": (2, 32)}, weights, domains=domains)
        graph = load_onnx(model.SerializeToString(), options=ImportOptions(loss="mse")).graph
        x = np.random.default_rng(5).standard_normal((2, 32)).astype(np.float32)
        with Trainer(graph, plan(graph)) as trainer:
            losses.append(trainer.step({"x": x, "label": np.zeros((2, 3), np.float32)}))
    assert losses[0] == losses[1]


def test_sums_are_exact_where_float32_would_not_be() -> None:
    """4,096 products of the largest numbers: 2^28 and one more, which float32 rounds."""
    size = 4096
    nodes = [node("MatMulInteger", ["q", "k"], ["i"]), node("Cast", ["i"], ["f"], to=TensorProto.DOUBLE)]
    nodes.append(node("MatMul", ["f", "head.weight"], ["y"]))
    weights = {"k": np.full((size, 1), 127, np.int8), "head.weight": np.ones((1, 1))}
    model = model_of(nodes, {"x": (1, 1)}, weights)
    del model.graph.input[:]
    model.graph.input.append(helper.make_tensor_value_info("q", TensorProto.UINT8, [1, size]))
    graph = imported(model).graph
    q = np.full((1, size), 255, np.uint8)
    q[0, 0] = 254
    with Trainer(graph, plan(graph)) as trainer:
        loss = trainer.step({"q": q, "label": np.zeros((1, 1))})
    assert loss == float((size * 255 - 1) * 127) ** 2
