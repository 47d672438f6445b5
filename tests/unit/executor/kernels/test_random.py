"""Random numbers: range and mean, the same ones in each replay, others in each iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from solver.graph.ops.dropout import BLOCK
from solver.graph.types import Array
from tests.support.one_operation import OneOperation

SIZE = 5 * BLOCK + 13


def drawn(*, iteration: int = 1, **attributes: Any) -> Array:
    operation = OneOperation("RandomUniform", [np.array([SIZE])], **attributes)
    operation.iteration = iteration
    return operation.forward()


@pytest.mark.parametrize("dtype", [1, 11])
def test_range_mean_and_spread(dtype: int) -> None:
    x = drawn(dtype=dtype, low=-1.0, high=3.0)
    assert -1 <= x.min() < -0.999
    assert 2.999 < x.max() <= 3
    assert abs(float(x.mean()) - 1) < 0.02
    assert abs(float(x.std()) - 4 / np.sqrt(12)) < 0.02
    assert len(np.unique(x)) > 0.99 * SIZE


def test_one_is_never_reached() -> None:
    """24 bits have an exact place in a float32."""
    assert drawn().max() < 1


@pytest.mark.parametrize("dtype", [1, 11])
def test_a_replay_draws_the_same_and_an_iteration_others(dtype: int) -> None:
    first = drawn(dtype=dtype)
    assert first.tobytes() == drawn(dtype=dtype).tobytes()
    for other in (drawn(dtype=dtype, iteration=2), drawn(dtype=dtype, seed=1)):
        assert np.mean(first == other) < 0.01
        assert abs(float(np.corrcoef(first, other)[0, 1])) < 0.02


def test_neighbours_are_independent() -> None:
    x = drawn()
    assert abs(float(np.corrcoef(x[:-1], x[1:])[0, 1])) < 0.02
