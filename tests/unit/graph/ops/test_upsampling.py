"""Transposed convolution: shapes, pads, refusals, what backward reads."""

from __future__ import annotations

import pytest

from solver.graph.ops import lookup
from solver.graph.ops.base import DEFAULT_SCRATCH_BUDGET
from solver.graph.ops.upsampling import transposed
from tests.support.one_node import node_of

TYPE = "ConvTranspose"
X, W = (2, 4, 5, 6), (4, 3, 3, 3)


def test_it_is_a_convolution_from_its_output_to_its_input() -> None:
    conv = transposed(node_of(TYPE, [X, W], group=2, strides=(2, 2)))
    assert (conv.filters, conv.window.channels, conv.groups) == (4, 6, 2)
    assert (conv.group_filters, conv.group_channels, conv.weights) == (2, 3, 4 * 3 * 9)
    assert [(axis.size, axis.out) for axis in conv.window.axes] == [(11, 5), (13, 6)]


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_scratch_stays_within_the_budget(strides: tuple[int, int]) -> None:
    node = node_of(TYPE, [(8, 64, 28, 28), (64, 32, 3, 3)], strides=strides)
    kind = lookup(TYPE)
    for requests in (
        kind.forward_scratch(node),
        *(kind.backward(node, frozenset({i})).scratch for i in (0, 1)),
    ):
        assert sum(request.type.nbytes for request in requests) <= DEFAULT_SCRATCH_BUDGET


@pytest.mark.parametrize(("how", "before", "after"), [("SAME_UPPER", 0, 1), ("SAME_LOWER", 1, 0)])
def test_an_odd_pad_goes_where_it_should(how: str, before: int, after: int) -> None:
    (axis,) = transposed(node_of(TYPE, [(1, 1, 4), (1, 1, 3)], strides=(2,), auto_pad=how)).window.axes
    assert (axis.size, axis.before, axis.after, axis.out) == (8, before, after, 4)
