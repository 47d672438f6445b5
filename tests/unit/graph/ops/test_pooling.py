"""Pooling from shapes alone: inference, refusals, what the backward step reads, scratch."""

from __future__ import annotations

import pytest

from solver.graph.ops import lookup
from tests.support.one_node import needs_of, node_of

TWO = {"kernel_shape": (2, 2), "strides": (2, 2)}


@pytest.mark.parametrize(("kernel", "itemsize"), [((2, 2), 1), ((15, 17), 1), ((16, 16), 4), ((17, 17), 4)])
def test_the_saved_tap_takes_one_byte_where_it_can(kernel: tuple[int, int], itemsize: int) -> None:
    node = node_of("MaxPool", [(2, 3, 20, 20)], kernel_shape=kernel)
    (saved,) = lookup("MaxPool").saved(node)
    assert saved.type.shape == node.outputs[0].shape
    assert saved.type.nbytes == itemsize * node.outputs[0].elements


def test_products_are_staged_only_where_windows_overlap() -> None:
    _, _, apart = needs_of("MaxPool", [(2, 3, 8, 8)], {0}, **TWO)
    _, _, overlapping = needs_of("MaxPool", [(2, 3, 8, 8)], {0}, kernel_shape=(2, 2))
    assert [request.name for request in apart.scratch] == ["mask"]
    assert [request.name for request in overlapping.scratch] == ["mask", "product"]
