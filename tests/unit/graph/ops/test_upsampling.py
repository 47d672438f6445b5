"""Transposed convolution: shapes, pads, refusals, what backward reads."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops.base import DEFAULT_SCRATCH_BUDGET
from solver.graph.ops.upsampling import transposed
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, node_of, output_of

TYPE = "ConvTranspose"
X, W = (2, 4, 5, 6), (4, 3, 3, 3)


@grid(
    ("attributes", "sizes"),
    [
        ({}, (7, 8)),
        ({"strides": (2, 3)}, (11, 18)),
        ({"strides": (2, 2), "output_padding": (1, 0)}, (12, 13)),
        ({"pads": (1, 0, 2, 1)}, (4, 7)),
        ({"dilations": (2, 1)}, (9, 8)),
        ({"strides": (2, 2), "output_shape": (10, 8)}, (10, 8)),
        ({"strides": (2, 2), "auto_pad": "SAME_UPPER"}, (10, 12)),
        ({"strides": (2, 2), "auto_pad": "VALID"}, (11, 13)),
    ],
)
def test_sizes(attributes: dict[str, Any], sizes: tuple[int, ...]) -> None:
    assert output_of(TYPE, [X, W], **attributes) == (2, 3, *sizes)


def test_groups_ranks_and_memory_order() -> None:
    assert output_of(TYPE, [(2, 4, 5), (4, 3, 2), (6,)], group=2) == (2, 6, 6)
    assert output_of(TYPE, [(1, 1, 2, 3, 4), (1, 2, 2, 2, 2)]) == (1, 2, 3, 4, 5)
    assert output_of(TYPE, [(2, 5, 6, 4), (4, 3, 3, 3)], data_layout="NHWC") == (2, 7, 8, 3)


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


@pytest.mark.parametrize(
    ("inputs", "attributes", "reason"),
    [
        ([X, (3, 3, 3, 3)], {}, "weights of 4 channels in 1 groups and 2 axes"),
        ([X, (4, 3, 3)], {}, "weights of 4 channels"),
        ([X, W], {"group": 3}, "weights of 4 channels in 3 groups"),
        ([X, W, (4,)], {}, r"bias of shape \[3\]"),
        ([X, W], {"pads": (4, 0, 4, 0)}, "the pads leave nothing of 7 positions"),
        ([X, TensorType(W, DType.FLOAT64)], {}, "one floating element type"),
        ([(2, 4), (4, 3)], {}, "at least one spatial axis"),
    ],
)
def test_refusals(inputs: list[Input], attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ShapeMismatchError, match=rf"'dense1' \(ConvTranspose\).*{reason}"):
        node_of(TYPE, inputs, **attributes)


@pytest.mark.parametrize(
    "attributes",
    [
        {"strides": (1,)},
        {"pads": (1, 1)},
        {"output_padding": (1,)},
        {"kernel_shape": (3, 2)},
        {"pads": (1, 0, 0, 0), "auto_pad": "SAME_UPPER"},
        {"pads": (1, 0, 0, 0), "output_shape": (7, 7)},
    ],
)
def test_attributes(attributes: dict[str, Any]) -> None:
    with pytest.raises(AttributeRuleError, match=f"Attribute '{next(iter(attributes))}'"):
        node_of(TYPE, [X, W], **attributes)


@pytest.mark.parametrize(("wanted", "reads"), [((0,), {1}), ((1,), {0}), ((2,), set()), ((1, 2), {0})])
def test_what_backward_reads(wanted: tuple[int, ...], reads: set[int]) -> None:
    inputs, outputs, needs = needs_of(TYPE, [X, W, (3,)], wanted)
    assert (inputs, outputs) == (reads, set())
    assert bool(needs.scratch) == (wanted != (2,))
