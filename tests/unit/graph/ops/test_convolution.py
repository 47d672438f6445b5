"""Conv from shapes alone: inference, refusals, what the backward step reads, scratch."""

from __future__ import annotations

from typing import Any

from solver.graph.ops import lookup
from tests.support.one_node import needs_of, node_of

X, W, B = 0, 1, 2


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
