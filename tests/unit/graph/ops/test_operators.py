"""What single operators say beyond the tables: geometry, budgets, updates, constants that lie outside."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solver.errors import GraphError, ShapeMismatchError
from solver.graph import Initializer, Operand, Operation, Role
from solver.graph.nodes import resolve
from solver.graph.ops import lookup
from solver.graph.ops.activation import softmax_block
from solver.graph.ops.base import DEFAULT_SCRATCH_BUDGET, Node
from solver.graph.ops.batch_normalization import Channels, channels_of
from solver.graph.ops.dropout import BLOCK
from solver.graph.ops.head import head
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.ops.normalization import INVERSE_DEVIATION, MEAN, Normalisation, Rows
from solver.graph.ops.resizing import passes, resized_axes
from solver.graph.ops.selection import Rows as GatheredRows
from solver.graph.ops.selection import gathered_rows
from solver.graph.ops.upsampling import transposed
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.graphs import Sketch
from tests.support.one_node import Input, needs_of, node_of, output_of

# ------------------------------------------------------------------------------------------------- arithmetic


ARITHMETIC = ["Add", "Sub", "Mul", "Div"]


@grid("type_", ARITHMETIC)
@grid("activation", ["None", "Sigmoid"])
def test_scratch_of_arithmetic_is_blocks(type_: str, activation: str) -> None:
    _, _, needs = needs_of(type_, [(1000, 1000), (1000, 1)], (0, 1), activation=activation)
    assert all(request.type.elements <= BLOCK_ELEMENTS for request in needs.scratch)
    assert ("inner" in {r.name for r in needs.scratch}) == (activation != "None")


# ------------------------------------------------------------------------------------------------- activation


@pytest.mark.parametrize(
    ("shape", "axis", "expected"),
    [
        ((4, 10), 1, (4, 10, 1)),
        ((100_000, 10), 1, (3276, 10, 1)),
        ((10, 100_000), 1, (1, 100_000, 1)),
        ((10, 100_000), 0, (1, 10, 3276)),
        ((2, 10, 8, 8), 1, (2, 10, 64)),
        ((2, 20, 512, 512), 1, (1, 20, 1638)),
    ],
)
def test_a_block_of_softmax_spans_all_classes(
    shape: tuple[int, ...], axis: int, expected: tuple[int, int, int]
) -> None:
    assert softmax_block(shape, axis) == expected


@pytest.mark.parametrize(
    ("type_", "name", "default", "other"),
    [("Clip", "inclusive", 0, 1), ("BinaryCrossEntropy", "clamp", "probability", "logarithm")],
)
def test_attributes_that_were_added_later_stand_only_where_they_differ(
    type_: str, name: str, default: Any, other: Any
) -> None:
    """A plan holds the attributes of its steps, and plans that were made before must stay as they are."""
    shapes = [(2, 3)] * (1 if type_ == "Clip" else 2)
    assert name not in node_of(type_, shapes).attributes
    as_before: dict[str, Any] = {name: default}
    differing: dict[str, Any] = {name: other}
    assert name not in node_of(type_, shapes, **as_before).attributes
    assert node_of(type_, shapes, **differing).attributes[name] == other


# ---------------------------------------------------------------------------------------------------- dropout


DROPOUT = lookup("Dropout")


@grid("dtype", [DType.FLOAT32, DType.FLOAT64])
@grid("elements", [1, 2, 7, BLOCK, 10 * BLOCK])
def test_scratch_is_a_block(elements: int, dtype: DType) -> None:
    requests = DROPOUT.forward_scratch(node_of("Dropout", [TensorType((elements,), dtype)]))
    sizes = {request.name: request.type for request in requests}
    assert sizes["bits"].elements * 2 >= min(elements, BLOCK)
    assert sizes["words"].dtype.itemsize == dtype.itemsize
    assert sum(type_.nbytes for type_ in sizes.values()) <= 24 * BLOCK


# --------------------------------------------------------------------------------------------------- movement


SHAPE = (2, 3, 4)


def test_pad_reads_its_value_in_one_mode_alone() -> None:
    for mode in ("reflect", "edge", "wrap"):
        node = node_of("Pad", [SHAPE, [0] * 6, ()], mode=mode)
        assert lookup("Pad").ignores(node, True, "y0") == {"x2"}
    assert lookup("Pad").ignores(node_of("Pad", [SHAPE, [0] * 6, ()]), True, "y0") == set()


# ------------------------------------------------------------------------------------------------ convolution


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


# ------------------------------------------------------------------------------------------------- upsampling


UP = "ConvTranspose"
IMAGE, FILTERS = (2, 4, 5, 6), (4, 3, 3, 3)


def test_it_is_a_convolution_from_its_output_to_its_input() -> None:
    conv = transposed(node_of(UP, [IMAGE, FILTERS], group=2, strides=(2, 2)))
    assert (conv.filters, conv.window.channels, conv.groups) == (4, 6, 2)
    assert (conv.group_filters, conv.group_channels, conv.weights) == (2, 3, 4 * 3 * 9)
    assert [(axis.size, axis.out) for axis in conv.window.axes] == [(11, 5), (13, 6)]


@pytest.mark.parametrize("strides", [(1, 1), (2, 2)])
def test_scratch_stays_within_the_budget(strides: tuple[int, int]) -> None:
    node = node_of(UP, [(8, 64, 28, 28), (64, 32, 3, 3)], strides=strides)
    kind = lookup(UP)
    for requests in (
        kind.forward_scratch(node),
        *(kind.backward(node, frozenset({i})).scratch for i in (0, 1)),
    ):
        assert sum(request.type.nbytes for request in requests) <= DEFAULT_SCRATCH_BUDGET


@pytest.mark.parametrize(("how", "before", "after"), [("SAME_UPPER", 0, 1), ("SAME_LOWER", 1, 0)])
def test_an_odd_pad_goes_where_it_should(how: str, before: int, after: int) -> None:
    (axis,) = transposed(node_of(UP, [(1, 1, 4), (1, 1, 3)], strides=(2,), auto_pad=how)).window.axes
    assert (axis.size, axis.before, axis.after, axis.out) == (8, before, after, 4)


# ---------------------------------------------------------------------------------------------------- pooling


TWO = {"kernel_shape": (2, 2), "strides": (2, 2)}


def test_products_are_staged_only_where_windows_overlap() -> None:
    _, _, apart = needs_of("MaxPool", [(2, 3, 8, 8)], {0}, **TWO)
    _, _, overlapping = needs_of("MaxPool", [(2, 3, 8, 8)], {0}, kernel_shape=(2, 2))
    assert [request.name for request in apart.scratch] == ["mask"]
    assert [request.name for request in overlapping.scratch] == ["mask", "product"]


# ---------------------------------------------------------------------------------------------- normalization


LAYER, INSTANCE, GROUP = "LayerNormalization", "InstanceNormalization", "GroupNormalization"


def rows_of(type_: str, inputs: list[Input], **attributes: Any) -> Rows:
    operator = lookup(type_)
    assert isinstance(operator, Normalisation)
    return operator.rows(node_of(type_, inputs, **attributes))


@pytest.mark.parametrize(
    ("type_", "inputs", "attributes", "rows", "statistics"),
    [
        (LAYER, [(2, 3, 4), (4,), (4,)], {}, Rows(6, 1, 4, 1), (2, 3, 1)),
        (LAYER, [(2, 3, 4), (3, 4)], {"axis": 1}, Rows(2, 1, 12, 1), (2, 1, 1)),
        (LAYER, [(2, 3, 4), (2, 3, 4)], {"axis": -3}, Rows(1, 1, 24, 1), (1, 1, 1)),
        (INSTANCE, [(2, 6, 4, 5), (6,), (6,)], {}, Rows(2, 6, 1, 20), (2, 6)),
        (INSTANCE, [(2, 4, 5, 6), (6,), (6,)], {"data_layout": "NHWC"}, Rows(2, 6, 1, 20, True), (2, 6)),
        (GROUP, [(2, 6, 4, 5), (6,), (6,)], {"num_groups": 2}, Rows(2, 2, 3, 20), (2, 2)),
        (GROUP, [(2, 6), (6,), (6,)], {"num_groups": 3}, Rows(2, 3, 2, 1), (2, 3)),
    ],
)
def test_rows(
    type_: str, inputs: list[Input], attributes: dict[str, Any], rows: Rows, statistics: tuple[int, ...]
) -> None:
    assert output_of(type_, inputs, **attributes) == inputs[0]
    assert rows_of(type_, inputs, **attributes) == rows
    saved = lookup(type_).saved(node_of(type_, inputs, **attributes))
    assert [(r.name, r.type.shape) for r in saved] == [(MEAN, statistics), (INVERSE_DEVIATION, statistics)]


@pytest.mark.parametrize(
    ("rows", "step"),
    [
        (Rows(1000, 1, 768, 1), (42, 1)),
        (Rows(4, 1, 768, 1), (4, 1)),
        (Rows(8, 64, 1, 56 * 56), (1, 10)),
        (Rows(8, 8, 4, 16), (8, 8)),
        (Rows(64, 8, 4, 256), (4, 8)),
        (Rows(8, 4, 16, 224 * 224), (1, 1)),
    ],
)
def test_blocks_are_whole_rows(rows: Rows, step: tuple[int, int]) -> None:
    assert rows.step == step
    assert step[0] * step[1] * rows.size <= max(BLOCK_ELEMENTS, rows.size)


# ---------------------------------------------------------------------------------------- batch normalization


BATCH = "BatchNormalization"
BATCHES = lookup(BATCH)


def inputs(*shape: int, channels: int = 3) -> list[Input]:
    return [shape, *[(channels,)] * 4]


@grid(
    ("shape", "attributes", "channels"),
    [
        ((2, 3), {}, Channels(1, 3, 1, 2)),
        ((7, 3), {}, Channels(7, 3, 1)),
        ((12, 3, 1, 1), {}, Channels(3, 3, 1, 4)),
        ((2**20, 3), {}, Channels(2**12, 3, 1, 256)),
        ((8, 1024), {}, Channels(8, 1024, 1)),
        ((8, 512), {}, Channels(4, 512, 1, 2)),
        ((2, 3, 4), {}, Channels(2, 3, 4)),
        ((2, 3, 4, 5), {}, Channels(2, 3, 20)),
        ((2, 3, 4, 5, 6), {}, Channels(2, 3, 120)),
        ((2, 4, 5, 3), {"data_layout": "NHWC"}, Channels(5, 3, 1, 8)),
        ((2, 3), {"data_layout": "NHWC"}, Channels(1, 3, 1, 2)),
    ],
)
def test_channels(shape: tuple[int, ...], attributes: dict[str, Any], channels: Channels) -> None:
    given = inputs(*shape, channels=channels.channels)
    assert output_of(BATCH, given, **attributes) == shape
    found = channels_of(node_of(BATCH, given, **attributes))
    assert found == channels
    assert found.count * found.channels == math.prod(shape) == math.prod(found.shape)


def test_running_statistics_are_updated_in_training_alone() -> None:
    assert BATCHES.updates(node_of(BATCH, inputs(2, 3), training_mode=1)) == {3, 4}
    assert BATCHES.updates(node_of(BATCH, inputs(2, 3), training_mode=0)) == set()
    assert BATCHES.updates(node_of(BATCH, inputs(2, 3))) == set(), "ONNX's default is the frozen mode"


@pytest.mark.parametrize("mode", [0, 1])
def test_backward_never_reads_what_forward_updates(mode: int) -> None:
    updated = BATCHES.updates(node_of(BATCH, inputs(2, 3), training_mode=mode))
    for wanted in [(0,), (1,), (2,), (0, 1, 2)]:
        assert not updated & needs_of(BATCH, inputs(2, 3), wanted, training_mode=mode)[0]


# --------------------------------------------------------------------------------------------------- resizing


RESIZED = (2, 3, 4, 6)


def scaled(shape: tuple[int, ...], scales: list[float], **attributes: Any) -> Node:
    """The node of a Resize by constant scales, without its output."""
    values = np.array(scales, np.float32)
    data = Initializer("values", values.tobytes())
    operands = {
        "x": Operand("x", TensorType(shape, DType.FLOAT32), Role.INPUT),
        "s": Operand("s", TensorType(values.shape, DType.FLOAT32), Role.CONSTANT, data),
    }
    return resolve(Operation("dense1", "Resize", ("x", "", "s"), ("y",), attributes), operands)


def shape_of(node: Node) -> tuple[int, ...]:
    return lookup("Resize").infer(node)[0].shape


def test_scales() -> None:
    assert shape_of(scaled(RESIZED, [1, 1, 2, 0.5])) == (2, 3, 8, 3)
    assert shape_of(scaled(RESIZED, [0.6, 1.9], axes=(2, 3))) == (2, 3, 2, 11)
    axes = resized_axes(scaled(RESIZED, [1, 1, 0.6, 1.1]))
    assert [(a.axis, a.size, a.out, round(a.scale, 6)) for a in axes] == [(2, 4, 2, 0.6), (3, 6, 6, 1.1)]


def test_axes_that_stay_are_not_interpolated() -> None:
    assert resized_axes(node_of("Resize", [RESIZED, None, None, [*RESIZED[:3], 7]]))[0].axis == 3
    node = node_of("Resize", [RESIZED, None, None, list(RESIZED)])
    assert resized_axes(node) == ()
    assert lookup("Resize").forward_scratch(node) == ()


@pytest.mark.parametrize(
    "scales", [[2, 2], [1, 1, 0, 2], [1, 1, -1, 2], [1, 1, np.inf, 2], [1, 1, np.nan, 2]]
)
def test_scales_that_make_no_sense(scales: list[float]) -> None:
    with pytest.raises(ShapeMismatchError, match="expected 4 positive scales"):
        shape_of(scaled(RESIZED, scales))


def test_scales_that_leave_nothing() -> None:
    with pytest.raises(ShapeMismatchError, match="leave an axis empty"):
        shape_of(scaled(RESIZED, [1, 1, 0.2, 1]))


def test_axes_that_shrink_come_first() -> None:
    node = node_of("Resize", [RESIZED, None, None, [2, 3, 8, 3]])
    forward, backward = passes(node, backward=False), passes(node, backward=True)
    assert forward.shapes == ((4, 6), (4, 3), (8, 3))
    assert backward.shapes == ((8, 3), (4, 3), (4, 6))
    assert (forward.examples, forward.step, forward.between) == (6, 6, 6 * 12)


def test_large_examples_are_cut_into_rows() -> None:
    """The rows between two passes stay within the budget; there is at least one."""
    node = node_of("Resize", [(2, 256, 256, 64), None, None, [2, 512, 512, 64]])
    for backward in (False, True):
        plan = passes(node, backward=backward)
        assert plan.axes[0].axis == 0
        assert (plan.step, plan.rows) == (1, 32 if not backward else 16)
        assert 4 * plan.between <= DEFAULT_SCRATCH_BUDGET
    wide = node_of("Resize", [(1, 2, 4, 200_000), None, None, [1, 4, 8, 200_000]])
    assert passes(wide, backward=False).rows == 1


# ------------------------------------------------------------------------------------------------------- head


HEAD = "ProductLogSumExp"


def classes(rows: int, dtype: DType = DType.INT64) -> TensorType:
    return TensorType((rows,), dtype)


@pytest.mark.parametrize("wanted", [(0,), (1,), (3,), (0, 1, 3)])
def test_backward_reads_all_inputs_and_the_log_sum_exp(wanted: tuple[int, ...]) -> None:
    """Nothing but L is kept for it; what is added up has scratch where there are several chunks."""
    inputs: list[Input] = [(200, 30), (30, 900), classes(200), (900,)]
    read, outputs, needs = needs_of(HEAD, inputs, wanted, outputs=2, chunk_rows=100, chunk_columns=300)
    assert (read, outputs, needs.saved) == ({0, 1, 2, 3}, {0}, frozenset())
    parts = {0: "part_of_dx", 1: "part_of_dw", 3: "part_of_dbias"}
    assert {request.name for request in needs.scratch} & {*parts.values()} == {parts[i] for i in wanted}
    _, _, whole = needs_of(HEAD, inputs, wanted, outputs=2, chunk_rows=200, chunk_columns=900)
    assert not {request.name for request in whole.scratch} & {*parts.values()}


@grid("sizes", [(256, 896, 151_936), (256, 64, 100), (4, 896, 151_936), (8192, 4096, 32_000), (16, 8, 16)])
@grid("budget", [1, 1 << 18, 1 << 21, 1 << 25])
def test_the_scratch_budget_bounds_a_chunk(sizes: tuple[int, int, int], budget: int) -> None:
    """Down to 64 x 64; and no chunk has rows or columns that are not there."""
    rows, inner, columns = sizes
    node = node_of(HEAD, [(rows, inner), (inner, columns), classes(rows)], outputs=2)
    chunk = head(replace(node, scratch_budget=budget))
    assert 1 <= chunk.chunk_rows <= rows
    assert 1 <= chunk.chunk_columns <= columns
    taken = chunk.chunk_rows * chunk.chunk_columns + (chunk.chunk_rows + chunk.chunk_columns) * inner
    least = min(rows, 64), min(columns, 64)
    assert 4 * taken <= budget or min(chunk.chunk_rows - least[0], chunk.chunk_columns - least[1]) == 0


def test_one_chunk_where_the_logits_are_within_the_budget() -> None:
    chunk = head(node_of(HEAD, [(64, 8), (8, 700), classes(64)], outputs=2))
    assert (chunk.chunk_rows, chunk.chunk_columns) == (64, 700)
    assert not chunk.splits_rows
    assert not chunk.splits_columns


def test_scratch_is_chunks_and_vectors_of_rows() -> None:
    node = node_of(HEAD, [(256, 896), (896, 151_936), classes(256)], outputs=2, ignore_index=-100)
    kind = lookup(HEAD)
    for requests in (kind.forward_scratch(node), kind.backward(node, frozenset({0})).scratch):
        assert sum(request.type.nbytes for request in requests) <= 1 << 21
        assert ("ignored", (256,)) in [(request.name, request.type.shape) for request in requests]


# -------------------------------------------------------------------------------------------------- selection


def integers(*shape: int, dtype: DType = DType.INT64) -> TensorType:
    return TensorType(shape, dtype)


def test_gather_as_rows() -> None:
    node = node_of("Gather", [(5, 10, 4), integers(2, 3, dtype=DType.INT32)], axis=1)
    assert gathered_rows(node) == GatheredRows(outer=5, size=10, inner=4, picked=6)


@pytest.mark.parametrize(("index", "place"), [([0, 4], 1), ([-5, 0], 0), ([3, -4, 2**62], 2)])
def test_gather_refuses_constant_indices_that_lie_outside(index: list[int], place: int) -> None:
    """ONNX lets the n positions of an axis be counted from either end: from -n to n - 1."""
    with pytest.raises(
        GraphError, match=rf"^Index {index[place]} .*'dense1'.*place {place} of 'x1'"
    ) as caught:
        node_of("Gather", [(10, 4), index], axis=1)
    assert "[-4, 3]" in caught.value.remedy
    assert caught.value.path == ("inputs", 1)
    assert output_of("Gather", [(10, 4), [-4, 3, 0]], axis=1) == (10, 3)


@pytest.mark.parametrize(
    ("scheme", "index"),
    [
        (Initializer("constant", value=99.0), 99),
        (Initializer("constant", value=-3.0), -3),
        (Initializer("ones"), 1),
        (Initializer("zeros"), None),
        (Initializer("constant", value=-1.9), None),
        (Initializer("normal", scale=99.0), None),
    ],
)
def test_gather_refuses_constants_filled_with_an_index_that_lies_outside(
    scheme: Initializer, index: int | None
) -> None:
    """As the graph is built. Fractions are cut off; what is drawn is for the step to look at."""
    s = Sketch()
    table = s.parameter("table", 2 if index != 1 else 1, 4)
    indices = s.add("indices", Role.CONSTANT, (3,), dtype=DType.INT32, initializer=scheme)
    s.op("MeanSquaredError", [s.op("Gather", [table, indices], "rows"), s.label("t", 3, 4)], "loss")
    if index is None:
        assert s.graph().operands["rows"].shape == (3, 4)
        return
    with pytest.raises(
        GraphError, match=f"^Index {index} .*'indices', lies outside axis 0 of 'table'"
    ) as caught:
        s.graph()
    assert caught.value.path[-2:] == ("inputs", 1)


@pytest.mark.parametrize(
    ("data", "picked", "axis", "group"),
    [
        *(((9, 256), 50_000, 0, 128), ((9, 2), 50_000, 0, 1024), ((9,), 40, 0, 40)),
        *(((9, 257), 50_000, 0, 0), ((9, 4), 31, 0, 0), ((2, 9, 4), 50_000, 1, 0), ((1, 9, 4), 100, 1, 100)),
    ],
)
def test_narrow_rows_are_added_in_groups(data: tuple[int, ...], picked: int, axis: int, group: int) -> None:
    node = node_of("Gather", [data, integers(picked)], axis=axis)
    assert gathered_rows(node).group == group
    names = [request.name for request in lookup("Gather").backward(node, frozenset({0})).scratch]
    assert names == (["index", "order", "rows", "sums"] if group else ["index"])
