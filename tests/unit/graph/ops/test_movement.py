"""Movement of elements: shapes and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from solver.errors import AttributeRuleError, ShapeMismatchError
from solver.graph.ops import lookup
from solver.graph.ops.base import BackwardNeeds
from solver.graph.ops.helpers.shared import BLOCK_ELEMENTS
from solver.graph.types import DType, TensorType
from tests.support.every import grid
from tests.support.one_node import Input, needs_of, node_of, output_of

INTEGERS = TensorType((2, 3), DType.INT32)
DYNAMIC = TensorType((2,), DType.INT64)
SHAPE = (2, 3, 4)


@pytest.mark.parametrize(
    ("asked", "shape"),
    [
        ([24], (24,)),
        ([4, 6], (4, 6)),
        ([-1], (24,)),
        ([2, -1], (2, 12)),
        ([0, 0, -1], (2, 3, 4)),
        ([0, -1], (2, 12)),
        ([1, 24, -1], (1, 24, 1)),
    ],
)
def test_reshape(asked: list[int], shape: tuple[int, ...]) -> None:
    assert output_of("Reshape", [SHAPE, asked]) == shape


@grid(
    ("asked", "attributes", "reason"),
    [
        ([5, 5], {}, r"shape \[5, 5\] does not hold 24 elements"),
        ([5, -1], {}, "does not hold 24 elements"),
        ([-1, -1], {}, "more than one dimension open"),
        ([-2, 12], {}, "dimension 0 of the shape must be -1 or more, not -2"),
        ([1, 1, 1, 0], {}, "dimension 3 of the shape is 0, but the input has no such axis"),
        ([0, 12], {"allowzero": 1}, "does not hold 24 elements"),
        ([0, -1], {"allowzero": 1}, "leaves a dimension open beside one of 0"),
        ([24, 0, -1], {}, "does not hold"),
    ],
)
def test_reshape_refuses(asked: list[int], attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ShapeMismatchError, match=rf"'dense1' \(Reshape\): .*{reason}"):
        node_of("Reshape", [SHAPE, asked], **attributes)


@pytest.mark.parametrize(
    ("axis", "shape"), [(0, (1, 24)), (1, (2, 12)), (2, (6, 4)), (3, (24, 1)), (-1, (6, 4)), (-3, (1, 24))]
)
def test_flatten(axis: int, shape: tuple[int, ...]) -> None:
    assert output_of("Flatten", [SHAPE], axis=axis) == shape


@pytest.mark.parametrize("axis", [4, -4])
def test_flatten_refuses_an_axis_it_lacks(axis: int) -> None:
    with pytest.raises(AttributeRuleError, match=r"\[-3, 3\] for an input of rank 3"):
        node_of("Flatten", [SHAPE], axis=axis)


def test_transpose() -> None:
    assert output_of("Transpose", [SHAPE]) == (4, 3, 2)
    assert output_of("Transpose", [SHAPE], perm=(1, 2, 0)) == (3, 4, 2)
    assert output_of("Transpose", [()]) == ()


@pytest.mark.parametrize("perm", [(0, 1), (0, 0, 1), (0, 1, 3), (0, 1, -1)])
def test_transpose_refuses_what_is_no_permutation(perm: tuple[int, ...]) -> None:
    with pytest.raises(AttributeRuleError, match="permutation of the 3 axes"):
        node_of("Transpose", [SHAPE], perm=perm)


@pytest.mark.parametrize(
    ("inputs", "shape"),
    [
        ([[1, 0, 2, 0, 3, 0]], (3, 6, 6)),
        ([[1, 2], None, [1]], (2, 6, 4)),
        ([[1, 2, 3, 4], (), [-1, 0]], (8, 3, 8)),
        ([[0] * 6, (1,)], SHAPE),
        ([[], None, []], SHAPE),
    ],
)
def test_pad(inputs: list[Input], shape: tuple[int, ...]) -> None:
    assert output_of("Pad", [SHAPE, *inputs]) == shape


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ([[1, 1]], "expected 6 pads, two for each padded axis, not 2"),
        ([[0, 0, -1, 0, 0, 0]], "must not be negative"),
        ([[1, 2], None, [3]], r"axes \[3\] must lie in \[-3, 2\]"),
        ([[1, 2, 3, 4], None, [0, -3]], "name an axis twice"),
        ([[0] * 6, (2,)], "scalar of the input's element type"),
        ([[0] * 6, TensorType((), DType.FLOAT64)], "scalar of the input's element type"),
    ],
)
def test_pad_refuses(inputs: list[Input], reason: str) -> None:
    with pytest.raises(ShapeMismatchError, match=rf"'dense1' \(Pad\).*{reason}"):
        node_of("Pad", [SHAPE, *inputs])


@pytest.mark.parametrize(("mode", "longest"), [("reflect", 2), ("wrap", 3)])
def test_pad_refuses_borders_that_are_longer_than_what_they_repeat(mode: str, longest: int) -> None:
    for pads in ([longest + 1, 0], [0, longest + 1]):
        reason = rf"'dense1' \(Pad\).*mode '{mode}' the pads of axis 1 .* {longest}, not {longest + 1}"
        with pytest.raises(ShapeMismatchError, match=reason):
            node_of("Pad", [(2, 3, 4), pads, None, [1]], mode=mode)
    assert output_of("Pad", [(2, 3, 4), [longest, longest], None, [1]], mode=mode) == (2, 3 + 2 * longest, 4)
    assert output_of("Pad", [(2, 3, 4), [30, 1], None, [1]], mode="edge") == (2, 34, 4)


def test_pad_reads_its_value_in_one_mode_alone() -> None:
    for mode in ("reflect", "edge", "wrap"):
        with pytest.raises(AttributeRuleError, match=f"'constant_value'.*no meaning in mode '{mode}'"):
            node_of("Pad", [SHAPE, [0] * 6], mode=mode, constant_value=1.0)
        node = node_of("Pad", [SHAPE, [0] * 6, ()], mode=mode)
        assert lookup("Pad").ignores(node, True, "y0") == {"x2"}
    assert lookup("Pad").ignores(node_of("Pad", [SHAPE, [0] * 6, ()]), True, "y0") == set()


def test_pad_sums_along_edges_by_blocks() -> None:
    large = (50, 60, 70)
    scratch = needs_of("Pad", [large, [1, 2, 3] * 2], (0,), mode="edge")[2].scratch
    assert [(request.name, request.type.shape) for request in scratch] == [("partial", (BLOCK_ELEMENTS,))]
    assert needs_of("Pad", [large, [0] * 6], (0,), mode="edge")[2] == BackwardNeeds()
    assert needs_of("Pad", [large, [1, 2, 3] * 2], (0,), mode="reflect")[2] == BackwardNeeds()


def test_pad_refuses_modes_and_a_value_given_twice() -> None:
    with pytest.raises(AttributeRuleError, match=r"'mode'.*'symmetric'"):
        node_of("Pad", [SHAPE, [0] * 6], mode="symmetric")
    with pytest.raises(AttributeRuleError, match="also given as input 2"):
        node_of("Pad", [SHAPE, [0] * 6, ()], constant_value=1.0)


@pytest.mark.parametrize(
    ("type_", "inputs"),
    [("Reshape", [SHAPE, [-1]]), ("Flatten", [SHAPE]), ("Transpose", [SHAPE]), ("Pad", [SHAPE, [0] * 6, ()])],
)
def test_movement_has_one_derivative_and_reads_nothing(type_: str, inputs: list[Input]) -> None:
    assert lookup(type_).differentiable(node_of(type_, inputs)) == {0}
    assert needs_of(type_, inputs, (0,))[2] == BackwardNeeds()


@pytest.mark.parametrize(
    ("type_", "more"), [("Reshape", [[-1]]), ("Flatten", []), ("Transpose", []), ("Pad", [[0] * 4])]
)
def test_integers_move_without_derivative(type_: str, more: list[Input]) -> None:
    node = node_of(type_, [INTEGERS, *more])
    assert node.outputs[0].dtype is DType.INT32
    assert lookup(type_).differentiable(node) == set()


@pytest.mark.parametrize(("type_", "position"), [("Reshape", 1), ("Pad", 1), ("Pad", 3)])
def test_what_decides_a_shape_must_be_constant(type_: str, position: int) -> None:
    inputs: list[Input] = [SHAPE, [1, 1], None, None]
    inputs[position] = DYNAMIC
    with pytest.raises(
        ShapeMismatchError, match=f"Input {position} of operation 'dense1' .*must be a constant"
    ):
        node_of(type_, inputs[: position + 1])


@grid(
    ("type_", "inputs", "attributes", "shape"),
    [
        ("Squeeze", [(1, 3, 1)], {}, (3,)),
        ("Squeeze", [(1, 3, 1), [-1]], {}, (1, 3)),
        ("Squeeze", [(1, 3, 1), []], {}, (1, 3, 1)),
        ("Squeeze", [(1, 3, 1)], {"axes": (0,)}, (3, 1)),
        ("Squeeze", [(1,)], {}, ()),
        ("Unsqueeze", [(2, 3), [0]], {}, (1, 2, 3)),
        ("Unsqueeze", [(2, 3), [3, 0]], {}, (1, 2, 3, 1)),
        ("Unsqueeze", [(2, 3), [-1]], {}, (2, 3, 1)),
        ("Unsqueeze", [()], {"axes": (0, 1)}, (1, 1)),
        ("Expand", [(3, 1), [3, 4]], {}, (3, 4)),
        ("Expand", [(3, 4), [2, 1, 1]], {}, (2, 3, 4)),
        ("Expand", [(3, 4), []], {}, (3, 4)),
        ("Cast", [(3, 4)], {"to": 7}, (3, 4)),
    ],
)
def test_other_shapes(
    type_: str, inputs: list[Input], attributes: dict[str, Any], shape: tuple[int, ...]
) -> None:
    assert output_of(type_, inputs, **attributes) == shape


@grid(
    ("type_", "inputs", "attributes", "reason"),
    [
        ("Squeeze", [(1, 3), [1]], {}, r"axes of size 1, which of \[1\] not all are"),
        ("Squeeze", [(1, 3), [2]], {}, r"axes \[2\] must lie in \[-2, 1\]"),
        ("Squeeze", [(1, 3), [0, -2]], {}, "name an axis twice"),
        ("Unsqueeze", [(1, 3), [3]], {}, r"axes \[3\] must lie in \[-3, 2\]"),
        ("Unsqueeze", [(1, 3), [1, 1]], {}, "name an axis twice"),
        ("Unsqueeze", [(1, 3)], {}, "expected the axes as input 1"),
        ("Expand", [(2, 3), [2, 4]], {}, "shapes that broadcast"),
        ("Expand", [(2, 3), [0, 3]], {}, "shapes that broadcast"),
        ("Expand", [(2, 3), [-1, 3]], {}, "dimensions from 0"),
    ],
)
def test_other_refusals(type_: str, inputs: list[Input], attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ShapeMismatchError, match=rf"'dense1' \({type_}\).*{reason}"):
        node_of(type_, inputs, **attributes)


def test_axes_are_given_once() -> None:
    for type_ in ("Squeeze", "Unsqueeze"):
        with pytest.raises(AttributeRuleError, match="also given as input 1"):
            node_of(type_, [(1, 3), [0]], axes=(0,))


@pytest.mark.parametrize("to", [0, 4, 10, 16])
def test_cast_refuses_types_that_operands_do_not_have(to: int) -> None:
    with pytest.raises(AttributeRuleError, match="Attribute 'to' of operation 'dense1'"):
        node_of("Cast", [(2, 3)], to=to)


def test_expand_needs_scratch_only_where_it_grows() -> None:
    assert needs_of("Expand", [(2, 3), [1, 1]], (0,))[2] == BackwardNeeds()
    (request,) = needs_of("Expand", [(2, 1), [2, 3]], (0,))[2].scratch
    assert request.type.shape == (2,)
