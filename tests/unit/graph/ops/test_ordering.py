"""ArgTopK: shapes, refusals, scratch."""

from __future__ import annotations

import numpy as np
import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from tests.support.one_node import node_of, output_of
from tests.support.one_operation import OneOperation


@pytest.mark.parametrize(("axis", "shape"), [(0, (2, 3, 4)), (1, (5, 2, 4)), (-1, (5, 3, 2))])
def test_the_axis_has_as_many_places(axis: int, shape: tuple[int, ...]) -> None:
    assert output_of("ArgTopK", [(5, 3, 4)], k=2, axis=axis) == shape
    assert OneOperation("ArgTopK", [np.ones((5, 3, 4))], k=2, axis=axis).types[0].dtype.value == "int64"


def test_what_is_refused() -> None:
    with pytest.raises(AttributeRuleError, match="must be at most 3, the size of axis 1"):
        node_of("ArgTopK", [(5, 3)], k=4)
    with pytest.raises(AttributeRuleError, match=r"'k' of operation 'dense1' .* is required"):
        node_of("ArgTopK", [(5, 3)])
    with pytest.raises(ShapeMismatchError, match="expected numbers"):
        OneOperation("ArgTopK", [np.ones(3, np.bool_)], k=1)


def test_nothing_is_differentiable_and_scratch_is_a_piece() -> None:
    node = node_of("ArgTopK", [(4000, 100)], k=1)
    assert not lookup("ArgTopK").differentiable(node)
    requests = {request.name: request.type for request in lookup("ArgTopK").forward_scratch(node)}
    assert set(requests) == {"keys", "signs", "first", "best", "places"}
    assert requests["keys"].shape == (327, 100)
