"""Operators of ONNX, translated and run: their results are those of ONNX's own cases.

Each case becomes a model whose loss is the mean square of its outputs less a random label, which changes
where any element does.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

from solver.errors import ArenaplanError
from solver.executor import Trainer
from solver.graph.types import Array
from solver.importers.onnx import IMPORTED_OPERATORS, load_onnx
from solver.importers.options import ImportOptions
from solver.pipeline import plan
from tests.support.every import every, grid

#: Their results are random, or no tensors, or they are tested by themselves.
_APART = {
    *("Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Dropout"),
    *(
        "SequenceAt",
        "SequenceConstruct",
        "SplitToSequence",
        "ConcatFromSequence",
        "SimplifiedLayerNormalization",
    ),
    *("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss", "BatchNormalization", "Upsample"),
}
#: Operators whose further inputs have to be known when the model is imported.
_FED_FIRST = {
    *(
        "Clip",
        "CumSum",
        "GatherElements",
        "GatherND",
        "OneHot",
        "Pad",
        "ReduceMax",
        "ReduceMin",
        "Resize",
        "Trilu",
    ),
    *("Dropout", "Tile", "Expand", "TopK", "DFT", "STFT", "Compress", "CumProd"),
    *("QuantizeLinear", "DequantizeLinear", "QLinearConv", "QLinearMatMul", "ConvInteger", "MatMulInteger"),
}
#: What is refused, with a reason, by parts of the names of cases.
_REFUSED = (
    *("crop_and_resize", "einsum_batch_diagonal", "identity_sequence", "identity_opt"),
    *("gridsample_reflection", "gridsample_bicubic", "gridsample_volumetric"),
    *("test_not_2d", "test_not_3d", "test_not_4d"),  # of opset 1
)


class Case:
    """Inputs and outputs of one of ONNX's cases of a single node."""

    def __init__(self, test: Any) -> None:
        self.name: str = test.name
        self.model: onnx.ModelProto = test.model
        self.node = test.model.graph.node[0]
        given, expected = test.data_sets[0]
        self.inputs = [_array(value) for value in given]
        self.outputs = [_array(value) for value in expected]
        self.tolerance = max(test.rtol, 1e-5)

    @property
    def plain(self) -> bool:
        """Whether elements are of types that operands have, and nothing is empty but a list of axes."""
        kinds = {array.dtype.name for array in (*self.inputs, *self.outputs)}
        known = kinds <= {"float32", "float64", "int32", "int64", "int8", "uint8", "bool"}
        operands = [array for array in self.inputs if array.dtype != np.int64 or array.ndim != 1]
        return known and all(array.size for array in (*operands, *self.outputs))

    def run(self) -> None:
        floating = [i for i, array in enumerate(self.inputs) if array.dtype.kind == "f"]
        fed = [0] if self.node.op_type in _FED_FIRST else floating or list(range(len(self.inputs)))
        values = self.model.graph.input
        initializers = [
            numpy_helper.from_array(array, values[i].name)
            for i, array in enumerate(self.inputs)
            if i not in fed
        ]
        inputs = [values[i] for i in fed]
        expected, nodes = self.outputs[0].astype(np.float64), [self.node]
        total = self.model.graph.output[0].name
        if self.outputs[0].dtype != np.float64:
            nodes.append(helper.make_node("Cast", [total], ["wide"], to=11))
            total = "wide"
        nodes.append(helper.make_node("Mul", [total, "one.weight"], ["result"]))
        initializers.append(numpy_helper.from_array(np.ones(1), "one.weight"))
        outputs = [helper.make_empty_tensor_value_info("result")]
        graph = helper.make_graph(nodes, "case", inputs, outputs, initializers)
        model = helper.make_model(graph, opset_imports=self.model.opset_import)
        found = load_onnx(
            model.SerializeToString(), options=ImportOptions(loss="mse", trainable=("one.weight",))
        ).graph
        label = np.random.default_rng(1).standard_normal(found.operands["label"].shape)
        batch = {values[i].name: self.inputs[i] for i in fed} | {"label": label}
        batch = {name: array for name, array in batch.items() if name in found.operands}
        with Trainer(found, plan(found)) as trainer:
            loss = trainer.step(batch)
        wanted = float(np.mean((expected.reshape(label.shape) - label) ** 2))
        assert loss == pytest.approx(wanted, rel=self.tolerance, abs=1e-6, nan_ok=True)


def _array(value: Any) -> Array:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value)


@cache
def cases() -> dict[str, list[Case]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ONNX makes its data on the spot, overflows included
        tests = load_model_tests(kind="node")
    found: dict[str, list[Case]] = {}
    for test in tests:
        if test.model is None or len(test.model.graph.node) != 1 or len(test.data_sets or ()) != 1:
            continue
        operator = test.model.graph.node[0].op_type
        if operator in IMPORTED_OPERATORS and operator not in _APART:
            case = _readable(test)
            if case is not None and case.plain:
                found.setdefault(operator, []).append(case)
    return found


def _readable(test: Any) -> Case | None:
    """Not those of sequences and optional values."""
    try:
        return Case(test)
    except (ValueError, TypeError):
        return None


#: Operators of which ONNX has no such case: most are of ONNX Runtime's domain.
WITHOUT_CASES = {
    *("DynamicQuantizeMatMul", "GlobalLpPool", "MatMulIntegerToFloat", "MatMulNBits", "QGemm", "QLinearAdd"),
    *("QLinearAveragePool", "QLinearConcat", "QLinearGlobalAveragePool", "QLinearLeakyRelu", "QLinearMul"),
    *("QLinearSigmoid", "QLinearSoftmax", "CastLike"),
}


def test_results_are_those_of_onnx() -> None:
    """ONNX may add cases, so their number is a lower bound."""
    assert set(IMPORTED_OPERATORS) - _APART - cases().keys() == WITHOUT_CASES
    taken = [
        case for found in cases().values() for case in found if not any(p in case.name for p in _REFUSED)
    ]
    assert len(taken) >= 730
    with every() as check, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases divide by zero
        for case in taken:
            with check(case.name):
                case.run()


@grid("part", _REFUSED)
def test_what_is_refused_says_why(part: str) -> None:
    refused = [case for found in cases().values() for case in found if part in case.name]
    for case in refused[:2]:
        with pytest.raises(ArenaplanError) as caught:
            case.run()
        assert caught.value.message
        assert caught.value.remedy
