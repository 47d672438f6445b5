"""Orders and ranks of whole numbers, beside what NumPy says."""

from __future__ import annotations

import numpy as np
import pytest

from solver.layout.model.sorting import in_order, ranks

#: Few, as many as are packed, and more; small numbers, and some that leave no room for a position.
COUNTS = (1, 2, 511, 512, 3000)
LIMITS = (1, 7, 1000, 10**9, 2**62)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("limit", LIMITS)
def test_orders_as_numpy_does(count: int, limit: int) -> None:
    rng = np.random.default_rng((count, limit))
    first, second = rng.integers(-limit, limit, count), rng.integers(0, limit, count)
    assert in_order(second).tolist() == np.argsort(second, kind="stable").tolist()
    assert in_order(first, second).tolist() == np.lexsort((second, first)).tolist()
    assert in_order(-first, second * 0.5).tolist() == np.lexsort((second * 0.5, -first)).tolist()


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("limit", LIMITS)
def test_equal_values_share_a_rank_among_all_columns(count: int, limit: int) -> None:
    rng = np.random.default_rng((count, limit))
    columns = rng.integers(0, limit, count), rng.integers(0, limit, count + 1)
    everything = sorted({*columns[0].tolist(), *columns[1].tolist()})
    rank = {value: k for k, value in enumerate(everything)}
    assert [found.tolist() for found in ranks(*columns)] == [[rank[v] for v in c.tolist()] for c in columns]
