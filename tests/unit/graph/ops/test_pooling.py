"""Pooling from shapes alone: inference, refusals, what the backward step reads, scratch."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import needs_of, node_of, output_of

POOLS = ["MaxPool", "AveragePool"]
TWO = {"kernel_shape": (2, 2), "strides": (2, 2)}


@grid("type_", POOLS)
@grid(
    ("x", "attributes", "y"),
    [
        ((2, 3, 8, 9), {"kernel_shape": (2, 3)}, (2, 3, 7, 7)),
        ((2, 3, 8, 9), TWO, (2, 3, 4, 4)),
        ((2, 3, 8, 9), {**TWO, "ceil_mode": 1}, (2, 3, 4, 5)),
        ((2, 3, 8, 9), {**TWO, "auto_pad": "SAME_UPPER"}, (2, 3, 4, 5)),
        ((2, 3, 8, 9), {**TWO, "pads": (1, 1, 1, 0)}, (2, 3, 5, 5)),
        ((2, 3, 8, 9), {"kernel_shape": (3, 3), "dilations": (2, 3)}, (2, 3, 4, 3)),
        # By rounding up there would be a fourth window; it would start behind the input.
        ((1, 1, 5, 5), {"kernel_shape": (1, 1), "strides": (2, 2), "ceil_mode": 1}, (1, 1, 3, 3)),
        ((1, 1, 2, 2), {"kernel_shape": (1, 1), "strides": (3, 3), "ceil_mode": 1}, (1, 1, 1, 1)),
        ((2, 3, 8), {"kernel_shape": (3,)}, (2, 3, 6)),
        ((2, 4, 5, 6, 3), {"kernel_shape": (2, 2, 2), "data_layout": "NHWC"}, (2, 3, 4, 5, 3)),
    ],
)
def test_shape_of_the_output(
    type_: str, x: tuple[int, ...], attributes: dict[str, Any], y: tuple[int, ...]
) -> None:
    assert output_of(type_, [x], **attributes) == y


@pytest.mark.parametrize(
    ("x", "layout", "y"),
    [
        ((2, 3, 8, 9), "NCHW", (2, 3, 1, 1)),
        ((2, 8, 9, 3), "NHWC", (2, 1, 1, 3)),
        ((2, 3, 8), "NCHW", (2, 3, 1)),
    ],
)
def test_shape_of_the_global_mean(x: tuple[int, ...], layout: str, y: tuple[int, ...]) -> None:
    assert output_of("GlobalAveragePool", [x], data_layout=layout) == y


@grid("type_", POOLS)
@grid(
    ("attributes", "key"),
    [
        ({}, "kernel_shape"),
        ({"kernel_shape": (2,)}, "kernel_shape"),
        ({"kernel_shape": (2, 0)}, "kernel_shape"),
        ({**TWO, "strides": (2,)}, "strides"),
        ({**TWO, "pads": (1, 1)}, "pads"),
        ({**TWO, "pads": (1, 1, 1, 1), "auto_pad": "VALID"}, "pads"),
        ({**TWO, "ceil_mode": 2}, "ceil_mode"),
        ({**TWO, "activation": "Relu"}, "activation"),
    ],
)
def test_refused_attributes(type_: str, attributes: dict[str, Any], key: str) -> None:
    with pytest.raises(AttributeRuleError, match=key) as caught:
        node_of(type_, [(2, 3, 8, 9)], **attributes)
    assert caught.value.path == ("attributes", key)


@pytest.mark.parametrize("type_", POOLS)
def test_refused_shapes(type_: str) -> None:
    with pytest.raises(ShapeMismatchError, match=r"'dense1'.*9 taps.*does not fit 8.*\[2, 3, 8, 9\]"):
        node_of(type_, [(2, 3, 8, 9)], kernel_shape=(9, 2))
    with pytest.raises(ShapeMismatchError, match=r"'dense1'.*spatial axis.*\[2, 3\]"):
        node_of(type_, [(2, 3)], kernel_shape=(1,))


@pytest.mark.parametrize("type_", ["AveragePool", "GlobalAveragePool"])
def test_means_are_of_floating_elements(type_: str) -> None:
    attributes: dict[str, Any] = {} if type_.startswith("Global") else {"kernel_shape": (2, 2)}
    with pytest.raises(ShapeMismatchError, match="floating"):
        node_of(type_, [TensorType((1, 2, 4, 4), DType.INT32)], **attributes)


def test_a_maximum_of_truth_values_is_refused() -> None:
    with pytest.raises(ShapeMismatchError, match="expected numbers"):
        node_of("MaxPool", [TensorType((1, 2, 4, 4), DType.BOOL)], kernel_shape=(2, 2))


@pytest.mark.parametrize("type_", [*POOLS, "GlobalAveragePool"])
def test_the_backward_step_reads_neither_x_nor_y(type_: str) -> None:
    attributes: dict[str, Any] = {} if type_.startswith("Global") else TWO
    inputs, outputs, needs = needs_of(type_, [(2, 3, 8, 8)], {0}, **attributes)
    assert inputs == outputs == set()
    assert needs.saved == ({"arg_max"} if type_ == "MaxPool" else frozenset())


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
