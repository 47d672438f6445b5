"""The table of shapes: what a row measures."""

from __future__ import annotations

import pytest

from tests.benchmarks.shapes import BUFFERS, SECONDS, measured
from tests.support.shapes import SHAPES


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_a_row_of_each_shape(shape: str) -> None:
    problem = SHAPES[shape](40, 1)
    assert problem == SHAPES[shape](40, 1) != SHAPES[shape](40, 2)
    assert len(problem.buffers) == 40
    row = measured(problem, 0.1)
    assert row.peak >= row.bound > 0
    assert row.solver.startswith("portfolio/")
    assert 0 <= row.first <= row.cpu


def test_all_sizes_have_a_deadline() -> None:
    assert set(SECONDS) == set(BUFFERS)
