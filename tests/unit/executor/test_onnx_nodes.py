"""ONNX's own backend node tests, for every operator that both know.

All pass but those of `EXCLUDED`, each with its reason. The table cannot go stale: a case in it that
ONNX no longer has, or that passes by now, fails a test.
"""

from __future__ import annotations

import pytest

from solver.errors import GraphError
from solver.graph.ops import OPERATOR_NAMES, SEQUENCES, lookup

pytest.importorskip("onnx", reason="the node tests come with onnx")

from tests.support.every import grid
from tests.support.onnx_node import NodeCase, node_cases

_NO_SUCH_TYPE = "operands have no elements of this type"
_INTEGERS = "arithmetic is on floating operands: what is trained has derivatives"
_EMPTY = "an operand has at least one element"
_INFERENCE = "Dropout has no mode of inference, its ratio is an attribute and its mask is never stored"
_INDICES = "MaxPool has one output; where the maxima are is scratch of its own, not ONNX's indices"
_CROP = "Resize resizes whole images; a region of interest is a Slice before it"

#: Operators that ONNX tests with every element type there is.
_OF_ANY_TYPE = (
    *("Cast", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual"),
    *("QuantizeLinear", "DequantizeLinear"),
    *("BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"),
)

EXCLUDED = {
    **{
        n: _NO_SUCH_TYPE
        for n, c in node_cases().items()
        if c.operator in _OF_ANY_TYPE and c.has_foreign_types
    },
    **{f"test_{op}_int16": _NO_SUCH_TYPE for op in ("add", "sub", "mul")},
    **{
        f"test_{op}_uint{bits}": _NO_SUCH_TYPE for op in ("add", "sub", "mul", "div") for bits in (16, 32, 64)
    },
    "test_div_uint8": _INTEGERS,
    "test_div_int8": _INTEGERS,
    "test_div_int16": _NO_SUCH_TYPE,
    "test_div_int32_trunc": _INTEGERS,
    **{f"test_pow_types_float32_uint{bits}": _NO_SUCH_TYPE for bits in (32, 64)},
    **{f"test_pow_types_int{bits}_int{bits}": _INTEGERS for bits in (32, 64)},
    **{f"test_pow_types_int{bits}_float32": _INTEGERS for bits in (32, 64)},
    **{n: _INFERENCE for n, c in node_cases().items() if c.operator == "Dropout"},
    "test_clip_default_int8_min": _INTEGERS,
    "test_clip_default_int8_max": _INTEGERS,
    "test_clip_default_int8_inbounds": _INTEGERS,
    "test_maxpool_with_argmax_2d_precomputed_pads": _INDICES,
    "test_maxpool_with_argmax_2d_precomputed_strides": _INDICES,
    **{
        f"test_resize_tf_crop_and_resize{more}": _CROP
        for more in ("", "_axes_2_3", "_axes_3_2", "_extrapolation_value")
    },
    "test_reduce_max_empty_set": _EMPTY,
    "test_reduce_max_empty_set_bool": _EMPTY,
}

#: Cases that pass, by operator. ONNX may add cases, so these are lower bounds; what it does not have has 0.
PASSING = {
    "Abs": 1,
    "Acos": 2,
    "Acosh": 2,
    "Add": 3,
    "ArgTopK": 0,
    "Asin": 2,
    "Asinh": 2,
    "Atan": 2,
    "Atanh": 2,
    "AveragePool": 20,
    "BitShift": 20,
    "BitwiseAnd": 2,
    "BitwiseNot": 2,
    "BitwiseOr": 3,
    "BitwiseXor": 2,
    "BatchNormalization": 4,
    "Cast": 4,
    "Clip": 9,
    "Concat": 12,
    "Conv": 6,
    "ConvTranspose": 11,
    "DequantizeLinear": 3,
    "Div": 3,
    "Dropout": 0,
    "Elu": 3,
    "Equal": 3,
    "Erf": 1,
    "Exp": 2,
    "Expand": 2,
    "Flatten": 9,
    "GRU": 6,
    "GRUCell": 0,
    "Gather": 4,
    "Gelu": 4,
    "Gemm": 11,
    "GlobalAveragePool": 2,
    "GroupNormalization": 2,
    "HardSigmoid": 3,
    "HardSwish": 1,
    "InstanceNormalization": 2,
    "LSTM": 6,
    "LSTMCell": 0,
    "LayerNormalization": 19,
    "LeakyRelu": 3,
    "Log": 2,
    "LogSoftmax": 7,
    "MatMul": 7,
    "MaxPool": 17,
    "Mul": 4,
    "Neg": 2,
    "PRelu": 2,
    "Pad": 6,
    "Pow": 6,
    "QuantizeLinear": 3,
    "RMSNormalization": 19,
    "RNN": 6,
    "RNNCell": 0,
    "RandomUniform": 0,
    "Reciprocal": 2,
    "ReduceMax": 9,
    "ReduceMean": 8,
    "ReduceSum": 12,
    "Relu": 1,
    "Reshape": 10,
    "Resize": 35,
    "ScatterAdd": 0,
    "ScatterUpdate": 0,
    "Sigmoid": 2,
    "Slice": 8,
    "Softmax": 7,
    "Split": 16,
    "Sqrt": 2,
    "Squeeze": 2,
    "StopGradient": 0,
    "Sub": 4,
    "Swish": 1,
    "Tanh": 2,
    "Transpose": 7,
    "Unsqueeze": 7,
    "Where": 2,
}


def _known(operator: str) -> list[NodeCase]:
    return [c for c in node_cases().values() if c.operator == operator and c.name not in EXCLUDED]


@grid("operator", [*(name for name in OPERATOR_NAMES if not lookup(name).is_loss), *SEQUENCES])
def test_all_cases_of_an_operator_pass(operator: str) -> None:
    failures: dict[str, str] = {}
    for case in _known(operator):
        try:
            case.check()
        except (AssertionError, ArithmeticError, GraphError, ValueError) as error:
            failures[case.name] = f"{type(error).__name__}: {error}"
    assert not failures
    assert len(_known(operator)) >= PASSING.get(operator, 1)


@grid("name", sorted(EXCLUDED))
def test_an_excluded_case_exists_and_does_not_pass(name: str) -> None:
    with pytest.raises((AssertionError, GraphError, ValueError)):
        node_cases()[name].check()


def test_how_many_pass() -> None:
    ours = [case for case in node_cases().values() if case.name not in EXCLUDED]
    assert len(ours) >= sum(PASSING.values()) == 418
