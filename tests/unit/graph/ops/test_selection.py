"""Where and Gather: shapes, refusals, what backward reads, scratch."""

from __future__ import annotations

import pytest

from solver.errors import GraphError
from solver.graph.ops import lookup
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.ops.selection import Rows, gathered_rows
from solver.graph.types import DType, Initializer, Role, TensorType
from tests.support.graphs import Sketch
from tests.support.one_node import needs_of, node_of, output_of


def bools(*shape: int) -> TensorType:
    return TensorType(shape, DType.BOOL)


def integers(*shape: int, dtype: DType = DType.INT64) -> TensorType:
    return TensorType(shape, dtype)


def test_where_reads_the_condition_alone() -> None:
    node = node_of("Where", [bools(2, 3), (2, 3), (3,)])
    assert lookup("Where").differentiable(node) == {1, 2}
    inputs, outputs, needs = needs_of("Where", [bools(2, 3), (2, 3), (2, 3)], (1, 2))
    assert (inputs, outputs, needs.scratch) == ({0}, set(), ())
    scratch = needs_of("Where", [bools(900, 900), (900, 900), (900,)], (1, 2))[2].scratch
    assert {request.name for request in scratch} == {"term", "partial"}
    assert all(request.type.elements <= BLOCK_ELEMENTS for request in scratch)


def test_gather_as_rows() -> None:
    node = node_of("Gather", [(5, 10, 4), integers(2, 3, dtype=DType.INT32)], axis=1)
    assert gathered_rows(node) == Rows(outer=5, size=10, inner=4, picked=6)


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


def test_gather_reads_the_indices_alone() -> None:
    node = node_of("Gather", [(10, 4), integers(300, 300)])
    assert lookup("Gather").differentiable(node) == {0}
    inputs, outputs, needs = needs_of("Gather", [(10, 4), integers(300, 300)], (0,))
    assert (inputs, outputs) == ({1}, set())
    whole = TensorType((BLOCK_ELEMENTS,), DType.INT64)
    group = TensorType((1024, 4), DType.FLOAT32)
    assert [request.type for request in needs.scratch] == [whole, whole, group, group]


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
