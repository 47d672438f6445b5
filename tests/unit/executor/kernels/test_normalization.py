"""Normalisation: statistics."""

from __future__ import annotations

import numpy as np

from tests.support.one_operation import OneOperation, normal


def test_saved_statistics() -> None:
    x = normal(3, 4, 10) * 2 + 1
    operation = OneOperation("InstanceNormalization", [x, normal(4), normal(4)], epsilon=0.5)
    operation.forward()
    np.testing.assert_allclose(operation.saved["mean"], x.mean(axis=2))
    np.testing.assert_allclose(operation.saved["inverse_deviation"], 1 / np.sqrt(x.var(axis=2) + 0.5))


def test_a_large_mean_does_not_swallow_the_deviation() -> None:
    """Squares of deviations, not a difference of squares: 10,000 is 3 million deviations here."""
    x = (10_000 + np.arange(8) / 256).astype(np.float32)[None]
    found = OneOperation("LayerNormalization", [x, np.ones(8, np.float32)], epsilon=0.0).forward()
    expected = (np.arange(8) - 3.5) / np.arange(8).std()
    np.testing.assert_allclose(found[0], expected, rtol=0.05)
