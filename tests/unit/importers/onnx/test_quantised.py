"""Quantised trunks with floating heads: results of ONNX, weights as they are stored, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from solver.errors import ArenaplanError, TrainableError
from solver.executor import Trainer, validate
from solver.executor.initial import initial_value
from solver.graph import DType, Role, TrainableGraph
from solver.importers.onnx import load_onnx
from solver.importers.options import ImportOptions
from solver.pipeline import plan
from solver.program import EntryKind
from tests.support.onnx_models import imported, model_of, node, nodes_of, types_of

RNG = np.random.default_rng(8)


@pytest.fixture(autouse=True)
def same_numbers_in_every_order() -> None:
    """Each test draws the same numbers whichever tests ran before it: exact comparisons hold for these."""
    RNG.bit_generator.state = np.random.default_rng(8).bit_generator.state


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
        *nodes_of("QuantizeLinear x a_scale a_zero xq, DequantizeLinear xq a_scale a_zero xd"),
        node("DequantizeLinear", ["conv.weight", "w_scale", "w_zero"], ["wd"], axis=0),
        node("DequantizeLinear", ["conv.bias", "b_scale", "b_zero"], ["bd"], axis=0),
        node("Conv", ["xd", "wd", "bd"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        *nodes_of(
            "Relu c r, QuantizeLinear r y_scale a_zero rq, DequantizeLinear rq y_scale a_zero rd, "
            "Flatten rd f, MatMul f head.weight y"
        ),
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
        *nodes_of(
"Reshape cq flat fq, "
"QLinearMatMul fq y_scale a_zero fc f_scale f_zero m_scale a_zero mq, "
"DequantizeLinear mq m_scale a_zero m, MatMul m head.weight y"
),
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
        *nodes_of("Mul x_scale f_scale both, Mul floats both m, MatMul m head.weight y"),
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
    nodes = nodes_of(
        "MatMul x body.weight b, QuantizeLinear b a_scale a_zero q, "
        "DequantizeLinear q a_scale a_zero d, Add d b s, MatMul s head.weight y"
    )
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
            *nodes_of("Add l m n, QuantizeLinear n u z r"),
        ],
    ),
    "QLinearSigmoid": (
        [node("QLinearSigmoid", ["q", "s", "z", "u", "z"], ["r"], domain="com.microsoft")],
        nodes_of("DequantizeLinear q s z l, Sigmoid l n, QuantizeLinear n u z r"),
    ),
    "QLinearConcat": (
        [
            node("QLinearConcat", ["u", "z", *"qsz", *"qtz"], ["w"], domain="com.microsoft", axis=1),
            node("Slice", ["w", "from", "to", "one"], ["r"]),
        ],
        [
            *both_as_floats(),
            node("Concat", ["l", "m"], ["n"], axis=1),
            *nodes_of("QuantizeLinear n u z w, Slice w from to one r"),
        ],
    ),
    "QGemm": (
        [node("QGemm", [*"qszkt", "kz", *"cuz"], ["r"], domain="com.microsoft", transB=1)],
        [
            *nodes_of("Transpose k kt, MatMulInteger q kt z kz i, Add i c j"),
            node("Cast", ["j"], ["f"], to=1),
            *nodes_of("Mul s t st, Div u st v, QuantizeLinear f v z r"),
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
        behind = nodes_of("DequantizeLinear r u z d, MatMul d head.weight y")
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


class TestBytesOfBoth:
    """A weight that is planned in more bytes than the file has is named, with both."""

    @staticmethod
    def note(model: onnx.ModelProto) -> str:
        (note,) = [note for note in imported(model).notes if " stored in " in note]
        return note

    def test_half_precision(self) -> None:
        """Trained ones and constants alike; those of float32 are not counted."""
        nodes = nodes_of("MatMul x w h, Mul h table t, MatMul t v y")
        weights = {
            "w": RNG.standard_normal((8, 64)).astype(np.float16),
            "table": RNG.standard_normal((4, 64)).astype(np.float16),
            "v": RNG.standard_normal((64, 3)).astype(np.float32),
        }
        note = self.note(model_of(nodes, {"x": (4, 8)}, weights))
        assert "2 weights are stored in 1,536 bytes (float16) and planned in 3,072 bytes" in note
        assert "'w'" in note
        assert "'v'" not in note

    def test_computed_on_import(self) -> None:
        """A table of int8 that the model itself casts."""
        nodes = [
            node("Cast", ["table"], ["wide"], to=TensorProto.FLOAT),
            *nodes_of("Add x wide h, MatMul h w y"),
        ]
        weights = {"table": int8(4, 8), "w": np.ones((8, 2), np.float32)}
        note = self.note(model_of(nodes, {"x": (4, 8)}, weights))
        assert "1 weight is stored in 32 bytes (int8) and planned in 128 bytes" in note
        assert "'table'" in note

    def test_dequantised_by_each_step(self) -> None:
        """Each step computes the floats of an int8 weight: they are in the arena, beside the integers."""
        assert "stored in 54 bytes (int8) and planned in 216 bytes" in self.note(qdq())

    def test_nothing_to_say(self) -> None:
        nodes = [node("MatMul", ["x", "w"], ["y"])]
        model = model_of(nodes, {"x": (4, 8)}, {"w": np.ones((8, 2), np.float32)})
        assert not [note for note in imported(model).notes if " stored in " in note]


class TestWeightsOfFewBits:
    """ONNX Runtime's MatMulNBits, held against a decoder that goes bit by bit."""

    @staticmethod
    def model(bits: int, *, zeros: str, bias: bool, length: int = 40) -> tuple[onnx.ModelProto, Any]:
        rows, size = 6, 16
        blocks = -(-length // size)
        packed = RNG.integers(0, 256, (rows, blocks, size * bits // 8), np.uint8)
        scales = RNG.uniform(0.01, 0.1, (rows, blocks)).astype(np.float32)
        width = -(-blocks * bits // 8)
        weights = {"packed": packed, "scales": scales, "head": np.ones((rows, 2), np.float32)}
        if zeros == "packed":
            weights["zeros"] = RNG.integers(0, 256, (rows, width), np.uint8)
        elif zeros == "floats":
            weights["zeros"] = RNG.uniform(0, 3, (rows, blocks)).astype(np.float32)
        if bias:
            weights["bias"] = RNG.standard_normal(rows).astype(np.float32)

        def element(data: Any, index: int) -> int:
            text = "".join(f"{byte:08b}"[::-1] for byte in data.reshape(-1).tolist())
            return int(text[index * bits : (index + 1) * bits][::-1], 2)

        dense = np.zeros((rows, length))
        for row in range(rows):
            for k in range(length):
                zero: float = 2 ** (bits - 1)
                if zeros == "packed":
                    zero = element(weights["zeros"][row], k // size)
                elif zeros == "floats":
                    zero = float(weights["zeros"][row, k // size])
                dense[row, k] = (element(packed[row], k) - zero) * float(scales[row, k // size])
        inputs = ["x", "packed", "scales", "zeros" if zeros else "", "", "bias" if bias else ""]
        while not inputs[-1]:
            inputs.pop()
        attributes: dict[str, Any] = {"K": length, "N": rows, "bits": bits, "block_size": size}
        nodes = [
            node("MatMulNBits", inputs, ["h"], domain="com.microsoft", **attributes),
            node("MatMul", ["h", "head"], ["y"]),
        ]
        model = model_of(nodes, {"x": (3, length)}, weights, domains=["com.microsoft"])
        return model, dense

    @pytest.mark.parametrize("bits", [2, 4, 8])
    @pytest.mark.parametrize("zeros", ["", "packed", "floats"])
    @pytest.mark.parametrize("bias", [False, True])
    def test_values(self, bits: int, zeros: str, bias: bool) -> None:
        model, dense = self.model(bits, zeros=zeros, bias=bias)
        found = imported(model, trainable=("head",))
        graph = found.graph
        weight = next(o for o in graph.operands.values() if o.shape == dense.T.shape)
        np.testing.assert_allclose(initial_value(weight), dense.T, rtol=1e-5, atol=1e-6)
        assert graph.trainable == ("head",)
        assert any(" stored in " in note and "uint8" in note for note in found.notes)
        x, y = RNG.standard_normal((3, 40)).astype(np.float32), np.zeros((3, 2), np.float32)
        hidden = x @ dense.T + (numpy_helper.to_array(model.graph.initializer[-1]) if bias else 0)
        with Trainer(graph, plan(graph)) as trainer:
            loss = trainer.step(
                {"x": x, next(o.id for o in graph.operands.values() if o.role is Role.LABEL): y}
            )
        assert loss == pytest.approx(np.mean((hidden @ np.ones((6, 2))) ** 2), rel=1e-4)

    def test_what_does_not_fit(self) -> None:
        model, _ = self.model(4, zeros="", bias=False)
        model.graph.node[0].attribute[0].i = 400
        with pytest.raises(ArenaplanError, match="of 4 bits an element"):
            imported(model)


def test_quantised_weights_are_not_trained() -> None:
    with pytest.raises(
        TrainableError, match=r"'conv\.weight' is quantised, and quantised weights are not trained"
    ):
        imported(qdq(), trainable=("conv.weight",))
    nodes = nodes_of(
        "QuantizeLinear x a_scale a_zero xq, DequantizeLinear xq a_scale a_zero xd, "
        "DequantizeLinear fc f_scale w, MatMul xd w y"
    )
    weights = {**ACTIVATION, "fc": int8(4, 3), "f_scale": np.float32(0.01)}
    with pytest.raises(TrainableError, match=r"quantised \(fc\), and quantised weights are not trained"):
        imported(model_of(nodes, {"x": (2, 4)}, weights))


def test_weights_before_a_range_that_is_measured_are_not_trained_through_it() -> None:
    """The scale alone has a derivative, which is not that of the quantised elements."""
    nodes = [
        node("MatMul", ["x", "body.weight"], ["b"]),
        node("DynamicQuantizeLinear", ["b"], ["q", "q_scale", "q_zero"]),
        node("MatMulInteger", ["q", "fc", "q_zero"], ["i"]),
        node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        *nodes_of("Mul f q_scale m, MatMul m head.weight y"),
    ]
    weights = {**head(), "body.weight": RNG.random((4, 32), np.float32), "fc": int8(32, 32)}
    found = imported(model_of(nodes, {"x": (2, 4)}, weights))
    assert found.graph.trainable == ("head.weight",)
    assert "The loss has no derivative with respect to body.weight: not trained." in found.notes
    around = [*nodes[:-1], *nodes_of("Add m b s, MatMul s head.weight y")]
    with pytest.raises(TrainableError, match="quantised weights and values are not trained") as caught:
        imported(model_of(around, {"x": (2, 4)}, weights))
    assert "--trainable head.weight " in caught.value.remedy
