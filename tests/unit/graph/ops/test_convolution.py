"""Conv from shapes alone: inference, refusals, what the backward step reads, scratch."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, node_of, output_of

X, W, B = 0, 1, 2


@grid(
    ("x", "w", "attributes", "y"),
    [
        ((2, 3, 8, 9), (4, 3, 3, 3), {}, (2, 4, 6, 7)),
        ((2, 3, 8, 9), (4, 3, 1, 1), {"pads": (0, 0, 1, 2)}, (2, 4, 9, 11)),
        ((2, 3, 8, 9), (4, 3, 3, 3), {"pads": (1, 2, 3, 4)}, (2, 4, 10, 13)),
        ((2, 3, 8, 9), (4, 3, 3, 3), {"strides": (2, 3)}, (2, 4, 3, 3)),
        ((2, 3, 8, 9), (4, 3, 3, 3), {"dilations": (3, 4)}, (2, 4, 2, 1)),
        ((2, 3, 8, 9), (4, 3, 3, 3), {"auto_pad": "SAME_UPPER"}, (2, 4, 8, 9)),
        ((2, 3, 8, 9), (4, 3, 3, 3), {"auto_pad": "SAME_LOWER", "strides": (3, 2)}, (2, 4, 3, 5)),
        ((2, 3, 8, 9), (4, 3, 3, 3), {"auto_pad": "VALID", "strides": (2, 2)}, (2, 4, 3, 4)),
        ((2, 3, 8, 9), (4, 3, 3, 3), {"kernel_shape": (3, 3)}, (2, 4, 6, 7)),
        ((2, 4, 8, 9), (6, 2, 3, 3), {"group": 2}, (2, 6, 6, 7)),
        ((2, 4, 8, 9), (8, 1, 3, 3), {"group": 4}, (2, 8, 6, 7)),
        ((2, 3, 8), (4, 3, 3), {}, (2, 4, 6)),
        ((2, 3, 4, 5, 6), (4, 3, 2, 2, 2), {}, (2, 4, 3, 4, 5)),
        ((2, 8, 9, 3), (4, 3, 5, 3), {"data_layout": "NHWC"}, (2, 6, 5, 4)),
        ((2, 8, 9, 4), (4, 3, 3, 1), {"data_layout": "NHWC", "group": 4}, (2, 6, 7, 4)),
    ],
)
def test_shape_of_the_output(
    x: tuple[int, ...], w: tuple[int, ...], attributes: dict[str, Any], y: tuple[int, ...]
) -> None:
    assert output_of("Conv", [x, w], **attributes) == y
    assert output_of("Conv", [x, w, (w[0],)], **attributes) == y
    assert output_of("Conv", [x, w, None], **attributes) == y


@grid(
    ("inputs", "attributes", "words"),
    [
        ([(2, 3), (4, 3)], {}, "spatial axis"),
        ([(2, 3, 8, 9), (4, 3, 3)], {}, "one rank"),
        ([(2, 3, 8, 9), (4, 2, 3, 3)], {}, "1 groups of 2 channels in W do not make the 3"),
        ([(2, 8, 9, 3), (4, 3, 3, 2)], {"data_layout": "NHWC"}, "do not make the 3"),
        ([(2, 4, 8, 9), (4, 4, 3, 3)], {"group": 2}, "2 groups of 4 channels"),
        ([(2, 4, 8, 9), (5, 2, 3, 3)], {"group": 2}, "5 filters do not divide into 2 groups"),
        ([(2, 3, 8, 9), (4, 3, 3, 3)], {"kernel_shape": (3, 2)}, "kernel_shape is [3, 2], W has [3, 3]"),
        ([(2, 3, 8, 9), (4, 3, 3, 3), (3,)], {}, "a bias of shape [4]"),
        ([(2, 3, 8, 9), (4, 3, 3, 3), (1, 4)], {}, "a bias of shape [4]"),
        ([(2, 3, 2, 9), (4, 3, 3, 3)], {}, "does not fit 2 positions"),
        ([(2, 3, 8, 9), (4, 3, 3, 3)], {"dilations": (4, 1)}, "does not fit 8 positions"),
        ([(2, 3, 8, 9), TensorType((4, 3, 3, 3), DType.FLOAT64)], {}, "one floating element type"),
        ([TensorType((2, 3, 8, 9), DType.INT32)] * 2, {}, "one floating element type"),
    ],
)
def test_refused_shapes(inputs: list[Input], attributes: dict[str, Any], words: str) -> None:
    with pytest.raises(ShapeMismatchError) as caught:
        node_of("Conv", inputs, **attributes)
    message = str(caught.value)
    assert words in message
    assert "'dense1'" in message
    for name, given in zip(("x0", "x1", "x2"), inputs, strict=False):
        shape = given.shape if isinstance(given, TensorType) else given
        assert f"{name} is " in message
        assert str(list(shape or ())) in message


@grid(
    ("attributes", "key"),
    [
        ({"strides": (1,)}, "strides"),
        ({"strides": (0, 1)}, "strides"),
        ({"dilations": (1, 1, 1)}, "dilations"),
        ({"pads": (1, 1)}, "pads"),
        ({"pads": (1, 1, -1, 1)}, "pads"),
        ({"pads": (1, 1, 1, 1), "auto_pad": "SAME_UPPER"}, "pads"),
        ({"auto_pad": "SAME"}, "auto_pad"),
        ({"data_layout": "CHWN"}, "data_layout"),
        ({"group": 0}, "group"),
        ({"activation": "Gelu"}, "activation"),
        ({"ceil_mode": 1}, "ceil_mode"),
    ],
)
def test_refused_attributes(attributes: dict[str, Any], key: str) -> None:
    with pytest.raises(AttributeRuleError, match=key) as caught:
        node_of("Conv", [(2, 3, 8, 9), (4, 3, 3, 3)], **attributes)
    assert caught.value.path == ("attributes", key)


@grid("activation", ["None", "Relu"])
@grid(
    ("wanted", "reads"),
    [
        ({X}, {W}),
        ({W}, {X}),
        ({B}, set()),
        ({W, B}, {X}),
        ({X, B}, {W}),
        ({X, W, B}, {X, W}),
    ],
)
def test_the_backward_step_reads_no_more_than_it_must(
    wanted: set[int], reads: set[int], activation: str
) -> None:
    inputs, outputs, needs = needs_of(
        "Conv", [(2, 3, 8, 9), (4, 3, 3, 3), (4,)], wanted, activation=activation
    )
    assert inputs == reads
    assert outputs == (set() if activation == "None" else {0})
    assert needs.saved == frozenset()
    assert needs.reads_output_derivatives


def scratch_of(x: tuple[int, ...], w: tuple[int, ...], wanted: set[int], **attributes: Any) -> dict[str, int]:
    _, _, needs = needs_of("Conv", [x, w, (w[0],)], wanted, **attributes)
    return {request.name: request.type.nbytes for request in needs.scratch}


def test_a_pointwise_convolution_stages_nothing() -> None:
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((8, 16, 16, 32), (16, 1, 1, 32))
    node = node_of("Conv", list(shapes), data_layout="NHWC")
    assert lookup("Conv").forward_scratch(node) == ()
    assert scratch_of(*shapes, {X}, data_layout="NHWC") == {}
    assert set(scratch_of(*shapes, {W}, data_layout="NHWC")) == set()


def test_derivative_before_the_activation_is_staged_by_chunk() -> None:
    shapes: tuple[tuple[int, ...], tuple[int, ...]] = ((32, 56, 56, 32), (64, 1, 1, 32))
    found = scratch_of(*shapes, {W}, data_layout="NHWC", activation="Relu")
    whole = 32 * 56 * 56 * 64 * 4
    assert 0 < found["inner"] < whole // 32
    assert found["partial"] == 64 * 32 * 4


def test_a_sum_of_one_product_needs_no_partial_sums() -> None:
    assert "partial" not in scratch_of((4, 8, 8, 3), (5, 3, 3, 3), {W, B}, data_layout="NHWC")
    assert "partial" in scratch_of((4, 3, 8, 8), (5, 3, 3, 3), {W, B})


def test_one_example_beyond_the_budget_is_cut_into_rows() -> None:
    columns = scratch_of((2, 28, 28, 32), (32, 5, 5, 32), {W}, data_layout="NHWC", auto_pad="SAME_UPPER")
    assert sum(columns.values()) < 2 * 1024 * 1024 < 28 * 28 * 25 * 32 * 4


#: 3x3 weights of 9 MiB, over images that are small beside them, as at the end of residual networks.
LARGE_WEIGHTS: dict[str, Any] = {"data_layout": "NHWC", "auto_pad": "SAME_UPPER"}


def test_large_weights_are_not_copied() -> None:
    found = scratch_of((16, 4, 4, 512), (512, 3, 3, 512), {X}, **LARGE_WEIGHTS)
    assert set(found) == {"columns"}
    small = scratch_of((16, 4, 4, 64), (64, 3, 3, 64), {X}, **LARGE_WEIGHTS)
    assert small["weights"] == 64 * 9 * 64 * 4


def test_large_weights_leave_the_budget_to_the_chunks() -> None:
    """Else a product for each row would read and write all of them."""
    found = scratch_of((16, 7, 7, 512), (512, 3, 3, 512), {W}, **LARGE_WEIGHTS)
    assert found["partial"] <= 2 * 1024 * 1024 // 8
    assert found["columns"] >= 7 * 7 * 9 * 512 * 4
    assert sum(found.values()) <= 2 * 1024 * 1024


def test_one_product_takes_no_sum_of_large_weights() -> None:
    found = scratch_of((16, 2, 2, 512), (512, 3, 3, 512), {W}, **LARGE_WEIGHTS)
    assert set(found) == {"source", "columns"}
