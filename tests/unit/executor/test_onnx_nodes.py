"""ONNX's own backend node tests, for every operator that both know.

All pass but those of `excluded`, each with its reason. The table cannot go stale: a case in it that
ONNX no longer has, or that passes by now, fails a test.
"""

from __future__ import annotations

from functools import cache

import pytest

from solver.errors import GraphError
from solver.graph.ops import OPERATOR_NAMES, SEQUENCES, lookup

pytest.importorskip("onnx", reason="the node tests come with onnx")

from tests.support.every import every, grid
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
)


@cache
def excluded() -> dict[str, str]:
    """Why a case does not pass, by its name.

    A function: ONNX makes its cases in seconds, and processes that only collect tests do not need them.
    """
    return {
        **{
            n: _NO_SUCH_TYPE
            for n, c in node_cases().items()
            if c.operator in _OF_ANY_TYPE and c.has_foreign_types
        },
        **{f"test_{op}_int16": _NO_SUCH_TYPE for op in ("add", "sub", "mul")},
        **{
            f"test_{op}_uint{bits}": _NO_SUCH_TYPE
            for op in ("add", "sub", "mul", "div")
            for bits in (16, 32, 64)
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


#: Operators that ONNX has no case of: it does not know them, or their cases are excluded.
WITHOUT_CASES = {
    *("ArgTopK", "Dropout", "GRUCell", "LSTMCell", "RNNCell", "RandomUniform"),
    *("ScatterAdd", "ScatterUpdate", "StopGradient", "TileGather", "LogAddExp", "ProductLogSumExp"),
}


def _known(operator: str) -> list[NodeCase]:
    return [c for c in node_cases().values() if c.operator == operator and c.name not in excluded()]


@grid("operator", [*(name for name in OPERATOR_NAMES if not lookup(name).is_loss), *SEQUENCES])
def test_all_cases_of_an_operator_pass(operator: str) -> None:
    failures: dict[str, str] = {}
    for case in _known(operator):
        try:
            case.check()
        except (AssertionError, ArithmeticError, GraphError, ValueError) as error:
            failures[case.name] = f"{type(error).__name__}: {error}"
    assert not failures
    assert bool(_known(operator)) == (operator not in WITHOUT_CASES)


def test_an_excluded_case_exists_and_does_not_pass() -> None:
    with every() as case:
        for name in sorted(excluded()):
            with case(name), pytest.raises((AssertionError, GraphError, ValueError)):
                node_cases()[name].check()


def test_how_many_pass() -> None:
    """ONNX may add cases, so this is a lower bound."""
    assert sum(name not in excluded() for name in node_cases()) >= 418
