"""Quantisation: rounding and saturation."""

from __future__ import annotations

import numpy as np

from tests.support.one_operation import OneOperation


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
