"""Comparisons: truth values, refusals, no derivatives."""

from __future__ import annotations

import pytest

from solver.errors import InternalError
from tests.support.one_node import needs_of


def test_asking_for_a_derivative_is_a_bug() -> None:
    with pytest.raises(InternalError, match="'Less' has no derivative"):
        needs_of("Less", [(2, 3), (2, 3)], (0,))
