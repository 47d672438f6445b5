"""Quantisation: forward against ONNX, rounding, saturation, and memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.one_operation import OneOperation
from tests.support.onnx_reference import assert_onnx

RNG = np.random.default_rng(3)
OPSET = 21


def scales(*shape: int) -> Any:
    return RNG.uniform(0.01, 0.2, shape).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("shape", "attributes"), [((), {}), ((5,), {"axis": 1}), ((3, 5, 1), {"axis": -1, "block_size": 4})]
)
def test_forward_is_onnx(dtype: Any, shape: tuple[int, ...], attributes: dict[str, Any]) -> None:
    limits, scale = np.iinfo(dtype), scales(*shape)
    zero = RNG.integers(limits.min, limits.max, shape, dtype)
    values = [RNG.standard_normal((3, 5, 4)).astype(np.float32) * 20, scale, np.asarray(zero)]
    operation = OneOperation("QuantizeLinear", values, **attributes)
    assert_onnx(operation, opset=OPSET)
    back = OneOperation("DequantizeLinear", [operation.forward(), *values[1:]], **attributes)
    assert_onnx(back, opset=OPSET)


def test_halves_go_to_the_even_number_or_away_from_zero() -> None:
    x, one = (
        np.array([-2.5, -1.5, -0.5, -0.4, 0.49999997, 0.5, 1.5, 2.5], np.float32),
        np.ones((), np.float32),
    )
    even = OneOperation("QuantizeLinear", [x, one], output_dtype=3).forward()
    away = OneOperation("QuantizeLinear", [x, one], output_dtype=3, rounding="away").forward()
    assert even.tolist() == [-2, -2, 0, 0, 0, 0, 2, 2]
    assert away.tolist() == [-3, -2, -1, 0, 0, 1, 2, 3]


def test_values_beyond_the_range_are_its_ends_and_nan_is_the_least() -> None:
    x = np.array([-1e30, 1e30, np.inf, -np.inf, np.nan], np.float32)
    found = OneOperation("QuantizeLinear", [x, np.asarray(0.5, np.float32), np.asarray(7, np.int8)]).forward()
    assert found.tolist() == [-128, 127, 127, -128, -128]
