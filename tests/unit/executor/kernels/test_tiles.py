"""TileGather and LogAddExp against NumPy on the whole table, and against float64."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.errors import GraphError
from solver.graph.types import Array
from tests.support.one_operation import OneOperation, normal


@given(st.data())
def test_tiles_in_a_chain_make_the_gather(data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, 12))
    indices = np.array(data.draw(st.lists(st.integers(-rows, rows - 1), min_size=1, max_size=9)), np.int32)
    ends = sorted({*data.draw(st.lists(st.integers(1, rows), max_size=3)), rows})
    table = normal(rows, 3, dtype="float32")
    values: list[Array] = []
    start = 0
    for end in ends:
        operation = OneOperation(
            "TileGather",
            [table[start:end], indices, *values],
            scratch_budget=data.draw(st.sampled_from([1, 24, 1 << 21])),
            first_row=start,
            rows=rows,
        )
        values = [operation.forward()]
        start = end
    assert values[0].tobytes() == table[indices].tobytes()


@pytest.mark.parametrize("index", [-10, 9])
def test_index_outside_the_table(index: int) -> None:
    operation = OneOperation("TileGather", [normal(4, 3), np.array([0, index])], first_row=2, rows=9)
    with pytest.raises(GraphError, match=f"is {index}"):
        operation.forward()


def test_joined_logarithms_and_their_derivatives() -> None:
    parts = [normal(5, 7, seed=k) * 40 for k in range(4)]
    operation, dy = OneOperation("LogAddExp", parts), normal(5, 7, seed=9)
    y = operation.forward()
    np.testing.assert_allclose(y, np.logaddexp.reduce(parts), rtol=1e-14)
    for position, dx in operation.backward(dy).items():
        np.testing.assert_allclose(dx, dy * np.exp(parts[position] - y), rtol=1e-13)
