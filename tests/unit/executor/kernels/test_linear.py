"""Gemm: what has no derivative, and what is staged."""

from __future__ import annotations

import numpy as np

from tests.support.every import grid
from tests.support.one_operation import OneOperation, normal


def test_gemm_with_beta_zero_has_a_zero_derivative_of_the_bias() -> None:
    operation = OneOperation("Gemm", [normal(4, 3), normal(3, 5), normal(5)], beta=0.0)
    assert not operation.backward(np.ones((4, 5)), 2)[2].any()


@grid("wanted", [(0,), (2,), (0, 2)])
def test_rows_are_staged_within_the_budget(wanted: tuple[int, ...]) -> None:
    """A budget of two rows of dZ."""
    values = [normal(17, 3), normal(3, 5), normal(5)]
    tight = OneOperation("Gemm", values, activation="Tanh", scratch_budget=2 * 5 * 8)
    assert tight.needs(*wanted).scratch[0].type.shape == (2, 5)
